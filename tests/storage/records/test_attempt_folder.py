"""Who is alive in an attempt's folder, judged by real processes and locks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast import identity
from holdfast.domain.attempt_records import Ending, Exit
from holdfast.layout import Attempt
from holdfast.processes import starts
from holdfast.storage.files import disk
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.attempt_folder import RECOVERY, RUNNER, Liveness, Running
from kit.runner import is_dead, kill
from kit.waiting import wait_for

# A runner as others see it: it has the lock, then the start, and says so.
HOLD = """
import sys, time
from pathlib import Path
from holdfast.storage.records import attempt_folder as attempts
from holdfast.layout import Attempt
files = Attempt(Path(sys.argv[1]))
fd = attempts.lock_alive(files, 1, 0.0)
print(fd is not None and attempts.claim_start(files, 1, attempts.RUNNER), flush=True)
time.sleep(600)
"""


class Strays:
    def __init__(self) -> None:
        self.all: list[subprocess.Popen[str]] = []

    def start(self, *argv: str, env: dict[str, str] | None = None, **more: object) -> subprocess.Popen[str]:
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env, **more)  # type: ignore[call-overload]
        self.all.append(child)
        return child  # type: ignore[no-any-return]


@pytest.fixture
def strays() -> Iterator[Strays]:
    made = Strays()
    yield made
    for child in made.all:
        kill(child.pid)
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def runner(strays: Strays, files: Attempt) -> subprocess.Popen[str]:
    child = strays.start(sys.executable, "-c", HOLD, str(files.root))
    assert child.stdout is not None and child.stdout.readline() == "True\n"
    return child


def write_exit(files: Attempt, start: int) -> None:
    ended = Exit("T.1", start, Ending.DONE, "It has finished.", 1.0)
    disk.replace(files.exit, msgspec.json.encode(ended))


def test_a_start_goes_from_absent_over_alive_to_dead_or_ended(files: Attempt, strays: Strays) -> None:
    assert attempt_folder.liveness(files, 1) is Liveness.ABSENT and attempt_folder.last_sign(files, 1) is None
    child = runner(strays, files)
    assert attempt_folder.liveness(files, 1) is Liveness.ALIVE
    assert attempt_folder.liveness(files, 2) is Liveness.ABSENT
    child.kill()
    child.wait()
    assert attempt_folder.liveness(files, 1) is Liveness.DEAD and attempt_folder.read_exit(files, 1) is None
    write_exit(files, 1)
    found = attempt_folder.read_exit(files, 1)
    assert attempt_folder.liveness(files, 1) is Liveness.ENDED and found is not None and found.ending is Ending.DONE


def test_an_exit_is_of_its_own_start_only(files: Attempt) -> None:
    write_exit(files, 1)
    assert attempt_folder.claim_start(files, 2, RUNNER)
    assert attempt_folder.read_exit(files, 2) is None and attempt_folder.liveness(files, 2) is Liveness.DEAD


@pytest.mark.parametrize("text", [b"", b"{", b'{"attempt":1}', b"\xff"])
def test_a_damaged_exit_is_no_exit(files: Attempt, text: bytes) -> None:
    files.exit.write_bytes(text)
    assert attempt_folder.read_exit(files, 1) is None


def test_one_alone_gets_a_start(files: Attempt) -> None:
    assert attempt_folder.claim_start(files, 1, RECOVERY)
    assert not attempt_folder.claim_start(files, 1, RUNNER)
    owner = attempt_folder.read_start(files, 1)
    assert owner is not None and owner.who == RECOVERY and owner.pid == os.getpid()
    # A recovery that is alive is no runner.
    assert attempt_folder.liveness(files, 1) is Liveness.DEAD


def test_a_lock_without_a_living_runner_is_headless(files: Attempt, strays: Strays) -> None:
    assert attempt_folder.claim_start(files, 1, RECOVERY)
    child = strays.start(sys.executable, "-c", HOLD, str(files.root))
    assert child.stdout is not None and child.stdout.readline() == "False\n"
    assert attempt_folder.liveness(files, 1) is Liveness.HEADLESS
    starts.end_all(files, "T.1", 1, 5.0)
    assert child.wait() == -signal.SIGTERM and attempt_folder.liveness(files, 1) is Liveness.DEAD


def test_the_lock_is_given_up_on_only_by_its_last_holder(files: Attempt) -> None:
    fd = attempt_folder.lock_alive(files, 1, 0.0)
    assert fd is not None
    twin = os.dup(fd)
    os.close(fd)
    assert attempt_folder.lock_alive(files, 1, 0.0) is None
    os.close(twin)
    again = attempt_folder.lock_alive(files, 1, 0.0)
    assert again is not None
    os.close(again)


def test_a_check_of_the_lock_does_not_disturb_a_claimant(files: Attempt) -> None:
    """Somebody looks all the time; a runner gets the lock all the same."""
    asking = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"{HOLD.partition('fd =')[0]}\nwhile True: attempts.plain.is_free(files.alive)",
            files.root,
        ]
    )
    try:
        for _ in range(200):
            fd = attempt_folder.lock_alive(files, 1, 30.0)
            assert fd is not None
            os.close(fd)
    finally:
        asking.kill()
        asking.wait()


def test_a_sign_of_life_is_of_one_start_and_of_its_very_runner(files: Attempt) -> None:
    fd = attempt_folder.lock_alive(files, 1, 0.0)
    assert fd is not None and attempt_folder.claim_start(files, 1, RUNNER)
    attempt_folder.beat(files)
    assert attempt_folder.last_sign(files, 1) is None, "nobody has said yet whose signs these are"
    attempt_folder.sign(files, 1, fd)
    first = attempt_folder.last_sign(files, 1)
    attempt_folder.beat(files)
    wait_for(lambda: attempt_folder.beat(files) is None and attempt_folder.last_sign(files, 1) != first)
    assert first is not None and attempt_folder.last_sign(files, 2) is None
    # The next start has the same file, and has shown nothing yet.
    assert attempt_folder.claim_start(files, 2, RUNNER) and attempt_folder.last_sign(files, 2) is None
    attempt_folder.sign(files, 2, fd)
    assert attempt_folder.last_sign(files, 2) is not None and attempt_folder.last_sign(files, 1) is None
    owner = attempt_folder.read_start(files, 2)
    assert owner is not None
    stranger = msgspec.structs.replace(owner, start_ticks=owner.start_ticks + 1)
    disk.replace(files.start(2), msgspec.json.encode(stranger))
    assert attempt_folder.last_sign(files, 2) is None
    os.close(fd)


# -- ending -----------------------------------------------------------------------------------------------------------


def marked(files: Attempt, attempt: str = "T.1", root: Path | None = None) -> dict[str, str]:
    worktree = (root or files.root.parent.parent) / "worktrees" / "T"
    ours = {"HOLDFAST_ATTEMPT": attempt, "HOLDFAST_START": "1", "HOLDFAST_WORKTREE": str(worktree)}
    return {**os.environ, **ours}


def test_only_processes_of_this_attempt_and_this_data_root_are_ended(files: Attempt, strays: Strays) -> None:
    other_root = files.root.parent.parent.parent / "data2"
    ours = strays.start("sleep", "600", env=marked(files))
    others = [
        strays.start("sleep", "600", env=marked(files, "T.11")),
        strays.start("sleep", "600", env=marked(files, root=other_root)),
        strays.start("sleep", "600", env={**os.environ, "HOLDFAST_ATTEMPT": "T.1"}),
        strays.start("sleep", "600"),
        # Of the start that follows, and a gate that judges the attempt's work.
        strays.start("sleep", "600", env={**marked(files), "HOLDFAST_START": "2"}),
        strays.start("sleep", "600", env={**marked(files), "HOLDFAST_GATE": "T.1"}),
    ]
    starts.end_all(files, "T.1", 1, 5.0)
    assert ours.wait() == -signal.SIGTERM
    assert [other.poll() for other in others] == [None] * 6


def test_a_group_counts_only_while_its_very_leader_is_there(files: Attempt, strays: Strays) -> None:
    """A number that was given to somebody else since is not ours to signal."""
    leader = strays.start("sleep", "600", process_group=0)
    me = identity.current()
    ticks = identity.start_ticks(leader.pid)
    assert ticks is not None

    files.alive.touch()

    def note(start_ticks: int, boot_id: str, is_here: bool = True) -> None:
        agent = identity.Identity(leader.pid, start_ticks, boot_id, me.host)
        running = Running(
            "T.1", 1, me, agent, leader.pid, lock=attempt_folder.lock_id(files.alive) if is_here else "8:1"
        )
        disk.replace(files.process, msgspec.json.encode(running))

    for stale in ((ticks - 1, me.boot_id, True), (ticks, "another boot", True), (ticks, me.boot_id, False)):
        note(*stale)
        starts.end_all(files, "T.1", 1, 0.0)
        assert leader.poll() is None
    note(ticks, me.boot_id)
    starts.end_all(files, "T.1", 1, 5.0)
    assert leader.wait() == -signal.SIGTERM


def test_a_deaf_process_is_killed_after_the_grace_and_a_stopped_one_is_woken(
    files: Attempt, strays: Strays, tmp_path: Path
) -> None:
    deaf = strays.start("sh", "-c", "trap '' TERM; echo on; while :; do sleep 600; done", env=marked(files))
    assert deaf.stdout is not None and deaf.stdout.readline() == "on\n"
    line = f"trap 'echo heard > {tmp_path}/heard; exit 0' TERM; echo on; while :; do sleep 0.01; done"
    stopped = strays.start("sh", "-c", line, env=marked(files))
    assert stopped.stdout is not None and stopped.stdout.readline() == "on\n"
    kill(stopped.pid, signal.SIGSTOP)
    wait_for(lambda: Path(f"/proc/{stopped.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    starts.end_all(files, "T.1", 1, 3.0)
    assert deaf.wait() == -signal.SIGKILL
    assert stopped.wait() == 0 and (tmp_path / "heard").read_text() == "heard\n"


def test_one_that_comes_while_others_end_is_ended_too(files: Attempt, strays: Strays, tmp_path: Path) -> None:
    heir = tmp_path / "heir.sh"
    heir.write_text(f"trap '' TERM; echo $$ > {tmp_path}/heir; while :; do sleep 600; done\n")
    # What is ignored is so in a child from its first moment: it cannot be ended before it has said that it is there.
    leave = f'trap "" TERM; setsid sh {heir} & while [ ! -s {tmp_path}/heir ]; do sleep 0.01; done; exit 0'
    parent = strays.start("sh", "-c", f"trap '{leave}' TERM; echo on; while :; do sleep 0.01; done", env=marked(files))
    assert parent.stdout is not None and parent.stdout.readline() == "on\n"
    starts.end_all(files, "T.1", 1, 2.0)
    assert parent.wait() == 0 and is_dead(int((tmp_path / "heir").read_text()))


def test_a_start_that_cannot_be_read_is_not_absent(files: Attempt) -> None:
    """It cannot be taken again: to call it absent would have a runner started for nothing, over and over."""
    files.start(1).write_bytes(b"\0")
    assert attempt_folder.liveness(files, 1) is Liveness.DEAD
