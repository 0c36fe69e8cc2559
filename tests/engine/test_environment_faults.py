"""Faults of the machine: they cost no attempt, the cause is named, and the next run goes on."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.domain.task import TaskState
from holdfast.engine import context as context_module
from holdfast.errors import GitFault, GitSyncFailed, HoldfastError, SyncFailed, is_environment, is_fatal
from holdfast.git import command as git_command
from holdfast.orchestrator import holds
from holdfast.orchestrator.loop import Loop
from holdfast.orchestrator.wakeup import AGENTS
from holdfast.storage.files import disk
from holdfast.storage.files.kernel import Kernel
from holdfast.storage.journal.reader import Chain
from holdfast.wiring import run_context
from kit.git import faulty_git, git
from kit.mounts import mounts
from kit.program import begin, holdfast
from kit.project import add, landed, layout, settings, sound, state
from kit.roots import run_here
from kit.waiting import shell_wait, wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy

KILLS = int(os.environ.get("HOLDFAST_KILLS", "500"))


@pytest.fixture
def repo(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(holds, "TRY_AGAIN_S", 0.01)
    monkeypatch.setenv("HOME", str(tmp_path))
    return repo


def moves(repo: Path) -> list[str]:
    return [
        str(entry.inputs.get("reason")) for _, entry in Chain(layout(repo).wal).entries() if "event" in entry.inputs
    ]


# -- a full disk ------------------------------------------------------------------------------------------------------


def small_disk(folder: Path, **limits: object) -> Path:
    folder.mkdir()
    options = ",".join(f"{name}={value}" for name, value in limits.items())
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)
    return folder


def expect_kept(repo: Path, names: Sequence[str]) -> None:
    """Nothing is spent, and once there is room again everything lands."""
    for task in state(repo).tasks.values():
        assert task.attempts <= 1 and not task.past and not task.parked, task
    run_here(repo)
    assert sorted(landed(repo)) == sorted(names)
    assert [task.attempts for task in state(repo).tasks.values()] == [1] * len(names)
    sound(repo)


@pytest.mark.heavy
@mounts
def test_a_full_disk_costs_no_attempt_and_the_next_run_goes_on(repo: Path, tmp_path: Path) -> None:
    (repo / "big.bin").write_bytes(os.urandom(6 << 20))
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "something big")
    small = small_disk(tmp_path / "disk", size="48m")
    here = small / "repo"
    shutil.copytree(repo, here, symlinks=True)
    filler = small / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(small).free - (3 << 20)))
    for name in ("a", "b"):
        add(here, name, f"write {name}.txt x")
    said = run_here(here)
    # Git does not say why it could not write; so the space that is left is named.
    assert any("unable to write file big.bin" in line and "MB and" in line for line in said), said
    for task in state(here).tasks.values():
        assert task.state is TaskState.OPEN and "unable to write file big.bin" in task.outcome["detail"]
    assert "environment" in moves(here)
    filler.unlink()
    expect_kept(here, ["a", "b"])


def without_inodes(repo: Path, folder: Path, left: int) -> tuple[Path, Path]:
    """The repository on a filesystem on which no more than so many files can be made, until the folder that is returned
    with it is removed."""
    small = small_disk(folder, size="64m", nr_inodes=4000)
    here, filler = small / "repo", small / "filler"
    shutil.copytree(repo, here, symlinks=True)
    add(here, "a", "write a.txt x\nwrite b.txt x")
    filler.mkdir()
    for number in range(os.statvfs(small).f_ffree - left):
        (filler / str(number)).touch()
    assert os.statvfs(small).f_ffree == left
    return here, filler


@pytest.mark.heavy
@mounts
def test_a_disk_without_inodes_costs_no_attempt_and_the_next_run_goes_on(repo: Path, tmp_path: Path) -> None:
    for number in range(200):
        (repo / f"file-{number}").write_text("")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "many files")
    here, filler = without_inodes(repo, tmp_path / "disk", 150)
    said = run_here(here)
    assert any("No space left on device" in line and "inodes are free" in line for line in said), said
    task = state(here).tasks["a"]
    assert task.state is TaskState.OPEN and "No space left on device" in task.outcome["detail"]
    assert "environment" in moves(here)
    shutil.rmtree(filler)
    expect_kept(here, ["a"])


@pytest.mark.crash
@pytest.mark.parametrize("left", range(0, 112, 4 if KILLS >= 200 else 36))
@mounts
def test_inodes_may_run_out_at_any_moment(repo: Path, tmp_path: Path, left: int) -> None:
    here, filler = without_inodes(repo, tmp_path / "disk", left)
    try:
        said = run_here(here)
    except (HoldfastError, OSError) as error:
        # It may be the orchestrator's own files that cannot be made: then the run ends.
        said = [str(error)]
    assert any(os.strerror(errno.ENOSPC) in line for line in said) and landed(here) == [], said
    shutil.rmtree(filler)
    expect_kept(here, ["a"])


# -- git that is killed or missing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "then", "told"),
    [
        ('"worktree add"*', "kill -KILL $$", "it was ended by SIGKILL"),
        ('"worktree add"*', "echo 'error: unable to write file x: Input/output error' >&2; exit 128", "Input/output"),
        ('"diff-tree -r -z --no-renames "*', "kill -KILL $$", "it was ended by SIGKILL"),
        ('"merge-base"*', "kill -TERM $$", "it was ended by SIGTERM"),
        ('"update-ref -m"*', "kill -KILL $$", "it was ended by SIGKILL"),
    ],
    ids=["start", "start-eio", "take", "finish", "land"],
)
def test_a_git_that_dies_costs_no_attempt(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, then: str, told: str
) -> None:
    add(repo, "t", "write t.txt x")
    fired = faulty_git(tmp_path, monkeypatch, when, then)
    said = run_here(repo)
    assert len(fired.read_text().split()) >= holds.FAILURES_MAX
    assert any(told in line for line in said), said
    task = state(repo).tasks["t"]
    assert (
        task.state in (TaskState.OPEN, TaskState.IN_PROGRESS, TaskState.DONE)
        and task.attempts == 1
        and not task.past
        and not task.parked
    )
    # The run is over, and why the task waits is still told.
    assert told in task.cause
    (row,) = json.loads(holdfast(repo, "list", "--json"))["tasks"]
    assert told in row["waits"][0] and row["next_step"] == "holdfast run"
    for command in (("list",), ("status",), ("show", "t")):
        assert told in " ".join(holdfast(repo, *command).split()), command
    assert json.loads(holdfast(repo, "status", "--json"))["ready"] == []
    assert "Held up: " in holdfast(repo, "history", "t")
    (tmp_path / "mended").touch()
    run_here(repo)
    assert landed(repo) == ["t"] and state(repo).tasks["t"].attempts == 1 and not state(repo).tasks["t"].cause
    sound(repo)


def test_a_journal_without_room_is_spared_the_cause_of_a_fault(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append that fails ends the run, which would otherwise go on trying."""
    add(repo, "t", "write t.txt x")
    fired = faulty_git(tmp_path, monkeypatch, '"update-ref -m"*', "kill -KILL $$")
    monkeypatch.setattr(context_module, "ROOM_MIN", 1 << 62)
    said = run_here(repo)
    assert fired.exists() and any("SIGKILL" in line for line in said), said
    assert state(repo).tasks["t"].state is TaskState.DONE and state(repo).tasks["t"].cause == ""


def test_faults_of_the_machine_are_told_from_those_of_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failure(stderr: str, code: int) -> Exception:
        (tmp_path / "bin").mkdir(exist_ok=True)
        program = tmp_path / "bin" / "git"
        program.write_text(f'#!/bin/sh\necho "{stderr}" >&2\nexit {code}\n')
        program.chmod(0o755)
        with pytest.raises(Exception) as caught:
            git_command.run("x", cwd=tmp_path, env=git_command.environment({}), codes=(0, 128) if code == 128 else (0,))
        return caught.value

    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    full = failure("error: unable to create temporary file: No space left on device", 128)
    assert isinstance(full, GitFault) and is_environment(full) and not is_fatal(full)
    unsynced = failure("fatal: fsync error on 'loose object file': Input/output error", 128)
    assert isinstance(unsynced, GitSyncFailed) and is_fatal(unsynced) and not is_environment(unsynced)
    own = failure("error: 'No space left on device: x' does not match", 1)
    assert not is_environment(own) and not is_fatal(own)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(Exception, match="cannot be run") as missing:
        git_command.run("x", cwd=tmp_path, env=git_command.environment({}))
    assert is_environment(missing.value)


# -- a sync that fails ------------------------------------------------------------------------------------------------


class FailingOnce(Kernel):
    """The sync of one file fails, once; a second one would succeed, as Linux has it."""

    def __init__(self, path: Path) -> None:
        self.path, self.fired, self.later = path, 0, 0

    def fsync(self, fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}") == str(self.path):
            self.fired += 1
            if self.fired == 1:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fsync(fd)


def test_a_failed_sync_of_the_landing_ends_the_run_and_is_not_tried_again(repo: Path) -> None:
    add(repo, "t", "write t.txt x")
    failing = FailingOnce(repo / ".git" / "refs" / "heads" / "main")
    with disk.use_kernel(failing), pytest.raises(SyncFailed):
        run_here(repo)
    assert failing.fired == 1, "the sync that failed was tried again in the same process"
    kinds = [entry.decision_type for _, entry in Chain(layout(repo).wal).entries()]
    assert kinds.count("task_land_intent") == 1
    assert not {"task_land_confirmed", "task_land_failed", "task_land_parked"} & set(kinds)
    # The next process looks at what the disk has.
    run_here(repo)
    assert landed(repo) == ["t"] and state(repo).tasks["t"].state is TaskState.CLOSED
    sound(repo)


# -- a definition that is damaged -------------------------------------------------------------------------------------


def damage(repo: Path, digest: str) -> None:
    path = layout(repo).cas / digest[:2] / digest
    path.chmod(0o644)
    path.write_bytes(b"damaged")


def test_a_damaged_definition_is_mended_from_its_file(repo: Path) -> None:
    add(repo, "a", "write a.txt x")
    add(repo, "b", "write b.txt x")
    holdfast(repo, "cancel", "b")
    damage(repo, state(repo).tasks["a"].definition)
    run_here(repo)
    assert landed(repo) == ["a"]
    sound(repo)


def test_a_lost_definition_parks_its_task_and_no_other(repo: Path) -> None:
    add(repo, "a", f"run while [ ! -e {repo.parent}/go ]; do sleep 0.05; done\nwrite a.txt x")
    with run_context(App.find(repo), lambda task, text: None) as context:
        # Once: each call makes it look again at once.
        Loop(context, show=lambda loop: loop.stop(AGENTS) if loop.at_work and not loop.stopping else None).run()
    task = state(repo).tasks["a"]
    assert task.state is TaskState.OPEN and task.continues
    # Edited since, so that its file does not say any more what the attempt began with.
    add(repo, "a", "write a.txt edited")
    add(repo, "b", "write b.txt x")
    damage(repo, task.attempt.worked_on)
    said = run_here(repo)
    assert landed(repo) == ["b"]
    task = state(repo).tasks["a"]
    assert task.state is TaskState.OPEN and "cannot be read" in task.parked and task.attempts == 1, said
    assert any("resolve a --retry" in line for line in said)


def test_a_lost_definition_of_a_task_at_work_lets_the_run_end_and_its_exit_is_kept(repo: Path) -> None:
    go = repo.parent / "go"
    add(repo, "a", f"run {shell_wait(go)}\nwrite a.txt x")
    killed = begin(repo)
    file = layout(repo).backlog_claimed / "a.yaml"
    wait_for(lambda: file.exists() and _is_in_progress(repo, "a"), "an agent at work")
    killed.kill()
    killed.communicate()
    task = state(repo).tasks["a"]
    blob = layout(repo).cas / task.attempt.worked_on[:2] / task.attempt.worked_on
    whole = blob.read_bytes()
    damage(repo, task.attempt.worked_on)
    file.unlink()
    go.touch()
    exit_file = layout(repo).attempt_files(task.attempt.id).exit
    wait_for(exit_file.exists, "the agent's end")
    add(repo, "b", "write b.txt x")
    settings(repo, max_agents=1)
    for _ in range(2):
        process = begin(repo)
        try:
            said, _ = process.communicate(timeout=120)
        finally:
            process.kill()
        assert "go on working" not in said, said
        assert "cannot be read" in state(repo).tasks["a"].parked and exit_file.exists(), said
    assert landed(repo) == ["b"], "it takes no agent's place either"
    blob.write_bytes(whole)
    holdfast(repo, "resolve", "a", "--retry")
    run_here(repo)
    assert landed(repo) == ["b", "a"] and state(repo).tasks["a"].attempts == 1
    sound(repo)


def _is_in_progress(repo: Path, name: str) -> bool:
    task = state(repo).tasks.get(name)
    return task is not None and task.state is TaskState.IN_PROGRESS
