"""A small template: `{{name}}` is a value, and `{{#name}}…{{/name}}` stands only where the value is not empty.

A name that nobody knows is an error: a mistake in a template must not pass as an empty place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.errors import TemplateInvalid

_SECTION = re.compile(r"\{\{#([a-z_]+)\}\}\n?(.*?)\{\{/\1\}\}\n?", re.DOTALL)
_VALUE = re.compile(r"\{\{([^{}]*)\}\}")
_BLANK_LINES = re.compile(r"\n{3,}")


def render(template: str, values: Mapping[str, str], name: str) -> str:
    """The text, with no more than one empty line in a row. What a value holds is never read as a template."""

    def known(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise TemplateInvalid(name=name, placeholder=found[1], known=", ".join(sorted(values)))
        return values[found[1]]

    shown = _SECTION.sub(lambda found: found[2] if known(found) else "", template)
    text = _VALUE.sub(lambda found: known(found), _BLANK_LINES.sub("\n\n", shown))
    return text.strip("\n") + "\n"
