"""A small template: `{{name}}` is a value, and `{{#name}}…{{/name}}` stands only where the value is not empty.

A name that nobody knows is an error: a mistake in a template must not pass as an empty place.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping

from holdfast.errors import TemplateInvalid

_OPEN = re.compile(r"\{\{#([a-z_]+)\}\}\n?")
_CLOSE = re.compile(r"\{\{/([a-z_]+)\}\}\n?")
_VALUE = re.compile(r"\{\{([^{}]*)\}\}")
_BLANK_LINES = re.compile(r"\n{3,}")


def check(template: str, known: Collection[str], name: str) -> None:
    """Raises TemplateInvalid for a placeholder that is not known, also where it stands in a section."""
    sections = _with_sections(template, lambda name, body: f"{{{{{name}}}}}{body}")
    for placeholder in _VALUE.findall(sections):
        if placeholder not in known:
            raise TemplateInvalid(name=name, placeholder=placeholder, known=", ".join(sorted(known)))


def render(template: str, values: Mapping[str, str], name: str) -> str:
    """The text, with no more than one empty line in a row. What a value holds is never read as a template."""
    check(template, values, name)
    shown = _with_sections(template, lambda name, body: body if values[name] else "")
    text = _VALUE.sub(lambda found: values[found[1]], _BLANK_LINES.sub("\n\n", shown))
    return text.strip("\n") + "\n"


def _with_sections(template: str, change: Callable[[str, str], str]) -> str:
    """Each section up to the first end of its name. All ends are found in one pass: time grows with the text alone."""
    ends: dict[str, list[re.Match[str]]] = {}
    for end in _CLOSE.finditer(template):
        ends.setdefault(end[1], []).append(end)
    parts, position = [], 0
    for begin in _OPEN.finditer(template):
        known = ends.get(begin[1], [])
        number = bisect_left(known, begin.end(), key=lambda end: end.start())
        if begin.start() >= position and number < len(known):
            body = template[begin.end() : known[number].start()]
            parts += [template[position : begin.start()], change(begin[1], body)]
            position = known[number].end()
    return "".join([*parts, template[position:]])
