from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import errors, identity
from holdfast.storage.journal import lock
from holdfast.storage.journal.lock import DataLock, Holder, live_owner, read_holder
from kit.locks import RAW, Children, hear, is_alive, name_run, tell
from kit.locks import children as children
from kit.locks import path as path
from kit.waiting import wait_for


def forge(path: Path, **fields: object) -> None:
    """Rewrites the name in the file, as the real holder of the flock would never do."""
    path.write_text(json.dumps(json.loads(path.read_text()) | fields) + "\n")


def test_a_free_lock_is_simply_taken(path: Path) -> None:
    with DataLock.take_over(path, name_run, 6) as held:
        assert held.run == "run-7"


@pytest.mark.parametrize("stopped", [False, True])
def test_a_holder_is_killed_and_the_epoch_grows(path: Path, children: Children, stopped: bool) -> None:
    child = children.holder()
    if stopped:
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    with DataLock.take_over(path, name_run) as held:
        assert child.wait() == -signal.SIGKILL
        assert held.epoch == 2 and read_holder(path) == held.holder


def other_ticks(holder: Holder) -> dict[str, object]:
    return {"start_ticks": holder.start_ticks - 1}


def other_host(holder: Holder) -> dict[str, object]:
    return {"host": "far-away"}


def other_boot(holder: Holder) -> dict[str, object]:
    return {"boot_id": "00000000-0000-4000-8000-000000000000"}


@pytest.mark.parametrize(
    ("change", "words", "reason"),
    [
        (
            other_host,
            r"on far-away since \S+, which cannot be looked at",
            r"another host or in another container \(far-away",
        ),
        (
            other_boot,
            "which cannot be looked at from here",
            "another machine of that name, or before this machine's last",
        ),
        (other_ticks, "which is dead or has let go", r"is not alive; the lock is in the hands of pid {pid} \(python"),
    ],
)
def test_a_holder_that_is_not_surely_known_is_spared(
    path: Path,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Holder], dict[str, object]],
    words: str,
    reason: str,
) -> None:
    monkeypatch.setattr(lock, "NAMING_S", 0.05)
    child = children.holder()
    named = read_holder(path)
    assert named is not None
    forge(path, **change(named))
    before = path.read_bytes()
    with pytest.raises(errors.Locked, match=words):
        DataLock.acquire(path, name_run)
    with pytest.raises(errors.TakeOverRefused, match=reason.format(pid=child.pid)):
        DataLock.take_over(path, name_run)
    assert is_alive(child) and path.read_bytes() == before


def test_the_name_of_a_living_bystander_does_not_kill_it(path: Path, children: Children) -> None:
    bystander = children.holder("DataLock.acquire(path, name_run).release(); say('let go'); time.sleep(600)")
    nameless = children.holder(RAW + "say('locked'); time.sleep(600)")
    with pytest.raises(errors.Locked, match=rf"pid {nameless.pid} \(python.*still names pid {bystander.pid}"):
        DataLock.acquire(path, name_run)
    with pytest.raises(
        errors.TakeOverRefused, match=f"not show the lock in its hands, but in those of pid {nameless.pid}"
    ):
        DataLock.take_over(path, name_run)
    assert is_alive(bystander) and is_alive(nameless)


def test_an_inherited_descriptor_is_traced_to_its_process(
    path: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeper = "subprocess.Popen(['sleep', '60'], close_fds=False).pid"
    holder = children.start(
        RAW + "me = process.current()\n"
        "line = Holder(me.pid, me.start_ticks, me.boot_id, me.host, 'run-1', 1, time.time())\n"
        f"import msgspec; disk.rewrite(fd, msgspec.json.encode(line) + b'\\n', path)\nsay({sleeper}); time.sleep(600)"
    )
    heir = int(hear(holder))
    children.strays.append(heir)
    # The holder has all the time to end; then the time is over at the first look at a lock that is still held.
    kill, ended = lock._kill, list[Holder]()
    monkeypatch.setattr(lock, "_kill", lambda *args: ended.append(kill(*args)) or ended[0])
    monkeypatch.setattr(lock, "monotonic", lambda: time.monotonic() + 3600 * len(ended))
    with pytest.raises(errors.TakeOverFailed, match=rf"pid {holder.pid} .* now held by pid {heir} \(sleep\)"):
        DataLock.take_over(path, name_run, timeout_s=60)
    assert holder.wait() == -signal.SIGKILL
    with pytest.raises(errors.TakeOverRefused, match=rf"not alive; the lock is in the hands of pid {heir} \(sleep\)"):
        DataLock.take_over(path, name_run)
    assert identity.start_ticks(heir) is not None


def test_a_take_over_never_kills_itself(path: Path) -> None:
    with DataLock.acquire(path, name_run):
        with pytest.raises(errors.TakeOverRefused, match="it is this very process"):
            DataLock.take_over(path, name_run)


def test_a_holder_that_ends_by_itself_meanwhile_is_followed(
    path: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = children.holder()
    real = lock._kill

    def too_late(*args: object) -> Holder:
        child.kill()
        child.wait()
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(lock, "_kill", too_late)
    with DataLock.take_over(path, name_run) as held:
        assert held.epoch == 2


def test_a_pid_that_changes_owner_before_the_kill_is_not_hit(
    path: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder dies between being looked at and being addressed, and its pid is a stranger's by then."""
    child, stranger = children.holder(), children.start("say('here'); time.sleep(600)")
    hear(stranger)

    def recycled(pid: int) -> int:
        assert pid == child.pid
        child.kill()
        child.wait()
        return real(stranger.pid)

    real = os.pidfd_open
    monkeypatch.setattr(os, "pidfd_open", recycled)
    with DataLock.take_over(path, name_run) as held:
        assert held.epoch == 2 and is_alive(stranger)


def test_a_holder_that_will_not_die_is_not_waited_for_forever(
    path: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = children.holder()
    sent: list[int] = []
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda pidfd, number: sent.append(number))
    with pytest.raises(errors.TakeOverFailed, match=f"pid {child.pid} .* has not ended within 0.1 s"):
        DataLock.take_over(path, name_run, timeout_s=0.1)
    assert sent == [signal.SIGKILL]


RACE = """
real = lock._kill
def together(*args):
    say('ready')
    sys.stdin.readline()
    return real(*args)
lock._kill = together
try:
    held = DataLock.take_over(path, name_run)
    say('won', held.epoch)
    time.sleep(600)
except errors.TakeOverFailed as error:
    say('lost', error)
"""


def test_of_two_that_take_over_the_same_holder_exactly_one_wins(path: Path, children: Children) -> None:
    victim = children.holder()
    for round_number in range(3):
        racers = [children.start(RACE) for _ in range(2)]
        assert [hear(racer) for racer in racers] == ["ready", "ready"]
        for racer in racers:
            tell(racer)
        words = {racer.pid: hear(racer) for racer in racers}
        assert victim.wait() == -signal.SIGKILL
        winners = [racer for racer in racers if words[racer.pid] == f"won {round_number + 2}"]
        losers = [racer for racer in racers if words[racer.pid].startswith("lost")]
        assert len(winners) == len(losers) == 1
        assert f"now held by pid {winners[0].pid} " in words[losers[0].pid] and is_alive(winners[0])
        victim = winners[0]


def test_take_overs_without_any_order_leave_one_living_owner(path: Path, children: Children) -> None:
    attempt = (
        "say('ready'); sys.stdin.readline()\n"
        "try: DataLock.take_over(path, name_run); time.sleep(600)\n"
        "except errors.HoldfastError: pass"
    )
    children.holder()
    racers = [children.start(attempt) for _ in range(4)]
    for racer in racers:
        hear(racer)
    for racer in racers:
        tell(racer)
    # The last of them may still be waiting for the lock of one that it has killed.
    wait_for(lambda: sum(map(is_alive, racers)) <= 1 and live_owner(path) is not None, "one owner")
    (owner,) = [racer for racer in racers if is_alive(racer)]
    with pytest.raises(errors.Locked, match=f"pid {owner.pid} "):
        DataLock.acquire(path, name_run)
