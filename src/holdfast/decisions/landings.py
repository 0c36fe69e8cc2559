"""A person's decisions about landings: send back what waits, land it as a branch, settle one that was rewritten.

A landing waits while its paths are changed in a checkout. It is journalled as `landing_waits`, and ends when the paths
are free, when the task is cancelled, when it is sent back to its agent (`retry --reason`), or when the verified commit
lands as a new branch (`promote --branch`).

A landing is rewritten when somebody amends, rebases or squashes its commit: the branch no longer leads to the commit
that the journal has. It is recognised by our lines in a commit message, by its patch or by its tree. What cannot be
recognised is for a person to say (`resolve --rewritten COMMIT`, `resolve --dropped`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.decisions.context import Answer, DecisionContext, expect_decided, refused
from holdfast.decisions.conversations import expect_tellable, message_record
from holdfast.decisions.tasks import expect_at_rest, who_goes_on
from holdfast.domain.entries import LandingSettled
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.domain.task_record import Task, seems_lost
from holdfast.engine.landing import land_on
from holdfast.errors import InputError
from holdfast.git import command as git
from holdfast.landing.branch import branch_of, reaches
from holdfast.storage.journal.entry import Record

# -- sending back -----------------------------------------------------------------------------------------------------


class LandingRetry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`reason`: the agent's feedback; a result that is done needs one. `message`: words for the agent."""

    tasks: list[str]
    reason: str = ""
    message: str = ""


def retry(decision: DecisionContext, asked: LandingRetry) -> Answer:
    tasks = decision.each_once(asked.tasks)
    records: list[Record] = []
    for number, task in enumerate(tasks):
        if not decision.has_done("task_opened", 2 * number):
            if asked.message and not decision.has_done("task_told", 2 * number):
                expect_tellable(decision, task)
                records.append(message_record(decision, task, asked.message, 2 * number))
            records += _opening(decision, task, asked.reason, 2 * number)
    decision.append(records)
    return decision.answer(*tasks, note=who_goes_on(decision, "begins another attempt"))


def _opening(decision: DecisionContext, task: Task, reason: str, number: int) -> list[Record]:
    words = f"A person has looked at the work and sent it back:\n\n{reason}\n" if reason else ""
    feedback = decision.blobs.put(words.encode(), content_type="text/plain") if words else ""
    opened = {"task": task.id, "event": TaskEvent.RETRY, "reason": Reason.REQUESTED_BY_PERSON}
    if task.state is not TaskState.DONE:
        # A conversation in which the last start came to nothing is not tried once more.
        facts = {**({"forget": True} if seems_lost(task) else {}), **({"feedback": feedback} if feedback else {})}
        return [decision.moved(task, TaskEvent.RETRY, Reason.REQUESTED_BY_PERSON, number, facts)]
    if not reason:
        raise refused(task, "sent back", f"say why: `holdfast retry {task.id} --reason …`.", "it is done")
    expect_decided(task, "sent back")
    expect_at_rest(decision, task, "sent back")
    outcome = {"kind": "rejected", "detail": reason, "attempt": task.attempt.id}
    facts = {"attempt": task.attempt.id, "outcome": outcome, "feedback": feedback}
    failed = decision.moved(task, TaskEvent.VERIFICATION_REJECTED, Reason.REJECTED, number + 1, facts)
    return [failed, decision.record("task_opened", number, {**opened, "outcome": outcome})]


# -- landing as a branch ----------------------------------------------------------------------------------------------


def land_as_branch(decision: DecisionContext, task: Task, name: str, apart: Callable[..., Answer]) -> Answer:
    """Lands what the task's attempt made as a new branch, judged like any landing."""
    branch = f"refs/heads/{name.removeprefix('refs/heads/')}"
    if task.state is TaskState.CLOSED and task.landing.branch == branch:
        landed = task.landing.commit
        return decision.answer(task, note=f"{landed[:12]} is on {name} already", landed=landed)
    expect_decided(task, "landed on a branch")
    if task.state is not TaskState.DONE:
        raise refused(task, "landed on a branch", "only what is done and has not landed can be.")
    expect_at_rest(decision, task, "landed on a branch")
    repository = git.discover(decision.repo)
    if repository.run("check-ref-format", branch, codes=(0, 1)).code:
        raise InputError(detail=f"{name!r} cannot be the name of a branch")
    if repository.run("rev-parse", "-q", "--verify", branch, codes=(0, 1)).line:
        raise InputError(detail=f"there is a branch {name} already; name one that is new")
    if decision.board.worked_on(task).approve and not task.approved:
        raise refused(task, "landed on a branch", f"type `holdfast approve {task.id}` first.", "nobody approved it")

    def work(decision: DecisionContext, task: Task) -> Answer:
        if (verdict := land_on(decision.context, task, branch)) is not None:
            raise refused(task, "landed on a branch", "the run goes on with it.", verdict.detail)
        return decision.answer(task, note=f"landed on {name} as {task.landing.commit[:12]}", landed=task.landing.commit)

    return apart(decision, task, work)


# -- landings that were rewritten -------------------------------------------------------------------------------------


class Settlement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's answer about a lost landing: it is there as `commit` or, without one, it was dropped on purpose."""

    task: str
    commit: str = ""


def settle(decision: DecisionContext, asked: Settlement) -> Answer:
    task, commit = decision.task(asked.task), asked.commit
    if not decision.has_done("landing_settled", 0):
        if not task.landing.commit:
            raise refused(task, "settled", "there is nothing to settle.", "this journal knows no landing of it")
        branch, found = branch_of(task), ""
        if reaches(decision.repo, branch, task.landing.commit):
            known = f"{task.landing.commit[:12]} is on its branch"
            raise refused(task, "settled", "there is nothing to settle.", known)
        if commit:
            name = f"{commit}^{{commit}}"
            found = git.discover(decision.repo).run("rev-parse", "-q", "--verify", name, codes=(0, 1, 128)).line
            if not found or not reaches(decision.repo, branch, found):
                short = branch.removeprefix("refs/heads/")
                raise InputError(detail=f"{commit} is no commit on the branch {short}; `git log {short}` shows them")
        settled = LandingSettled(
            task=task.id,
            attempt=task.attempt.id,
            branch=branch,
            commit=task.landing.commit,
            rewritten=found,
            how="a person said so",
        )
        decision.append([decision.record("landing_settled", 0, msgspec.to_builtins(settled))])
    landed = task.landing.commit
    note = f"its landing is {landed[:12]} now" if landed else "its landing was dropped on purpose"
    return decision.answer(task, note=note, landed=landed)
