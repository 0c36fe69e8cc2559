"""Chooses the task to work on next, and says why another has to wait.

A task is ready when it is open, nobody must decide on it, its time has come, and every task that it depends on is
closed. Ready tasks come by priority (1 before 2), then in the order in which they were added.

Choosing costs the logarithm of the number of tasks: what is ready stands in a heap, what waits for a time in another,
and a change of one task looks only at those that depend on it. Entries of the heaps that no longer hold are dropped
when they come up.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec

from holdfast.domain.conversations.conversation_entries import TAKEN_BY
from holdfast.domain.fsm import Reason
from holdfast.domain.task import OVER, TaskEvent, TaskState, cancel_event
from holdfast.domain.wording import moment

SETTLED = TaskState.CLOSED
# Of a task whose file names none.
PRIORITY = 5
# States in which nobody has begun: only these are cancelled by a dependency that came to nothing.
_NOT_BEGUN = {TaskState.PLANNED, TaskState.OPEN, TaskState.BLOCKED}


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A task in the graph. `priority` and `depends_on` are its definition's; the rest is the journal's.

    `number` counts the tasks as they were added: many of them may have come in the same moment.
    """

    id: str
    depends_on: Sequence[str] = ()
    parent: str = ""
    priority: int = PRIORITY
    number: int = 0
    state: TaskState = TaskState.OPEN
    parked: str = ""
    not_before: float = 0.0
    # The question for which its agent waits, in words, and when that is answered without a person; 0: never.
    asking: str = ""
    answer_due: float = 0.0
    # How long its subtasks may take, where it waits for them; 0 without a limit.
    subtask_timeout_s: float = 0.0
    role: str = ""
    # It failed, and another attempt follows by itself.
    again: bool = False
    # `on_dependency_failed: cancel`.
    cancels: bool = False

    @property
    def due(self) -> float:
        """Before this time nothing becomes of it by itself."""
        return max(self.not_before, self.answer_due)

    @property
    def is_hopeless(self) -> bool:
        """Whether it will not be closed unless a person does something."""
        return self.state is TaskState.CANCELLED or (self.state is TaskState.FAILED and not self.again)


class Abort(NamedTuple):
    """A task that is to be cancelled because of what became of `cause`."""

    task: str
    reason: Reason
    cause: str


class Graph:
    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._dependents: dict[str, set[str]] = defaultdict(set)
        self._children: dict[str, set[str]] = defaultdict(set)
        self._unmet: dict[str, int] = {}
        # By role, because some take only tasks of theirs; roles are few.
        self._ready: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        self._timed: list[tuple[float, str]] = []
        self._waiting: set[str] = set()
        # May have to be cancelled because of what became of a parent or a dependency.
        self._doomed: set[str] = set()
        self._hopeless: set[str] = set()
        # For each task that waits, the task that failed or was cancelled behind all that it waits for; None: not known.
        self._roots: dict[str, str] | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def put(self, node: Node) -> None:
        """Adds a task, or takes its new definition or state."""
        before = self._nodes.get(node.id)
        if before is not None:
            self._unlink(before)
        self._nodes[node.id] = node
        self._roots = None
        if node.state in (TaskState.BLOCKED, TaskState.WAITING_FOR_SUBTASKS):
            self._waiting.add(node.id)
        for name in node.depends_on:
            self._dependents[name].add(node.id)
        if node.parent:
            self._children[node.parent].add(node.id)
        self._unmet[node.id] = sum(not self._is_settled(name) for name in node.depends_on)
        self._offer(node)
        was_settled = before is not None and before.state is SETTLED
        if was_settled != (node.state is SETTLED):
            self._tell_dependents(node.id, -1 if node.state is SETTLED else 1)
        if before is not None and before.state is TaskState.CANCELLED and node.state is not TaskState.CANCELLED:
            self._offer_children(node.id)
        self._suspect(node)

    def _suspect(self, node: Node) -> None:
        """Notes whom this change may cancel: `due_cancels` looks at those alone."""
        (self._hopeless.add if node.is_hopeless else self._hopeless.discard)(node.id)
        if node.parent or node.cancels:
            self._doomed.add(node.id)
        if node.state is TaskState.CANCELLED:
            self._doomed |= self._children.get(node.id, set())
        if node.is_hopeless:
            self._doomed |= {name for name in self._dependents.get(node.id, ()) if self._nodes[name].cancels}

    def remove(self, name: str) -> None:
        node = self._nodes.pop(name)
        self._roots = None
        self._hopeless.discard(name)
        self._unlink(node)
        del self._unmet[name]
        if node.state is SETTLED:
            self._tell_dependents(name, 1)
        if node.state is TaskState.CANCELLED:
            self._offer_children(name)

    def next_ready(self, now: float, role: str | None = None) -> str | None:
        """The task to take first, of this role or of any, or None. It stays ready until its state is put anew."""
        self._wake(now)
        heaps = self._ready.values() if role is None else [self._ready.get(role, [])]
        tops = []
        for heap in heaps:
            while heap and not self._holds(heap[0], now):
                heapq.heappop(heap)
            tops += heap[:1]
        return min(tops)[2] if tops else None

    def ready(self, now: float, role: str | None = None) -> Iterator[str]:
        """All that are ready, in order. For a person to look at: it costs a pass over them."""
        self._wake(now)
        heaps = list(self._ready.values()) if role is None else [self._ready.get(role, [])]
        for item in sorted({item for heap in heaps for item in heap}):
            if self._holds(item, now):
                yield item[2]

    def _holds(self, item: tuple[int, int, str], now: float) -> bool:
        """Whether an entry of the heap is still current."""
        node = self._nodes.get(item[2])
        return node is not None and (node.priority, node.number) == item[:2] and self._is_ready(node, now)

    def next_moment(self) -> float | None:
        """The time at which the next task becomes ready that waits for nothing but its time."""
        while self._timed:
            moment, name = self._timed[0]
            node = self._nodes.get(name)
            if node is not None and node.due == moment and self._is_ready(node, moment):
                return moment
            heapq.heappop(self._timed)
        return None

    def reasons_to_wait(self, name: str, now: float) -> list[str]:
        """The reasons why a task is not ready, in words; empty for one that is."""
        node = self._nodes[name]
        if self._is_cancelled(node.parent) and node.state not in OVER:
            return [f"its parent {node.parent} was cancelled: the next `holdfast run` cancels it, too"]
        subtasks = [f"its subtask {child} is {self._nodes[child].state}" for child in self.open_subtasks(name)]
        if node.state is TaskState.WAITING_FOR_SUBTASKS:
            return subtasks
        reasons = [] if node.state is TaskState.OPEN else [f"it is {node.state}"]
        reasons += subtasks if node.state is TaskState.BLOCKED else []
        if node.parked:
            taken = node.parked.startswith(TAKEN_BY)
            reasons.append(node.parked if taken else f"a person must decide: {node.parked}")
        if node.asking:
            reasons.append(node.asking)
        if node.not_before > now:
            reasons.append(f"not before {moment(node.not_before)}")
        return reasons + [self._word(node, each) for each in node.depends_on if not self._is_settled(each)]

    def node(self, name: str) -> Node | None:
        return self._nodes.get(name)

    def waited_for(self, name: str) -> list[str]:
        """The dependencies and subtasks of a task that are not settled."""
        node = self._nodes[name]
        if node.state is TaskState.WAITING_FOR_SUBTASKS:
            return self.open_subtasks(name)
        subtasks = self.open_subtasks(name) if node.state is TaskState.BLOCKED else []
        return subtasks + [dependency for dependency in node.depends_on if not self._is_settled(dependency)]

    def subtask_timeouts(self) -> dict[str, float]:
        """The tasks that wait for subtasks of theirs, and not for ever: how long."""
        waiting = (self._nodes[name] for name in self._waiting)
        return {
            node.id: node.subtask_timeout_s
            for node in waiting
            if node.state is TaskState.WAITING_FOR_SUBTASKS and node.subtask_timeout_s
        }

    def due_moves(self, overdue: Collection[str] = ()) -> list[tuple[str, TaskEvent]]:
        """Moves that follow from the ends of other tasks: a task that waited for them is ready, or has waited too long.

        `overdue`: those that have waited for their subtasks as long as they may. They are BLOCKED until the subtasks
        are over.
        """
        moves = []
        for name in sorted(self._waiting):
            node = self._nodes[name]
            if node.state is TaskState.BLOCKED and not self._unmet[name] and not self.open_subtasks(name):
                moves.append((name, TaskEvent.DEPENDENCY_RESOLVED))
            elif node.state is TaskState.WAITING_FOR_SUBTASKS and self._children[name]:
                if not self.open_subtasks(name):
                    moves.append((name, TaskEvent.ALL_SUBTASKS_COMPLETED))
                elif name in overdue:
                    moves.append((name, TaskEvent.SUBTASK_TIMEOUT_ESCALATION))
        return moves

    def due_cancels(self) -> list[Abort]:
        """The tasks to cancel because of the end of other tasks, depth-first.

        Each task stands before its own subtasks, and these before its siblings: an agent at work may add more
        subtasks until it is ended.
        """
        found: dict[str, Abort] = {}
        for name in sorted(self._doomed):
            abort = self._abort(name)
            if abort is None:
                self._doomed.discard(name)
                continue
            todo = [abort]
            while todo:
                abort = todo.pop()
                node = self._nodes[abort.task]
                if abort.task in found or cancel_event(node.state) is None:
                    continue
                found[abort.task] = abort
                below = sorted(self._children.get(node.id, ()), reverse=True)
                todo += [Abort(child, Reason.PARENT_CANCELLED, node.id) for child in below]
        return list(found.values())

    def _abort(self, name: str) -> Abort | None:
        node = self._nodes.get(name)
        if node is None or node.state in OVER:
            return None
        if self._is_cancelled(node.parent):
            return Abort(name, Reason.PARENT_CANCELLED, node.parent)
        if node.cancels and node.state in _NOT_BEGUN and (causes := self.hopeless(name)):
            return Abort(name, Reason.DEPENDENCY_FAILED, causes[0])
        return None

    def has_subtasks(self, name: str) -> bool:
        return bool(self._children.get(name))

    def subtasks(self, name: str) -> list[str]:
        return sorted(self._children.get(name, ()))

    def open_subtasks(self, name: str) -> list[str]:
        return sorted(child for child in self._children.get(name, ()) if self._nodes[child].state is not SETTLED)

    def hopeless(self, name: str) -> list[str]:
        """The dependencies of a task that failed or were cancelled, so that it cannot go on by itself."""
        known = (self._nodes.get(dependency) for dependency in self._nodes[name].depends_on)
        return [node.id for node in known if node is not None and node.is_hopeless]

    def stuck(self, name: str) -> str:
        """The reason why a waiting task cannot start before a person decides about another; empty where it can."""
        node = self._nodes.get(name)
        if node is None or node.state not in _NOT_BEGUN:
            return ""
        waits = (each for each in node.depends_on if each in self._hopeless or self._root(each))
        return "; ".join(self._word(node, each) for each in waits)

    def _word(self, node: Node, name: str) -> str:
        """The reason why a task waits for a dependency, with what to type where waiting alone does not help."""
        other = self._nodes.get(name)
        if other is None:
            return f"it depends on {name}, which does not exist"
        if other.is_hopeless:
            then = "it is cancelled, too" if node.cancels else _way_out(node.id, other)
            return f"it depends on {name}, which is {other.state}: {then}"
        root = self._nodes.get(self._root(name))
        if root is None:
            return f"it waits for {name}, which is {other.state}"
        is_failed = root.state is TaskState.FAILED
        hint = (
            f"`holdfast retry {root.id}` tries that again" if is_failed else f"`holdfast show {name}` says what to type"
        )
        return f"it waits for {name}, which is {other.state} and waits for {root.id}, which is {root.state}: {hint}"

    def _root(self, name: str) -> str:
        """The task that failed or was cancelled behind what this one waits for; empty where there is none."""
        if self._roots is None:
            self._roots, todo = {}, deque(sorted(self._hopeless))
            while todo:
                found = todo.popleft()
                for each in sorted(self._dependents.get(found, ())):
                    if each not in self._roots and each not in self._hopeless and not self._is_settled(each):
                        self._roots[each] = self._roots.get(found, found)
                        todo.append(each)
        return self._roots.get(name, "")

    def _is_settled(self, name: str) -> bool:
        node = self._nodes.get(name)
        return node is not None and node.state is SETTLED

    def _is_cancelled(self, name: str) -> bool:
        node = self._nodes.get(name)
        return node is not None and node.state is TaskState.CANCELLED

    def _is_ready(self, node: Node, now: float) -> bool:
        waits = (
            node.parked
            or (node.asking and not node.answer_due)
            or node.due > now
            or self._unmet[node.id]
            or self._is_cancelled(node.parent)
        )
        return node.state is TaskState.OPEN and not waits

    def _offer(self, node: Node) -> None:
        if node.state is not TaskState.OPEN or node.parked or self._unmet[node.id]:
            return
        if node.asking and not node.answer_due:
            return
        if node.due:
            heapq.heappush(self._timed, (node.due, node.id))
        else:
            heapq.heappush(self._ready[node.role], (node.priority, node.number, node.id))

    def _offer_children(self, name: str) -> None:
        """They were let go while their parent was cancelled."""
        for child in self._children.get(name, ()):
            self._offer(self._nodes[child])

    def _wake(self, now: float) -> None:
        while self._timed and self._timed[0][0] <= now:
            moment, name = heapq.heappop(self._timed)
            node = self._nodes.get(name)
            if node is not None and node.due == moment and self._is_ready(node, now):
                heapq.heappush(self._ready[node.role], (node.priority, node.number, name))

    def _tell_dependents(self, name: str, change: int) -> None:
        for dependent in self._dependents[name]:
            if dependent in self._unmet:
                self._unmet[dependent] += change * self._nodes[dependent].depends_on.count(name)
                if change < 0:
                    self._offer(self._nodes[dependent])

    def _unlink(self, node: Node) -> None:
        self._waiting.discard(node.id)
        for name in node.depends_on:
            self._dependents[name].discard(node.id)
        if node.parent:
            self._children[node.parent].discard(node.id)


def _way_out(name: str, hopeless: Node) -> str:
    """The command to type for a task that waits for one that failed or was cancelled."""
    if hopeless.state is TaskState.FAILED:
        return f"`holdfast retry {hopeless.id}` tries that again, `holdfast cancel {name}` gives this up"
    return f"`holdfast edit {name}` takes it out of depends_on, `holdfast cancel {name}` gives this up"
