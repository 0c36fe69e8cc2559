"""The small template language of prompts."""

from __future__ import annotations

import pytest

from holdfast.domain.template import render
from holdfast.errors import TemplateInvalid


def test_a_section_without_a_value_is_not_there() -> None:
    assert render("a\n{{#b}}\n## B\n{{b}}\n{{/b}}\nc", {"b": ""}, "t") == "a\nc\n"
    assert render("a\n{{#b}}\n## B\n{{b}}\n{{/b}}\nc", {"b": "x"}, "t") == "a\n## B\nx\nc\n"


def test_a_value_is_never_read_as_a_template() -> None:
    assert render("{{a}}", {"a": "{{b}} {{#a}}", "b": "secret"}, "t") == "{{b}} {{#a}}\n"


@pytest.mark.parametrize(
    "text", ["{{nobody}}", "{{#nobody}}x{{/nobody}}", "{{a }}", "{{#b}}{{nobody}}{{/b}}", "{{#a}}never closed"]
)
def test_an_unknown_placeholder_is_reported(text: str) -> None:
    with pytest.raises(TemplateInvalid, match="known placeholders are a"):
        render(text, {"a": "x", "b": ""}, "t")


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("{{#a}}\none {{a}}\n{{/a}}\ntwo\n", "one x\ntwo\n"),
        ("{{#b}}one{{/b}}{{#a}}two{{/a}}", "two\n"),
        ("{{#a}}{{b}}{{/a}}{{a}}", "x\n"),
    ],
)
def test_sections_follow_their_values(text: str, made: str) -> None:
    assert render(text, {"a": "x", "b": ""}, "prompt.md") == made


def test_more_than_one_empty_line_in_a_row_is_cut_and_values_keep_theirs() -> None:
    assert render("\n\na\n\n\n\nb {{a}}\n\n", {"a": "x\n\n\n\ny"}, "t") == "a\n\nb x\n\n\n\ny\n"
