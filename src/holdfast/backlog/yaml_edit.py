"""Changing single keys of a person's YAML file: comments, order, quotes and the rest stay as they were."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString
from ruamel.yaml.util import load_yaml_guess_indent

from holdfast.domain.definition import BLOCKS, Definition, parse
from holdfast.domain.file_problem import Unreadable
from holdfast.domain.task_ids import from_values
from holdfast.domain.yaml_text import read_mapping
from holdfast.errors import InputError

_WIDTH_MAX = 1_000_000


def with_values(text: bytes, values: Mapping[str, Any]) -> bytes:
    """The text with these values at its top level; None takes a key out. `text` is one that `parse` took."""
    words = text.decode()
    _, indent, offset = load_yaml_guess_indent(words)
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, _WIDTH_MAX
    yaml.indent(mapping=2, sequence=indent or 2, offset=offset or 0)
    mapping = yaml.load(words)
    for key, value in values.items():
        if value is None:
            mapping.pop(key, None)
        elif key in mapping:
            mapping[key] = _written(value)
        else:
            # New keys stand before our block, which is always last.
            end = next((number for number, each in enumerate(mapping) if each in BLOCKS), len(mapping))
            mapping.insert(end, key, _written(value))
    out = io.BytesIO()
    yaml.dump(mapping, out)
    return out.getvalue()


def _written(value: Any) -> Any:
    """Words stay plain where that means the same to every reader of YAML, 1.1 or 1.2."""
    if isinstance(value, list):
        return [_written(each) for each in value]
    if isinstance(value, dict):
        return {_written(key): _written(each) for key, each in value.items()}
    if not isinstance(value, str):
        return value
    if "\n" in value and value.replace("\n", "").isprintable():
        return LiteralScalarString(value)
    try:
        is_plain = read_mapping(b"key: " + value.encode()) == {"key": value}
    except Unreadable:
        is_plain = False
    return value if is_plain else DoubleQuotedScalarString(value)


def edited(text: bytes, before: Definition, stem: str, values: Mapping[str, Any]) -> bytes:
    """The file with these values, and every comment and other key as it was."""
    given = {key: value for key, value in values.items() if value is not None}
    unknown = dict.fromkeys(values.keys() - before.__struct_fields__)
    wanted = from_values({"id": before.id, "title": "any", **given, **unknown})
    changed = with_values(text, values)
    after = parse(changed, stem)
    if isinstance(after, Definition):
        expected = {key: getattr(wanted if key in given else before, key) for key in before.__struct_fields__}
        expected |= {key: getattr(Definition(""), key) for key in values.keys() - given.keys()}
        if msgspec.structs.asdict(after) != expected:
            raise InputError(detail="this file cannot be changed key by key without changing more; edit it by hand")
    return changed
