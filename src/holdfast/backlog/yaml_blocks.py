"""Our blocks in a person's file: taken out and put in as text, so that every other byte stays.

A YAML library that writes a whole file back changes quoting, widths and line ends that were a person's. So the parser
only tells where the block stands: from the line of its key to the end of its value's last line. A new block goes to the
end of the mapping, in the file's own line ends and indentation. A file without a line end at its end keeps it that way,
which also tells, when the block is taken out again, that the line end before it was ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import yaml

from holdfast.domain.definition import BLOCKS

_BOM = "\ufeff"
_LINE_ENDS = "\r\n\x85\u2028\u2029"


def without_blocks(text: bytes) -> bytes:
    """The text without our blocks, as the person wrote it. `text` is one that `definition.parse` accepted."""
    words = text.decode()
    for start, end in reversed(list(_spans(words))):
        if end == len(words) and words[-1:] not in ("\r", "\n"):
            start -= 2 if words[start - 2 : start] == "\r\n" else 1
        words = words[:start] + words[end:]
    return words.encode()


def with_block(text: bytes, key: str | None, block: Mapping[str, Any] | None) -> bytes:
    """The file with this block, and none of the others."""
    body = without_blocks(text).decode()
    if key is None or block is None:
        return body.encode()
    indent, end = _end_of_mapping(body)
    newline = _newline(body)
    lines = [" " * indent + line for line in _render(key, block).splitlines()]
    before, after = body[:end], body[end:]
    if before[-1:] in ("\r", "\n"):
        return (before + "".join(line + newline for line in lines) + after).encode()
    return (before + "".join(newline + line for line in lines) + after).encode()


def _spans(words: str) -> Iterator[tuple[int, int]]:
    """The positions of our blocks in the text."""
    shift = words.startswith(_BOM)
    depth, key, is_key, ours, last = 0, "", True, -1, 0
    for event in _events(words):
        opens = isinstance(event, yaml.CollectionStartEvent)
        closes = isinstance(event, yaml.CollectionEndEvent)
        if depth == 1 and not closes:
            if is_key:
                key = event.value
                ours = event.start_mark.index + shift if key in BLOCKS else -1
            is_key = not is_key
        depth += opens - closes
        # The end of a block collection is only where the next thing begins; its last value tells where it ends.
        if isinstance(event, yaml.ScalarEvent | yaml.AliasEvent) or (closes and _is_bracket(words, event, shift)):
            last = event.end_mark.index + shift
        if ours >= 0 and depth == 1 and is_key:
            yield _line_start(words, ours), _line_end(words, max(last, ours))
            ours = -1


def _events(words: str) -> Iterator[Any]:
    yield from yaml.parse(words.encode(), yaml.CSafeLoader)


def _is_bracket(words: str, event: Any, shift: int) -> bool:
    start = event.start_mark.index + shift
    return event.end_mark.index > event.start_mark.index and words[start] in "]}"


def _end_of_mapping(words: str) -> tuple[int, int]:
    """The column of the top keys, and where the next one would go: at the end, or before a `...` that ends it."""
    shift = words.startswith(_BOM)
    column, end = -1, len(words)
    for event in _events(words):
        mark = event.start_mark
        if column < 0 and isinstance(event, yaml.MappingStartEvent):
            column = mark.column
        if isinstance(event, yaml.DocumentEndEvent) and event.explicit:
            end = mark.index + shift
    return column, end


def _line_start(words: str, at: int) -> int:
    while at > 0 and words[at - 1] not in _LINE_ENDS and words[at - 1] != _BOM:
        at -= 1
    return at


def _line_end(words: str, at: int) -> int:
    # A block of text ends where the next line begins.
    if at > 0 and words[at - 1] in _LINE_ENDS:
        return at
    while at < len(words) and words[at] not in _LINE_ENDS:
        at += 1
    return at + (2 if words[at : at + 2] == "\r\n" else 1) if at < len(words) else at


def _newline(words: str) -> str:
    first = next((at for at, letter in enumerate(words) if letter in "\r\n"), -1)
    return "\n" if first < 0 else "\r\n" if words[first : first + 2] == "\r\n" else words[first]


class _Dumper(yaml.SafeDumper):
    """Writes each text on one line, so that the line ends of the file cannot get into it, and every value out."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = '"' if any(letter in _LINE_ENDS for letter in text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _render(key: str, block: Mapping[str, Any]) -> str:
    plain = msgspec.to_builtins(dict(block))
    made: str = yaml.dump({key: plain}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 30)
    return made
