"""Decides what to do next: a pure function of the state, the observations of attempts, and the time.

The loop performs what is planned, then plans again from what has become of it. So a plan never has to be complete or
remembered: after a crash the next one is made from the same facts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from holdfast.config.settings import Config
from holdfast.domain.attempt_records import Exit
from holdfast.domain.entries import STOPPED
from holdfast.domain.fsm import Reason
from holdfast.domain.graph import Graph
from holdfast.domain.state import State
from holdfast.domain.task import AT_WORK, TaskEvent, TaskState
from holdfast.domain.task_record import Task, open_questions
from holdfast.landing.merge_queue import NOTHING_QUEUED, QueueStep, QueueView, Withdraw, queue_steps
from holdfast.questions.records import Question
from holdfast.storage.records.attempt_folder import Liveness


class Observation(msgspec.Struct, frozen=True):
    """The observed state of a task's attempt. `silent_s`: how long its runner has given no sign of life."""

    seen: Liveness
    exit: Exit | None = None
    silent_s: float = 0.0


class Begin(msgspec.Struct, frozen=True, tag=True):
    """Its runner was started: the task is in progress."""

    task: str


class ApplyExit(msgspec.Struct, frozen=True, tag=True):
    """Its runner has ended and said how."""

    task: str
    exit: Exit


class Orphan(msgspec.Struct, frozen=True, tag=True):
    """Its runner is dead or silent and left no `exit.json`; its agent may live, and is ended first."""

    task: str
    event: TaskEvent


class Continue(msgspec.Struct, frozen=True, tag=True):
    """An orphan, to be continued or given up."""

    task: str


class Retry(msgspec.Struct, frozen=True, tag=True):
    task: str


class Follow(msgspec.Struct, frozen=True, tag=True):
    """A move that follows from what became of other tasks."""

    task: str
    event: TaskEvent


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Its parent was cancelled, or a dependency came to nothing and it does not wait for that."""

    task: str
    reason: Reason
    cause: str


class StartTask(msgspec.Struct, frozen=True, tag=True):
    task: str


class Overdue(msgspec.Struct, frozen=True, tag=True):
    """Nobody has answered the question in time."""

    task: str
    question: str


class Lapse(msgspec.Struct, frozen=True, tag=True):
    """The remote worker gave no sign of life in time: the task is open again."""

    task: str


Command = Begin | ApplyExit | Orphan | Continue | Retry | Follow | Cancel | QueueStep | StartTask | Overdue | Lapse


def plan(
    state: State,
    graph: Graph,
    active: Collection[str],
    observed: Mapping[str, Observation],
    now: float,
    config: Config,
    *,
    queue: QueueView = NOTHING_QUEUED,
    held: Collection[str] = (),
    failing: Collection[str] = (),
    stopping: bool = False,
    only: Collection[str] | None = None,
    lapsed: Collection[str] = (),
    overdue: Collection[str] = (),
) -> list[Command]:
    """The commands for now, in the order in which to perform them.

    `active` are the tasks that are neither waiting nor at rest. `queue`: what is being verified and
    landed. `held` are tasks that are left alone for now; an empty name among them stands for all, and
    nothing is started. `failing` are those of them for which a step failed; `lapsed` those whose lease has run out,
    `overdue` those whose subtasks take too long. When `stopping`, nothing begins; where `only` is given, nothing but
    those.
    """
    busy = {queue.landing, *queue.ahead}
    # Before all else: what is cancelled is neither continued nor retried on its way.
    aborts = [each for each in graph.due_cancels() if each.task not in busy and each.task not in failing]
    doomed = {each.task for each in aborts}
    free = [name for name in active if name not in held and name not in doomed]
    steps: list[Command] = [Cancel(*each) for each in aborts]
    steps += [Lapse(name) for name in lapsed if state.tasks[name].claim.remote and name not in doomed]
    steps += [step for name in free if (step := _step(state.tasks[name], observed.get(name), config)) is not None]
    steps += [Overdue(each.task, each.id) for due, each in due_questions(state, config) if due <= now]
    steps += [Follow(name, event) for name, event in graph.due_moves(overdue) if name not in doomed]
    if stopping:
        # What is judged ahead of its turn is not waited for.
        return [*steps, *(Withdraw(name) for name in queue.ahead if name not in queue.withdrawn)]
    # What is to be cancelled is not judged to its end.
    unwanted = {each.task for each in graph.due_cancels()} & queue.ahead.keys()
    tasks = (state.tasks[name] for name in free if name not in unwanted)
    done = [task for task in tasks if task.state is TaskState.DONE and not task.parked]
    steps += queue_steps(sorted(done, key=lambda task: (task.changed_at, task.id)), state.tasks, queue)
    if not steps:
        # Only once all else has settled, so that what ended makes room before more begins.
        seen = ((state.tasks[name], observed.get(name)) for name in active)
        at_work = sum(
            is_at_work(task, observation.seen if observation else None)
            for task, observation in seen
            # An agent that waits for a person has no slot.
            if not task.claim.remote and task.id not in state.asking
        )
        if at_work < config.max_agents and "" not in held:
            steps += _first_start(graph, now, held, only)
    return steps


def due_questions(state: State, config: Config) -> Iterator[tuple[float, Question]]:
    """The open questions that do not wait for ever, each with the time at which it is denied."""
    if config.question_timeout_s is not None:
        for name in sorted(state.asking):
            for each in open_questions(state.tasks[name]):
                yield each.asked_at + config.question_timeout_s, each


def is_at_work(task: Task, seen: Liveness | None) -> bool:
    """Whether a worker has the task. One that waits for a person has none once its process is gone."""
    is_known = task.claim.remote or task.parked in ("", STOPPED)
    return task.state in AT_WORK and (is_known or seen is Liveness.ALIVE)


def _step(task: Task, observation: Observation | None, config: Config) -> Command | None:
    """The next step of a task that is in an attempt, or between two."""
    match task.state:
        case TaskState.CLAIMED if task.claim.started:
            return Begin(task.id)
        case TaskState.IN_PROGRESS if observation is not None:
            return _progress(task, observation, config)
        # A task that a person has stopped is opened all the same: it stays parked, and can be put back or resumed.
        case TaskState.ORPHANED if not task.parked or task.parked == STOPPED:
            return Continue(task.id)
        case TaskState.FAILED if task.again and not task.parked:
            return Retry(task.id)
    return None


def _progress(task: Task, observation: Observation, config: Config) -> Command | None:
    match observation.seen:
        case Liveness.ENDED if observation.exit is not None:
            return ApplyExit(task.id, observation.exit)
        case Liveness.DEAD | Liveness.HEADLESS | Liveness.ABSENT:
            return Orphan(task.id, TaskEvent.CRASH)
        case Liveness.ALIVE if observation.silent_s > config.heartbeat_timeout_s:
            return Orphan(task.id, TaskEvent.HEARTBEAT_TIMEOUT)
    return None


def _first_start(graph: Graph, now: float, held: Collection[str], only: Collection[str] | None) -> list[Command]:
    """One at a time: what a start reserves counts for the next."""
    name = graph.next_ready(now)
    if name is not None and (name in held or (only is not None and name not in only)):
        wanted = (each for each in graph.ready(now) if each not in held and (only is None or each in only))
        name = next(wanted, None)
    if name is None:
        return []
    if graph.has_subtasks(name):
        return [Follow(name, TaskEvent.DECOMPOSED_BEFORE_CLAIM)]
    return [StartTask(name)]


# How a task is given up whose attempt can be neither taken nor continued.
GIVEN_UP: dict[TaskState, TaskEvent] = {
    TaskState.IN_PROGRESS: TaskEvent.AGENT_REPORTS_FAILURE,
    TaskState.ORPHANED: TaskEvent.UNRECOVERABLE,
}
REASONS: dict[TaskEvent, str] = {
    TaskEvent.DEPENDENCY_RESOLVED: Reason.DEPENDENCY_MET,
    TaskEvent.ALL_SUBTASKS_COMPLETED: Reason.SUBTASKS_COMPLETED,
    TaskEvent.SUBTASK_TIMEOUT_ESCALATION: Reason.SUBTASK_TIMEOUT,
    TaskEvent.DECOMPOSED_BEFORE_CLAIM: Reason.SCHEDULED,
}
