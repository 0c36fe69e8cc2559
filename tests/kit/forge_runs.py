"""Runs of `holdfast` against the double of GitHub, and what must be so there at the end."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from kit.forge_double import TOKEN, ForgeDouble
from kit.program import holdfast, start
from kit.project import landed, settings, sound, state

ENV = {"FORGE_TOKEN": TOKEN}
# For a machine that is busy with much else.
LIFE_S_MAX = 240
EVERYTHING: dict[str, Any] = {
    "label": "agent", "close": True, "labels_closed": ["done"], "labels_failed": ["stuck"], "labels_off": ["agent"],
}  # fmt: skip


def connect(repo: Path, forge: ForgeDouble, **source: Any) -> None:
    """The settings of a repository whose tasks come from the double."""
    kept = {"max_resumes": 1000, "max_attempts": 3, "grace_s": 0.5, "agent": "scripted"}
    settings(repo, **kept, sources=[forge.source(**source)])


def scripted(name: str) -> str:
    """The body of an issue whose author may say how it is worked on."""
    return f"---\nscript: write {name}.txt x\nverify: test -f {name}.txt\n---\nWrite {name}.txt.\n"


def live(repo: Path, *arguments: str, kill_after_s: float | None = None, **env: str) -> int:
    """One life of `holdfast`, as a process of its own; returns its exit code."""
    process = start(repo, *(arguments or ("run", "--plain")), **ENV, **env)
    try:
        process.communicate(timeout=LIFE_S_MAX if kill_after_s is None else kill_after_s)
    except subprocess.TimeoutExpired:
        assert kill_after_s is not None, "it never ended"
        process.kill()
        process.communicate()
    return process.returncode


def run_to_the_end(repo: Path) -> None:
    """Runs until every task is over and nothing waits to be sent; what waits for its time is sent at once."""
    for _ in range(20):
        code = live(repo)
        assert code in (0, 20), code
        for key in state(repo).outbox:
            holdfast(repo, "outbox", "--retry", key)
        if code == 0 and not state(repo).outbox:
            return
    raise AssertionError(f"it never came to its end: {holdfast(repo, 'list')} {holdfast(repo, 'outbox')}")


def expect_each_once(repo: Path, forge: ForgeDouble, numbers: set[int]) -> None:
    """Of each of these issues: one task, one landing, one comment, its labels changed once, closed once."""
    ids = {f"gh-{number}" for number in numbers}
    tasks = state(repo).tasks
    assert {name for name, task in tasks.items() if task.state == "CLOSED"} == ids
    assert Counter(landed(repo)) == Counter(ids), "not exactly one landing of each"
    assert sorted(forge.keys().values()) == [1] * len(ids), f"comments lost or doubled: {forge.keys()}"
    assert {number for number, comments in forge.comments.items() if comments} == numbers
    for kind, what in (("labels", ("done",)), ("unlabelled", "agent"), ("state", "closed")):
        assert Counter(each for each in forge.events if each[0] == kind) == Counter(
            (kind, number, what) for number in numbers
        ), kind
    assert forge.unknown == [] and not state(repo).outbox
    sound(repo)
