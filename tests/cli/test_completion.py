"""What the shell completes, asked as a shell asks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kit.program import HOLDFAST, SLOW_LIBRARIES, loaded_by, type_in
from kit.project import make_bare_repo


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One task that the journal knows, and a file that it does not, which gives itself another id than its name."""
    repo = make_bare_repo(tmp_path_factory.mktemp("completion") / "repo")
    assert type_in(repo, "init").returncode == 0
    assert type_in(repo, "add", "--goal", "x", "--id", "known-one").returncode == 0
    assert type_in(repo, "add", "--goal", "x", "--id", "other").returncode == 0
    assert type_in(repo, "cancel", "other").returncode == 0
    (repo / ".sdd/backlog/open/file.yaml").write_text("# a comment\nid: known-two\ngoal: x\n")
    (repo / ".sdd/backlog/open/known-bad.yaml").write_text("goal: [\n")
    return repo


def complete(folder: Path, *words: str) -> list[str]:
    variables = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("holdfast", *words))}
    variables |= {"COMP_CWORD": str(len(words))}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "GIT_"))}
    done = subprocess.run(HOLDFAST, cwd=folder, env={**kept, **variables}, capture_output=True, text=True)
    assert done.stderr == ""
    return sorted(line.partition(",")[2] for line in done.stdout.splitlines() if line.startswith("plain,"))


COMMANDS = [
    "show", "edit", "prompt", "turns", "diff", "undo", "fork", "attach", "resume", "promote", "approve", "reject",
    "cancel", "gates", "retry", "resolve", "history",
]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        *((command,) for command in COMMANDS),
        ("snapshots", "list"),
        ("run", "--only"),
        ("log", "--task"),
        ("add", "--depends-on"),
        ("add", "--parent"),
        ("edit", "other", "--depends-on"),
        ("edit", "other", "--parent"),
    ],
)
def test_a_task_is_completed_wherever_one_is_named(repo: Path, words: tuple[str, ...]) -> None:
    assert complete(repo, *words, "kn") == ["known-bad", "known-one", "known-two"]


def test_an_argument_that_is_given_already_is_not_offered_again(repo: Path) -> None:
    assert complete(repo, "cancel", "known-one", "known-o") == []
    assert complete(repo, "run", "--only", "known-one", "--only", "known-o") == []


def test_nothing_is_said_where_nothing_can_be_completed(repo: Path, tmp_path: Path) -> None:
    assert complete(tmp_path, "show", "") == []
    for place, text in ((".sdd/config/settings.yaml", "max_agents: many\n"), (".sdd/format.json", "{")):
        path = repo / place
        kept = path.read_bytes()
        path.write_text(text)
        try:
            assert complete(repo, "show", "") == []
        finally:
            path.write_bytes(kept)


def test_completing_loads_nothing_slow(repo: Path) -> None:
    words = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": "holdfast show kn", "COMP_CWORD": "2"}
    found = loaded_by(repo, **words)
    assert not found & SLOW_LIBRARIES
    assert "holdfast.ledgers.reader" in found, "no task was looked for"
