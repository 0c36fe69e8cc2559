"""The prompt of an agent, and the templates in which people word it themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from holdfast.engine.prompt import FIELDS
from kit.program import holdfast
from kit.project import add, layout, settings, state


def test_the_prompt_command_prints_the_next_prompt(repo: Path) -> None:
    settings(repo, gates=[{"name": "lint", "command": "make lint"}])
    more = {
        "goal": "Make it work.",
        "verify": ["make test"],
        "paths": ["src/"],
        "context": {"files": ["src/a.py"], "why": "x"},
    }
    add(repo, "t", "write a.txt x", title="Do t", **more)
    told = holdfast(repo, "prompt", "t")
    for words in (
        "# Do t",
        "Make it work.",
        "- make test",
        "- make lint",
        "outside of: src/",
        "- src/a.py",
        '"why": "x"',
    ):
        assert words in told
    assert "Earlier attempts" not in told and "{{" not in told


def test_a_later_attempt_is_told_what_became_of_the_one_before(repo: Path) -> None:
    path = layout(repo).backlog_open / "c.yaml"
    path.write_text(
        "title: by command\nmax_attempts: 2\nverify: ['test -e never']\n"
        'command: cp "$HOLDFAST_PROMPT_FILE" told.txt; echo seen; exit 0\n'
    )
    holdfast(repo, "run", code=20)
    order_told = (layout(repo).attempt("c.2") / "prompt.txt").read_text()
    for words in ("## Earlier attempts", "- attempt 1: 1 turn, gate_failed: ", "test -e never", "You called"):
        assert words in order_told, order_told


def test_people_may_write_their_own(repo: Path) -> None:
    template = holdfast(repo, "prompt", "--template")
    own = layout(repo).prompt_template
    own.write_text("Do it: {{title}}\n")
    add(repo, "t", "write a.txt x", title="Do t")
    assert holdfast(repo, "prompt", "t") == "Do it: Do t\n"
    own.write_text("{{titel}}")
    assert "'titel'" in holdfast(repo, "prompt", "t", code=2) and "{{#title}}" in template
    assert "Name a task" in holdfast(repo, "prompt", code=2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{{#feedback}}{{titel}}{{/feedback}}", "'titel'"),
        (b"\xff", "cannot be used"),
        (b" \n", "it is empty"),
    ],
)
def test_with_a_template_that_cannot_be_used_no_task_is_begun(repo: Path, text: bytes, words: str) -> None:
    layout(repo).prompt_template.write_bytes(text)
    add(repo, "t", "write a.txt x")
    add(repo, "u", "write b.txt x")
    assert words in holdfast(repo, "prompt", "t", code=2)
    assert words in holdfast(repo, "run", code=20)
    assert [(each.state, each.attempts) for each in state(repo).tasks.values()] == 2 * [(TaskState.OPEN, 0)]
    layout(repo).prompt_template.write_text(" ".join(f"{{{{{name}}}}}" for name in FIELDS))
    holdfast(repo, "run")
    assert [each.state for each in state(repo).tasks.values()] == 2 * [TaskState.CLOSED]
