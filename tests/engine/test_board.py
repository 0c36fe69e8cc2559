"""The board as a table: what a file and a state together make of a task in the graph, and where its file is put."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import errors
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.engine.board import Board
from holdfast.ledgers.files import FileLedger
from holdfast.storage.journal.entry import Record
from kit.states import WAY_TO, append, board_of, moves, opened

S = TaskState
NO_FILE = "its file is gone or cannot be used"
CLAIM, RESULT, ERROR = ["agent", "attempt", "since"], ["state", "at"], ["attempts", "at"]
# For each state: the folder of its file, whether a plan looks at it, and what its file says of it.
TABLE: dict[TaskState, tuple[str, bool, str, list[str]]] = {
    S.OPEN: ("open", False, "", []),
    S.BLOCKED: ("open", False, "", []),
    S.WAITING_FOR_SUBTASKS: ("open", False, "", []),
    S.CLAIMED: ("claimed", True, "claim", CLAIM),
    S.IN_PROGRESS: ("claimed", True, "claim", CLAIM),
    S.ORPHANED: ("claimed", True, "claim", CLAIM),
    S.DONE: ("claimed", True, "claim", CLAIM),
    S.PENDING_APPROVAL: ("claimed", False, "claim", CLAIM),
    S.FAILED: ("failed", False, "error", ERROR),
    S.CLOSED: ("closed", False, "result", RESULT),
    S.CANCELLED: ("closed", False, "result", RESULT),
}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[FileLedger]:
    with opened(tmp_path) as ledger:
        yield ledger


@pytest.fixture
def board(ledger: FileLedger) -> Board:
    return board_of(ledger)


def write(board: Board, text: str = "goal: do it\n", folder: str = "open", name: str = "t") -> Path:
    path = board.folder / folder / f"{name}.yaml"
    path.write_text(text)
    return path


def lead(ledger: FileLedger, board: Board, to: TaskState, **facts: Any) -> None:
    """Takes the files in and leads the task there."""
    board.take_in()
    append(ledger, *moves("t", S.OPEN, *WAY_TO[to], **facts))
    board.keep_up()


def places(board: Board) -> list[str]:
    return [path.parent.name for path in board.folder.glob("*/t.yaml")]


@pytest.mark.parametrize("state", TABLE)
def test_every_state_puts_the_file_into_its_folder_and_says_what_it_is(
    ledger: FileLedger, board: Board, state: TaskState
) -> None:
    folder, is_active, block, keys = TABLE[state]
    write(board, "# mine\ngoal: do it\n")
    lead(ledger, board, state)
    assert board.project() == []
    assert places(board) == [folder] and ("t" in board.active) is is_active
    text = (board.folder / folder / "t.yaml").read_text()
    assert text.startswith("# mine\ngoal: do it\n")
    shown = {name: getattr(board.files["t"].definition, name) for name in ("claim", "result", "error")}
    assert {name: list(found) for name, found in shown.items() if found} == ({block: keys} if block else {})
    node = board.graph.node("t")
    assert node is not None and (node.state, node.parked) == (state, "")
    stamp = (board.folder / folder / "t.yaml").stat()
    board.take_in()
    assert board.project() == [] and (board.folder / folder / "t.yaml").stat() == stamp, "once is enough"


def test_the_table_has_every_state_that_a_file_can_lead_to() -> None:
    assert TABLE.keys() | {S.PLANNED} == set(S)


@pytest.mark.parametrize("again", [True, False])
def test_a_failed_task_is_active_while_another_attempt_follows(ledger: FileLedger, board: Board, again: bool) -> None:
    write(board)
    lead(ledger, board, S.FAILED, again=again)
    assert ("t" in board.active) is again
    append(ledger, *moves("t", S.FAILED, TaskEvent.RETRY))
    board.keep_up()
    assert "t" not in board.active and board.project() == [] and places(board) == ["open"]


@pytest.mark.parametrize(
    ("folder", "to", "wanted"),
    [
        # What came from an issue tracker stays in its own folder until somebody works on it.
        ("issues", S.OPEN, "issues"),
        ("issues", S.CLAIMED, "claimed"),
        ("issues", S.CANCELLED, "closed"),
        # Moving a file changes nothing: the folder is a projection.
        ("claimed", S.OPEN, "open"),
        ("closed", S.CLOSED, "closed"),
    ],
)
def test_a_file_in_another_folder_goes_where_its_state_says(
    ledger: FileLedger, board: Board, folder: str, to: TaskState, wanted: str
) -> None:
    if folder == "closed":
        write(board, folder=folder)
        board.take_in()
        assert ledger.state.tasks["t"].state is S.CLOSED, "it brings its state along"
        board.keep_up()
    else:
        write(board, folder=folder)
        lead(ledger, board, to)
    board.project()
    assert places(board) == [wanted]


def test_of_two_files_that_a_crash_left_one_goes(ledger: FileLedger, board: Board) -> None:
    write(board)
    lead(ledger, board, S.CLOSED)
    board.project()
    (board.folder / "open" / "t.yaml").write_bytes((board.folder / "closed" / "t.yaml").read_bytes())
    board.take_in()
    assert sorted(places(board)) == ["closed", "open"]
    assert board.project() == [] and places(board) == ["closed"]


def test_a_file_that_cannot_be_moved_is_moved_next_time(ledger: FileLedger, board: Board) -> None:
    write(board)
    write(board, name="other")
    lead(ledger, board, S.CLOSED)
    append(ledger, *moves("other", S.OPEN, TaskEvent.AGENT_CLAIMS_TASK))
    board.keep_up()
    (board.folder / "closed").rmdir()
    (board.folder / "closed").write_text("in the way")
    assert len(board.project()) == 1 and places(board) == ["open"]
    assert (board.folder / "claimed" / "other.yaml").exists(), "the others are moved all the same"
    (board.folder / "closed").unlink()
    (board.folder / "closed").mkdir()
    assert board.project() == [] and places(board) == ["closed"]


# -- the graph --------------------------------------------------------------------------------------------------------

FULL = """goal: do it
depends_on: [d]
parent: p
priority: 1
not_before: 500
subtask_timeout_s: 60
role: docs
on_dependency_failed: cancel
"""


def test_the_graph_has_what_the_file_says(ledger: FileLedger, board: Board) -> None:
    write(board, FULL)
    for name in ("d", "p"):
        write(board, name=name)
    board.take_in()
    node = board.graph.node("t")
    assert node is not None and (tuple(node.depends_on), node.parent, node.priority) == (("d",), "p", 1)
    assert (node.not_before, node.subtask_timeout_s, node.role, node.cancels) == (500.0, 60.0, "docs", True)
    plain = board.graph.node("p")
    assert plain is not None and (plain.depends_on, plain.parent, plain.priority) == ((), "", 5)
    assert (plain.not_before, plain.subtask_timeout_s, plain.role, plain.cancels) == (0.0, 0.0, "", False)
    numbers = [node.number for name in ("t", "d", "p") if (node := board.graph.node(name))]
    assert sorted(numbers) == [0, 1, 2]


@pytest.mark.parametrize(("pause", "wanted"), [(400.0, 500.0), (600.0, 600.0)])
def test_the_later_of_two_times_counts(ledger: FileLedger, board: Board, pause: float, wanted: float) -> None:
    write(board, "goal: x\nnot_before: 500\n")
    board.take_in()
    append(ledger, Record("task_flagged", {"task": "t", "not_before": pause}))
    board.keep_up()
    assert (node := board.graph.node("t")) and node.not_before == wanted


def test_a_task_that_a_person_must_decide_on_says_so_in_the_graph(ledger: FileLedger, board: Board) -> None:
    write(board)
    board.take_in()
    assert board.graph.next_ready(0.0) == "t"
    append(ledger, Record("task_flagged", {"task": "t", "parked": "look at it"}))
    assert board.graph.next_ready(0.0) == "t", "not before it was taken in"
    board.keep_up()
    assert (node := board.graph.node("t")) and node.parked == "look at it" and board.graph.next_ready(0.0) is None


@pytest.mark.parametrize("text", ["goal: [", "goal: x\nnothing: 1\n", "goal: x\ndepends_on: [nobody]\n"])
@pytest.mark.parametrize("state", [S.OPEN, S.CLAIMED])
def test_a_task_whose_file_cannot_be_used_waits_and_goes_on_once_it_is_mended(
    ledger: FileLedger, board: Board, text: str, state: TaskState
) -> None:
    write(board)
    lead(ledger, board, state)
    board.project()
    path = write(board, text, folder="claimed" if state is S.CLAIMED else "open")
    board.take_in()
    assert len(board.problems) == 1 and board.definition("t") is None
    assert (node := board.graph.node("t")) and node.parked == NO_FILE and node.state is state
    assert path.read_text() == text, "it is left as it is"
    path.write_text("goal: mended\n")
    board.take_in()
    assert (node := board.graph.node("t")) and node.parked == "" and not board.problems
    assert (made := board.definition("t")) and made.goal == "mended"


def test_a_claimed_task_whose_file_is_deleted_has_it_back(ledger: FileLedger, board: Board) -> None:
    write(board)
    lead(ledger, board, S.CLAIMED)
    board.project()
    (board.folder / "claimed" / "t.yaml").unlink()
    assert board.take_in().put_back == ["t"]
    board.project()
    assert places(board) == ["claimed"]
    assert (node := board.graph.node("t")) and (node.state, node.parked) == (S.CLAIMED, "")


# -- what came through the API ----------------------------------------------------------------------------------------


def test_a_task_that_came_through_the_api_is_ready_before_it_has_a_file(ledger: FileLedger, board: Board) -> None:
    text = "goal: asked for\npriority: 2\n"
    digest = board.blobs.put(text.encode(), content_type="application/yaml")
    append(ledger, Record("task_added", {"task": "t", "definition": digest, "text": text}))
    board.keep_up()
    assert places(board) == [] and (made := board.definition("t")) and made.goal == "asked for"
    assert (node := board.graph.node("t")) and (node.priority, node.parked) == (2, "")
    assert board.project() == [] and places(board) == [], "it is written first"
    assert board.file_new() and places(board) == ["open"]
    assert ledger.state.tasks["t"].unfiled == "" and board.files["t"].definition.goal == "asked for"


def test_new_tasks_wait_for_their_file_while_the_backlog_is_gone(ledger: FileLedger, board: Board) -> None:
    append(ledger, Record("task_added", {"task": "t", "definition": "d" * 64, "text": "goal: x\n"}))
    board.keep_up()
    aside = board.folder.with_name("aside")
    board.folder.rename(aside)
    assert board.file_new() is False and ledger.state.tasks["t"].unfiled
    aside.rename(board.folder)
    assert board.file_new() is True and places(board) == ["open"]


# -- which words count ------------------------------------------------------------------------------------------------


def test_an_edit_meanwhile_counts_for_the_next_attempt(ledger: FileLedger, board: Board) -> None:
    write(board, "goal: first\n")
    lead(ledger, board, S.CLAIMED)
    write(board, "goal: second\n")
    board.take_in()
    task = ledger.state.tasks["t"]
    assert (made := board.definition("t")) and made.goal == "second"
    assert board.worked_on(task).goal == "first"
    assert board.pinned("t", task.definition).goal == "second"


@pytest.mark.parametrize("damage", ["gone", "corrupt"])
def test_a_pinned_definition_that_is_lost_is_mended_from_the_file_where_that_says_the_same(
    ledger: FileLedger, board: Board, damage: str
) -> None:
    path = write(board, "goal: first\n")
    lead(ledger, board, S.CLAIMED)
    task = ledger.state.tasks["t"]
    [blob] = ledger.layout.cas.rglob(task.definition)
    content = blob.read_bytes()

    def spoil() -> None:
        blob.unlink() if damage == "gone" else blob.write_bytes(b"other")

    spoil()
    assert board.worked_on(task).goal == "first"
    assert blob.read_bytes() == content, "and it is whole again"
    path.write_text("goal: second\n")
    board.take_in()
    spoil()
    with pytest.raises(errors.DefinitionLost):
        board.worked_on(task)
