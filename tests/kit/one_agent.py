"""A step of a scripted agent that tells who does it: each agent's process, and whether another of the attempt lives.

    run exec PYTHON one_agent.py STEP

It writes to the folder `agents` beside the repository, whose worktrees are four folders below: one line for each step
to the file of the attempt, and to `doubled` where two agents of one attempt are alive. With a second argument the
agent is killed at this step, once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
from pathlib import Path

FOLDER = Path("../../../../agents")


def ticks(pid: int) -> int | None:
    """When the process began; None for one that is dead."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = text[text.rindex(")") + 2 :].split()
    return None if state in "ZX" else int(fields[18])


def main(step: str, *wanted: str) -> None:
    attempt, agent = os.environ["HOLDFAST_ATTEMPT"], os.getppid()
    FOLDER.mkdir(exist_ok=True)
    with open(FOLDER / attempt, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        for line in file.read().splitlines():
            pid, began = map(int, line.split()[:2])
            if pid != agent and ticks(pid) == began:
                with open(FOLDER / "doubled", "a") as doubled:
                    doubled.write(f"{attempt}: {pid} lives beside {agent}\n")
        file.write(f"{agent} {ticks(agent)} {step}\n")
    if wanted:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(FOLDER / f"killed {attempt} {step}", os.O_CREAT | os.O_EXCL))
            os.kill(agent, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
