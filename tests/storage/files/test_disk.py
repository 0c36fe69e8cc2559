from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import errors, identity
from holdfast.storage.audit.key import AuditKey
from holdfast.storage.audit.log import AuditLog
from holdfast.storage.files import disk, kernel
from holdfast.storage.files.kernel import Kernel
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import Journal
from holdfast.storage.records.ledger import LineLedger
from holdfast.testing.recorder import Call, PowerCut, Recorder
from kit.disks import Struck, each_disk, each_fault, record, striking


def test_replace_survives_a_power_cut_at_every_operation(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old" * 300)

    def program(recorder: Recorder) -> None:
        disk.replace(tmp_path / "a", [b"new" * 200, b"er" * 200])
        recorder.mark("new")

    new, disks = b"new" * 200 + b"er" * 200, 0
    for acknowledged, root in each_disk(record(tmp_path, program)):
        found = (root / "a").read_bytes()
        assert found == new or (found == b"old" * 300 and not acknowledged)
        disks += 1
    assert disks > 10


def test_create_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def program(recorder: Recorder) -> None:
        disk.create(tmp_path / "a", b"x" * 700)
        recorder.mark("a")

    states = set()
    for acknowledged, root in each_disk(record(tmp_path, program)):
        path = root / "a"
        states.add(path.exists())
        assert path.read_bytes() == b"x" * 700 if path.exists() else not acknowledged
    assert states == {True, False}


def test_create_refuses_what_exists_and_leaves_it(tmp_path: Path) -> None:
    disk.create(tmp_path / "a", b"first")
    with pytest.raises(errors.AlreadyExists, match=r"a: it exists already"):
        disk.create(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_append_keeps_every_synced_byte(tmp_path: Path) -> None:
    def program(recorder: Recorder) -> None:
        log = disk.open_append(tmp_path / "log")
        for number in range(4):
            log.append(bytes([65 + number]) * 300)
            log.sync()
            recorder.mark(number)

    for acknowledged, root in each_disk(record(tmp_path, program)):
        want = b"".join(bytes([65 + number]) * 300 for number in acknowledged)
        if want:
            assert (root / "log").read_bytes().startswith(want)


def test_rename_across_folders_never_loses_the_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "a").write_bytes(b"task")

    def program(recorder: Recorder) -> None:
        disk.rename(tmp_path / "one" / "a", tmp_path / "two" / "a")
        recorder.mark("moved")

    seen = set()
    for acknowledged, root in each_disk(record(tmp_path, program)):
        places = tuple((root / name / "a").exists() for name in ("one", "two"))
        seen.add(places)
        assert any(places)
        if acknowledged:
            assert places == (False, True)
    assert {(True, False), (True, True), (False, True)} <= seen


def test_the_simulated_disk_catches_code_that_forgets_a_sync(tmp_path: Path) -> None:
    """The model itself must be able to say no: each careless program below loses what it acknowledged."""
    (tmp_path / "a").write_bytes(b"old")

    def no_file_sync(recorder: Recorder) -> None:
        with disk.StagedFile(tmp_path) as staged:
            staged.write(b"new content")
            staged.rename(tmp_path / "a")
        disk.sync_folder(tmp_path)
        recorder.mark("new")

    def no_folder_sync(recorder: Recorder) -> None:
        with disk.StagedFile(tmp_path) as staged:
            staged.write(b"new content")
            staged.sync()
            staged.rename(tmp_path / "a")
        recorder.mark("new")

    for careless in (no_file_sync, no_folder_sync):
        (tmp_path / "a").write_bytes(b"old")
        found = {(bool(acks), (root / "a").read_bytes()) for acks, root in each_disk(record(tmp_path, careless))}
        assert any(acked and content != b"new content" for acked, content in found), careless.__name__


def test_the_simulated_disk_loses_an_earlier_page_under_a_later_one(tmp_path: Path) -> None:
    def program(recorder: Recorder) -> None:
        log = disk.open_append(tmp_path / "log")
        log.append(b"A" * 256 + b"B" * 256)

    found = {(root / "log").read_bytes() for _, root in each_disk(record(tmp_path, program)) if (root / "log").exists()}
    assert bytes(256) + b"B" * 256 in found
    assert bytes(512) in found
    assert b"A" * 256 in found


def test_the_simulated_disk_catches_code_that_syncs_again_what_a_failed_sync_lost(tmp_path: Path) -> None:
    def program(recorder: Recorder) -> None:
        fd = recorder.open(tmp_path / "a", os.O_WRONLY | os.O_CREAT)
        recorder.write(fd, b"A" * 256 + b"B" * 10)
        recorder.fail_at(len(recorder.calls), errno.EIO)
        with pytest.raises(OSError):
            recorder.fsync(fd)
        recorder.pwrite(fd, b"C", 256)
        for path in (tmp_path / "a", tmp_path):
            disk.sync_file(path)
        recorder.mark("a")

    found = {(root / "a").read_bytes() for acknowledged, root in each_disk(record(tmp_path, program)) if acknowledged}
    assert found == {b"A" * 256 + b"CBBBBBBBBB", bytes(256) + b"CBBBBBBBBB"}


@pytest.mark.parametrize("sync", [disk.sync_file, lambda path: disk.sync_filesystem(path.parent, [path])])
def test_data_that_a_failed_sync_lost_is_not_read_from_memory_afterwards(
    tmp_path: Path, sync: Callable[[Path], object]
) -> None:
    """A process was killed before its sync; the next start's sync fails; the one after that takes what it finds."""
    path = tmp_path / "log"
    path.write_bytes(b"kept\n")

    def program(recorder: Recorder) -> None:
        fd = recorder.open(path, os.O_WRONLY | os.O_APPEND)
        recorder.write(fd, b"lost\n")
        recorder.close(fd)
        recorder.fail_at(len(recorder.calls), errno.EIO)
        with pytest.raises(errors.SyncFailed):
            sync(path)
        sync(path)
        recorder.mark(path.read_bytes())

    recorder = record(tmp_path, program)
    assert [call.kind[:4] for call in recorder.fired] == ["sync"]
    for acknowledged, root in each_disk(recorder):
        assert not acknowledged or acknowledged == [(root / "log").read_bytes()]


def test_short_writes_go_on(tmp_path: Path) -> None:
    recorder = record(tmp_path, lambda _: disk.replace(tmp_path / "a", b"0123456789" * 5), write_max=7)
    assert sum(call.kind == "write" for call in recorder.calls) == 8
    assert (tmp_path / "a").read_bytes() == b"0123456789" * 5


class Interrupting(Recorder):
    """Every call is interrupted by a signal the first time."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.interrupted: list[str] = []

    def _before(self, call: object) -> None:
        name = repr(call)
        if "sync" not in name and (not self.interrupted or self.interrupted[-1] != name):
            self.interrupted.append(name)
            raise InterruptedError(errno.EINTR, "interrupted")


def test_interrupted_calls_are_made_again(tmp_path: Path) -> None:
    kernel = Interrupting(tmp_path)
    with disk.use_kernel(kernel):
        disk.mkdir(tmp_path / "x" / "y")
        disk.replace(tmp_path / "x" / "a", b"content")
        disk.create(tmp_path / "x" / "b", b"content")
        disk.rename(tmp_path / "x" / "a", tmp_path / "x" / "y" / "c")
        disk.unlink(tmp_path / "x" / "b")
    assert (tmp_path / "x" / "y" / "c").read_bytes() == b"content"
    assert len(kernel.interrupted) >= 9


def test_an_interrupted_close_is_not_made_again(tmp_path: Path) -> None:
    """The descriptor is free by then: made again, it would close what another thread has opened meanwhile."""

    class Interrupting(Kernel):
        closed = 0

        def close(self, fd: int) -> None:
            super().close(fd)
            self.closed += 1
            os.dup2(other.fileno(), fd)
            taken.append(fd)
            raise InterruptedError(errno.EINTR, "interrupted")

    taken: list[int] = []
    kernel = Interrupting()
    with (tmp_path / "of another thread").open("w") as other, disk.use_kernel(kernel):
        disk.open_append(tmp_path / "a").close()
        disk.replace(tmp_path / "b", b"b")
        disk.close_lock_file(disk.open_lock_file(tmp_path / "c"), tmp_path / "c")
        with disk.Batch(tmp_path) as batch:
            batch.add(tmp_path / "d", b"d")
            batch.publish()
        assert len(taken) == kernel.closed > 6
        for fd in taken:
            os.close(fd)  # fails where it is closed already
    assert all((tmp_path / name).exists() for name in "abcd")


class Unclosing(Recorder):
    """What is open on this path says an error of its own when it is closed."""

    named = ""

    def close(self, fd: int) -> None:
        hit = self.named and os.readlink(f"/proc/self/fd/{fd}") == self.named
        super().close(fd)
        if hit:
            self.fired.append(Call("close", path=self.named))
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_close_that_fails_names_the_path_and_hides_no_failed_sync(tmp_path: Path) -> None:
    recorder = Unclosing(tmp_path)
    recorder.named = str(tmp_path)
    with disk.use_kernel(recorder):
        with pytest.raises(errors.DiskError) as raised:
            disk.sync_folder(tmp_path)
        assert (raised.value.facts["operation"], raised.value.facts["path"]) == ("close", tmp_path)
        recorder.fail_at(len(recorder.calls), errno.EIO)
        with pytest.raises(errors.SyncFailed):
            disk.sync_folder(tmp_path)
    assert [call.kind for call in recorder.fired] == ["close", "sync", "close"]


def test_a_failed_sync_poisons_and_is_never_tried_again(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with disk.use_kernel(recorder):
        log = disk.open_append(tmp_path / "log")
        log.append(b"one\n")
        recorder.fail_at(len(recorder.calls), errno.EIO)
        with pytest.raises(errors.SyncFailed, match="never tried twice"):
            log.sync()
        assert [call.kind for call in recorder.fired] == ["sync"]
        before = len(recorder.calls)
        for act in (log.sync, lambda: log.append(b"two\n")):
            with pytest.raises(errors.Poisoned, match="Input/output error"):
                act()
        assert len(recorder.calls) == before


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_an_interrupted_write_or_sync_poisons_the_file(tmp_path: Path, call: str) -> None:
    log = disk.open_append(tmp_path / "log")
    with disk.use_kernel(striking(call)), pytest.raises(Struck):
        log.append(b"one\n")
        log.sync()
    for act in (log.sync, lambda: log.append(b"two\n")):
        with pytest.raises(errors.Poisoned, match="interrupted"):
            act()
    log.close()
    assert (tmp_path / "log").read_bytes() == b"one\n"


def test_every_error_names_the_operation_and_the_path(tmp_path: Path) -> None:
    def program(recorder: Recorder) -> None:
        root = recorder.root
        disk.mkdir(root / "deep" / "er")
        disk.replace(root / "deep" / "a", b"a")
        disk.create(root / "deep" / "b", b"b")
        disk.rename(root / "deep" / "a", root / "deep" / "er" / "c")
        log = disk.open_append(root / "log")
        log.append(b"x")
        log.sync()
        disk.unlink(root / "deep" / "b")
        recorder.mark("done")

    tried = 0
    for recorder, raised in each_fault(program, errno.EIO, errno.ENOSPC):
        tried += 1
        # A staged file's removal after publishing is tidying only; everything else must be heard.
        assert isinstance(raised, errors.DiskError)
        assert str(recorder.root) in str(raised) and not recorder.marks
        assert (
            isinstance(raised, errors.DiskFull) or "No space" not in str(raised) or raised.facts["operation"] == "sync"
        )
    assert tried > 20


def test_no_handler_survives_a_power_cut(tmp_path: Path) -> None:
    def program(recorder: Recorder) -> None:
        disk.replace(recorder.root / "a", b"x")
        disk.mkdir(recorder.root / "f" / "g")

    for recorder, raised in each_fault(program):
        assert isinstance(raised, PowerCut)
        assert not recorder.marks


def test_sweep_takes_the_dead_and_spares_the_living(tmp_path: Path) -> None:
    script = (
        "import sys, os; from pathlib import Path; from holdfast.storage.files import disk\n"
        "disk.StagedFile(Path(sys.argv[1])).write(b'half'); os._exit(9)"
    )
    (tmp_path / "deep").mkdir()
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "deep")], check=False)
    mine = disk.StagedFile(tmp_path)
    (tmp_path / ".hf-notes.tmp").write_text("a person's file")
    left = next((tmp_path / "deep").iterdir())
    assert disk.is_leftover(left.name)
    assert disk.sweep(tmp_path, skip=frozenset({"deep"})) == []
    assert disk.sweep(tmp_path) == [left]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["deep", ".hf-notes.tmp", mine.path.name])


def test_a_recycled_pid_does_not_keep_a_leftover(tmp_path: Path) -> None:
    me = identity.current()
    assert disk.is_leftover(f".hf-{me.pid}-{me.start_ticks - 1}-{me.boot_id[:8]}-{identity.pid_namespace()}-0.tmp")
    assert disk.is_leftover(f".hf-{me.pid}-{me.start_ticks - 1}-{me.boot_id[:8]}-0.tmp")
    assert disk.is_leftover(f".hf-{me.pid}-{me.start_ticks}-00000000-{identity.pid_namespace()}-0.tmp")
    assert not disk.is_leftover(disk.temp_name())


def test_a_temporary_file_of_another_pid_namespace_stays_until_the_next_boot(tmp_path: Path) -> None:
    """A container sees other pids than its host: the writer may live, and nothing here says so."""
    dead, boot, other = 4_194_305, identity.boot_id()[:8], identity.pid_namespace() + 1
    assert not disk.is_leftover(f".hf-{dead}-1-{boot}-{other}-0.tmp")
    assert disk.is_leftover(f".hf-{dead}-1-{boot}-{identity.pid_namespace()}-0.tmp")
    assert disk.is_leftover(f".hf-{dead}-1-00000000-{other}-0.tmp")
    assert f"-{boot}-{os.stat('/proc/self/ns/pid').st_ino}-" in disk.temp_name()


def test_mode_is_kept_private_from_the_first_byte(tmp_path: Path) -> None:
    disk.replace(tmp_path / "key", b"secret", mode=0o600)
    assert os.stat(tmp_path / "key").st_mode & 0o777 == 0o600


# -- folders ----------------------------------------------------------------------------------------------------------

WRITERS: dict[str, tuple[Callable[[Path], object], Callable[[Path], bool]]] = {
    "mkdir": (disk.mkdir, Path.is_dir),
    "mkdir below": (lambda folder: disk.mkdir(folder / "a" / "b"), lambda folder: (folder / "a" / "b").is_dir()),
    "open_append": (lambda folder: disk.open_append(folder / "log"), lambda folder: (folder / "log").is_file()),
    "ledger": (
        lambda folder: LineLedger(folder / "events.jsonl").append({"n": 1}),
        lambda folder: [line.record["n"] for line in LineLedger(folder / "events.jsonl").read()] == [1],
    ),
    "audit": (
        lambda folder: AuditLog(folder, AuditKey(b"k" * 40)).append("event", "actor"),
        lambda folder: folder.is_dir() and len(list(folder.iterdir())) == 1,
    ),
    "journal": (
        lambda folder: Journal.start(folder, "000001-a", None),
        lambda folder: len(list(Chain(folder).entries())) == 1,
    ),
}


@pytest.mark.parametrize(("write", "holds"), WRITERS.values(), ids=WRITERS)
def test_a_folder_that_its_maker_did_not_live_to_sync_is_made_certain_of(
    tmp_path: Path, write: Callable[[Path], object], holds: Callable[[Path], bool]
) -> None:
    def program(recorder: Recorder) -> None:
        recorder.mkdir(tmp_path / "made")
        write(tmp_path / "made")
        recorder.mark("acknowledged")

    seen = 0
    for acknowledged, root in each_disk(record(tmp_path, program)):
        assert not acknowledged or holds(root / "made")
        seen += bool(acknowledged)
    assert seen


def test_a_folder_is_made_certain_of_once_and_again_when_it_is_another(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    recorder = Recorder(tmp_path)
    with disk.use_kernel(recorder):
        for _ in range(3):
            disk.mkdir(tmp_path / "old")
            disk.mkdir(tmp_path / "new")
        assert [(call.kind, call.path) for call in recorder.calls] == [("sync", "."), ("mkdir", "new"), ("sync", ".")]
        (tmp_path / "old").rename(tmp_path / "away")
        (tmp_path / "old").mkdir()
        disk.mkdir(tmp_path / "old")
        assert len(recorder.calls) == 4


def test_a_folder_above_that_may_not_be_read_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    (tmp_path / "mine").mkdir()
    assert record(tmp_path, lambda _: disk.mkdir(tmp_path / "mine")).calls == []


CHANGES: dict[str, Callable[[Path], object]] = {
    "replace": lambda root: disk.replace(root / "a", b"new"),
    "replace_together": lambda root: disk.replace_together({root / "a": b"new", root / "b" / "c": b"new"}),
    "create": lambda root: disk.create(root / "n", b"new"),
    "open_append": lambda root: disk.open_append(root / "n"),
    "mkdir": lambda root: disk.mkdir(root / "n"),
    "rename": lambda root: disk.rename(root / "a", root / "b" / "n"),
    "unlink": lambda root: disk.unlink(root / "a"),
    "rmdir": lambda root: disk.rmdir(root / "empty"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_folder_that_cannot_be_opened_for_its_sync_is_not_changed(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    def laid(root: Path) -> dict[Path, bytes]:
        found = sorted(root.rglob("*"))
        return {path.relative_to(root): path.read_bytes() if path.is_file() else b"" for path in found}

    def program(recorder: Recorder) -> None:
        for folder in ("b", "empty"):
            (recorder.root / folder).mkdir()
        for file in ("a", "b/c"):
            (recorder.root / file).write_bytes(b"old")
        recorder.before = laid(recorder.root)  # type: ignore[attr-defined]
        change(recorder.root)

    tried = 0
    for recorder, raised in each_fault(program, errno.EMFILE):
        if recorder.fired[0].kind == "open":
            assert isinstance(raised, errors.DiskError) and laid(recorder.root) == recorder.before  # type: ignore[attr-defined]
            tried += 1
    assert tried


def test_a_folder_that_another_removes_before_anything_is_in_it_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `git gc` does that to an empty folder of objects."""
    (tmp_path / "staged").write_text("x")
    opened, removed = disk.changing, []

    def remove_first(*folders: Path) -> Any:
        if tmp_path / "new" in folders and not removed:
            removed.append((tmp_path / "new").rmdir())
        return opened(*folders)

    monkeypatch.setattr(disk, "changing", remove_first)
    disk.publish({tmp_path / "staged": tmp_path / "new" / "named"})
    assert removed and (tmp_path / "new" / "named").read_text() == "x" and not (tmp_path / "staged").exists()


def test_a_file_that_another_process_removes_meanwhile_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "file").write_text("x")
    real, others = kernel.calls.unlink, list[Path]()

    def pruned(path: Path, within: int | None = None) -> None:
        others.append(path)
        shutil.rmtree(folder)
        real(path, within)

    monkeypatch.setattr(kernel.calls, "unlink", pruned)
    disk.remove_tree(folder)
    assert others and not folder.exists()
