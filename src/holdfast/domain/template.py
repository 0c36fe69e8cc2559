"""A small template: `{{name}}` is a value, and `{{#name}}…{{/name}}` stands only where the value is not empty.

A name that nobody knows is an error: a mistake in a template must not pass as an empty place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from holdfast.errors import TemplateInvalid

_SECTION = re.compile(r"\{\{#([a-z_]+)\}\}\n?(.*?)\{\{/\1\}\}\n?", re.DOTALL)
_VALUE = re.compile(r"\{\{([^{}]*)\}\}")
_BLANK_LINES = re.compile(r"\n{3,}")


def check(template: str, known: Collection[str], name: str) -> None:
    """Raises TemplateInvalid for a placeholder that is not known, also where it stands in a section."""
    sections = _SECTION.sub(lambda found: f"{{{{{found[1]}}}}}{found[2]}", template)
    for placeholder in _VALUE.findall(sections):
        if placeholder not in known:
            raise TemplateInvalid(name=name, placeholder=placeholder, known=", ".join(sorted(known)))


def render(template: str, values: Mapping[str, str], name: str) -> str:
    """The text, with no more than one empty line in a row. What a value holds is never read as a template."""
    check(template, values, name)
    shown = _SECTION.sub(lambda found: found[2] if values[found[1]] else "", template)
    text = _VALUE.sub(lambda found: values[found[1]], _BLANK_LINES.sub("\n\n", shown))
    return text.strip("\n") + "\n"
