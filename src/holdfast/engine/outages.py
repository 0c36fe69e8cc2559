"""Outages for the engine: which agents cannot be used now, how long a pause lasts, and its sentence."""

from __future__ import annotations

import random

import msgspec

from holdfast.config.settings import Config
from holdfast.domain import outage
from holdfast.domain.attempt_records import Ending, Exit
from holdfast.domain.fsm import Reason
from holdfast.domain.outage import Outage, Policy
from holdfast.domain.routing import choose
from holdfast.domain.state import State
from holdfast.domain.task import TaskEvent
from holdfast.domain.task_record import Task
from holdfast.domain.wording import moment
from holdfast.engine.context import RunContext

# Where an agent does not say when it may spend again.
QUOTA_S = 3600.0

REASONS: dict[Ending, Reason] = {
    Ending.UNREACHABLE: Reason.UNREACHABLE,
    Ending.RATE_LIMITED: Reason.RATE_LIMITED,
    Ending.QUOTA: Reason.QUOTA_EXHAUSTED,
}


class OutageRow(msgspec.Struct, frozen=True, kw_only=True):
    """An outage as it is shown. `open`: nothing new is started with the agent before `next_try_at`."""

    agent: str
    endpoint: str
    reason: str
    detail: str
    since: float
    next_try_at: float
    in_a_row: int
    open: bool
    text: str


def policy(config: Config) -> Policy:
    return Policy(config.outage_after, config.outage_pause_s, max(config.outage_pause_s, config.outage_pause_max_s))


def rows(state: State, config: Config, now: float) -> list[OutageRow]:
    """Every outage that is not over, the oldest first."""
    found = sorted(state.outages.copy().values(), key=lambda each: each.since)
    return [
        OutageRow(
            agent=each.agent,
            endpoint=each.endpoint,
            reason=each.reason,
            detail=each.detail,
            since=each.since,
            next_try_at=each.until,
            in_a_row=each.in_a_row,
            open=outage.is_open(each, policy(config)),
            text=sentence(each, now),
        )
        for each in found
    ]


def sentence(each: Outage, now: float) -> str:
    """`claude is unreachable since …, next try at …`"""
    told = f"{each.name} {each.what} since {moment(each.since)}, "
    if each.until > now:
        return told + f"next try at {moment(each.until)}"
    return told + (f"{each.probes[0]} tries now" if each.probes else "the next start tries again")


def endpoint(context: RunContext, agent: str, model: str) -> str:
    found = context.agents.get(agent)
    return found.endpoint(model) if found is not None else ""


def blocking(context: RunContext, agent: str, model: str) -> tuple[Outage, float] | None:
    """The outage for which nothing is started with this agent now, and until when."""
    found = context.ledger.state.outages.get((agent, endpoint(context, agent, model)))
    until = outage.blocked_until(found, context.clock(), policy(context.config))
    return None if found is None or until is None else (found, until)


def is_down(context: RunContext, agent: str, model: str) -> bool:
    return blocking(context, agent, model) is not None


def pause(context: RunContext, task: Task, ended: Exit, **more: object) -> None:
    """Gives back the task of an agent that cannot use its model; at once, where another agent is to have it."""
    now, reason = context.clock(), REASONS[ended.ending]
    key = task.claim.worked_by, task.claim.endpoint
    before = context.ledger.state.outages.get(key)
    until = ended.until or _until(context, reason, before, now)
    then = outage.after(before, key, reason, ended.detail, at=now, until=until)
    cause = f"{then.name} {then.what}: {ended.detail}"
    not_before = 0.0 if _has_another(context, task, then, now) else until
    outcome = {"kind": str(ended.ending), "detail": ended.detail, "attempt": task.attempt.id}
    context.pause(task, TaskEvent.REQUEUE, reason, cause, not_before, until=until, outcome=outcome, **more)
    context.note(task.id, f"{task.attempt.id} pauses until {moment(until)}: {ended.detail}")
    if outage.is_open(then, policy(context.config)) and (before is None or then.until > before.until):
        context.note("", f"{sentence(then, now)}. Nothing new is started with it before, and then one task goes first.")


def _until(context: RunContext, reason: Reason, before: Outage | None, now: float) -> float:
    match reason:
        case Reason.RATE_LIMITED:
            return now + context.config.rate_limit_pause_s
        case Reason.QUOTA_EXHAUSTED:
            return now + QUOTA_S
    return outage.next_try(before, now, policy(context.config), random.random())


def _has_another(context: RunContext, task: Task, then: Outage, now: float) -> bool:
    """Whether the task's next start would be with another agent, once this outage is on record."""
    made = context.board.definition(task.id)
    if made is None or outage.blocked_until(then, now, policy(context.config)) is None:
        return False

    def is_not_usable(agent: str, model: str) -> bool:
        here = (agent, endpoint(context, agent, model)) == (then.agent, then.endpoint)
        return here or is_down(context, agent, model)

    found = msgspec.structs.replace(task, continues=True)
    choice = choose(made, context.config, found, is_not_usable)
    return not is_not_usable(choice.agent, choice.model)
