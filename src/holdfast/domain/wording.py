"""Words for people: money, counts, sizes, faults and points in time; and text that a terminal can show safely."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import msgspec

_PLACES_MAX = 6
# The fields of a tool's input that say most, as the page has them, too.
_TELLING = ("command", "cmd", "file_path", "filePath", "path", "pattern", "query", "url", "prompt", "description")

# How the sentences of SetupFailed and IncludeTooLarge begin.
_UNREADY = ("The worktree for ", "The files for a worktree ")


def money(usd: float) -> str:
    """`$1.25`; below a dollar with three digits that count, `$0.00125`; never as `$0.00` where something was spent."""
    if not usd:
        return "$0.00"
    sign, value = ("-" if usd < 0 else ""), abs(usd)
    if value < 10**-_PLACES_MAX:
        return f"{sign}less than ${10**-_PLACES_MAX:.{_PLACES_MAX}f}"
    places = 2 if value >= 1 else min(_PLACES_MAX, 2 - math.floor(math.log10(value)))
    whole, _, cents = f"{value:,.{max(2, places)}f}".partition(".")
    return f"{sign}${whole}.{cents.rstrip('0').ljust(2, '0')}"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """`1 turn`, `2 turns`; `nouns` where an s is not enough."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def given_words(given: str) -> str:
    """A tool's input on one line; of a JSON object the field that says most."""
    if given.lstrip().startswith("{"):
        try:
            found = msgspec.json.decode(given, type=dict[str, msgspec.Raw])
            telling = [bytes(found[name]) for name in _TELLING if name in found]
            texts = [msgspec.json.decode(raw, type=str) for raw in telling if raw.startswith(b'"')]
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            texts = []
        given = next((text for text in texts if text.strip()), given)
    return " ".join(given.split())


def is_setup_failure(cause: str) -> bool:
    """Whether it was making its worktree ready that failed: the user's commands and files, not the machine."""
    return cause.startswith(_UNREADY)


def fault_words(cause: str, not_before: float) -> str:
    """The reason why a fault, of the machine or of a setup, holds up a task; empty where none does, or where it only
    waits."""
    if not cause or not_before:
        return ""
    what = "a failed setup" if is_setup_failure(cause) else "a fault of the machine"
    return f"held up by {what}: {cause}{'' if cause.endswith(('.', '!', '?')) else '.'} A run tries it again"


def size(number: int) -> str:
    """`512 bytes`, `1.5 MB`, `1.0 TB`."""
    left = float(number)
    for unit in ("bytes", "KB", "MB", "GB"):
        if left < 1024:
            return f"{left:.0f} {unit}" if unit == "bytes" or left >= 10 else f"{left:.1f} {unit}"
        left /= 1024
    return f"{left:.1f} TB"


def moment(unix_s: float) -> str:
    try:
        return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"second {unix_s:.0f}"  # a date that no calendar here has


def iso(unix_s: float) -> str | float:
    """As ISO 8601, to the microsecond. A moment that no calendar here has stays a number."""
    try:
        return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return unix_s


def plain(text: str) -> str:
    """The text in printable characters only, on one line; what else there is becomes its escape."""
    return text if text.isprintable() else "".join(map(_plain_char, text))


def plain_lines(text: str) -> str:
    """A text of several lines; its tabs and line ends are kept, and nothing else that controls."""
    return "\n".join("\t".join(map(plain, line.split("\t"))) for line in text.split("\n"))


def plain_json(text: str) -> str:
    """The same JSON in printable characters and line ends only."""
    return "\n".join(line if line.isprintable() else "".join(map(_json_char, line)) for line in text.split("\n"))


def _plain_char(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def _json_char(char: str) -> str:
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
