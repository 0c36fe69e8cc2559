"""The scripted agent: carries out the lines of its standard input, in the same way every time.

    write PATH TEXT · append PATH TEXT · delete PATH · run COMMAND · spawn COMMAND               one turn each
    say TEXT · session ID · sleep S · spend USD [TOKENS] · rate-limit S · unreachable [TEXT] · retrying [TEXT] · hang
    fail [TEXT] · crash [SIGNAL]

`\\n` in a text is a new line. `spawn` leaves the command behind. A line that begins with `attempt N:` counts only in
the N-th attempt, with `attempt N+:` from it on; one that begins with `once PATH:` only while there is no such file,
which it makes; with `while PATH:` only while there is one. An empty line, and one that begins with #, says nothing.
Continued after a crash, it begins behind the turns that were completed.

After each turn it waits for SIGCONT, so its turns and their snapshots are the same every time.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from holdfast.clock import wall
from holdfast.domain.agent_events import (
    UNREACHABLE,
    AgentEvent,
    Finished,
    RateLimited,
    Retrying,
    Said,
    SessionBegan,
    Spent,
    ToolEnded,
    ToolStarted,
)
from holdfast.processes.quick_exit import leave
from holdfast.storage.files import disk

TURNS = ("write", "append", "delete", "run", "spawn")
OTHERS = (
    "say", "session", "sleep", "spend", "rate-limit", "unreachable", "retrying", "hang", "fail", "crash",
)  # fmt: skip
# A runner answers each turn with SIGCONT; without a runner, the script continues by itself.
BARRIER_S_MAX = 60.0
_ATTEMPT = re.compile(r"attempt (\d+)(\+?):\s*")
_ONCE = re.compile(r"once (\S+):\s*")
_WHILE = re.compile(r"while (\S+):\s*")


def main() -> int:
    """Runs the script, without the steps up to the last completed turn."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
    attempt = os.environ.get("HOLDFAST_ATTEMPT", "").rpartition(".")[2]
    steps = _steps(sys.stdin.read(), int(attempt) if attempt.isdigit() else 1)
    turns = [place for place, line in enumerate(steps) if _verb(line) in TURNS]
    done = int(os.environ.get("HOLDFAST_TURN", "0"))
    if done:
        steps = steps[turns[done - 1] + 1 :] if done <= len(turns) else []
    for number, line in enumerate(steps, 1):
        if found := _ONCE.match(line):
            marker, line = Path(found[1]), line[found.end() :]
            if marker.exists():
                continue
            disk.replace(marker, b"")
        if found := _WHILE.match(line):
            if not Path(found[1]).exists():
                continue
            line = line[found.end() :]
        verb, _, rest = line.partition(" ")
        if verb in TURNS:
            _turn(verb, rest, f"{done}.{number}")
        elif (code := _other(verb, rest)) is not None:
            return code
    _tell(Finished(True))
    return 0


def _steps(text: str, attempt: int) -> list[str]:
    steps = []
    for line in map(str.strip, text.splitlines()):
        if found := _ATTEMPT.match(line):
            number = int(found[1])
            if attempt != number and not (found[2] and attempt > number):
                continue
            line = line[found.end() :]
        if line and not line.startswith("#"):
            steps.append(line)
    return steps


def unknown_step(text: str) -> str:
    """The first unknown step of a script; empty where all are known."""
    lines = (_ATTEMPT.sub("", line.strip(), count=1) for line in text.splitlines())
    verbs = (_verb(line) for line in lines if line and not line.startswith("#"))
    return next((verb for verb in verbs if verb not in (*TURNS, *OTHERS)), "")


def _verb(line: str) -> str:
    return _WHILE.sub("", _ONCE.sub("", line)).partition(" ")[0]


def _tell(event: AgentEvent) -> None:
    sys.stdout.write(msgspec.json.encode(event).decode() + "\n")
    sys.stdout.flush()


def _turn(verb: str, rest: str, call: str) -> None:
    _tell(ToolStarted(verb, call, rest))
    name, _, text = rest.partition(" ")
    data = text.replace("\\n", "\n").encode() + b"\n"
    ok, output = True, ""
    # A command inherits `alive.lock`, as the script did itself.
    if verb == "run":
        ended = subprocess.run(
            ["sh", "-c", rest], capture_output=True, stdin=subprocess.DEVNULL, check=False, close_fds=False
        )
        ok, output = ended.returncode == 0, (ended.stdout + ended.stderr).decode(errors="replace")
    elif verb == "spawn":
        subprocess.Popen(["sh", "-c", rest], stdin=subprocess.DEVNULL, close_fds=False)
    elif verb == "delete":
        disk.unlink(Path(name), missing_ok=True)
    else:
        path = Path(name)
        disk.mkdir(path.absolute().parent, disk.COMMON_FOLDER)
        before = path.read_bytes() if verb == "append" and path.exists() else b""
        disk.replace(path, before + data, disk.COMMON_FILE)
    # Drops a signal that was sent before this turn.
    signal.sigtimedwait({signal.SIGCONT}, 0)
    _tell(ToolEnded(call, ok, output))
    if "HOLDFAST_ATTEMPT" in os.environ:
        signal.sigtimedwait({signal.SIGCONT}, BARRIER_S_MAX)


def _other(verb: str, rest: str) -> int | None:
    """Carries out a step that is no turn; returns the exit code, or None to continue."""
    words = rest.split()
    if verb == "say":
        _tell(Said(rest))
    elif verb == "session":
        _tell(SessionBegan(rest))
    elif verb == "sleep":
        time.sleep(float(rest))
    elif verb == "spend":
        _tell(Spent(float(words[0]), tokens_out=int(words[1]) if len(words) > 1 else 0))
    elif verb == "rate-limit":
        _tell(RateLimited(wall() + float(rest), f"The script has a rate limit of {rest} s."))
        return 1
    elif verb == "unreachable":
        _tell(Finished(False, rest or "The script does not reach its model.", UNREACHABLE))
        return 1
    elif verb == "retrying":
        _tell(Retrying(rest))
    elif verb == "hang":
        while True:
            time.sleep(3600)
    elif verb == "fail":
        _tell(Finished(False, rest))
        return 1
    elif verb == "crash":
        os.kill(os.getpid(), signal.Signals[f"SIG{rest.removeprefix('SIG') or 'KILL'}"])
    else:
        _tell(Finished(False, f"The script has a step that is not known: {verb}"))
        return 2
    return None


if __name__ == "__main__":
    leave(main())
