"""The `console` blocks of README and tutorial, typed in a terminal: exit codes and output are as told there."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit import TOP
from kit.program import holdfast
from kit.shell import Shell, Step, is_as_told, steps_of

PAGES = {"hello": TOP / "README.md", "garden": TOP / "docs" / "tutorial.md"}


@pytest.mark.heavy
@pytest.mark.parametrize("repository", PAGES)
def test_every_block_does_what_it_says(repository: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    try:
        for step in steps_of(PAGES[repository].read_text()):
            code, printed = shell.type(step.command)
            assert code == step.code, f"$ {step.command}\nended with {code}, told is {step.code}:\n{printed}"
            assert is_as_told(step.printed, printed), f"$ {step.command}\n{printed}\ntold is:\n{step.printed}"
    finally:
        shell.close()
        holdfast(tmp_path / repository, "stop", "--agents", code=None)


def test_the_pages_have_what_is_to_be_shown() -> None:
    """A first task, a failing gate, kill -9 and a run after it: no other test would miss a block that went away."""
    for page in PAGES.values():
        typed = [step.command for step in steps_of(page.read_text())]
        killed = next(place for place, command in enumerate(typed) if "kill -9" in command)
        assert any(command.startswith("holdfast run") for command in typed[:killed])
        assert any(command.startswith("holdfast run") for command in typed[killed + 1 :])
        assert typed[-1] == "holdfast check"
    tutorial = steps_of(PAGES["garden"].read_text())
    assert any(step.code == 20 for step in tutorial) and any("orphaned after turn" in step.printed for step in tutorial)


def test_steps_are_read_as_they_are_typed() -> None:
    page = "```console\n$ one \\\n>   two\nprinted\n$ three  # exit code 20\n```\n```\n$ none\n```\n"
    assert steps_of(page) == [Step("one \\\n  two", 0, "printed"), Step("three  # exit code 20", 20, "")]


@pytest.mark.parametrize(
    ("told", "printed", "is_so"),
    [
        ("12:00:00  a: landed as 9a0a639bb0e5", "11:07:59 a: landed as 0123456789ab\n", True),
        ("12:00:00  a: landed as 9a0a639bb0e5", "11:07:59 a: failed\n", False),
        ("…\nlast", "first\nsecond\nlast\n", True),
        ("…\nlast", "first\nlast\nmore\n", False),
        ("one", "", False),
        ("", "one\n", False),
        ("a … c", "a b c\n", True),
    ],
)
def test_the_comparison_can_say_no(told: str, printed: str, is_so: bool) -> None:
    assert is_as_told(told, printed) is is_so
