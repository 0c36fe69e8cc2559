"""The text of a new settings file: every setting with its default, as a comment."""

from __future__ import annotations

import textwrap
from typing import Any

import msgspec

from holdfast.config.settings import KEYS

# Of a comment, so that a line fits beside its indentation.
WIDTH = 118


def _default_settings() -> str:
    """Every setting with its default, commented out: what a person does not decide follows the program."""
    lines = ["# Settings of Holdfast. Take the # off a line to set it; the environment and the command line win.", ""]
    section = ""
    for key in KEYS.values():
        if key.name == "data_root":
            continue
        head, _, name = key.name.rpartition(".")
        if head != section:
            lines += ["", f"{head}:"] if head else [""]
            section = head
        indent = "  " if head else ""
        said = (f"# {key.description}", f"# allowed: {key.allowed}")
        lines += [indent + line for each in said for line in textwrap.wrap(each, WIDTH, subsequent_indent="#   ")]
        lines.append(f"{indent}#{name}: {as_yaml(key.default)}")
    return "\n".join(lines) + "\n"


def as_yaml(value: Any) -> str:
    """A value as it is written in the settings file, on one line."""
    return msgspec.json.encode(value).decode().removesuffix(".0")


DEFAULT_SETTINGS = _default_settings()
