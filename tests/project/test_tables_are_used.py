"""Every event and reason of the tables is produced by the program: none is there for tests alone."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from enum import StrEnum

from holdfast.domain.attempt_records import TURN, TurnEvent, TurnState
from holdfast.domain.entries import PAYLOADS
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TASK, TaskEvent, TaskState
from kit import TOP

SOURCE = TOP / "src" / "holdfast"
# Where the tables themselves stand.
TABLES = {SOURCE / "domain" / name for name in ("fsm.py", "task.py", "turn.py")}
# Nothing makes a plan yet: tasks come as OPEN. The moves that leave the state are there for the planner's tasks.
NOT_YET = {TaskState.PLANNED}
# The runner knows an attempt from the agent's first output to its last. What is before and after, the journal tells:
# the entry of each event.
TOLD_BY_THE_JOURNAL = {
    "task_claimed": "task_claimed",
    "agent_spawned": "task_spawn_confirmed",
    "task_completed": "task_closed",
    "agent_reaped": "task_done",
}
NAMES = {
    "TaskEvent": TaskEvent,
    "TurnEvent": TurnEvent,
    "Reason": Reason,
}


def produced(tree: ast.AST) -> Iterator[StrEnum]:
    """The members that code hands on. To compare with one, to match it, or to list it in a set only reads it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Compare | ast.Set | ast.MatchValue):
            continue
        if isinstance(node, ast.Dict):
            yield from (each for value in node.values for each in produced(ast.Expression(value)))
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in NAMES:
            yield NAMES[node.value.id][node.attr]
        yield from produced(node)


def unproduced(*kinds: type[StrEnum]) -> list[str]:
    """The words of these enumerations that no code hands on as a member of any of them."""
    files = [path for path in SOURCE.rglob("*.py") if path not in TABLES]
    members = (each for path in files for each in produced(ast.parse(path.read_text())))
    found = {str(each) for each in members if isinstance(each, kinds)}
    return sorted({str(each) for kind in kinds for each in kind} - found)


def test_only_what_is_handed_on_counts() -> None:
    text = "def f(x):\n  if x is TaskEvent.CRASH or x in {TaskEvent.RETRY}: pass\n"
    text += "  y = {TaskEvent.REQUEUE: Reason.STALLED}\n"
    text += "  match x:\n    case TaskEvent.APPROVED: return g(TaskEvent.UNCLAIM)\n"
    assert set(produced(ast.parse(text))) == {Reason.STALLED, TaskEvent.UNCLAIM}


def test_every_event_of_the_tables_is_produced() -> None:
    assert unproduced(TaskEvent) == []
    assert unproduced(TurnEvent) == sorted(TOLD_BY_THE_JOURNAL)
    assert set(TOLD_BY_THE_JOURNAL.values()) <= PAYLOADS.keys()


def test_every_reason_is_produced() -> None:
    assert unproduced(Reason) == []


def test_every_state_is_reached_but_for_what_a_planner_makes() -> None:
    for machine in (TASK, TURN):
        targets = {step.target for step in machine.transitions}
        rest = set(machine.states) - targets - ({TaskState.OPEN, TurnState.IDLE} & set(machine.initial))
        assert rest <= NOT_YET, rest


def test_every_crash_point_is_declared_and_used_by_a_test() -> None:
    """`*_POINTS` beside the code are what the kill tests read; a point outside of them would never be tried."""
    sources = {path: path.read_text() for path in SOURCE.rglob("*.py")}
    named = {name for text in sources.values() for name in re.findall(r'\bpoint\("([a-z_.]+)"\)', text)}
    declared: dict[str, tuple[str, ...]] = {}
    for path, text in sources.items():
        module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        for constant in re.findall(r"^(\w*POINTS)\b[^\n]* = ", text, re.MULTILINE):
            declared[constant] = getattr(importlib.import_module(module), constant)
    assert named - {name for points in declared.values() for name in points} == set()
    tests = "".join(
        path.read_text() for path in (TOP / "tests").rglob("*.py") if path.name != "test_tables_are_used.py"
    )
    assert [constant for constant in declared if not re.search(rf"\b{constant}\b", tests)] == []
