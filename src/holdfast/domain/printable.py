"""Text in printable characters only: nothing that a terminal would obey."""

from __future__ import annotations


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
