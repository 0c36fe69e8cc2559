"""YAML text ↔ plain values, with bounds: what a person writes in a task file, and nothing that could hurt.

Read from the parser's events, which is twice as fast as PyYAML's own construction and sees what that hides: a key given
twice, a second document, an alias that grows without end. Values are texts, numbers, yes or no, nothing, lists and
mappings; a key is always the text as written, and a date stays text. Plain scalars are told apart by PyYAML's rules,
those of YAML 1.1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NoReturn

import yaml

from holdfast.domain.definition import TEXT_BYTES_MAX, FileProblem, Unreadable

DEPTH_MAX = 32
# Counted with every alias written out.
VALUES_MAX = 100_000

_PREFIX = "tag:yaml.org,2002:"
_TEXT = _PREFIX + "str"
_RESOLVERS: dict[str, list[tuple[str, re.Pattern[str]]]] = yaml.CSafeLoader.yaml_implicit_resolvers
_STAYS_TEXT = {_PREFIX + name for name in ("str", "timestamp", "value", "merge")}
_YES = {"yes", "true", "on"}


def read_mapping(text: bytes) -> dict[str, Any]:
    """The one mapping that `text` holds, or raises Unreadable."""
    _check_bytes(text)
    # So that a block of text at the very end means the same before and after a line is put behind it.
    loader = yaml.CSafeLoader(text if text.endswith(b"\n") else text + b"\n")
    try:
        return _Reader(loader).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        told = " ".join(filter(None, [error.context, error.problem]))
        raise Unreadable(_at(mark, f"this is not YAML: {told}")) from None
    except yaml.reader.ReaderError as error:
        told = f"the character {error.character!r} is not allowed: {error.reason}"
        raise Unreadable(_at_byte(text, error.position, told)) from None


def locate(text: bytes, path: list[str | int]) -> tuple[int, int]:
    """Line and column of the value at `path`, or of the last part of the path that is there.

    Only for text that `read_mapping` took: its bounds keep the recursion here shallow.
    """
    node = yaml.compose(text, yaml.CSafeLoader)
    place = node.start_mark
    for part in path:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == part), None)
            if found is None:
                break
            place, node = found[0].start_mark, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            place = node.start_mark
        else:
            break
    return place.line + 1, place.column + 1


def write_mapping(values: dict[str, Any]) -> bytes:
    """The text of a file that holds `values`: `read_mapping` makes the same of it."""
    return "".join(_plain_line(key, value) or _dump({key: value}) for key, value in values.items()).encode()


def _dump(values: dict[str, Any]) -> str:
    text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


_PLAIN = re.compile(r"[A-Za-z](?:[A-Za-z0-9_./,()-]| (?! ))*")
_KEY = re.compile(r"[a-z_]{2,40}")


def _plain_line(key: str, value: object) -> str:
    """A short text, or a whole number, as PyYAML would write it, at a twentieth of its price; empty for all else."""
    if not _KEY.fullmatch(key) or _is_resolved(key):
        return ""
    if type(value) is int:
        return f"{key}: {value}\n"
    if type(value) is not str or len(key) + len(value) > 90 or not _PLAIN.fullmatch(value) or value[-1] == " ":
        return ""
    return "" if _is_resolved(value) else f"{key}: {value}\n"


def _is_resolved(text: str) -> bool:
    """True for what YAML takes for something else than text."""
    return any(pattern.match(text) for _, pattern in _RESOLVERS.get(text[0], ()))


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as a person would."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # The rarer line ends do not survive outside double quotes.
    rare = any(letter in text for letter in "\r\x85\u2028\u2029")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if rare else "|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


class _Reader:
    def __init__(self, loader: yaml.CSafeLoader) -> None:
        self._loader = loader
        self._next: Callable[[], Any] = loader.get_event
        self._count = 0
        self._anchors: dict[str, tuple[Any, int]] = {}

    def document(self) -> dict[str, Any]:
        self._next()
        start = self._next()
        if isinstance(start, yaml.StreamEndEvent):
            raise Unreadable(FileProblem(1, 1, "the file is empty: keys such as `title:` and `goal:` were expected"))
        root = self._next()
        if not isinstance(root, yaml.MappingStartEvent):
            self._refuse(root, "keys such as `title:` and `goal:` were expected, not a single value or a list")
        if root.flow_style:
            self._refuse(root, "write one key per line, not { } around all of them: blocks are added at the end")
        value: dict[str, Any] = self._value(root, 0)
        self._next()
        end = self._next()
        if not isinstance(end, yaml.StreamEndEvent):
            self._refuse(end, "a second document begins here: one file holds one task")
        return value

    def _value(self, event: Any, depth: int) -> Any:
        before = self._count
        self._count += 1
        kind = type(event)
        if kind is yaml.ScalarEvent:
            value = self._scalar(event)
        elif kind is yaml.AliasEvent:
            return self._alias(event)
        elif depth >= DEPTH_MAX:
            self._refuse(event, f"values stand inside each other more than {DEPTH_MAX} deep")
        elif kind is yaml.MappingStartEvent:
            value = self._mapping(event, depth)
        else:
            value = self._sequence(event, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._count - before)
        return value

    def _sequence(self, event: Any, depth: int) -> list[Any]:
        self._check_tag(event, "seq")
        items: list[Any] = []
        while type(event := self._next()) is not yaml.SequenceEndEvent:
            items.append(self._value(event, depth + 1))
        return items

    def _mapping(self, event: Any, depth: int) -> dict[str, Any]:
        self._check_tag(event, "map")
        items: dict[str, Any] = {}
        while type(event := self._next()) is not yaml.MappingEndEvent:
            if type(event) is not yaml.ScalarEvent:
                self._refuse(event, "a key must be plain text")
            key = event.value
            if key in items:
                self._refuse(event, f"the key {key!r} is given twice", key)
            if key == "<<" and event.implicit[0]:
                self._refuse(event, "merge keys (<<) are not supported: write the keys out", key)
            items[key] = self._value(self._next(), depth + 1)
        return items

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            self._refuse(event, f"the alias *{event.anchor} has no finished value before it")
        value, size = self._anchors[event.anchor]
        self._count += size
        if self._count > VALUES_MAX:
            self._refuse(event, f"the file holds more than {VALUES_MAX:,} values with its aliases written out")
        return value

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        tag = event.tag
        if tag is None or tag == "!":
            if not event.implicit[0]:
                return text
            forms = _RESOLVERS.get(text[:1])
            if forms is None:
                return text
            tag = next((tag for tag, form in forms if form.match(text)), _TEXT)
        if tag in _STAYS_TEXT:
            return text
        if tag == _PREFIX + "null":
            return None
        if tag == _PREFIX + "bool":
            return text.lower() in _YES
        return self._number(event, tag, text)

    def _number(self, event: Any, tag: str, text: str) -> int | float:
        if tag not in (_PREFIX + "int", _PREFIX + "float"):
            self._refuse(event, f"the tag {tag} is not supported here: write the plain value")
        construct = self._loader.construct_yaml_int if tag.endswith("int") else self._loader.construct_yaml_float
        number: int | float
        try:
            number = construct(yaml.ScalarNode(tag, text))
        except (ValueError, IndexError):
            number = math.nan
        if not -(1 << 63) <= number < 1 << 63:
            self._refuse(event, f"{text[:40]!r} is no number that can be used here: put it in quotes if it is text")
        return number

    def _check_tag(self, event: Any, expected: str) -> None:
        if event.tag not in (None, "!", _PREFIX + expected):
            self._refuse(event, f"the tag {event.tag} is not supported here: write the plain value")

    def _refuse(self, event: Any, message: str, key: str = "") -> NoReturn:
        raise Unreadable(_at(event.start_mark, message, key))


def _check_bytes(text: bytes) -> None:
    if len(text) > TEXT_BYTES_MAX:
        raise Unreadable(FileProblem.too_long(len(text)))
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(_at_byte(text, error.start, f"this is not UTF-8 text: {error.reason}")) from None


def _at(mark: Any, message: str, key: str = "") -> FileProblem:
    return FileProblem(mark.line + 1, mark.column + 1, message, key) if mark else FileProblem(1, 1, message, key)


def _at_byte(text: bytes, position: int, message: str) -> FileProblem:
    before = text[:position]
    return FileProblem(before.count(b"\n") + 1, position - (before.rfind(b"\n") + 1) + 1, message)
