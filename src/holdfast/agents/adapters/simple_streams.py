"""The two simplest streams: lines that are our events already, and a command that is one single call."""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Sequence

import msgspec

from holdfast.agents.common.cli_base import broke_off
from holdfast.domain.agent_events import UNREACHABLE, AgentEvent, Finished, PersonAsked, ToolEnded, ToolStarted
from holdfast.questions.records import Verdict
from holdfast.storage.files.json_file import decode_json
from holdfast.storage.records.redact import without_secrets

OUTPUT_LINES_MAX, LINE_BYTES_MAX, _SECRET_BYTES_MAX = 100, 16 << 10, 4096
# EX_TEMPFAIL of sysexits.h: with it a command asks to be tried again later.
TEMPORARY = 75


class OwnEvents:
    """JSON lines of `domain/agent_events`, as `holdfast.agents.adapters.script` writes them.

    A script that asks gets one line for each answer; the first line is the script itself.
    """

    _is_finished = False

    def __init__(self, script: str = "") -> None:
        self._outgoing = msgspec.json.encode({"script": script}) + b"\n"

    def reply(self, asked: PersonAsked, verdict: Verdict) -> bytes:
        return msgspec.json.encode(verdict) + b"\n"

    def cancel(self) -> bytes:
        return b""

    def outgoing(self) -> bytes:
        sent, self._outgoing = self._outgoing, b""
        return sent

    def read(self, line: bytes) -> Sequence[AgentEvent]:
        event: AgentEvent | None = decode_json(line, AgentEvent) if line.startswith(b"{") else None  # type: ignore[arg-type]
        if event is None:
            return ()
        self._is_finished = self._is_finished or isinstance(event, Finished)
        return (event,)

    def end(self, code: int) -> Sequence[AgentEvent]:
        return () if self._is_finished else (broke_off(code),)


class OneCall:
    """A command as one call of one tool, and so one turn; its exit code says whether it is done."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._line = argv[2] if tuple(argv[:2]) == ("sh", "-c") else shlex.join(argv)
        self._last: deque[bytes] = deque(maxlen=OUTPUT_LINES_MAX)
        self._has_begun = False

    def read(self, line: bytes) -> Sequence[AgentEvent]:
        self._last.append(line if len(line) <= LINE_BYTES_MAX else _end_of(line))
        return self._begin()

    def _begin(self) -> Sequence[AgentEvent]:
        if self._has_begun:
            return ()
        self._has_begun = True
        return (ToolStarted("command", "1", self._line),)

    def end(self, code: int) -> Sequence[AgentEvent]:
        if code == TEMPORARY:
            message = "The command ended with code 75: what it needs cannot be reached for now."
            return (*self._begin(), Finished(False, message, UNREACHABLE))
        output = b"\n".join(self._last).decode(errors="replace")
        detail = "" if code == 0 else f"The command ended with code {code}."
        return (*self._begin(), ToolEnded("1", code == 0, output), Finished(code == 0, detail))


def _end_of(line: bytes) -> bytes:
    # Secrets are removed first: half of one would not be recognised.
    text = line[-LINE_BYTES_MAX - _SECRET_BYTES_MAX :].decode(errors="replace")
    return without_secrets(text).encode()[-LINE_BYTES_MAX:]
