"""Decisions of a person about a task: the same decisions as the commands make, in the loop's thread."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.backlog.folder import Backlog
from holdfast.backlog.scanner import FoundFile
from holdfast.backlog.sync import EDITABLE
from holdfast.backlog.yaml_blocks import without_blocks
from holdfast.backlog.yaml_edit import edited
from holdfast.decisions import new_tasks
from holdfast.decisions.connections.pull_requests import ROUNDS_MAX, PullDecision
from holdfast.decisions.context import DecisionContext, refused
from holdfast.decisions.conversations import MESSAGE_CHARS_MAX
from holdfast.decisions.mailbox import DECISIONS, decide
from holdfast.decisions.tasks import end_attempt
from holdfast.domain.definition import Definition, parse, problems_of
from holdfast.domain.fsm import Reason
from holdfast.domain.task import OVER, TaskEvent, TaskState
from holdfast.domain.task_ids import free_id
from holdfast.domain.task_record import Task
from holdfast.errors import InputError, TaskIsFinal, TaskUnknown, TurnUnknown
from holdfast.server.access.subtask_limits import fenced_in
from holdfast.server.operations import Ask, NoBody, Operation, ToolFor
from holdfast.server.problems import Problem
from holdfast.server.routes.tasks import NewTasks, TaskRow, TaskView, given, rows_of, view_of
from holdfast.worktrees.attempt_commits import attempt_named

Words = Annotated[str, Meta(min_length=1, max_length=10_000)]
TurnNumber = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class Rejected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: Words


class Resolved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    decision: Literal["happened", "retry", "abandon", "newest", "anew"]


class Reassigned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`agent`: who goes on; empty for the next step of the cascade."""

    agent: Annotated[str, Meta(max_length=128)] = ""
    reason: Annotated[str, Meta(max_length=10_000)] = ""


class Blocked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`on` are the tasks that turned out to come first; they are added to what it depends on."""

    on: Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)]
    reason: Annotated[str, Meta(max_length=10_000)] = ""


class Split(NewTasks, frozen=True, forbid_unknown_fields=True):
    pass


class Changed(msgspec.Struct, frozen=True):
    """The result; `facts` differ from decision to decision. `subtasks`: those made, or cancelled, with it."""

    task: TaskRow
    note: str = ""
    facts: dict[str, Any] = {}
    subtasks: list[TaskRow] = []


class AtTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    turn: TurnNumber


class Forked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`id`: what the new task shall be called, where there must be one."""

    turn: TurnNumber
    id: Annotated[str, Meta(max_length=128)] = ""


def decided(kind: str, decision: DecisionContext, params: dict[str, Any]) -> Changed:
    answer = decide(decision, kind, params)
    # What was cancelled with it stands behind it.
    row, *more = rows_of(decision, [task.id for task in answer.tasks])
    return Changed(row, answer.tasks[0].note, msgspec.to_builtins(answer.facts), more)


def _about_task(kind: str) -> Any:
    """The decision of this kind, with what the body says; some are about several tasks, and get this one."""
    is_of_several = "tasks" in DECISIONS[kind][0].__struct_fields__

    def function(decision: DecisionContext, ask: Ask) -> Changed:
        about = {"tasks": [ask.task]} if is_of_several else {"task": ask.task}
        return decided(kind, decision, {**about, **msgspec.structs.asdict(ask.body)})

    return function


class Again(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`reason`: the agent's feedback; a result that is done needs one. `message`: words for the agent."""

    reason: Annotated[str, Meta(max_length=100_000)] = ""
    message: Annotated[str, Meta(max_length=MESSAGE_CHARS_MAX)] = ""


class PullSteered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`how`: `refresh` looks at it now, `close` and `merge` do that at the service, `open` opens another for one that
    was closed, `rounds` allows so many rounds of changes in all."""

    how: PullDecision
    rounds: Annotated[int, Meta(ge=0, le=ROUNDS_MAX)] = 0


class ToldWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`message`: a person's words to the task's agent."""

    message: Annotated[str, Meta(min_length=1, max_length=MESSAGE_CHARS_MAX)]


class ResumedWith(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`message`: words for the agent when it goes on."""

    message: Annotated[str, Meta(max_length=MESSAGE_CHARS_MAX)] = ""


class GivenBack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`park`: it goes on when a person says so, with `resume`. `done`: the work is finished, and the worktree as it is
    goes on to be verified and landed."""

    park: bool = False
    done: bool = False


class Promoted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`branch`: a new branch to land on in place of the target."""

    branch: Annotated[str, Meta(max_length=200)] = ""


class SettledAs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`commit`: what its landing was rewritten as; empty where it was dropped on purpose."""

    commit: Annotated[str, Meta(max_length=200)] = ""


class Answered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`question` is its id. `words`: why not, or what is said. `always`: the settings allow it from now on."""

    question: Annotated[str, Meta(max_length=200)]
    answer: Literal["allow", "deny", "say"]
    words: Annotated[str, Meta(max_length=10_000)] = ""
    always: bool = False


_SPLITS = {
    TaskState.OPEN: TaskEvent.DECOMPOSED_BEFORE_CLAIM,
    TaskState.CLAIMED: TaskEvent.AGENT_SPLITS_WORK,
    TaskState.IN_PROGRESS: TaskEvent.AGENT_DECOMPOSES_TASK,
}


def split(decision: DecisionContext, ask: Ask) -> Changed:
    """The subtasks first: a crash between leaves a task whose subtasks are there, and it waits for them."""
    task, count = decision.task(ask.task), len(ask.body.tasks)
    is_split = decision.has_done("task_split", count)
    if not is_split and task.state not in _SPLITS:
        raise refused(task, "split", "only what is open or being worked on can be.")
    new = [given(each) for each in ask.body.tasks]
    if ask.principal.role == "agent" and not decision.has_done("task_added", 0):
        new = fenced_in(decision, task, _definition(decision, task), new)
    names = new_tasks.create(decision, ask.api.catalogue, new, parent=task.id)
    if not is_split:
        end_attempt(decision, task)
        decision.append([decision.moved(task, _SPLITS[task.state], Reason.REQUESTED_BY_PERSON, count)])
    # The next answer for the task has its subtasks.
    decision.board.keep_up()
    return Changed(rows_of(decision, [task.id])[0], "it waits for its subtasks", {}, rows_of(decision, names))


def block(decision: DecisionContext, ask: Ask) -> Changed:
    """First what it depends on, then the move: a crash between leaves a task that waits all the same."""
    task, body = decision.task(ask.task), ask.body
    for name in body.on:
        if ask.principal.role == "agent" and name not in decision.tasks:
            # Not with a name that is like it: that would be another task's, which is none of an agent's.
            raise TaskUnknown(task=name, hint="An agent is shown its own task only.")
        decision.task(name)
    if task.id in body.on:
        raise InputError(detail="a task cannot wait for itself")
    if not decision.has_done("task_blocked", 0):
        record = decision.moved(task, TaskEvent.DEPENDENCY_DISCOVERED, Reason.DEPENDENCY_FOUND)
        made = _definition(decision, task)
        wanted = list(dict.fromkeys([*made.depends_on, *body.on]))
        _edit(decision, task, {"depends_on": wanted}, "")
        # Only now: what cannot be edited so is refused, and its agent goes on.
        end_attempt(decision, task)
        decision.append([record])
    return Changed(rows_of(decision, [task.id])[0], body.reason)


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keys of a definition with their new values; null takes a key out. The file keeps its comments."""

    changes: dict[str, Any]


def edit(decision: DecisionContext, ask: Ask) -> TaskView:
    task, body = decision.task(ask.task), ask.body
    if task.state in OVER:
        raise TaskIsFinal(task=task.id, state=task.state)
    if not body.changes:
        raise InputError(detail='say what to change, as in {"changes": {"priority": 1}}')
    _edit(decision, task, body.changes, ask.match)
    return view_of(ask.api, task)


def _definition(decision: DecisionContext, task: Task) -> Definition:
    made = decision.board.definition(task.id)
    if made is None:
        raise InputError(detail=f"the file of {task.id!r} is gone or cannot be used")
    return made


def _edit(decision: DecisionContext, task: Task, values: dict[str, Any], match: str) -> None:
    if written := sorted({"claim", "result", "error"} & values.keys()):
        raise InputError(detail=f"Holdfast itself writes {', '.join(written)}; leave that out")

    backlog = decision.backlog
    assert isinstance(backlog, Backlog)
    others = [(name, file.definition) for name, file in decision.board.files.copy().items() if name != task.id]

    def changed(found: FoundFile, text: bytes) -> bytes:
        new = edited(text, found.definition, found.path.stem, values)
        # What the file says, which somebody may have edited a moment ago; where an edit counts later, what counts now.
        etag = sha256(without_blocks(text)).hexdigest() if task.state in EDITABLE else task.definition
        # What it says already may have been written by this very request, before a crash kept the answer back.
        if new != text and not _is_meant(match, etag):
            raise Problem(
                412, "definition_changed", "It has changed since you read it. Nothing was written; read it again."
            )
        made = parse(new, found.path.stem)
        problems = made if isinstance(made, list) else problems_of([*others, (task.id, made)])
        mine = [each for each in problems if not each.tasks or task.id in each.tasks]
        if mine:
            raise InputError(detail="; ".join(each.message for each in mine))
        return new

    backlog.change(task.id, changed)
    # Journalled like any edit of a file; nobody watches for our own.
    decision.board.take_in()


def _is_meant(match: str, etag: str) -> bool:
    """Whether an If-Match allows it: without one, with `*`, or with the etag, alone or among others."""
    tags = [each.strip().removeprefix('"').removesuffix('"') for each in match.split(",")]
    return match in ("", "*") or etag in tags


def undo(decision: DecisionContext, ask: Ask) -> Changed:
    task = _task_of(decision, ask.attempt)
    if ask.attempt != task.attempt.id:
        raise refused(task, "undone", "fork that turn instead.", f"{ask.attempt} is not its last attempt")
    return decided("undo", decision, {"task": task.id, "turn": ask.body.turn})


def fork(decision: DecisionContext, ask: Ask) -> Changed:
    """Forks a task; the fork of one that has ended is a new task."""
    body: Forked = ask.body
    task = _task_of(decision, ask.attempt)
    spare = body.id or free_id(f"{task.id}-fork", decision.tasks)
    return decided("fork", decision, {"task": ask.attempt, "turn": body.turn, "id": body.id, "spare": spare})


def _task_of(decision: DecisionContext, attempt: str) -> Task:
    found = attempt_named(decision.ledger.state, attempt)
    if found is None or found[1] != attempt:
        raise TurnUnknown(turn="of it", attempt=attempt, known="is no attempt")
    return found[0]


def _of_task(
    verb: str,
    summary: str,
    body: type[msgspec.Struct] = NoBody,
    *,
    function: Any = None,
    tool: ToolFor | None = None,
    hint: str = "",
) -> Operation:
    """Without a `function` it is the decision of that name; what an agent may ask for itself has one."""
    path, right = f"/tasks/{{task}}/{verb}", "work" if function else "operate"
    return Operation("POST", path, f"{verb}_task", summary, function or _about_task(verb), answer=Changed,
                     right=right, lane="loop", body=body, problems=(404, 409),  # type: ignore[arg-type]
                     tool=tool, hint=hint)  # fmt: skip


def _of_attempt(verb: str, summary: str, function: Any, body: type[msgspec.Struct]) -> Operation:
    return Operation("POST", f"/attempts/{{attempt}}/{verb}", f"{verb}_attempt", summary, function, answer=Changed,
                     right="operate", lane="loop", body=body, problems=(404, 409), tag="attempts")  # fmt: skip


OPERATIONS = [
    Operation("PATCH", "/tasks/{task}", "edit_task", "Change a task's definition, key by key.", edit,
              answer=TaskView, right="operate", lane="loop", body=Edit, problems=(404, 409, 412)),
    _of_task("cancel", "Cancel a task; whatever works on it is ended.", tool="person"),
    _of_task("retry", "Open a failed task again, or send back a result that has not landed.", Again, tool="person"),
    _of_task("approve", "Let a result land that waits for a person, or a plan begin.", tool="person",
             hint="Only where the person has said so; `show_review` shows what would land."),
    _of_task("reject", "Refuse a result that waits for a person, or a plan.", Rejected, tool="person"),
    _of_task("resolve", "Decide what is parked.", Resolved),
    _of_task("resume", "Go on with the last attempt of a task that has failed or was stopped.", ResumedWith,
             tool="person"),
    _of_task("take", "Take a task from its agent: no run goes on with it until it is given back."),
    _of_task("give_back", "Give a task back that a person has taken; its worktree is saved first.", GivenBack),
    _of_task("tell", "Tell a task's agent something, in the conversation that it has.", ToldWords, tool="person"),
    _of_task("reassign", "Take a task from its agent and give it to another.", Reassigned),
    _of_task("promote", "Land what an attempt made, again or after all.", Promoted),
    _of_task("answer", "Answer what its agent asks; the first answer counts.", Answered, tool="person",
             hint="`questions` lists what is asked. The answer is the person's: ask them, do not make it up."),
    _of_task("pr", "Look at a task's pull request, close or merge it, or allow more rounds.", PullSteered),
    _of_task("settle", "Say what became of a landing that is not on its branch any more.", SettledAs),
    _of_task("block", "Say that another task has to come first.", Blocked, function=block, tool="agent",
             hint="This attempt ends with the call, and is continued once those tasks are closed."),
    _of_task("split", "Divide a task into subtasks, and wait for them.", Split, function=split, tool="agent",
             hint="This attempt ends with the call, and the task goes on once they are closed. Give each a `title` "
             "and a `goal` that can be worked on alone; agent, budget and gates are those of this task."),
    _of_attempt("undo", "Put the worktree back to how a turn left it.", undo, AtTurn),
    _of_attempt("fork", "Begin anew with the tree that a turn left.", fork, Forked),
]  # fmt: skip
