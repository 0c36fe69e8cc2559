"""The standard input of an agent that its runner talks to. Never blocks: what the agent does not read yet is kept."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from holdfast.clock import monotonic

if TYPE_CHECKING:
    from holdfast.agents.runner.child import Child
    from holdfast.ports import Stream, TalkingStream

WRITE_BYTES = 1 << 16
# How long an agent may take to end its prompt by itself before it is ended.
CANCEL_S_MAX = 2.0
_POLL_S = 0.02


class InputPipe:
    """Sends what the stream has to say. Of an agent that is not talked to, it does nothing."""

    def __init__(self, child: Child, stream: Stream) -> None:
        self._child, self._stream = child, cast("TalkingStream", stream)
        self._fd = child.stdin
        self._waiting = bytearray()
        self._is_closed, self._is_watched = self._fd < 0, False

    def pump(self, selector: selectors.BaseSelector) -> None:
        """Sends what can be sent now, and has the selector wait for room where that is not all."""
        if self._is_closed:
            return
        self._waiting += self._stream.outgoing(monotonic())
        self._write()
        if bool(self._waiting) != self._is_watched:
            self._is_watched = not self._is_watched
            if self._is_watched:
                selector.register(self._fd, selectors.EVENT_WRITE)
            else:
                selector.unregister(self._fd)
        if not self._waiting and self._stream.is_over:
            self._end()

    def cancel(self, read: Callable[[int], bool]) -> None:
        """Asks the agent to end its work, and reads on for a moment, so that it can say how that ended."""
        line = b"" if self._is_closed else self._stream.cancel()
        if not line:
            return
        self._waiting += line
        deadline = monotonic() + CANCEL_S_MAX
        while self._write() and not self._stream.is_over and monotonic() < deadline:
            while read(self._child.stdout):
                pass
            time.sleep(_POLL_S)
        self._end()

    def _write(self) -> bool:
        """False where the agent reads no more."""
        try:
            while self._waiting:
                if not (sent := self._child.send(bytes(self._waiting[:WRITE_BYTES]))):
                    break
                del self._waiting[:sent]
        except OSError:
            # What it printed, and how it ends, says the rest.
            self._waiting.clear()
            return False
        return True

    def _end(self) -> None:
        self._is_closed = True
        self._child.close_input()
