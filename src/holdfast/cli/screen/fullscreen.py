"""A terminal as a full screen: the alternate screen, keys one by one, and the terminal as it was on every way out.

Signals: SIGTERM and SIGHUP leave by an exception, so that the terminal is put back. Ctrl-Z puts it back before the
process stops. SIGCONT takes it again. SIGWINCH only ends the wait for a key.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType, TracebackType

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE = "\x1b[?25h\x1b[?1049l"
# How long the rest of a key's sequence may take to come: Escape alone is a key, too.
SEQUENCE_S = 0.05
_KEYS = {
    "\x1b[A": "up", "\x1bOA": "up", "k": "up",
    "\x1b[B": "down", "\x1bOB": "down", "j": "down",
    "\x1b[5~": "page up", "b": "page up", "\x1b[6~": "page down", " ": "page down",
    "\x1b[H": "home", "\x1b[1~": "home", "\x1bOH": "home", "g": "home",
    "\x1b[F": "end", "\x1b[4~": "end", "\x1bOF": "end", "G": "end",
    "\r": "enter", "\n": "enter", "\x1b": "escape",
}  # fmt: skip
# While a text is typed, letters are letters.
TEXT_KEYS = {"\r": "enter", "\n": "enter", "\x1b": "escape", "\x7f": "backspace", "\x08": "backspace", "\x15": "clear"}
STYLES = {"bold": "1", "dim": "2", "reverse": "7", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_COLOURS = {"red", "green", "yellow", "cyan"}

# A line's text and its style; the text must be printable, and fit the width.
Line = tuple[str, str]


class FullScreen:
    """A context manager, for the main thread. `paint` draws a whole picture, `keys` waits for what is typed."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        # Without a buffer: a signal's handler may write in the middle of a painting.
        self._terminal = io.FileIO(self._out, "w", closefd=False)
        self._is_plain = bool(os.environ.get("NO_COLOR"))
        self._painted: list[str] = []
        # A character may come in two parts.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")
        self._is_taken = False
        # The screen was cleared since it was painted; set by signals' handlers, which come at any moment.
        self._is_stale = True

    def __enter__(self) -> FullScreen:
        self._mode = termios.tcgetattr(self._in)
        self._woken, self._wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        handlers = {signal.SIGTERM: _end, signal.SIGHUP: _end, signal.SIGTSTP: self._suspend}
        handlers |= {signal.SIGCONT: lambda *_: self._enter_screen(), signal.SIGWINCH: lambda *_: None}
        self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        # A signal ends the wait for a key, also where its handler has nothing to do.
        self._wakes_before = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        try:
            self._enter_screen()
        except BaseException:
            self._undo()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._undo()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows, as they are now."""
        found = os.get_terminal_size(self._out)
        return max(20, found.columns), max(8, found.lines)

    def paint(self, lines: Sequence[Line]) -> None:
        """Draws the lines that differ from those that are there."""
        columns, rows = self.size
        new = [self._styled(*line) for line in lines[:rows]]
        new += [""] * (rows - len(new))
        size = f"{columns}x{rows}"
        is_stale, self._is_stale = self._is_stale, False
        if is_stale or self._painted[:1] != [size]:
            self._painted = [size, *(["\0"] * rows)]
        changed = (at for at, line in enumerate(new) if self._painted[at + 1] != line)
        text = "".join(f"\x1b[{at + 1};1H{new[at]}\x1b[K" for at in changed)
        self._painted = [size, *new]
        self._write(text)

    def keys(self, wait_s: float, *, is_text: bool = False) -> list[str]:
        """Returns the typed keys: names such as `up`, and other characters as they are. Empty when the time is over.

        With `is_text` only those that end or change a text have names.
        """
        ready, _, _ = select.select([self._in, self._woken], [], [], max(0.0, wait_s))
        if self._woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
        if self._in not in ready:
            return []
        data = os.read(self._in, 4096)
        if not data:
            raise EOFError
        while b"\x1b" in data[-3:] and select.select([self._in], [], [], SEQUENCE_S)[0]:
            data += os.read(self._in, 4096)
        return list(parse_keys(self._decoder.decode(data), TEXT_KEYS if is_text else _KEYS))

    # -- taking the terminal, and giving it back ----------------------------------------------------------------------

    def _enter_screen(self) -> None:
        # Ctrl-C and Ctrl-Z stay signals.
        tty.setcbreak(self._in)
        self._is_taken = self._is_stale = True
        self._write(_ENTER)

    def _leave_screen(self) -> None:
        if not self._is_taken:
            return
        self._is_taken = False
        with contextlib.suppress(OSError):
            self._write(_LEAVE)
        # The terminal may be gone.
        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._mode)

    def _undo(self) -> None:
        self._leave_screen()
        signal.set_wakeup_fd(self._wakes_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._woken)
        os.close(self._wakes)

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self._leave_screen()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        # Here it goes on; SIGCONT has taken the terminal, unless nothing could stop us.
        signal.signal(signal.SIGTSTP, self._suspend)
        if not self._is_taken:
            self._enter_screen()

    def _styled(self, text: str, style: str) -> str:
        codes = [STYLES[word] for word in style.split() if not (self._is_plain and word in _COLOURS)]
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if codes and text else text

    def _write(self, text: str) -> None:
        data = text.encode(errors="backslashreplace")
        while data:
            data = data[self._terminal.write(data) or 0 :]


def parse_keys(text: str, names: Mapping[str, str] = _KEYS) -> Iterator[str]:
    at = 0
    while at < len(text):
        size = _sequence_length(text, at)
        key, at = text[at : at + size], at + size
        if key in names:
            yield names[key]
        elif len(key) == 1 and key.isprintable():
            yield key


def _sequence_length(text: str, at: int) -> int:
    """The length of one key: a character, or an escape sequence with its parameters up to its last letter."""
    if text[at] != "\x1b" or at + 1 == len(text) or text[at + 1] not in "[O":
        return 1
    end = at + 2
    while end < len(text) and not text[end].isalpha() and text[end] != "~":
        end += 1
    return min(end + 1, len(text)) - at


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
