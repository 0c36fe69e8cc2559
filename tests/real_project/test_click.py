"""Click, from its sdist: each worktree has an environment of its own, the gate runs Click's own tests, and six tasks
land, with conflicts among them and one that breaks the code at first."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tarfile
from pathlib import Path

import msgspec
import pytest

from holdfast.clock import monotonic
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, settings, sound, state
from kit.states import entries_of, expect_landed_as_judged
from kit.waiting import wait_for

PLACE = Path(os.environ["HOLDFAST_PROJECT"])
# `HOLDFAST_SUITE` names fewer files of tests, for a short look.
SUITE = os.environ.get("HOLDFAST_SUITE", "tests")
SETUP = [
    "uv venv -q --clear .venv",
    f"uv pip install -q -p .venv/bin/python --no-index --find-links {PLACE}/wheels -e . pytest",
]
GATE = f".venv/bin/python -m pytest -q -x -p no:cacheprovider {SUITE}"
RUN_S_MAX = 1500.0

# Each adds a line at the same place: all but the first meet a conflict, and resolve it by keeping both sides.
CHANGES = """
attempt 1: run sed -i '3a - {0} is better documented.' CHANGES.md
attempt 2+: run sed -i '/^<<<<<<< /d; /^=======$/d; /^>>>>>>> /d' CHANGES.md
run grep -q '{0} is better' CHANGES.md || sed -i '3a - {0} is better documented.' CHANGES.md
"""
# Adds a function with its test.
FUNCTION = """
write src/click/{0}.py def answer() -> int: return 42
write tests/test_{0}.py def test_answer(): from click.{0} import answer; assert answer() == 42
"""
# Breaks the code at first: only a gate that tests this worktree notices.
BROKEN = """
attempt 1: run sed -i '1i raise RuntimeError("broken")' src/click/globals.py
attempt 2+: run sed -i '/raise RuntimeError("broken")/d' src/click/globals.py
run sed -i '$a # The end of the globals.' src/click/globals.py
"""
TASKS = {
    "options": CHANGES.format("Option"),
    "arguments": CHANGES.format("Argument"),
    "groups": CHANGES.format("Group"),
    "extra": FUNCTION.format("extra"),
    "more": FUNCTION.format("more"),
    "globals": BROKEN,
}


def make_project(folder: Path, judging: int) -> Path:
    """The project as a repository with one commit, and its six tasks."""
    [sdist] = PLACE.glob("click-*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    repo = folder / "click"
    (folder / sdist.name.removesuffix(".tar.gz")).rename(repo)
    (repo / ".gitignore").write_text("/.sdd/\n.venv/\n__pycache__/\n*.egg-info/\n")
    git(repo, "init", "-q", "-b", "main")
    for key, value in (("user.name", "Ada"), ("user.email", "ada@example.org")):
        git(repo, "config", key, value)
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "as released")
    holdfast(repo, "init")
    caches = {"UV_CACHE_DIR": str(PLACE / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    settings(
        repo,
        judging=judging,
        max_agents=3,
        sandbox="none",
        worktree={"setup": SETUP, "inputs": ["pyproject.toml"], "env": caches},
        gates=[{"name": "suite", "command": GATE}],
    )
    for number, (name, script) in enumerate(TASKS.items()):
        add(repo, name, script.strip(), priority=number)
    return repo


def run(repo: Path) -> subprocess.Popen[str]:
    uv = str((PLACE / "venv" / "bin").resolve())
    return begin(repo, PATH=f"{uv}:{os.environ['PATH']}", HOLDFAST_GRACE_S="1")


def judged_now(repo: Path) -> list[str]:
    return [name for name, task in state(repo).tasks.items() if task.landing.judged]


def expect_all_landed(repo: Path) -> None:
    tasks = state(repo).tasks
    assert {name: str(task.state) for name, task in tasks.items()} == dict.fromkeys(TASKS, "CLOSED")
    assert sorted(landed(repo)) == sorted(TASKS)
    assert tasks["globals"].attempts == 2, "the gate did not notice what breaks the code"
    assert sum(tasks[name].attempts > 1 for name in ("options", "arguments", "groups")) >= 1, "there was no conflict"
    changes = git(repo, "show", "main:CHANGES.md")
    assert all(f"- {each} is better documented." in changes for each in ("Option", "Argument", "Group"))
    assert "<<<<" not in changes and "broken" not in git(repo, "show", "main:src/click/globals.py")
    sound(repo)
    expect_landed_as_judged(repo, len(TASKS))


def test_six_tasks_land_while_the_orchestrator_is_killed_with_two_judged_at_once(tmp_path: Path) -> None:
    repo, kills = make_project(tmp_path, judging=2), 0
    while kills < 3:
        process = run(repo)

        def is_caught() -> bool:
            # The last kill comes when one is landed, and another judged.
            wanted = 2 if kills < 2 else 1
            return process.poll() is not None or len(judged_now(repo)) >= wanted

        wait_for(is_caught, "two candidates are judged at once")
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
        assert kills > 2 or len(judged_now(repo)) == 2
        holdfast(repo, "check")
    assert kills >= 2
    process = run(repo)
    said = process.communicate(timeout=RUN_S_MAX)[0]
    assert process.returncode == 0, said
    expect_all_landed(repo)
    shutil.rmtree(tmp_path / "click")


@pytest.mark.skipif("HOLDFAST_SUITE" in os.environ, reason="a short look has nothing to measure")
def test_wall_clock_time_of_one_and_of_two_judged_at_once(tmp_path: Path) -> None:
    took: dict[int, tuple[float, float]] = {}
    for judging in (1, 2):
        repo = make_project(tmp_path / str(judging), judging)
        began = monotonic()
        process = run(repo)
        said = process.communicate(timeout=RUN_S_MAX)[0]
        whole = monotonic() - began
        assert process.returncode == 0, said
        expect_all_landed(repo)
        entries = entries_of(layout(repo))
        gates = sum(
            run["seconds"]
            for entry in entries
            if entry.decision_type == "task_verify_confirmed"
            for run in verdict_of(repo, entry.output["verdict"])["results"]
        )
        took[judging] = whole, gates
        print(f"judging: {judging}: {whole:.0f} s for six tasks, {gates:.0f} s of them in gates")
    print(f"judging 2 against 1: {took[1][0] / took[2][0]:.2f} times as fast")


def verdict_of(repo: Path, digest: str) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = msgspec.json.decode(
        (layout(repo).cas / digest[:2] / digest).read_bytes()
    )
    return found
