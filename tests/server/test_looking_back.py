"""What is made of the journal for who looks back: the same in one reading and in many, and what stands out in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from decision_support import THREE_TURNS, failed
from engine_support import add, holdfast, layout, make_repo
from holdfast.engine.chronicle import Chronicle
from holdfast.server.routes.costs import far_from_usual


def told(wal: Path, chronicle: Chronicle | None = None) -> dict[str, Any]:
    with chronicle or Chronicle(wal) as found:
        names = ("attempts", "of_task", "added", "by_agent", "by_model", "verdicts", "sittings", "runs", "marks")
        facts: dict[str, Any] = msgspec.to_builtins({name: list_of(getattr(found, name)) for name in names})
        return facts


def list_of(value: Any) -> Any:
    return value if isinstance(value, dict) else list(value)


def test_following_the_journal_gives_what_reading_it_at_once_gives(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    add(repo, "b", "write b.txt x\nspend 0.5 7", verify=["test -e b.txt"])
    failed(repo, script=f"{THREE_TURNS}spend 0.25 5\n")
    holdfast(repo, "undo", "a", "--turn", "1")
    holdfast(repo, "resume", "a")
    whole = told(layout(repo).wal)
    assert whole["attempts"]["a.1"]["undone"] == [2, 3] and whole["attempts"]["a.1"]["state"] == "FAILED"
    assert [each["passed"] for each in whole["verdicts"]] == [True] and len(whole["runs"]) == 3
    assert whole["by_agent"]["scripted"]["usd"] == pytest.approx(0.75)
    # The same files, growing: each look comes after some more bytes, whole lines or not.
    grown = tmp_path / "wal"
    grown.mkdir()
    following, looks = Chronicle(grown), 0
    for path in sorted(layout(repo).wal.glob("*.wal.jsonl")):
        content = path.read_bytes()
        for end in [*range(700, len(content), 700), len(content)]:
            (grown / path.name).write_bytes(content[:end])
            looks += told(grown, following) == told(grown)
    assert looks > 10 and told(grown, following) == whole
    assert following._position is not None and following._position.end == len(content)


def test_what_cost_far_more_than_usual_stands_out() -> None:
    usual = {f"t{number}": 1.0 + number / 100 for number in range(9)}
    assert list(far_from_usual(usual, "a task")) == []
    ((name, (usd, expected, ratio, words)),) = far_from_usual({**usual, "dear": 5.0, "free": 0.0}, "a task")
    assert (name, usd) == ("dear", 5.0) and expected == pytest.approx(1.045)
    assert ratio == pytest.approx(usd / expected) and "4.8 times as much as a task usually does" in words
    # A few say nothing about what is usual.
    assert list(far_from_usual({"a": 1.0, "b": 1.0, "dear": 100.0}, "a task")) == []
