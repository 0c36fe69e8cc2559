"""Tasks that stand where a test wants them: failed, rejected, at work, paused; a run that lives; and the journal."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.decisions import mailbox
from holdfast.domain.task import TaskState
from holdfast.storage.journal.entry import Entry
from holdfast.storage.journal.reader import Chain
from holdfast.storage.records import attempt_folder
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, layout, state
from kit.waiting import shell_wait, wait_for

THREE_TURNS = "write a.txt one\nwrite b.txt two\nappend a.txt three\n"


def ask(repo: Path, *args: str, code: int = 0) -> Any:
    """What a command prints for programs; what it tells people besides, on standard error, comes behind it."""
    return json.JSONDecoder().raw_decode(holdfast(repo, *args, "--json", code=code))[0]


def journal(repo: Path, *kinds: str) -> list[Entry]:
    return [entry for _, entry in Chain(layout(repo).wal).entries() if entry.decision_type in kinds]


def keys(repo: Path) -> list[str]:
    found = (entry.inputs.get("idempotency_key", "") for _, entry in Chain(layout(repo).wal).entries())
    return [key for key in found if key]


def failed(repo: Path, task: str = "a", script: str = THREE_TURNS, **more: Any) -> None:
    """A task whose only attempt has failed after its turns."""
    add(repo, task, f"{script}attempt 1: fail no luck", max_attempts=1, **more)
    holdfast(repo, "run", code=20)
    assert str(state(repo).tasks[task].state) == "FAILED"


def rejected(repo: Path, task: str = "a", **more: Any) -> Path:
    """A task whose candidate was refused by its gate; the gate passes once the returned file is there."""
    key = repo.parent / f"{task}.key"
    add(repo, task, THREE_TURNS, max_attempts=1, verify=[f"test -e {key}"], **more)
    holdfast(repo, "run", code=20)
    assert str(state(repo).tasks[task].state) == "FAILED" and state(repo).tasks[task].candidate
    return key


def worktree(repo: Path, task: str = "a") -> Path:
    return layout(repo).worktree(task)


def hanging(repo: Path, task: str, **more: Any) -> Path:
    """A task whose agent works until the returned file is there."""
    path = repo.parent / f"{task}.go"
    add(repo, task, f"write {task}.txt x\nrun {shell_wait(path)}", **more)
    return path


@contextlib.contextmanager
def living_run(repo: Path, **env: str) -> Iterator[subprocess.Popen[str]]:
    """A run that answers requests; the agent of a task `keeper` keeps it alive."""
    go = hanging(repo, "keeper")
    process = begin(repo, **env)
    try:
        wait_for(lambda: mailbox.is_served(layout(repo)) or process.poll() is not None, "a run that answers")
        assert process.poll() is None, process.communicate()
        wait_for(lambda: _has_begun(repo), "the keeper's agent")
        yield process
    finally:
        go.write_text("")
        out, _ = process.communicate(timeout=120)
        print(out)


def _has_begun(repo: Path) -> bool:
    known = state(repo).tasks.get("keeper")
    return known is not None and known.spent.turns > 0


def stop_after(repo: Path, task: str, script: str, count: int, here: Path) -> None:
    """Runs the script until so many turns are done and `here` is there, and then stops its agent."""
    add(repo, task, script)
    process = begin(repo)
    wait_for(lambda: turns(repo, task) >= count and here.exists(), f"{count} turns, and {here.name}")
    holdfast(repo, "stop", "--agents")
    process.communicate()
    assert state(repo).tasks[task].state is TaskState.OPEN and state(repo).tasks[task].continues


def paused(repo: Path, task: str = "a") -> Path:
    """Two turns are done, something more was written, and its agent was stopped. Returns what lets it go on."""
    go = repo.parent / "go"
    wait = f"touch half.txt; {shell_wait(go)}"
    script = f"write one.txt 1\nwrite two.txt 2\nrun {wait}\nwrite three.txt 3"
    stop_after(repo, task, script, 2, layout(repo).worktree(task) / "half.txt")
    return go


def turns(repo: Path, task: str) -> int:
    known = state(repo).tasks.get(task)
    return known.attempt.turn if known is not None else 0


def files_landed(repo: Path) -> set[str]:
    return set(git(repo, "ls-tree", "--name-only", "main").split())


def turns_journalled(repo: Path, task: str) -> int:
    """Of all its attempts."""
    known = state(repo).tasks.get(task)
    return known.spent.turns if known is not None else 0


def agent_is_alive(repo: Path, attempt: str) -> bool:
    running = attempt_folder.read_process(layout(repo).attempt_files(attempt))
    return running is not None and running.agent.is_alive()
