"""Adds a rule to `permissions` of config/settings.yaml. Comments, order and the rest of the file stay as they were."""

from __future__ import annotations

import io
from typing import Any

import msgspec

from holdfast.domain.file_problem import Unreadable
from holdfast.domain.yaml_text import read_mapping
from holdfast.errors import InputError
from holdfast.layout import Layout
from holdfast.storage.files import disk

KEY = "permissions"


def add_rule(layout: Layout, rule: dict[str, Any]) -> bool:
    """Writes the file with the rule, durably; False where it has it already. Refuses what it cannot add exactly."""
    path = layout.settings
    text = path.read_bytes() if path.exists() else b""
    before = _values(text)
    rules = before.get(KEY) or []
    if rule in rules:
        return False
    new = with_rule(text, rule)
    if _values(new) != {**before, KEY: [*rules, rule]}:
        raise _unfit(layout, rule)
    disk.replace(path, new, disk.COMMON_FILE)
    return True


def with_rule(text: bytes, rule: dict[str, Any]) -> bytes:
    """The text with one more rule at the end of the list; without the list, it is put at the end of the text."""
    written = msgspec.json.encode(rule).decode()
    if KEY not in _values(text):
        return text + (b"" if text.endswith(b"\n") or not text else b"\n") + f"\n{KEY}:\n- {written}\n".encode()
    # Slow to load, and needed for nothing else here.
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.util import load_yaml_guess_indent

    words = text.decode()
    _, indent, offset = load_yaml_guess_indent(words)
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, 1_000_000
    yaml.indent(mapping=2, sequence=indent or 2, offset=offset or 0)
    mapping = yaml.load(words)
    one = CommentedMap(rule)
    one.fa.set_flow_style()
    if isinstance(mapping[KEY], CommentedSeq):
        mapping[KEY].append(one)
    else:
        mapping[KEY] = CommentedSeq([one])
    out = io.BytesIO()
    yaml.dump(mapping, out)
    return out.getvalue()


def _values(text: bytes) -> dict[str, Any]:
    try:
        return read_mapping(text) if text.strip() else {}
    except Unreadable as unreadable:
        # A file of comments alone is no mapping.
        if all(not line.strip() or line.lstrip().startswith(b"#") for line in text.splitlines()):
            return {}
        detail = f"the settings cannot be read, so no rule was added: {unreadable.problem.message}; mend the file first"
        raise InputError(detail=detail) from unreadable


def _unfit(layout: Layout, rule: dict[str, Any]) -> InputError:
    return InputError(
        detail=f"the rule cannot be added to {layout.settings} without changing something else there. Nothing was "
        f"changed; write it there yourself, below {KEY}: {msgspec.json.encode(rule).decode()}; then answer with --allow"
    )
