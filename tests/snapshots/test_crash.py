from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.snapshots import shadow
from holdfast.snapshots import snapshots as snapshot
from holdfast.snapshots.snapshots import reference
from holdfast.storage.files import disk
from holdfast.testing.recorder import Recorder
from kit.disks import cannot_trace, each_fault, require_strace
from kit.git import git, plain, repository, with_files
from kit.snapshots import forget, snapshots_at, store_of, tree_at, tree_of

pytestmark = pytest.mark.repo(make=plain(a="alpha\n", b="beta\n"))

TRACED = """
import subprocess, sys
from pathlib import Path
from holdfast.snapshots.snapshots import WorktreeSnapshots as Snapshots

repo = Path(sys.argv[1])
snapshots = Snapshots(repo, Path(sys.argv[2]), repo.parent / "snapshots.git")
print("first", snapshots.take("t.1", "turn-1").commit)
(repo / "deep").mkdir()
(repo / "deep" / "new").write_text("new")
(repo / "a").write_text("changed")
(repo / "agents").write_text("committed by the agent, and not synced by its git")
subprocess.run(["git", "add", "agents"], cwd=repo, check=True)
(repo / "mark").mkdir()
print("second", snapshots.take("t.1", "turn-2").commit)
(repo / "mark").rmdir()
"""


def traced(repo: Path, private: Path, log: Path) -> tuple[str, list[str]]:
    require_strace()
    calls = "fsync,fdatasync,syncfs,rename,renameat2,link,linkat,mkdir,openat,unlink,rmdir"
    args = ["strace", "-f", "-y", "-s", "4096", "-o", str(log), "-e", f"trace={calls}", sys.executable, "-c", TRACED]
    done = subprocess.run([*args, str(repo), str(private)], capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr:
        cannot_trace(f"strace cannot trace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout, log.read_text(errors="replace").splitlines()


def test_strace_shows_every_object_and_folder_synced_before_the_ref(repo: Path, tmp_path: Path) -> None:
    _, lines = traced(repo, tmp_path / "private", tmp_path / "log")
    renames = [at for at, line in enumerate(lines) if "rename(" in line and "/t.1/turn-" in line]
    marks = [at for at, line in enumerate(lines) if f'mkdir("{repo}/mark"' in line or f'rmdir("{repo}/mark"' in line]
    assert len(renames) == len(marks) == 2
    first_sync = [at for at, line in enumerate(lines[: renames[0]]) if "syncfs(" in line or " fsync(" in line]
    assert first_sync

    synced: dict[str, int] = {}
    synced_last: dict[str, int] = {}
    for at in range(marks[0], marks[1]):
        if " fsync(" in lines[at] and lines[at].endswith("= 0"):
            synced.setdefault(lines[at].split("<", 1)[1].split(">", 1)[0], at)
            if at < renames[1]:
                synced_last[lines[at].split("<", 1)[1].split(">", 1)[0]] = at
    agents = git(store_of(repo), "rev-parse", f"{reference('t.1', 'turn-2')}:agents")
    objects = store_of(repo) / "objects"
    named = {
        line.split('"')[3]: (line.split('"')[1], at)
        for at, line in enumerate(lines[: marks[1]])
        if "rename(" in line and at > marks[0] and line.split('"')[3].startswith(str(objects))
    }
    assert len(named) >= 6, "three blobs, two trees and a commit at the least"
    assert str(objects / agents[:2] / agents[2:]) in named, "what the agent committed is brought into the store"
    for target, (source, at) in named.items():
        assert synced[source] < at, "on disk before it has its name"
        assert at < synced_last[str(Path(target).parent)] < renames[1], "and its folder before the ref"
    folder = store_of(repo) / "refs" / "attempts" / "t.1"
    last = {line.split("<", 1)[1].split(">", 1)[0] for line in lines[renames[1] : marks[1]] if " fsync(" in line}
    assert str(folder) in last


def test_the_worst_disk_of_a_power_cut_still_has_the_acknowledged_snapshot(repo: Path, tmp_path: Path) -> None:
    """Builds the repository out of nothing but what the trace shows to be synced, and reads the snapshot from that."""
    answer, lines = traced(repo, tmp_path / "private", tmp_path / "log")
    first, second = (line.split()[1] for line in answer.splitlines())
    start = next(at for at, line in enumerate(lines) if f'mkdir("{repo}/mark"' in line)
    end = next(at for at, line in enumerate(lines) if f'rmdir("{repo}/mark"' in line)
    synced = {line.split("<", 1)[1].split(">", 1)[0] for line in lines[start:end] if " fsync(" in line}
    named = {
        line.split('"')[1]: line.split('"')[3] for line in lines[start:end] if " rename(" in line or " link(" in line
    }
    synced |= {named[path] for path in synced if path in named}
    git_dir = store_of(repo)
    known = set(git(git_dir, "rev-list", "--objects", "--no-object-names", first).split())
    lost = []
    for path in git_dir.rglob("*"):
        name = path.parent.name + path.name
        ours = path.is_relative_to(git_dir / "objects") or path.name == "turn-2"
        durable = str(path) in synced and str(path.parent) in synced
        if path.is_file() and ours and name not in known and not durable:
            lost.append(path)
    for path in lost:
        path.unlink()
    assert all("/pack/" in str(path) or "/info/" in str(path) for path in lost), lost
    assert git(store_of(repo), "rev-parse", reference("t.1", "turn-2")) == second
    git(git_dir, "fsck", "--strict", "--no-dangling")
    snapshots_at(repo, tmp_path / "other").export(second, tmp_path / "out")
    assert (tmp_path / "out" / "deep" / "new").read_text() == "new"
    assert b"agents" in tree_of(tmp_path / "out")


@pytest.mark.heavy
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.crash)])
def test_nothing_is_acknowledged_after_a_failed_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    # A commit's name depends on its second, and its first two digits may need a folder that is not there yet.
    monkeypatch.setattr(snapshot, "wall", lambda: 2e9)
    template = with_files(repository(tmp_path / "template"), a="1")

    def program(recorder: Recorder) -> None:
        repo = recorder.root / "repo"
        subprocess.run(["cp", "-r", str(template), str(repo)], check=True)
        snapshots = snapshots_at(repo, recorder.root / "private")
        recorder.mark(snapshots.take("t.1", "turn-1"))
        (repo / "a").write_text("2")
        recorder.mark(snapshots.take("t.1", "turn-2"))

    tried = 0
    for recorder, raised in each_fault(program, errno.EIO, every=every):
        tried += 1
        assert isinstance(raised, errors.DiskError), recorder.fired
        assert str(recorder.root) in str(raised)
        again = snapshots_at(recorder.root / "repo", recorder.root / "private")
        for (_, taken), content in zip(recorder.marks, ("1", "2"), strict=False):
            assert git(recorder.root / "snapshots.git", "cat-file", "blob", f"{taken.commit}:a") == content
        assert again.take("t.1", "turn-3").tree
    assert tried > 20 // every


def test_after_a_failed_sync_everything_is_refused(repo: Path, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    snapshots = snapshots_at(repo, tmp_path / "private")
    taken = snapshots.take("t.1", "turn-1")
    (repo / "a").write_text("2")
    with disk.use_kernel(recorder):
        recorder.fail_at(0, errno.EIO)
        with pytest.raises(errors.SyncFailed):
            snapshots.take("t.1", "turn-2")
        assert [call.kind for call in recorder.fired] == ["sync"]
        for act in (lambda: snapshots.take("t.1", "turn-2"), lambda: snapshots.restore(taken.ref)):
            with pytest.raises(errors.Poisoned, match="Input/output error"):
                act()
    assert list(snapshots.names("t.1")) == ["turn-1"]
    assert not list((tmp_path / "private").glob("index-*"))


def test_sync_filesystem_goes_file_by_file_where_the_kernel_hides_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("")
    recorder = Recorder(tmp_path)
    with disk.use_kernel(recorder):
        disk.sync_filesystem(tmp_path, [tmp_path / "a"])
        monkeypatch.setattr("holdfast.storage.files.filesystems._SYNCFS_REPORTS_ERRORS", False)
        disk.sync_filesystem(tmp_path, [tmp_path / "a", tmp_path])
    assert [call.kind for call in recorder.calls] == ["syncfs", "sync", "sync"]


def test_old_locks_and_a_damaged_index_do_not_stop_the_next(repo: Path, tmp_path: Path) -> None:
    private = tmp_path / "private"
    snapshots = snapshots_at(repo, private)
    snapshots.take("t.1", "turn-1")
    index = next(private.glob("index-*"))
    (private / "index-of-another-boot").write_bytes(index.read_bytes())
    folder = store_of(repo) / "refs" / "attempts" / "t.1"
    whole = index.read_bytes()
    damages = [
        b"",
        b"DIRC",
        whole[:-30],
        whole.replace(b"\0a\0", b"\0z\0"),
        bytes(len(whole)),
        whole[:40] + bytes(60) + whole[100:],
    ]
    for number, damage in enumerate(damages, 2):
        index.write_bytes(damage)
        (private / f"{index.name}.lock").write_bytes(b"")
        if number < 4:
            (folder / f"turn-{number}.lock").write_bytes(b"")
        (repo / "a").write_text(str(number))
        again = snapshots if number % 2 else snapshots_at(repo, private)
        taken = again.take("t.1", f"turn-{number}")
        assert tree_at(repo, taken.ref) == {"a": str(number), "b": "beta"}
    assert [path.name for path in private.glob("index-*")] == [index.name]


def test_objects_pruned_under_an_unfinished_snapshot_are_written_again(repo: Path, tmp_path: Path) -> None:
    killed = snapshots_at(repo, tmp_path / "private")
    killed.take("t.1", "turn-1")
    (repo / "a").write_text("staged, then killed, then pruned")
    with killed._shadow.locked():
        killed._shadow.stage(None)
    git(store_of(repo), "prune", "--expire=now")
    taken = snapshots_at(repo, tmp_path / "private").take("t.1", "turn-2")
    assert tree_at(repo, taken.ref)["a"] == "staged, then killed, then pruned"


def test_a_git_that_outlives_its_snapshot_is_waited_for(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = snapshots_at(repo, tmp_path / "private")
    with snapshots._shadow.locked():
        fd = snapshots._shadow._lock_fd
        orphan = subprocess.Popen(["sleep", "0.3"], pass_fds=[fd])
    monkeypatch.setattr(shadow, "LOCK_WAIT_S_MAX", 0.05)
    with pytest.raises(errors.Locked, match="git process"):
        snapshots.take("t.1", "turn-1")
    monkeypatch.undo()
    assert snapshots.take("t.1", "turn-1").changed
    assert orphan.poll() is not None


LOOP = """
import sys
from pathlib import Path
from holdfast.snapshots.snapshots import WorktreeSnapshots as Snapshots

repo, start = Path(sys.argv[1]), int(sys.argv[3])
snapshots = Snapshots(repo, Path(sys.argv[2]), repo.parent / "snapshots.git")
for number in range(start, start + 10_000):
    print("start", number, flush=True)
    for name in range(number % 5 + 1):
        folder = repo / f"folder{name}"
        folder.mkdir(exist_ok=True)
        (folder / str(number % 3)).write_text(f"{number} {name}" * number)
    taken = snapshots.take("t.1", f"turn-{number}")
    print("taken", number, taken.tree, flush=True)
    if number % 7 == 0:
        snapshots.restore(list(snapshots.names("t.1").values())[-3:][0])
"""


def test_kill_minus_nine_at_any_moment_loses_nothing_acknowledged(repo: Path, tmp_path: Path) -> None:
    chance, taken, start = random.Random(7), {}, 1
    for round_ in range(8):
        args = [sys.executable, "-c", LOOP, str(repo), str(tmp_path / "private"), str(start)]
        child = subprocess.Popen(args, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert child.stdout is not None
        output = ""
        while "taken" not in output:
            line = child.stdout.readline()
            assert line, "it must be killed, not end"
            output += line
        time.sleep(chance.random() * 0.3)
        assert child.poll() is None, "it must be killed, not end"
        # The process alone, whose git lives on, or both at once.
        os.kill(child.pid, signal.SIGKILL) if round_ % 2 else os.killpg(child.pid, signal.SIGKILL)
        output += child.communicate()[0]
        for line in output.splitlines():
            _, number, *tree = line.split()
            start = int(number) + 1
            if tree:
                taken[int(number)] = tree[0]
    assert len(taken) >= 8
    snapshots = snapshots_at(repo, tmp_path / "private")
    names = snapshots.names("t.1")
    assert {f"turn-{number}" for number in taken} <= set(names)
    git(store_of(repo), "fsck", "--strict", "--no-dangling")
    for number in chance.sample(sorted(taken), min(6, len(taken))):
        assert git(store_of(repo), "rev-parse", f"{names[f'turn-{number}']}^{{tree}}") == taken[number]
        snapshots.restore(reference("t.1", f"turn-{number}"))
        assert snapshots.take("t.1", "orphan-1").tree == taken[number]
    assert not list((tmp_path / "private").glob("*.lock"))


def test_the_index_of_an_earlier_boot_is_not_believed(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut it may name objects that never reached the disk."""
    (repo / "a").write_text("lost in the power cut")
    taken = snapshots_at(repo, tmp_path / "private").take("t.1", "turn-1")
    blob = git(store_of(repo), "rev-parse", f"{taken.ref}:a")
    (store_of(repo) / "objects" / blob[:2] / blob[2:]).unlink()
    monkeypatch.setattr(shadow.identity, "boot_id", lambda: "another-boot")
    again = snapshots_at(repo, tmp_path / "private").take("t.1", "turn-2")
    assert tree_at(repo, again.ref)["a"] == "lost in the power cut"
    assert [path.name for path in (tmp_path / "private").glob("index-*")] == ["index-another-boot"]


def test_every_git_process_holds_the_lock(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = snapshots_at(repo, tmp_path / "private")
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin" / "git"
    wrapper.write_text(
        f"#!/bin/sh\necho $(readlink /proc/$$/fd/* | grep -c private/lock) >> {tmp_path}/log\n"
        f'exec {shutil.which("git")} "$@"\n'
    )
    wrapper.chmod(0o755)
    snapshots._shadow._env["PATH"] = snapshots._repository.env["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    taken = snapshots.take("t.1", "turn-1")
    (repo / "a").write_text("changed")
    snapshots.take("t.1", "turn-2")
    assert len((tmp_path / "log").read_text().split()) > 10
    assert set((tmp_path / "log").read_text().split()) == {"1"}
    assert taken.changed


def test_many_files_are_synced_with_their_filesystem(repo: Path, tmp_path: Path) -> None:
    ref = store_of(repo) / reference("t.1", "turn-1")
    there: list[tuple[bool, ...]] = []

    class Watching(Recorder):
        def syncfs(self, fd: int) -> None:
            there.append((ref.exists(), (repo / "0").exists(), (tmp_path / "out").exists()))
            super().syncfs(fd)

    for number in range(80):
        (repo / str(number)).write_text(str(number))
    snapshots = snapshots_at(repo, tmp_path / "private")
    with disk.use_kernel(Watching(tmp_path)):
        taken = snapshots.take("t.1", "turn-1")
        (repo / "0").unlink()
        snapshots.restore(taken.ref)
        snapshots.export(taken.ref, tmp_path / "out")
    # The objects before the ref, the worktree after it was put back, the export before it is seen.
    assert there == [(False, True, False), (True, True, False), (True, True, False)]


def test_a_snapshot_pruned_and_collected_behind_our_back_does_not_stop_the_next(repo: Path, tmp_path: Path) -> None:
    snapshots = snapshots_at(repo, tmp_path / "private")
    (repo / "a").write_text("only in the snapshot")
    snapshots.take("t.1", "turn-1")
    forget(repo, "t.1")
    git(store_of(repo), "gc", "-q", "--prune=now")
    assert snapshots.names("t.1") == {}
    assert tree_at(repo, snapshots.take("t.1", "turn-2").ref)["a"] == "only in the snapshot"
    git(store_of(repo), "fsck", "--no-dangling")
