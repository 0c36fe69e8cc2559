"""Outages: an agent that cannot reach its model, or may not use more of it for now. A pure part of the fold.

An outage belongs to an agent and its endpoint. It begins with the first start that ends so, and is over when a start
that began later shows that the model answers again. `Policy.in_a_row` such ends in a row open the breaker: nothing new
is started with the agent before `until`, and then one start goes first, the probe. All of it is folded from the
journal, so that a new owner knows it, too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from holdfast.domain.entries import TaskMoved
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TaskEvent

if TYPE_CHECKING:
    from holdfast.domain.task_record import Task

# Reasons for which work is given back because the agent cannot be used now, and their words.
PAUSES: dict[str, str] = {
    Reason.UNREACHABLE: "is unreachable",
    Reason.RATE_LIMITED: "is over its rate limit",
    Reason.QUOTA_EXHAUSTED: "has used up its quota",
}
# A failure of these kinds is the model's own answer.
_ANSWERS = {"refused", "auth_missing", "limit"}
DETAIL_CHARS_MAX = 500
_ROUNDS_MAX = 60


class Outage(msgspec.Struct, frozen=True):
    """`since` the first end, `until` the next try. `in_a_row`: starts that ended so; `rounds`: pauses so far.

    `probes` are the tasks that were started since the last such end.
    """

    agent: str
    endpoint: str
    reason: str
    detail: str
    since: float
    until: float
    in_a_row: int = 1
    rounds: int = 1
    probes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.agent} ({self.endpoint})" if self.endpoint else self.agent

    @property
    def what(self) -> str:
        return PAUSES[self.reason]


class Policy(msgspec.Struct, frozen=True):
    """`in_a_row`: ends that open the breaker. The first pause and the longest, in seconds."""

    in_a_row: int
    pause_s: float
    pause_s_max: float


Outages = dict[tuple[str, str], Outage]


def after(before: Outage | None, key: tuple[str, str], reason: str, detail: str, *, at: float, until: float) -> Outage:
    """The outage once one more start has ended so. Those that end during a pause belong to the same round."""
    agent, endpoint = key
    detail = detail if len(detail) <= DETAIL_CHARS_MAX else detail[:DETAIL_CHARS_MAX] + "…"
    if before is None:
        return Outage(agent, endpoint, reason, detail, at, until=until)
    is_same = before.reason == reason
    rounds = before.rounds + (at >= before.until) if is_same else 1
    return Outage(
        agent,
        endpoint,
        reason,
        detail,
        before.since,
        until=max(before.until, until) if is_same else until,
        in_a_row=before.in_a_row + 1,
        rounds=min(rounds, _ROUNDS_MAX),
    )


def next_try(before: Outage | None, now: float, policy: Policy, jitter: float) -> float:
    """The time of the next try after an unreachable model: each round's pause is twice as long, within bounds.

    `jitter` is a number from 0 to 1, which makes the pause up to a quarter longer: so not all tasks retry at once.
    """
    is_same = before is not None and before.reason == Reason.UNREACHABLE
    if before is not None and is_same and now < before.until:
        return before.until
    rounds = before.rounds if before is not None and is_same else 0
    return now + min(policy.pause_s_max, policy.pause_s * 2.0**rounds) * (1.0 + jitter / 4)


def blocked_until(outage: Outage | None, now: float, policy: Policy) -> float | None:
    """Until when nothing is started; infinite while a probe is under way, None where a start is welcome."""
    if outage is None or outage.in_a_row < policy.in_a_row:
        return None
    if now < outage.until:
        return outage.until
    return math.inf if outage.probes else None


def is_open(outage: Outage, policy: Policy) -> bool:
    return outage.in_a_row >= policy.in_a_row


# -- the fold ---------------------------------------------------------------------------------------------------------


def _key(task: Task) -> tuple[str, str]:
    return task.claim.worked_by, task.claim.endpoint


def fold_start(outages: Outages, task: Task) -> None:
    found = outages.get(_key(task))
    if found is not None and task.id not in found.probes:
        outages[_key(task)] = msgspec.structs.replace(found, probes=(*found.probes, task.id))


def fold_turn(outages: Outages, task: Task) -> None:
    """A turn of a start that began after the last such end: the model answers."""
    found = outages.get(_key(task))
    if found is not None and task.id in found.probes:
        del outages[_key(task)]


def fold_release(outages: Outages, task: Task) -> None:
    """A person ends the pause of a task: its agent may be tried at once, too."""
    found = outages.get(_key(task))
    if found is not None:
        outages[_key(task)] = msgspec.structs.replace(found, until=0.0)


def fold_move(outages: Outages, task: Task, moved: TaskMoved, at: float) -> None:
    """The task leaves its agent's hands."""
    found = outages.get(_key(task))
    if moved.reason in PAUSES and moved.event is TaskEvent.REQUEUE and moved.until:
        detail = str(moved.outcome.get("detail", ""))
        outages[_key(task)] = after(found, _key(task), moved.reason, detail, at=at, until=moved.until)
    elif found is not None and task.id in found.probes:
        has_answer = moved.event is TaskEvent.AGENT_REPORTS_SUCCESS or moved.outcome.get("kind") in _ANSWERS
        if has_answer:
            del outages[_key(task)]
        else:
            rest = tuple(each for each in found.probes if each != task.id)
            outages[_key(task)] = msgspec.structs.replace(found, probes=rest)
