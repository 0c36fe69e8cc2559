"""The state machines against the diagrams they were transcribed from, and the page that is written from them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast.domain.attempt_records import TURN, TurnEvent, TurnState
from holdfast.domain.fsm import Machine, Reason, Transition
from holdfast.domain.task import FOLDER_OF, TASK, TaskEvent, TaskState
from holdfast.errors import IllegalTransition
from kit import TOP

PAGE = TOP / "docs" / "lifecycle.md"
TOOL = TOP / "tools" / "diagrams.py"

# The original diagrams, as they were drawn.
TASK_DRAWN = """
    [*] --> OPEN : dynamic creation
    [*] --> PLANNED : plan mode
    PLANNED --> OPEN : approved
    PLANNED --> CANCELLED : rejected
    OPEN --> CLAIMED : agent claims task
    OPEN --> WAITING_FOR_SUBTASKS : decomposed before claim
    OPEN --> CANCELLED : manual cancel
    CLAIMED --> IN_PROGRESS : agent starts work
    CLAIMED --> OPEN : unclaim / force-reassign
    CLAIMED --> DONE : fast completion
    CLAIMED --> FAILED : immediate failure
    CLAIMED --> CANCELLED : manual cancel
    CLAIMED --> WAITING_FOR_SUBTASKS : agent splits work
    CLAIMED --> BLOCKED : dependency discovered
    IN_PROGRESS --> DONE : agent reports success
    IN_PROGRESS --> FAILED : agent reports failure
    IN_PROGRESS --> BLOCKED : dependency discovered
    IN_PROGRESS --> WAITING_FOR_SUBTASKS : agent decomposes task
    IN_PROGRESS --> OPEN : requeue / force-reassign
    IN_PROGRESS --> CANCELLED : manual cancel
    IN_PROGRESS --> ORPHANED : heartbeat timeout / crash
    ORPHANED --> DONE : partial work merged
    ORPHANED --> FAILED : unrecoverable
    ORPHANED --> OPEN : requeued for retry
    BLOCKED --> OPEN : dependency resolved
    BLOCKED --> CANCELLED : manual cancel
    WAITING_FOR_SUBTASKS --> DONE : all subtasks completed
    WAITING_FOR_SUBTASKS --> BLOCKED : subtask timeout escalation
    WAITING_FOR_SUBTASKS --> CANCELLED : manual cancel
    FAILED --> OPEN : retry (within max_retries)
    DONE --> CLOSED : janitor verified + merged
    DONE --> FAILED : verification rejected
    CLOSED --> [*]
    CANCELLED --> [*]
"""
# Where that drawing is silent: approval is governed by the table too, and an orphan, a result and a failure
# can be cancelled. What a person wants changed goes on in the same attempt.
TASK_DECIDED = """
    DONE --> CANCELLED : manual cancel
    FAILED --> CANCELLED : manual cancel
    ORPHANED --> CANCELLED : manual cancel
    DONE --> PENDING_APPROVAL : approval requested
    PENDING_APPROVAL --> DONE : approval granted
    PENDING_APPROVAL --> FAILED : approval rejected
    PENDING_APPROVAL --> OPEN : changes requested
    DONE --> OPEN : changes requested
    PENDING_APPROVAL --> CANCELLED : manual cancel
"""
TURN_DRAWN = """
    [*] --> IDLE
    IDLE --> CLAIMING : task_claimed
    CLAIMING --> SPAWNING : agent_spawned
    CLAIMING --> FAILED : task_failed
    SPAWNING --> RUNNING : agent_spawned
    SPAWNING --> FAILED : task_failed
    RUNNING --> TOOL_USE : tool_started
    RUNNING --> COMPACTING : compact_needed
    RUNNING --> VERIFYING : verify_requested
    RUNNING --> FAILED : task_failed
    TOOL_USE --> RUNNING : tool_completed
    TOOL_USE --> FAILED : task_failed
    COMPACTING --> RUNNING : verify_requested
    COMPACTING --> FAILED : task_failed
    VERIFYING --> COMPLETING : task_completed
    VERIFYING --> RUNNING : compact_needed
    VERIFYING --> FAILED : task_failed
    COMPLETING --> REAPED : agent_reaped
    FAILED --> REAPED : agent_reaped
    REAPED --> [*]
"""
Drawn = list[tuple[str, str, str]]
ARROW = re.compile(r"    (\w+|\[\*\]) --> (\w+|\[\*\])(?: : (.+))?")


def drawn(text: str) -> Drawn:
    """Each arrow of a diagram as (source, label, target)."""
    lines = [line for line in text.splitlines() if line.strip()]
    arrows = [ARROW.fullmatch(line) for line in lines]
    assert all(arrows), [line for line, arrow in zip(lines, arrows, strict=True) if not arrow]
    return [(arrow[1], arrow[3] or "", arrow[2]) for arrow in arrows if arrow]


def events_of(label: str) -> list[str]:
    """A drawn label as event names: brackets and what follows a comma explain; a slash parts two events."""
    bare = re.sub(r"\(.*?\)|,.*", "", label).replace("+", "and").replace("-", " ")
    return ["_".join(name.split()) for name in bare.split("/")]


def table_of(text: str) -> dict[tuple[str, str], str]:
    steps = [step for step in drawn(text) if "[*]" not in (step[0], step[2])]
    return {(source, event): target for source, label, target in steps for event in events_of(label)}


CASES: list[tuple[Machine[Any, Any], type[StrEnum], str, int]] = [
    (TASK, TaskEvent, TASK_DRAWN + TASK_DECIDED, 12),
    (TURN, TurnEvent, TURN_DRAWN, 10),
]
each_machine = pytest.mark.parametrize(("machine", "events", "text", "count"), CASES, ids=["task", "turn"])


@each_machine
def test_every_state_and_event(machine: Machine[Any, Any], events: type[StrEnum], text: str, count: int) -> None:
    expected = table_of(text)
    assert len(machine.states) == count
    assert {event for _, event in expected} == set(events)
    assert len(machine.transitions) == len(expected)
    for state in machine.states:
        for event in events:
            target = expected.get((state, event))
            if target is not None:
                assert machine.next(state, event) is machine.states(target)
                continue
            with pytest.raises(IllegalTransition) as refused:
                machine.next(state, event)
            assert (refused.value.machine, refused.value.state, refused.value.event) == (machine.name, state, event)
        assert machine.legal(state) == {
            event: target for (source, event), target in expected.items() if source == state
        }


@each_machine
def test_a_machine_begins_and_ends_where_it_is_drawn_so(
    machine: Machine[Any, Any], events: type[StrEnum], text: str, count: int
) -> None:
    assert set(machine.initial) == {target for source, _, target in drawn(text) if source == "[*]"}
    assert machine.terminal == {source for source, _, target in drawn(text) if target == "[*]"}
    for state in machine.terminal:
        assert machine.legal(state) == {}
        for event in events:
            with pytest.raises(IllegalTransition, match="legal moves there: none"):
                machine.next(state, event)


@each_machine
def test_every_state_is_reached_and_can_end(
    machine: Machine[Any, Any], events: type[StrEnum], text: str, count: int
) -> None:
    def reached(begin: set[Any], steps: set[tuple[Any, Any]]) -> set[Any]:
        found: set[Any] = set()
        while begin - found:
            found |= begin
            begin = {target for source, target in steps if source in found}
        return found

    steps = {(step.source, step.target) for step in machine.transitions}
    assert reached(set(machine.initial), steps) == set(machine.states)
    assert reached(set(machine.terminal), {(target, source) for source, target in steps}) == set(machine.states)


@each_machine
def test_the_diagram_has_every_arrow(machine: Machine[Any, Any], events: type[StrEnum], text: str, count: int) -> None:
    head, body = machine.mermaid().split("\n", 1)
    assert head == "stateDiagram-v2"
    made = drawn(body)
    assert table_of(body) == table_of(text)
    assert {(source, target) for source, _, target in made} == {(source, target) for source, _, target in drawn(text)}
    assert len(made) == len(set(made)) == len({(source, target) for source, _, target in made})


def test_failed_is_left_by_retry_or_given_up() -> None:
    left = {TaskEvent.RETRY: TaskState.OPEN, TaskEvent.MANUAL_CANCEL: TaskState.CANCELLED}
    assert TASK.legal(TaskState.FAILED) == left


def test_states_are_spelled_by_their_names() -> None:
    for state in [*TaskState, *TurnState]:
        assert state.value == state.name
    for word in [*TaskEvent, *TurnEvent, *Reason]:
        assert word.value == word.name.lower()


def test_two_moves_on_one_event_are_no_machine() -> None:
    twice = Transition(TaskState.OPEN, TaskEvent.MANUAL_CANCEL, TaskState.CLOSED)
    with pytest.raises(ValueError, match="OPEN has two moves on manual_cancel"):
        replace(TASK, transitions=(*TASK.transitions, twice))


def test_legal_moves_given_out_are_a_copy() -> None:
    TASK.legal(TaskState.CLOSED)[TaskEvent.RETRY] = TaskState.OPEN
    assert TASK.legal(TaskState.CLOSED) == {}


def test_next_names_the_machine_when_no_subject_is_known() -> None:
    with pytest.raises(
        IllegalTransition, match=r"^A turn in state IDLE cannot take the event task_failed; .*: task_claimed"
    ):
        TURN.next(TurnState.IDLE, TurnEvent.TASK_FAILED)


# -- folders ----------------------------------------------------------------------------------------------------------


def test_every_state_has_its_folder() -> None:
    folders = {
        "open": {"PLANNED", "OPEN", "BLOCKED", "WAITING_FOR_SUBTASKS"},
        "claimed": {"CLAIMED", "IN_PROGRESS", "ORPHANED", "DONE", "PENDING_APPROVAL"},
        "closed": {"CLOSED", "CANCELLED"},
        "failed": {"FAILED"},
    }
    assert {state: folder for folder, states in folders.items() for state in states} == FOLDER_OF
    assert set(FOLDER_OF) == set(TaskState)


# -- the page ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def diagrams() -> ModuleType:
    spec = importlib.util.spec_from_file_location("diagrams", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_tables_say() -> None:
    done = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for machine, *_ in CASES:
        assert f"```mermaid\n{machine.mermaid()}```\n" in PAGE.read_text()


@each_machine
def test_a_changed_table_makes_the_page_stale(
    diagrams: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    machine: Machine[Any, Any],
    events: type[StrEnum],
    text: str,
    count: int,
) -> None:
    page = tmp_path / "lifecycle.md"
    page.write_text(PAGE.read_text())
    assert diagrams.main(["--check"], page) == 0
    changed = replace(machine, transitions=machine.transitions[:-1])
    monkeypatch.setattr(diagrams, "MACHINES", [changed if one is machine else one for one in diagrams.MACHINES])
    assert diagrams.main(["--check"], page) == 1
    assert "run `make docs`" in capsys.readouterr().err
    assert page.read_text() == PAGE.read_text()
    assert diagrams.main([], page) == 0
    assert diagrams.main(["--check"], page) == 0
    assert changed.mermaid() in page.read_text()


def test_a_page_edited_by_hand_is_stale_and_its_prose_is_kept(diagrams: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "lifecycle.md"
    page.write_text(PAGE.read_text().replace("FAILED --> OPEN : retry\n", "") + "\nMore prose.\n")
    assert diagrams.main(["--check"], page) == 1
    assert diagrams.main([], page) == 0
    assert page.read_text() == PAGE.read_text() + "\nMore prose.\n"


def test_a_part_without_its_place_is_an_error(diagrams: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "lifecycle.md"
    page.write_text(PAGE.read_text().replace("<!-- generated: turn table -->", ""))
    before = page.read_text()
    with pytest.raises(SystemExit, match="turn table"):
        diagrams.main([], page)
    assert page.read_text() == before
