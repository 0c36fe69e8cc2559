"""The scripted agent: carries out the lines of its standard input, in the same way every time.

    write PATH TEXT · append PATH TEXT · delete PATH · run COMMAND · spawn COMMAND · question TEXT   one turn each
    say TEXT · session ID · sleep S · spend USD [TOKENS] · rate-limit S · unreachable [TEXT] · retrying [TEXT] · hang
    fail [TEXT] · crash [SIGNAL]

A turn that begins with `ask` is asked for first, and waits for the answer; with `ask-later` the script ends then, and
is started again with the answer. `question` is asked for words, which it appends to answer.txt.

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
from typing import Literal

import msgspec

from holdfast.clock import wall
from holdfast.domain.agent_events import (
    UNREACHABLE,
    AgentEvent,
    Finished,
    PersonAsked,
    RateLimited,
    Retrying,
    Said,
    SessionBegan,
    Spent,
    ToolEnded,
    ToolStarted,
)
from holdfast.processes.quick_exit import leave
from holdfast.questions.records import Verdict
from holdfast.storage.files import disk

TURNS = ("write", "append", "delete", "run", "spawn", "question")
OTHERS = (
    "say", "session", "sleep", "spend", "rate-limit", "unreachable", "retrying", "hang", "fail", "crash",
)  # fmt: skip
# A runner answers each turn with SIGCONT; without a runner, the script continues by itself.
BARRIER_S_MAX = 60.0
_ATTEMPT = re.compile(r"attempt (\d+)(\+?):\s*")
_ONCE = re.compile(r"once (\S+):\s*")
_WHILE = re.compile(r"while (\S+):\s*")
_ASK = re.compile(r"ask(-later)? ")


def main() -> int:
    """Runs the script, without the steps up to the last completed turn."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
    attempt = os.environ.get("HOLDFAST_ATTEMPT", "").rpartition(".")[2]
    steps = _steps(_script(), int(attempt) if attempt.isdigit() else 1)
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
        asks = _ASK.match(line)
        verb, _, rest = line[asks.end() if asks else 0 :].partition(" ")
        if verb in TURNS:
            answer = _ask(verb, rest, f"{done}.{number}", defers=bool(asks[1])) if asks else None
            if answer is not None and answer.decision == "defer":
                break
            _turn(verb, rest, f"{done}.{number}", answer)
        elif (code := _other(verb, rest)) is not None:
            return code
    _print_event(Finished(True))
    return 0


def _script() -> str:
    """The script, alone or as the first line of a dialogue."""
    first = sys.stdin.readline()
    if first.startswith('{"script":'):
        return str(msgspec.json.decode(first)["script"])
    return first + sys.stdin.read()


def _ask(verb: str, rest: str, call: str, *, defers: bool) -> Verdict:
    """Asks before a turn; returns the answer."""
    kind: Literal["permission", "words"] = "words" if verb == "question" else "permission"
    _print_event(ToolStarted(verb, call, rest))
    _print_event(PersonAsked(call, verb, rest, kind, defers))
    line = sys.stdin.readline()
    return msgspec.json.decode(line, type=Verdict) if line else Verdict("deny", "Nobody can answer.")


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
    return _ASK.sub("", _WHILE.sub("", _ONCE.sub("", line))).partition(" ")[0]


def _print_event(event: AgentEvent) -> None:
    sys.stdout.write(msgspec.json.encode(event).decode() + "\n")
    sys.stdout.flush()


def _turn(verb: str, rest: str, call: str, answer: Verdict | None) -> None:
    """`answer`: the call was told and asked for already."""
    if answer is None:
        _print_event(ToolStarted(verb, call, rest))
        answer = Verdict("allow")
    name, _, text = rest.partition(" ")
    is_question = verb == "question"
    if is_question:
        verb, name, text = "append", "answer.txt", answer.words
    data = text.replace("\\n", "\n").encode() + b"\n"
    ok, output = answer.decision == ("say" if is_question else "allow"), answer.words
    # A command inherits `alive.lock`, as the script did itself.
    if not ok:
        pass
    elif verb == "run":
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
    _print_event(ToolEnded(call, ok, output))
    if "HOLDFAST_ATTEMPT" in os.environ:
        signal.sigtimedwait({signal.SIGCONT}, BARRIER_S_MAX)


def _other(verb: str, rest: str) -> int | None:
    """Carries out a step that is no turn; returns the exit code, or None to continue."""
    words = rest.split()
    if verb == "say":
        _print_event(Said(rest))
    elif verb == "session":
        _print_event(SessionBegan(rest))
    elif verb == "sleep":
        time.sleep(float(rest))
    elif verb == "spend":
        _print_event(Spent(float(words[0]), tokens_out=int(words[1]) if len(words) > 1 else 0))
    elif verb == "rate-limit":
        _print_event(RateLimited(wall() + float(rest), f"The script has a rate limit of {rest} s."))
        return 1
    elif verb == "unreachable":
        _print_event(Finished(False, rest or "The script does not reach its model.", UNREACHABLE))
        return 1
    elif verb == "retrying":
        _print_event(Retrying(rest))
    elif verb == "hang":
        while True:
            time.sleep(3600)
    elif verb == "fail":
        _print_event(Finished(False, rest))
        return 1
    elif verb == "crash":
        os.kill(os.getpid(), signal.Signals[f"SIG{rest.removeprefix('SIG') or 'KILL'}"])
    else:
        _print_event(Finished(False, f"The script has a step that is not known: {verb}"))
        return 2
    return None


if __name__ == "__main__":
    leave(main())
