from __future__ import annotations

import pytest
from hypothesis import given, strategies

from holdfast.domain.graph import Graph, Node
from holdfast.domain.task import TaskEvent, TaskState, cancel_event

NAMES = "abcdef"
nodes = strategies.builds(
    Node,
    id=strategies.sampled_from(NAMES),
    depends_on=strategies.lists(strategies.sampled_from(NAMES), max_size=3),
    parent=strategies.sampled_from(["", "a", "b"]),
    priority=strategies.integers(1, 3),
    number=strategies.integers(0, 2),
    state=strategies.sampled_from(
        [*[TaskState.OPEN] * 3, TaskState.CLOSED, TaskState.FAILED, TaskState.CLAIMED, TaskState.CANCELLED]
    ),
    parked=strategies.sampled_from(["", "", "why"]),
    not_before=strategies.sampled_from([0.0, 0.0, 5.0, 10.0]),
    again=strategies.booleans(),
    cancels=strategies.booleans(),
)


def expected(known: dict[str, Node], now: float) -> list[str]:
    """Ready tasks by going through all of them: what the graph must find without doing so."""

    def settled(name: str) -> bool:
        return name in known and known[name].state is TaskState.CLOSED

    ready = [
        node
        for node in known.values()
        if node.state is TaskState.OPEN
        and not node.parked
        and node.not_before <= now
        and all(map(settled, node.depends_on))
        and not (node.parent in known and known[node.parent].state is TaskState.CANCELLED)
    ]
    return [node.id for node in sorted(ready, key=lambda node: (node.priority, node.number, node.id))]


def expected_cancels(known: dict[str, Node]) -> set[str]:
    """What is to be cancelled, by going through all tasks until nothing is found any more."""
    found: set[str] = set()

    def came_to_nothing(name: str) -> bool:
        return name in known and (
            known[name].state is TaskState.CANCELLED
            or (known[name].state is TaskState.FAILED and not known[name].again)
        )

    while True:
        more = {
            node.id
            for node in known.values()
            if node.id not in found
            and cancel_event(node.state) is not None
            and (
                node.parent in found
                or (node.parent in known and known[node.parent].state is TaskState.CANCELLED)
                or (node.cancels and node.state is TaskState.OPEN and any(map(came_to_nothing, node.depends_on)))
            )
        }
        if not more:
            return found
        found |= more


@pytest.mark.parametrize("again", [True, False], ids=["open again", "gone"])
def test_children_of_a_task_that_is_no_longer_cancelled_are_ready_again(again: bool) -> None:
    graph = Graph()
    graph.put(Node(id="child", parent="top"))
    graph.put(Node(id="top", state=TaskState.CANCELLED))
    assert list(graph.ready(0.0)) == [] and graph.next_ready(0.0) is None
    if again:
        graph.put(Node(id="top", priority=9))
    else:
        graph.remove("top")
    assert graph.next_ready(0.0) == "child"


@given(
    steps=strategies.lists(
        strategies.tuples(nodes | strategies.sampled_from(NAMES), strategies.sampled_from([0.0, 5.0, 12.0])),
        max_size=40,
    )
)
def test_the_graph_finds_what_a_pass_over_all_tasks_finds(steps: list[tuple[Node | str, float]]) -> None:
    graph, known, now = Graph(), dict[str, Node](), 0.0
    for step, moment in steps:
        now = max(now, moment)
        if isinstance(step, Node):
            known[step.id] = step
            graph.put(step)
        elif step in known:
            del known[step]
            graph.remove(step)
        want = expected(known, now)
        assert list(graph.ready(now)) == want
        assert graph.next_ready(now) == (want[0] if want else None)
        assert {abort.task for abort in graph.due_cancels()} == expected_cancels(known)
        for name, node in known.items():
            if node.state is TaskState.OPEN:
                assert (graph.reasons_to_wait(name, now) == []) == (name in want)


def test_order_is_priority_and_then_that_of_adding() -> None:
    graph = Graph()
    for number, (name, priority) in enumerate((("d", 2), ("c", 1), ("b", 1), ("a", 1))):
        graph.put(Node(id=name, priority=priority, number=number))
    assert list(graph.ready(0.0)) == ["c", "b", "a", "d"]


def test_a_time_to_wait_for_is_told_as_a_date() -> None:
    graph = Graph()
    graph.put(Node(id="later", not_before=4e9))
    assert graph.reasons_to_wait("later", 0.0) == ["not before 2096-10-02 07:06:40Z"]


def test_a_dependency_makes_wait_and_its_end_lets_go() -> None:
    graph = Graph()
    graph.put(Node(id="second", depends_on=["first"]))
    graph.put(Node(id="first", state=TaskState.IN_PROGRESS))
    assert graph.next_ready(0.0) is None
    assert graph.reasons_to_wait("second", 0.0) == ["it waits for first, which is in progress"]
    graph.put(Node(id="first", state=TaskState.CLOSED))
    assert graph.next_ready(0.0) == "second" and graph.reasons_to_wait("second", 0.0) == []


@pytest.mark.parametrize("state", [TaskState.FAILED, TaskState.CANCELLED])
def test_a_task_that_waits_for_one_that_failed_says_so(state: TaskState) -> None:
    graph = Graph()
    graph.put(Node(id="first", state=state))
    graph.put(Node(id="second", depends_on=["first", "gone"]))
    assert graph.hopeless("second") == ["first"]
    ways = {
        TaskState.FAILED: "`holdfast retry first` tries that again, `holdfast cancel second` gives this up",
        TaskState.CANCELLED: "`holdfast edit second` takes it out of depends_on, "
        "`holdfast cancel second` gives this up",
    }
    assert graph.reasons_to_wait("second", 0.0) == [
        f"it depends on first, which is {state}: {ways[state]}",
        "it depends on gone, which does not exist",
    ]


def test_a_task_that_waits_far_behind_one_that_failed_names_it() -> None:
    graph = Graph()
    graph.put(Node(id="a", state=TaskState.FAILED))
    graph.put(Node(id="b", depends_on=["a"]))
    graph.put(Node(id="c", depends_on=["b"]))
    graph.put(Node(id="d", depends_on=["c"]))
    assert graph.reasons_to_wait("d", 0.0) == [
        "it waits for c, which is open and waits for a, which is failed: `holdfast retry a` tries that again"
    ]
    graph.put(Node(id="a", state=TaskState.FAILED, again=True))
    assert graph.reasons_to_wait("d", 0.0) == ["it waits for c, which is open"]
    assert graph.hopeless("b") == []


def test_cancelling_goes_depth_first_and_leaves_what_has_landed() -> None:
    graph = Graph()
    graph.put(Node(id="z", state=TaskState.CANCELLED))
    for name, parent in (("b", "z"), ("a", "z"), ("a2", "a"), ("a1", "a"), ("a1x", "a1"), ("b1", "b")):
        graph.put(Node(id=name, parent=parent))
    graph.put(Node(id="done", parent="z", state=TaskState.CLOSED))
    graph.put(Node(id="below-done", parent="done"))
    aborts = graph.due_cancels()
    assert [abort.task for abort in aborts] == ["a", "a1", "a1x", "a2", "b", "b1"]
    assert {abort.reason for abort in aborts} == {"parent_cancelled"}
    assert [abort.cause for abort in aborts] == ["z", "a", "a1", "a", "z", "b"]
    # Cut off anywhere, the rest is still due.
    for number, name in enumerate(["a", "a1", "a1x", "a2", "b", "b1"]):
        assert [abort.task for abort in graph.due_cancels()] == ["a", "a1", "a1x", "a2", "b", "b1"][number:]
        graph.put(Node(id=name, parent=graph._nodes[name].parent, state=TaskState.CANCELLED))
    assert graph.due_cancels() == [] and graph.next_ready(0.0) == "below-done"


def test_parents_wait_for_their_subtasks() -> None:
    graph = Graph()
    graph.put(Node(id="parent", state=TaskState.WAITING_FOR_SUBTASKS))
    graph.put(Node(id="one", parent="parent"))
    graph.put(Node(id="two", parent="parent", state=TaskState.CLOSED))
    assert graph.open_subtasks("parent") == ["one"]
    assert graph.reasons_to_wait("parent", 0.0) == ["its subtask one is open"]
    graph.put(Node(id="one", parent="parent", state=TaskState.CLOSED))
    assert graph.open_subtasks("parent") == []


@pytest.mark.parametrize(
    ("state", "waited_for"),
    [
        # A parent has done its own part; a blocked task waits for both.
        (TaskState.WAITING_FOR_SUBTASKS, ["one"]),
        (TaskState.BLOCKED, ["one", "first"]),
        (TaskState.OPEN, ["first"]),
    ],
)
def test_a_task_waits_for_subtasks_or_dependencies_by_its_state(state: TaskState, waited_for: list[str]) -> None:
    graph = Graph()
    graph.put(Node(id="parent", depends_on=["first", "second"], state=state))
    graph.put(Node(id="first"))
    graph.put(Node(id="second", state=TaskState.CLOSED))
    graph.put(Node(id="one", parent="parent"))
    graph.put(Node(id="two", parent="parent", state=TaskState.CLOSED))
    assert graph.waited_for("parent") == waited_for


def test_the_end_of_a_task_moves_those_that_waited_for_it() -> None:
    graph = Graph()
    graph.put(Node(id="blocked", depends_on=["first"], state=TaskState.BLOCKED))
    graph.put(Node(id="parent", state=TaskState.WAITING_FOR_SUBTASKS, subtask_timeout_s=50.0))
    graph.put(Node(id="child", parent="parent"))
    graph.put(Node(id="first"))
    assert graph.due_moves() == [] and graph.subtask_timeouts() == {"parent": 50.0}
    assert graph.due_moves({"parent"}) == [("parent", TaskEvent.SUBTASK_TIMEOUT_ESCALATION)]
    graph.put(Node(id="first", state=TaskState.CLOSED))
    graph.put(Node(id="child", parent="parent", state=TaskState.CLOSED))
    assert graph.due_moves({"parent"}) == [
        ("blocked", TaskEvent.DEPENDENCY_RESOLVED),
        ("parent", TaskEvent.ALL_SUBTASKS_COMPLETED),
    ]
    graph.put(Node(id="blocked", depends_on=["first"]))
    graph.remove("parent")
    assert graph.due_moves() == [] and graph.next_ready(50.0) == "blocked"


def test_a_task_with_a_time_waits_for_it() -> None:
    graph = Graph()
    graph.put(Node(id="later", not_before=100.0))
    graph.put(Node(id="sooner", not_before=50.0))
    assert graph.next_ready(0.0) is None and graph.next_moment() == 50.0
    assert graph.next_ready(60.0) == "sooner"
    graph.put(Node(id="sooner", state=TaskState.CLAIMED))
    assert graph.next_ready(60.0) is None and graph.next_moment() == 100.0
    assert graph.next_ready(100.0) == "later"
    graph.put(Node(id="later", not_before=100.0, state=TaskState.CANCELLED))
    assert graph.next_moment() is None, "a run would wait for what nobody works on any more"
