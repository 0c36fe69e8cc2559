"""Texts that are made to hang or crash their reader, and pages asked for by a foreign name."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.template import render
from holdfast.errors import TemplateInvalid
from kit.program import holdfast
from kit.project import layout, make_repo
from kit.server import served


def test_a_template_of_a_megabyte_of_open_sections_is_read_in_one_go() -> None:
    """The time grows with the text: by its square this would take hours, and the test's own limit would end it."""
    for text in ("{{#a}}" * 170_000, "{{#a}}" * 170_000 + "{{/a}}"):
        with pytest.raises(TemplateInvalid, match="#a"):
            render(text, {"a": "x"}, "prompt.md")
    assert render("{{#a}}x{{/a}}\n" * 70_000, {"a": "y"}, "prompt.md") == "x" * 70_000 + "\n"


@pytest.mark.parametrize("text", ["gates: " + "[" * 30_000, "gates: " + "{a: " * 30_000, "[" * 30_000])
def test_settings_that_are_nested_without_end_are_refused_with_a_sentence(tmp_path: Path, text: str) -> None:
    repo = make_repo(tmp_path)
    layout(repo).settings.write_text(text)
    told = holdfast(repo, "list", code=2, env={"X": "1"})
    assert "settings.yaml" in told and "nested" in told and "Traceback" not in told


def test_pages_and_their_files_answer_to_known_names_only(tmp_path: Path) -> None:
    with served(make_repo(tmp_path)) as server:
        for path in ("/", "/docs", "/web/app.js"):
            foreign = server.nobody.ask("GET", path, host="evil.example")
            assert (foreign.status, foreign.code) == (421, "host_unknown"), path
            assert server.nobody.ask("GET", path, sec_fetch_site="cross-site").status == 200
