"""`reassign`: takes a task from its agent, and gives its attempt to another agent.

The processes are ended first, and what they completed is journalled. The attempt keeps its id and goes on from its last
turn. The new agent begins a conversation of its own, with the history in its prompt.
"""

from __future__ import annotations

import msgspec

from holdfast.decisions.context import Answer, DecisionContext, expect_decided, refused
from holdfast.decisions.tasks import end_attempt, who_goes_on
from holdfast.domain.fsm import Reason
from holdfast.domain.routing import after_this, model_for
from holdfast.domain.task import AT_WORK, TaskEvent
from holdfast.domain.task_record import Task
from holdfast.engine.context import RunContext
from holdfast.engine.outcome import unsettled_spend


class Reassignment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`agent`: empty for the next step of the cascade."""

    task: str
    agent: str = ""
    reason: str = ""


def reassign(decision: DecisionContext, asked: Reassignment) -> Answer:
    task, context = decision.task(asked.task), decision.context
    if not decision.has_begun():
        expect_decided(task, "reassigned")
        if task.state not in AT_WORK:
            hint = f"only what somebody works on can be; `holdfast edit {task.id} --agent NAME` names who begins it."
            raise refused(task, "reassigned", hint)
        agent, model = _successor(context, task, asked.agent)
        end_attempt(decision, task)
        facts = {
            "attempt": task.attempt.id,
            "agent": agent,
            "model": model,
            "outcome": {"detail": asked.reason} if asked.reason else {},
            "rest": unsettled_spend(context, task),
        }
        why = Reason.REQUESTED_BY_PERSON
        decision.append([decision.moved(task, TaskEvent.FORCE_REASSIGN, why, facts=facts)])
    note = who_goes_on(decision, f"goes on with {task.attempt.id}, by {task.assigned[0]}")
    return decision.answer(task, note=note, agent=task.assigned[0])


def _successor(context: RunContext, task: Task, named: str) -> tuple[str, str]:
    """The agent and the model that go on."""
    known = ", ".join(sorted(context.agents))
    if not named:
        found = after_this(context.config, task.claim)
        if found is None:
            hint = f"name the agent: `holdfast reassign {task.id} --agent NAME`; known are {known}."
            raise refused(task, "reassigned", hint, "no step of the cascade comes after its agent")
        named, model = found
    else:
        model = model_for(named, context.config)
    agent = context.agents.get(named)
    if agent is None:
        raise refused(task, "reassigned", f"known are {known}.", f"there is no agent called {named}")
    if not task.claim.remote and (named, model) == (task.claim.worked_by, task.claim.model):
        raise refused(task, "reassigned", "name another agent.", f"{named} works on it already")
    if missing := agent.missing(context.board.worked_on(task)):
        raise refused(task, "reassigned", "nothing was changed.", missing.rstrip("."))
    return named, model
