"""What a newcomer reads on the second look: stories, what an agent does, why it died, and what a gate said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_support import type_in
from holdfast.domain.wording import given_words
from holdfast.engine.ending import TAIL_BYTES
from work_support import add, make_work


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('{"command":"echo one\\n  > NOTES.md","description":"a command"}', "echo one > NOTES.md"),
        ('{"content":"x","file_path":"/a/b.py"}', "/a/b.py"),
        ('{"description":"only this","command":7}', "only this"),
        ('{"other":1}', '{"other":1}'), ('{"command":', '{"command":'), ("ls  -l\nmore", "ls -l more"), ("", ""),
        ('{"command":"\\ud800"}', '{"command":"\\ud800"}'),
    ],
)  # fmt: skip
def test_what_a_tool_was_given_is_told_by_the_field_that_says_most(given: str, told: str) -> None:
    assert given_words(given) == told


def test_lines_that_are_empty_or_only_drawn_are_no_part_of_what_is_told_of_a_gate(tmp_path: Path) -> None:
    """As unittest ends: what says why stands above the rulers."""
    repo = make_work(tmp_path / "repo")
    gate = "printf 'AssertionError: 1 != 9\\n\\n%s\\nRan 2 tests\\n\\nFAILED (failures=1)\\n' ------; exit 1"
    add(repo, "sum", "write made", more=f"max_attempts: 1\nverify:\n  - {json.dumps(gate)}\n")
    assert type_in(repo, "run").returncode == 20
    shown = [line.strip() for line in type_in(repo, "show", "sum").stdout.splitlines()]
    at = shown.index("| Ran 2 tests")
    assert shown[at - 1].endswith("| AssertionError: 1 != 9") and shown[at + 1] == "| FAILED (failures=1)"


def test_an_agent_that_is_killed_is_not_told_with_a_piece_of_its_stream(tmp_path: Path) -> None:
    repo = make_work(tmp_path / "repo", dies=f"say {'x' * 2 * TAIL_BYTES}\nonce {tmp_path}/died: crash\nwrite made")
    done = type_in(repo, "run")
    assert done.returncode == 0 and "dies.1 crashed: The agent was killed by SIGKILL." in done.stdout
    assert "It printed" not in done.stdout
    told = type_in(repo, "history", "dies").stdout
    assert told.count("Its agent died") == 1 and "died: " not in told
    assert "To be gone on with, from its last turn" in told
