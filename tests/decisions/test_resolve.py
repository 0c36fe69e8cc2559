"""Every choice that is offered for what a crash left in doubt, tried for every effect: what is done how often."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from holdfast.views.next_step import next_step
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, sound, state

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy

# An open intent is older than this whenever it is looked at, and given up unless it is seen to have happened.
IMPATIENT = {"HOLDFAST_REPLAY_AGE_MAX_S": "0.001"}
# Where the run dies, and how often the agent, the gate and the landing then took place in all.
CASES: dict[tuple[str, str], tuple[int, int, int, TaskState]] = {
    ("spawn", "--happened"): (1, 1, 1, TaskState.CLOSED),
    ("spawn", "--retry"): (1, 1, 1, TaskState.CLOSED),
    ("spawn", "--abandon"): (0, 0, 0, TaskState.CANCELLED),
    ("verify", "--happened"): (1, 1, 1, TaskState.CLOSED),
    ("verify", "--retry"): (1, 2, 1, TaskState.CLOSED),
    ("verify", "--abandon"): (1, 1, 0, TaskState.FAILED),
    ("land", "--happened"): (1, 1, 0, TaskState.CLOSED),
    ("land", "--retry"): (1, 1, 1, TaskState.CLOSED),
    ("land", "--abandon"): (1, 1, 0, TaskState.FAILED),
    ("refresh", "--happened"): (1, 1, 1, TaskState.CLOSED),
    ("refresh", "--retry"): (1, 1, 1, TaskState.CLOSED),
    ("refresh", "--abandon"): (1, 1, 1, TaskState.FAILED),
}
AT = {"verify": "verify.gate.after:1"}


def count(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.parametrize(("effect", "choice"), CASES)
def test_each_choice_for_each_effect(repo: Path, effect: str, choice: str) -> None:
    worked, deployed, checked = (repo.parent / name for name in ("worked", "deployed", "checked"))
    gates = [
        {"name": "deploy", "command": f"echo x >> {deployed}", "repeatable": False},
        {"name": "check", "command": f"echo x >> {checked}"},
    ]
    add(repo, "t", f"run echo x >> {worked}\nwrite README.md changed", verify=gates, max_attempts=1)
    killed = begin(repo, HOLDFAST_CRASH_AT=AT.get(effect, f"effect.{effect}.before:1"))
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    holdfast(repo, "run", env={} if effect in AT else IMPATIENT, code=20)
    parked = state(repo).tasks["t"].parked
    assert parked.startswith(f"task_{effect}_")
    assert choice in next_step("t", state(repo).tasks["t"].state, parked), "what is tried here is what is offered"
    holdfast(repo, "resolve", "t", choice)
    agents, gate, landings, end = CASES[effect, choice]
    holdfast(repo, "run", code=None)
    task = state(repo).tasks["t"]
    assert (count(worked), count(deployed), len(landed(repo)), task.state) == (agents, gate, landings, end)
    assert not task.parked
    # What was not in doubt is judged as ever.
    assert count(checked) == (1 if deployed.exists() and (effect, choice) != ("verify", "--abandon") else 0)
    if (effect, choice) == ("refresh", "--happened"):
        # The checkout is the person's, who says that it is as it should be.
        assert (repo / "README.md").read_text() == "A small project.\n"
        git(repo, "checkout", "README.md")
    if end is TaskState.CLOSED and landings:
        sound(repo)
