from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import errors, identity
from holdfast.storage.files import disk
from holdfast.storage.journal import lock
from holdfast.storage.journal.lock import DataLock, read_holder
from holdfast.testing.recorder import Recorder
from kit.disks import each_disk, each_fault, examples, record
from kit.locks import HOLD, Children, hear, is_alive, name_run, tell
from kit.locks import children as children
from kit.locks import path as path
from kit.waiting import WAIT_S_MAX


@pytest.fixture(autouse=True)
def no_locks_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have left theirs open."""
    monkeypatch.setattr(lock, "_open_locks", set())


# -- holding ----------------------------------------------------------------------------------------------------------


def test_the_file_says_who_holds_it(path: Path) -> None:
    before = time.time()
    with DataLock.acquire(path, name_run, 41) as held:
        lines = path.read_text().splitlines()
        assert len(lines) == 1
        line, me = json.loads(lines[0]), identity.current()
        named = ["pid", "start_ticks", "boot_id", "host", "run", "epoch", "since"]
        assert list(line) == [*named, "journal", "journal_sum"]
        assert (line["pid"], line["start_ticks"], line["boot_id"], line["host"]) == msgspec.structs.astuple(me)
        assert (line["run"], line["epoch"]) == (held.run, held.epoch) == ("run-42", 42)
        assert before <= line["since"] <= time.time()
        assert read_holder(path) == held.holder and held.is_intact()
    assert not held.is_intact()


def test_epochs_grow_over_every_way_of_changing_hands(path: Path, children: Children) -> None:
    epochs = []
    for _ in range(2):
        with DataLock.acquire(path, name_run) as held:
            epochs.append(held.epoch)
    crashed = children.start(HOLD)
    epochs.append(int(hear(crashed)))
    crashed.kill()
    crashed.wait()
    living = children.start(HOLD)
    epochs.append(int(hear(living)))
    with DataLock.take_over(path, name_run) as held:
        epochs.append(held.epoch)
    path.unlink()
    with DataLock.acquire(path, name_run, epochs[-1]) as held:
        epochs.append(held.epoch)
    path.write_bytes(path.read_bytes()[:-20])
    with DataLock.take_over(path, name_run, epochs[-1]) as held:
        epochs.append(held.epoch)
    assert epochs == [1, 2, 3, 4, 5, 6, 7]


def test_a_longer_name_leaves_nothing_behind(path: Path) -> None:
    for run in ("x" * 3000, "y"):
        with DataLock.acquire(path, lambda epoch, run=run: run):  # type: ignore[misc]
            assert read_holder(path) is not None and path.read_bytes().count(b"\n") == 1


def test_an_owner_notices_that_its_file_was_removed(path: Path) -> None:
    with DataLock.acquire(path, name_run) as held:
        path.unlink()
        assert not held.is_intact()
        with DataLock.acquire(path, name_run, held.epoch) as other:
            assert other.epoch == 2 and other.is_intact() and not held.is_intact()


def test_a_file_removed_between_opening_and_locking_is_no_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def open_and_lose(target: Path) -> int:
        opened.append(fd := real(target))
        if len(opened) == 1:
            target.unlink()
        return fd

    real = disk.open_lock_file
    monkeypatch.setattr(disk, "open_lock_file", open_and_lose)
    with DataLock.acquire(path, name_run) as held:
        assert held.is_intact() and len(opened) == 2


def test_many_locks_leave_no_descriptor_behind(path: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    for _ in range(20):
        with DataLock.acquire(path, name_run) as held:
            assert count() == before + 1
            with pytest.raises(errors.Locked):
                DataLock.acquire(path, name_run)
            held.release()
    assert count() == before and not lock._open_locks


def test_a_name_that_cannot_be_made_lets_go(path: Path) -> None:
    def broken(epoch: int) -> str:
        raise LookupError(epoch)

    with pytest.raises(LookupError):
        DataLock.acquire(path, broken)
    DataLock.acquire(path, name_run).release()


def test_a_path_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    for bad in (tmp_path / "missing" / "lock", tmp_path):
        with pytest.raises(errors.DiskError, match=re.escape(str(bad))):
            DataLock.acquire(bad, name_run)


# -- losing -----------------------------------------------------------------------------------------------------------


def test_the_loser_is_told_who_holds_it_and_whether_it_is_stopped(path: Path, children: Children) -> None:
    child = children.holder()
    host = re.escape(identity.current().host)
    who = rf"pid {child.pid} \(run run-1, epoch 1\) on {host} since 20\d\d-\d\d-\d\dT[\d:]+\+00:00"
    with pytest.raises(errors.Locked, match=who + ", which is alive. Nothing was changed") as told:
        DataLock.acquire(path, name_run)
    assert told.value.identity == read_holder(path) and told.value.exit_code == 7
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    with pytest.raises(errors.Locked, match=who + ", which is stopped"):
        DataLock.acquire(path, name_run)


def test_a_holder_that_is_slow_to_write_its_name_is_waited_for(
    path: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    DataLock.acquire(path, name_run).release()
    child = children.holder(
        "sign = DataLock._signed\n"
        "DataLock._signed = lambda self, *args: (say('locked'), sys.stdin.readline(), sign(self, *args))[-1]\n" + HOLD
    )
    looks, is_held_by = [0], lock.is_held_by

    def seen_twice(*args: Any) -> bool:
        looks[0] += 1
        if looks[0] == 2:
            tell(child)
        return is_held_by(*args)

    monkeypatch.setattr(lock, "NAMING_S", WAIT_S_MAX)
    monkeypatch.setattr(lock, "is_held_by", seen_twice)
    with pytest.raises(errors.Locked, match=rf"pid {child.pid} \(run run-2"):
        DataLock.acquire(path, name_run)


def test_a_holder_without_a_name_is_called_so_and_never_killed(
    path: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "NAMING_S", 0.05)
    child = children.holder()
    for content in (b"", b"{", b'{"pid":1}\n', b"\xff\xfe\n", b'{"host":"\xff"}\n', bytes(200)):
        path.write_bytes(content)
        with pytest.raises(errors.Locked, match="held by a process that has not written its name yet"):
            DataLock.acquire(path, name_run)
        with pytest.raises(errors.TakeOverRefused, match=r"does not say who it is\. Nothing was changed"):
            DataLock.take_over(path, name_run)
        assert is_alive(child) and path.read_bytes() == content


@settings(max_examples=examples(80), deadline=None)
@given(
    st.binary(max_size=80)
    | st.builds(lambda n, tail: b'{"epoch":%d%s' % (n, tail), st.integers(), st.binary(max_size=9)),
    st.integers(0, 2**40),
)
def test_no_content_of_the_file_stops_a_start(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, epoch_min: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-lock"
    path.write_bytes(content)
    with DataLock.acquire(path, name_run, epoch_min) as held:
        assert held.epoch == epoch_min + 1 and read_holder(path) == held.holder


# -- no child ever has it ---------------------------------------------------------------------------------------------

# In each a child that will outlive the holder says its pid, once it runs (and its parent's, if that will outlive too).
OUTLIVERS = {
    "subprocess": "subprocess.Popen(['sh', '-c', 'echo $$; exec sleep 60'], close_fds=False)",
    "fork": "if os.fork() == 0: say(os.getpid()); time.sleep(600)",
    "multiprocessing": (
        "import multiprocessing\n"
        "def live(): say(os.getpid()); time.sleep(600)\n"
        "multiprocessing.get_context('fork').Process(target=live).start()"
    ),
    "grandchild": ("if os.fork() == 0:\n    if os.fork() == 0: say(os.getpid(), os.getppid())\n    time.sleep(600)"),
}


@pytest.mark.parametrize("way", OUTLIVERS)
def test_the_lock_is_free_at_once_when_the_holder_dies_before_its_child(
    path: Path, children: Children, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "NAMING_S", 0)
    holder = children.start(f"held = DataLock.acquire(path, name_run)\n{OUTLIVERS[way]}\ntime.sleep(600)")
    outlivers = [int(pid) for pid in hear(holder).split()]
    children.strays += outlivers
    with pytest.raises(errors.Locked, match=f"pid {holder.pid} "):
        DataLock.acquire(path, name_run)
    holder.kill()
    holder.wait()
    with DataLock.acquire(path, name_run) as held:
        assert held.epoch == 2
        assert all(identity.start_ticks(pid) is not None for pid in outlivers)


def in_fork(check: Callable[[], bool]) -> bool:
    """What `check` answers in a forked child."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_child_that_leaves_the_block_does_not_unlock_its_parent(path: Path) -> None:
    def leave() -> bool:
        held.release()
        return not held.is_intact()

    with DataLock.acquire(path, name_run) as held:
        assert in_fork(leave)
        with pytest.raises(errors.Locked):
            DataLock.acquire(path, name_run)
        assert held.is_intact()


def test_a_forked_child_may_take_a_lock_of_its_own(path: Path) -> None:
    with DataLock.acquire(path, name_run):
        assert in_fork(lambda: DataLock.acquire(path.with_name("other"), name_run).holder.pid == os.getpid())


def test_a_fork_while_another_thread_opens_the_lock_does_not_get_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = threading.Event()

    def open_slowly(target: Path) -> int:
        fd = real(target)
        opened.set()
        time.sleep(0.1)
        return fd

    def has_not_got_it() -> bool:
        return not any(leads_to_the_lock(fd) for fd in range(256))

    def leads_to_the_lock(fd: int) -> bool:
        try:
            # Reading the file is no harm: the descriptor to flock is the one that can write.
            can_write = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
            return can_write and os.path.samestat(os.fstat(fd), os.stat(path))
        except OSError:
            return False

    real = disk.open_lock_file
    monkeypatch.setattr(disk, "open_lock_file", open_slowly)
    taking = threading.Thread(target=lambda: DataLock.acquire(path, name_run).release())
    taking.start()
    opened.wait()
    assert in_fork(has_not_got_it)
    taking.join()


# -- power cuts and faults --------------------------------------------------------------------------------------------


def newest_epoch(root: Path) -> int:
    return max((int(path.name) for path in root.glob("[0-9]*")), default=0)


def test_epochs_grow_over_a_power_cut_at_every_operation(tmp_path: Path) -> None:
    """An epoch counts once its run file is there, which is how the journal uses it."""

    def program(recorder: Recorder) -> None:
        for _ in range(3):
            with DataLock.acquire(
                tmp_path / "lock", lambda epoch: f"run-{epoch}-" + "x" * 200, newest_epoch(tmp_path)
            ) as held:
                disk.create(tmp_path / str(held.epoch), b"run")
                recorder.mark(held.epoch)

    disks, torn = 0, 0
    for acknowledged, root in each_disk(record(tmp_path, program)):
        disks += 1
        torn += (root / "lock").exists() and read_holder(root / "lock") is None
        for _ in range(2):
            with DataLock.acquire(root / "lock", name_run, newest_epoch(root)) as held:
                assert held.epoch > max(acknowledged, default=0)
                assert read_holder(root / "lock") == held.holder
                acknowledged = [held.epoch]
    assert disks > 30 and torn > 3


def test_the_epoch_is_durable_before_it_is_handed_out(tmp_path: Path) -> None:
    def program(recorder: Recorder) -> None:
        with DataLock.acquire(tmp_path / "lock", name_run) as held:
            recorder.mark(held.holder)

    states = set()
    for acknowledged, root in each_disk(record(tmp_path, program)):
        found = read_holder(root / "lock")
        states.add(found is None)
        assert acknowledged in ([], [found])
    assert states == {True, False}


def test_nothing_is_handed_out_after_a_fault_and_nothing_stays_locked() -> None:
    def program(recorder: Recorder) -> None:
        with DataLock.acquire(recorder.root / "lock", name_run) as held:
            recorder.mark(held.epoch)

    tried = 0
    for recorder, raised in each_fault(program, errno.EIO, errno.ENOSPC):
        tried += 1
        assert isinstance(raised, errors.DiskError) and str(recorder.root) in str(raised) and not recorder.marks
        DataLock.acquire(recorder.root / "lock", name_run).release()
    assert tried >= 10 and not lock._open_locks


def test_a_filesystem_without_locks_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(fd: int, operation: int) -> None:
        if operation & fcntl.LOCK_EX:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(errors.DiskError, match=rf"lock {re.escape(str(path))}: No locks available"):
        DataLock.acquire(path, name_run)
    assert not lock._open_locks
