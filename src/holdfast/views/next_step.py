"""The command to type next for a task that is not settled."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.conversations.conversation_entries import TAKEN_BY
from holdfast.domain.entries import STOPPED, is_lost
from holdfast.domain.graph import Graph, Node
from holdfast.domain.pull_requests.pull_records import PULL_REQUEST
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task, open_questions
from holdfast.domain.wording import fault_words, is_setup_failure

_NEXT = {
    TaskState.CLAIMED: "holdfast attach {task}",
    TaskState.IN_PROGRESS: "holdfast attach {task}",
    TaskState.FAILED: "holdfast retry {task} | holdfast cancel {task}",
    TaskState.PENDING_APPROVAL: (
        "holdfast review {task}, then holdfast approve {task} | holdfast reject {task} --reason WHY"
    ),
    TaskState.PLANNED: "holdfast approve {task}",
    TaskState.CLOSED: "",
    TaskState.CANCELLED: "",
}

# What to do before another try makes sense.
_FIRST = {
    "auth_missing": "sign in (`holdfast agents` tells how)",
    "gate_failed": "holdfast gates {task}",
    "gate_timed_out": "holdfast gates {task}",
    "submodule": "set `submodules: init` in config/settings.yaml or change the goal (`holdfast edit {task}`)",
    "submodule_ahead": "bring the work in its submodule into that submodule's repository",
    "nested_repository": "remove the inner .git in its worktree or list its folder in .gitignore",
}
# Where another try of the same would come to the same.
_INSTEAD = {
    "empty_change": "holdfast cancel {task} | holdfast edit {task} --may-change-nothing, then holdfast retry {task}",
}


def waiting_words(paths: Sequence[str]) -> str:
    """The reason why a landing waits, in words."""
    return f"its landing waits: you have changed {', '.join(paths[:5])} in your checkout"


def next_step(
    task: str,
    state: TaskState,
    parked: str = "",
    *,
    is_held: bool = False,
    faulted: str = "",
    landing_waits: Sequence[str] = (),
    stuck: Sequence[Node] = (),
    kind: str = "",
    asking: str = "",
) -> str:
    """The command that brings the task on.

    `is_held`: something named beside it stands in the way, so look first. `faulted`: why its next step could
    not be done, which is no fault of its own; a run tries that again, whatever its state. `stuck`: what it depends on
    and that does not go on by itself; a run would do nothing for it. `kind`: how it failed. `asking`: what
    answers the question of its agent.
    """
    if parked.startswith(TAKEN_BY):
        return f"leave the session in that terminal | holdfast give-back {task}"
    if parked == STOPPED:
        return f"holdfast resume {task}"
    if is_lost(parked):
        return f"holdfast resolve {task} --newest | --anew | --abandon"
    if parked:
        return f"holdfast resolve {task} --happened | --retry | --abandon"
    if asking:
        return f"holdfast questions {task}, then {asking}"
    if landing_waits:
        commit = f"commit or put away your changes in {', '.join(landing_waits[:5])}"
        others = f"holdfast promote {task} --branch NAME | holdfast retry {task} --reason WHY | holdfast cancel {task}"
        return f"{commit}, or type {others}"
    if faulted:
        first = f"mend its setup (`holdfast show {task}` says how), then " if is_setup_failure(faulted) else ""
        return f"{first}holdfast run"
    if stuck and state in (TaskState.OPEN, TaskState.BLOCKED, TaskState.WAITING_FOR_SUBTASKS):
        return " | ".join(dict.fromkeys(way for node in stuck[:3] for way in _unstick(task, node)))
    if state is TaskState.FAILED and kind in _INSTEAD:
        return _INSTEAD[kind].format(task=task)
    if state is TaskState.FAILED and kind in _FIRST:
        return f"{_FIRST[kind]}, then {_NEXT[state]}".format(task=task)
    return _NEXT.get(state, "holdfast show {task}" if is_held else "holdfast run").format(task=task)


def next_step_of(
    name: str, state: TaskState, task: Task | None, *, stuck: Sequence[Node] = (), is_held: bool = False
) -> str:
    """The same for a task of the journal; None: the journal does not know it yet."""
    if task is None:
        return next_step(name, state, stuck=stuck, is_held=is_held)
    if task.state is TaskState.PENDING_APPROVAL and task.outcome.get("kind") == PULL_REQUEST:
        url = task.pull.url if task.pull is not None else ""
        return f"merge {url} | holdfast pr {name}" if url and not task.parked else f"holdfast pr {name}"
    return next_step(
        name,
        state,
        task.parked,
        is_held=is_held,
        faulted=task.cause if fault_words(task.cause, task.not_before) else "",
        landing_waits=task.landing.waits,
        stuck=stuck,
        kind=str(task.outcome.get("kind") or ""),
        asking=next((each.answer_command for each in open_questions(task)), ""),
    )


def asks_of(task: Task | None) -> str:
    """What a result waits for that waits for a person."""
    if task is None or task.state is not TaskState.PENDING_APPROVAL:
        return ""
    if task.outcome.get("kind") != PULL_REQUEST:
        return "waits for your approval"
    pull = task.pull
    if pull is None or not pull.number:
        return "waits for its pull request, which is not opened yet"
    return f"waits for its pull request #{pull.number}: {pull.url}"


def _unstick(task: str, node: Node) -> list[str]:
    if node.state is TaskState.CANCELLED or node.number < 0:
        return [f"holdfast edit {task} --depends-on OTHER", f"holdfast cancel {task}"]
    if node.state is TaskState.FAILED and not node.parked:
        # Cancelling that one would leave this one waiting for ever.
        return [f"holdfast retry {node.id}", f"holdfast cancel {task}"]
    return [next_step(node.id, node.state, node.parked)]


def stuck_behind(graph: Graph, name: str) -> list[Node]:
    """The tasks that a task waits for, over any number of steps, and that need a person's decision."""
    found: dict[str, Node] = {}
    todo, seen = list(graph.waited_for(name)), {name}
    while todo:
        each = todo.pop(0)
        if each in seen:
            continue
        seen.add(each)
        node = graph.node(each)
        if node is None:
            found[each] = Node(id=each, number=-1)
        elif node.parked or node.state in _ASKING:
            found[each] = node
        else:
            todo += graph.waited_for(each)
    return list(found.values())


_ASKING = {TaskState.FAILED, TaskState.CANCELLED, TaskState.PENDING_APPROVAL, TaskState.PLANNED}
