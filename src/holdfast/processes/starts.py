"""The processes of one start of an attempt, its runner and its agent with all that they began, and their end.

They are those whose environment names this attempt, this start and a worktree of this data root; those in the group of
the very agent that `process.json` names, and in its control group, if that file is no copy of another folder's; and
those with `alive.lock` in their hands. To the runner, which inherits what its descendants leave behind
(`inherit_descendants`), all that descends from it is, too. A gate that judges the attempt's work is none of them, and
says so in its environment.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping

from holdfast import identity
from holdfast.layout import Attempt
from holdfast.processes import cgroups, members
from holdfast.storage.files import plain
from holdfast.storage.records import attempt_folder

_PR_SET_CHILD_SUBREAPER = 36
# Names the descriptors of leases that a runner was given, for its agent to inherit: they last while either lives.
LEASES = "HOLDFAST_LEASES"


def leases(environ: Mapping[str, str]) -> tuple[int, ...]:
    return tuple(int(number) for number in environ.get(LEASES, "").split(",") if number.isdigit())


def end_all(files: Attempt, attempt: str, start: int | None, grace_s: float) -> None:
    """Ends every process of the start, its runner too, and returns when nothing is alive and the lock is free.

    None stands for whatever start there is: only where all that is in the folder has to go.
    """
    while True:
        end_processes(files, attempt, start, grace_s)
        if plain.is_free(files.alive):
            return
        time.sleep(members.POLL_S)


def end_processes(
    files: Attempt, attempt: str, start: int | None, grace_s: float, *, descendants: bool = False
) -> None:
    """`descendants`: all that descends from this process is of the start. This process itself is left alone."""
    # Two data roots may each have an attempt of this name.
    root = os.path.realpath(files.root.parent.parent)
    wanted = {b"HOLDFAST_ATTEMPT": os.fsencode(attempt)}
    wanted |= {b"HOLDFAST_START": str(start).encode()} if start is not None else {}

    def marked(variables: Mapping[bytes, bytes]) -> bool:
        if b"HOLDFAST_GATE" in variables or any(variables.get(name) != value for name, value in wanted.items()):
            return False
        worktree = variables.get(b"HOLDFAST_WORKTREE", b"")
        return bool(worktree) and os.path.commonpath([os.path.realpath(os.fsdecode(worktree)), root]) == root

    top = os.getpid() if descendants else 0
    signs = members.Signs(marked, files.alive, lambda: _group(files, start), lambda: _cgroup(files, start), top=top)
    members.end(signs, grace_s)


def _cgroup(files: Attempt, start: int | None) -> cgroups.Group | None:
    """The agent's control group, by a name that no other has: the file lies where the agent may write, too."""
    running = _running(files, start)
    return cgroups.own(files, running.cgroup, running.start) if running is not None and running.cgroup else None


def _group(files: Attempt, start: int | None) -> int | None:
    """The agent's group, while its leader is there, if only as a zombie: later the number may be another's."""
    running = _running(files, start)
    leader = identity.stat_of(running.agent.pid) if running is not None else None
    if running is None or leader is None or leader.ticks != running.agent.start_ticks:
        return None
    return running.group


def _running(files: Attempt, start: int | None) -> attempt_folder.Running | None:
    """What `process.json` says of this start, if it is of this boot and of this very folder."""
    running = attempt_folder.read_process(files)
    if running is None or start not in (None, running.start) or running.agent.boot_id != identity.boot_id():
        return None
    return running if attempt_folder.is_lock_of(files, running) else None


def inherit_descendants() -> None:
    """From now on a process whose parent ends becomes a child of this one: whatever it does, it descends from here."""
    import ctypes  # only runners need it, and it takes a while to load

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def reap_inherited(spare: int) -> None:
    """Reaps inherited children that have ended; not `spare`, and only where nobody waits for another child of ours."""
    seen = os.WEXITED | os.WNOHANG | os.WNOWAIT
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, seen)) is not None and ended.si_pid != spare:
            os.waitpid(ended.si_pid, 0)
