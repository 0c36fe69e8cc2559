"""Decisions about pull requests: look at one now, close or merge it, open another, allow more rounds."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.decisions.context import Answer, DecisionContext, refused
from holdfast.decisions.tasks import who_goes_on
from holdfast.domain.fsm import Reason
from holdfast.domain.messages.outbox_records import MessageQueued
from holdfast.domain.pull_requests.pull_records import PullRequest, PullRequestSteered
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.errors import InputError
from holdfast.integrations.outbox.sender import queue_messages
from holdfast.integrations.pull_requests.landing import STEER
from holdfast.integrations.pull_requests.poll import PARKED, POLL, is_waiting

PullDecision = Literal["refresh", "close", "merge", "open", "rounds"]
ROUNDS_MAX = 1000


class PullSteering(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`how`: `refresh` looks at it now; `close` and `merge` do that at the service; `open` opens another for one that
    was closed; `rounds` allows so many rounds in all."""

    task: str
    how: PullDecision
    rounds: Annotated[int, Meta(ge=0, le=ROUNDS_MAX)] = 0


def steer_pull(decision: DecisionContext, asked: PullSteering) -> Answer:
    task = decision.task(asked.task)
    pull = task.pull
    if pull is None:
        hint = "`land: pull_request` in its file, or in the settings, gives it one when it is done."
        raise refused(task, "steered", hint, "it has no pull request")
    match asked.how:
        case "refresh":
            return _refresh(decision, task)
        case "rounds":
            return _allow(decision, task, asked.rounds)
        case "open":
            return _open(decision, task, pull)
        case "close" | "merge":
            return _ask_service(decision, task, pull, asked.how)


def _refresh(decision: DecisionContext, task: Task) -> Answer:
    """Has the run look; without one it is done here."""
    context = decision.context
    if decision.is_run and context.poke is not None:
        context.poke(POLL)
        return decision.answer(task, note="the run looks at it now")
    looked = context.pull_requests.look({task.id})
    context.pull_requests.apply(looked)
    if error := next((each.error for each in looked if each.error), ""):
        raise InputError(detail=error.removesuffix("."))
    told = task.pull.words if task.pull is not None else ""
    return decision.answer(task, note=told if looked else "there is nothing to look at")


def _allow(decision: DecisionContext, task: Task, rounds: int) -> Answer:
    if not decision.has_begun():
        steered = PullRequestSteered(task=task.id, rounds_max=rounds)
        records = [decision.record("pull_request_steered", 0, msgspec.to_builtins(steered))]
        if task.parked.startswith(PARKED):
            records.append(decision.flagged(task, 1))
        decision.append(records)
    if decision.context.poke is not None:
        decision.context.poke(POLL)
    return decision.answer(task, note=f"it may have {rounds} rounds in all")


def _open(decision: DecisionContext, task: Task, pull: PullRequest) -> Answer:
    if not decision.has_begun():
        if not is_waiting(task) or pull.state != "closed":
            raise refused(
                task, "opened again", f"`holdfast pr {task.id}` shows it.", f"its pull request is {pull.words}"
            )
        facts = {"attempt": task.attempt.id, "agent": task.claim.agent}
        moved = decision.moved(task, TaskEvent.APPROVAL_GRANTED, Reason.REQUESTED_BY_PERSON, facts=facts)
        decision.append([moved, decision.flagged(task, 1)])
    elif task.parked.startswith(PARKED) and task.state is TaskState.DONE:
        decision.append([decision.flagged(task, 1)])
    return decision.answer(task, note=who_goes_on(decision, "opens another"))


def _ask_service(decision: DecisionContext, task: Task, pull: PullRequest, how: str) -> Answer:
    settings = decision.config.pull_requests
    if not pull.number or pull.state not in ("", "open"):
        raise refused(task, f"{how}d", f"`holdfast pr {task.id}` shows it.", f"its pull request is {pull.words}")
    if how == "merge" and not settings.merge:
        hint = "merge it there, or set pull_requests.merge to true."
        raise refused(task, "merged", hint, "the settings do not allow it")
    if how == "merge" and pull.checks == "failed":
        raise refused(task, "merged", f"`holdfast pr {task.id}` shows them.", "checks of it have failed")
    content = {"how": how, "number": pull.number, "head": pull.pushed}
    key = f"{how}:{task.id}:{pull.number}:{pull.pushed}"
    # Asked again, it is the same message.
    queue_messages(
        decision.ledger,
        [MessageQueued(idempotency_key=key, channel=STEER, task=task.id, content=content)],
        actor=decision.actor,
    )
    return decision.answer(task, note=who_goes_on(decision, f"{how}s it"), key=key)
