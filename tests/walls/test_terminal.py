"""What an agent or a gate says reaches no terminal as it is: an escape sequence, a C1 control character or a change of
direction would move the cursor, repaint what is there, or let one text look like another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.program import holdfast
from kit.project import add, make_repo, settings

# A title of the window by ESC and by C1, a bell, a changed direction, an isolate, and a character without width.
EVIL = "x\x1b]0;owned\x07y\x9b31mz\u202egnp\u2066q\u200br"


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repo = make_repo(tmp_path_factory.mktemp("terminal"))
    out = repo.parent / "out.txt"
    out.write_text(f"{EVIL}\n")
    settings(repo, max_agents=1, max_attempts=1, gates=[{"name": "judge", "command": f"cat {out}; exit 1"}])
    title = EVIL.replace("\x1b", "").replace("\x07", "")  # what YAML cannot hold
    add(repo, "judged", f"say {EVIL}\nwrite f{title}.txt x", title=title)
    add(repo, "failing", f"fail {EVIL}", title=title)
    add(repo, "broken", "x", **{"title": title, f"un{title}known": title})
    told = holdfast(repo, "run", "--plain", code=None)
    assert "\\x9b31m" in told, told
    return repo


COMMANDS = (
    ("list", "--all"), ("status",), ("show", "judged"), ("show", "failing"), ("show", "broken"), ("history", "judged"),
    ("history", "failing"), ("gates", "judged"), ("gates", "judged", "--full"), ("turns", "judged"), ("doctor",),
    ("check",), ("attach", "judged"), ("prompt", "--template"), ("run",), ("seal",), ("log",),
    ("diff", "judged", "--turn", "1", "--stat"),
)  # fmt: skip


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.items() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(list(each) if isinstance(each, tuple) else each)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_that_a_terminal_obeys_is_printed(repo: Path, command: tuple[str, ...]) -> None:
    _expect_harmless(holdfast(repo, *command, code=None))


@pytest.mark.parametrize("command", [each for each in COMMANDS if each[0] != "log"], ids=" ".join)
def test_json_parses_to_the_same_and_is_harmless_on_a_terminal(repo: Path, command: tuple[str, ...]) -> None:
    """The journal's own lines are printed byte for byte, but for a terminal."""
    told = holdfast(repo, *command, "--json", code=None)
    _expect_harmless(told)
    if command[0] in ("list", "show", "gates") and "broken" not in command:
        begun = told.index("{") if command[0] != "list" else told.index("[")
        assert any("\x9b31m" in each for each in _texts(json.JSONDecoder().raw_decode(told[begun:])[0])), told


def _expect_harmless(told: str) -> None:
    odd = {hex(ord(char)) for char in told if not char.isprintable() and char not in "\n\t"}
    assert told and not odd, told
