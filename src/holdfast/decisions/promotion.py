"""`promote`: lands what an attempt made, again or after all. Nothing lands that was not verified as it will be."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.decisions.context import ACTOR, Answer, DecisionContext, Later, expect_decided, refused
from holdfast.decisions.landings import land_as_branch
from holdfast.decisions.tasks import resuming
from holdfast.domain.entries import MOVE_TO, LandingPromoted
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.engine.landing import land_again, verify_and_land
from holdfast.landing.branch import branch_of, reaches
from holdfast.snapshots.store import CANDIDATES
from holdfast.storage.journal.entry import Record
from holdfast.worktrees import commit_messages, merges

MENDED = "what stands in its worktree, with your changes there, is what was judged"


class Promotion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`branch`: a new branch to land on in place of the target."""

    task: str
    branch: str = ""


def promote(decision: DecisionContext, asked: Promotion) -> Answer:
    """Of a closed task: a no-op while its landing is there. Of a failed one: its candidate is done, and judged anew.

    Where a person has changed something in its worktree since, that is the candidate.
    """
    task, said = decision.task(asked.task), ""
    if (told := _answer_before(decision)) is not None:
        return told
    if asked.branch:
        return land_as_branch(decision, task, asked.branch, _apart)
    if task.state is TaskState.CLOSED:
        return _again(decision, task)
    if not decision.has_done("task_done", 3):
        expect_decided(task, "promoted")
        if not decision.has_begun() and task.state not in (TaskState.FAILED, TaskState.DONE):
            is_pending = task.state is TaskState.PENDING_APPROVAL
            others = "only what is closed, or has failed with a candidate, can be."
            raise refused(task, "promoted", f"type `holdfast approve {task.id}`." if is_pending else others)
        if task.state is not TaskState.DONE:
            candidate = _mended(decision, task) or task.candidate
            if not candidate or not task.attempt.id:
                raise refused(task, "promoted", f"type `holdfast retry {task.id}`.", "no attempt has made a candidate")
            said = MENDED if candidate != task.candidate else ""
            opened = resuming(decision, task)
            decision.append([*opened, *done_records(decision, task, candidate, "a person promoted it", bool(opened))])
    if decision.is_run:
        return decision.answer(task, note="; ".join(filter(None, ("the run verifies and lands it", said))))
    return _apart(decision, task, lambda decision, task: _finished(decision, task, said))


def _finished(decision: DecisionContext, task: Task, said: str) -> Answer:
    if task.state is TaskState.DONE:
        verify_and_land(decision.context, task)
    note = "; ".join(filter(None, (str(task.outcome.get("detail", "")), said)))
    return decision.answer(task, note=note, landed=task.landing.commit)


def _mended(decision: DecisionContext, task: Task) -> str:
    """Makes a candidate of the task's worktree where a person has changed it; empty where nobody has.

    It is saved as the snapshot `promoted`. Nobody is at work there: the task has failed, or is open again.
    """
    trees = decision.worktrees
    if not task.attempt.id or not task.attempt.base or not trees.path(task.id).is_dir() or not trees.is_made(task.id):
        return ""
    store = trees.store
    snapshot = trees.snapshots(task.id, task.attempt.base).take(task.attempt.id, "promoted").commit
    # As its agent left it: the work of one that failed is nobody's result.
    if task.attempt.tree and not merges.changed(store.seen, task.attempt.tree, snapshot):
        return ""
    who, message = (
        merges.identity(decision.repo, decision.config),
        commit_messages.of_candidate(decision, task, decision.definition(task)),
    )
    exclude, modules = trees.exclude, trees.modules
    made = merges.candidate(store, task.attempt.base, snapshot, message, who, exclude=exclude, modules=modules)
    if made is None or not merges.changed(store.seen, task.candidate or task.attempt.base, made):
        return ""
    merges.keep(store, CANDIDATES, task.attempt.id, made)
    return made


# -- beside the loop --------------------------------------------------------------------------------------------------


def _apart(decision: DecisionContext, task: Task, work: Callable[[DecisionContext, Task], Answer]) -> Answer:
    """Does the work in the landing thread where a loop asks: `Later` has it ask again, until there is an answer."""
    landing_thread = decision.context.landing_thread
    if landing_thread is None:
        return work(decision, task)
    judgings = decision.context.judgings
    if task.id in judgings.ahead:
        judgings.withdraw(task.id)
    elif not landing_thread.task:
        landing_thread.begin(task.id, lambda: work(decision, task), decision.key)
    raise Later


def _answer_before(decision: DecisionContext) -> Answer | None:
    """The answer of a promotion that was begun before under this key; None where none was."""
    landing_thread = decision.context.landing_thread
    if landing_thread is None:
        return None
    if landing_thread.key == decision.key:
        raise Later
    if (ended := landing_thread.answer(decision.key)) is None:
        return None
    if ended.error is not None:
        raise ended.error
    answer: Answer = ended.result
    return answer


# -- what was done or has landed before -------------------------------------------------------------------------------


def done_records(
    decision: DecisionContext, task: Task, candidate: str, why: str, is_opened: bool = False
) -> list[Record]:
    """The records, numbers 2 and 3, that lead from open to done, under the same attempt. `is_opened`: by records before
    them."""
    records = []
    if is_opened or task.state is TaskState.OPEN:
        claim = {"task": task.id, "event": TaskEvent.AGENT_CLAIMS_TASK, "reason": Reason.REQUESTED_BY_PERSON}
        # It stays the work of the agent that made it, with whose conversation a later `resume` goes on.
        made_by = {"agent": task.claim.worked_by or ACTOR, "model": task.claim.model, "endpoint": task.claim.endpoint}
        claim |= {"attempt": task.attempt.id, **made_by, "why": why}
        records.append(decision.record("task_claimed", 2, claim))
    done = {"task": task.id, "event": TaskEvent.FAST_COMPLETION, "reason": Reason.REQUESTED_BY_PERSON}
    facts = {"attempt": task.attempt.id, "agent": task.claim.worked_by or ACTOR, "candidate": candidate}
    return [*records, decision.record(MOVE_TO[TaskState.DONE], 3, {**done, **facts})]


def _again(decision: DecisionContext, task: Task) -> Answer:
    if not task.landing.commit:
        raise refused(task, "promoted", "there is nothing to land.", "this journal knows no landing of it")
    branch = branch_of(task)
    if reaches(decision.repo, branch, task.landing.commit):
        short = branch.removeprefix("refs/heads/")
        return decision.answer(task, note=f"{task.landing.commit[:12]} is on {short} already")
    if decision.is_busy:
        raise Later
    if not decision.has_begun():
        lost = LandingPromoted(task.id, task.attempt.id, branch, task.landing.commit)
        decision.append([decision.record("landing_promoted", 0, msgspec.to_builtins(lost))])
    return _apart(decision, task, _landed_again)


def _landed_again(decision: DecisionContext, task: Task) -> Answer:
    rejected = land_again(decision.context, task)
    if rejected is not None:
        hint = f"`holdfast fork {task.id} --turn N` goes on with its work as a new task."
        raise refused(task, "landed again", hint, rejected.detail)
    return decision.answer(task, note=f"landed again as {task.landing.commit[:12]}", landed=task.landing.commit)
