"""From done to closed: merge with the newest target, verify that very commit, land it, refresh, file the result.

Each step begins with what the journal says is already so: a crash between two leaves the rest to do, and nothing to do
twice. A landing that loses a race, or finds the target moved, starts over with the newer one.
"""

from __future__ import annotations

import contextlib
from enum import StrEnum

import msgspec

from holdfast.domain.entries import LandingPromoted, LandingWaiting, LandIntended, RefreshIntended, VerifyIntended
from holdfast.domain.fsm import AbortReason, TransitionReason
from holdfast.domain.state import Task
from holdfast.domain.task import TaskEvent
from holdfast.domain.wording import plural
from holdfast.engine import answers, landed_before
from holdfast.engine.base_tree import expect_result
from holdfast.engine.context import RunContext
from holdfast.engine.effects import carry_out
from holdfast.errors import HoldfastError, LandingLost, LandingWaits
from holdfast.landing import gate_results, refresh, verify
from holdfast.landing.branch import branch_of, reaches
from holdfast.landing.lost_landings import settle_rewritten, undone
from holdfast.storage.journal.entry import Record
from holdfast.worktrees import commit_messages, merges, pins

_UNJUDGED = (
    "it lands unchecked, because there is no gate: give the task a `verify:`, or set `gates:` in config/settings.yaml"
)


class LandingResult(StrEnum):
    CLOSED = "closed"
    REJECTED = "rejected"
    APPROVAL = "approval"


def finish(shop: RunContext, task: Task) -> LandingResult:
    """Takes a task that is done as far as it goes."""
    if not task.candidate and not task.attempt:
        # Its subtasks were its work, and each has landed by itself.
        _close(shop, task, {"kind": "subtasks"})
        return LandingResult.CLOSED
    if not task.candidate and task.remote and not verify.gates_of(shop.board.worked_on(task), shop.config):
        # There is nothing to land, and nothing that could judge it.
        _close(shop, task, {**task.outcome, "kind": "reported", "attempt": task.attempt})
        return LandingResult.CLOSED
    if answers.is_answer(shop, task):
        shop.worktrees.remove(task.id, landed=task.candidate or task.base)
        answer = answers.answer_of(shop, task)
        _close(shop, task, {"kind": "answer", "answer": answer, "attempt": task.attempt})
        return LandingResult.CLOSED
    left: list[str] | None = None
    while not task.landed:
        verdict = _verify(shop, task)
        if verdict is not None:
            return verdict
        if _has_landed(task):
            break
        if shop.board.worked_on(task).approve and not task.approved:
            shop.move(task, TaskEvent.APPROVAL_REQUESTED, TransitionReason.APPROVAL_REQUIRED, agent=task.agent)
            shop.note(task.id, "waits for `holdfast approve`")
            return LandingResult.APPROVAL
        branch = shop.branch
        try:
            left = _land(shop, task, branch)
        except LandingLost:
            shop.note(task.id, "the target moved meanwhile; verifying with the newer one")
    branch = task.landed_on or shop.branch
    left = left if left is not None else _refresh(shop, task, branch)
    # Before the task is closed: nobody comes back to one that is.
    shop.worktrees.remove(task.id, landed=task.candidate)
    _close(shop, task, {"commit": task.landed, "branch": branch, "attempt": task.attempt, "left": left}, branch)
    return LandingResult.CLOSED


def _has_landed(task: Task) -> bool:
    return bool(task.landed)


def _note_wait(shop: RunContext, task: Task, branch: str, paths: list[str]) -> None:
    """Journalled once for the same paths, so that everybody sees it, also without a run."""
    if task.landing_waits != tuple(paths):
        waiting = LandingWaiting(task.id, task.attempt, branch, paths)
        shop.append(Record("landing_waits", msgspec.to_builtins(waiting), actor="loop"))


def land_on(shop: RunContext, task: Task, branch: str) -> verify.GateVerdict | None:
    """Lands the verified commit as a new branch, where no checkout is in its way; None when it did."""
    if (verdict := judge(shop, task)) is not None:
        return verdict
    intended = LandIntended(task.id, task.attempt, branch, "0" * len(task.verified), task.verified)
    carry_out(shop.ledger, shop.effects, "land", intended)
    shop.worktrees.remove(task.id, landed=task.candidate)
    _close(shop, task, {"commit": task.landed, "branch": branch, "attempt": task.attempt, "left": []}, branch)
    return None


def _verify(shop: RunContext, task: Task) -> LandingResult | None:
    """None when the commit that would land has passed, and is in `task.verified`; or has landed, unknown to us."""
    verdict = judge(shop, task)
    if verdict is None or (verdict.kind == "empty_change" and landed_before.recognise(shop, task)):
        return None
    reason = AbortReason.LANDING_CONFLICT if verdict.kind == "conflict" else AbortReason.VERIFICATION_FAILED
    told = verify.feedback(verdict, shop.blobs)
    shop.fail(task, TaskEvent.VERIFICATION_REJECTED, reason, verdict.kind, verdict.detail, told)
    for line in gate_results.failed_output(shop.blobs, verdict):
        shop.note(task.id, gate_results.OUTPUT + line)
    return LandingResult.REJECTED


def judge(shop: RunContext, task: Task) -> verify.GateVerdict | None:
    """Merges the candidate with the newest target and verifies that; None when it has passed."""
    branch = shop.branch
    expect_result(shop.worktrees.store, task, task.candidate, task.verified)
    target = merges.newest(shop.repo, branch)
    if shop.last_landed not in ("", target) and not reaches(shop.repo, branch, shop.last_landed):
        missed, shop.last_landed = shop.last_landed, ""
        try:
            see_to_lost(shop)
        except HoldfastError:
            # It waits for a checkout, say: nothing lands on top before it was seen to.
            shop.last_landed = missed
            raise
        target = merges.newest(shop.repo, branch)
    if task.verified and task.verified_on == target:
        return None
    made = shop.board.worked_on(task)
    if not task.candidate:
        return verify.no_candidate()
    who = merges.identity(shop.repo, shop.config)
    merged = merges.merge(
        shop.worktrees.store, target, task.candidate, commit_messages.of_landing(shop, task, made), who
    )
    if merged.conflicts:
        return verify.conflict(merged.conflicts)
    gates = verify.gates_of(made, shop.config)
    intended = VerifyIntended(
        task.id,
        task.attempt,
        task.candidate,
        target,
        merged.commit,
        verify.pin(gates, made.paths, shop.blobs, *shop.confinement(made)),
        all(gate.repeatable for gate in gates),
        tuple(each.removeprefix("gate:") for each in task.happened if each.startswith("gate:")),
    )
    shop.note(task.id, f"verifying {merged.commit[:12]} with {plural(len(gates), 'gate')}" if gates else _UNJUDGED)
    result = carry_out(shop.ledger, shop.effects, "verify", intended)
    return None if result["passed"] else verify.read_verdict(shop.blobs, result["verdict"])


def land_again(shop: RunContext, task: Task) -> verify.GateVerdict | None:
    """Verifies and lands what has landed before and was lost; None when it is there again. The task stays closed."""
    branch = shop.branch
    while True:
        if (verdict := judge(shop, task)) is not None:
            return verdict
        with contextlib.suppress(LandingLost):
            _land(shop, task, branch, is_noted=False)
            return None


def see_to_lost(shop: RunContext) -> None:
    """Settles landings that were rewritten, and lands again those that nobody meant to undo; the rest is told once."""
    lost, tasks = settle_rewritten(shop.repo, shop.ledger, shop.layout, shop.note), shop.ledger.state.tasks
    for task in undone(shop.repo, [tasks[name] for name in lost if branch_of(tasks[name]) == shop.branch]):
        shop.note(task.id, f"a `git reset` or `git stash` undid its landing {task.landed[:12]}, which came meanwhile")
        promoted = LandingPromoted(task.id, task.attempt, branch_of(task), task.landed)
        shop.append(Record("landing_promoted", msgspec.to_builtins(promoted), actor="loop"))
        if (rejected := land_again(shop, task)) is None:
            shop.note(task.id, f"landed again as {task.landed[:12]}")
            del lost[task.id]
        else:
            shop.note(task.id, f"it cannot be landed again: {rejected.kind}: {rejected.detail}")
    for name in lost.keys() - shop.lost.keys():
        shop.note("", lost[name])
    shop.lost = lost


def _land(shop: RunContext, task: Task, branch: str, *, is_noted: bool = True) -> list[str]:
    """Moves the branch and brings its checkouts up to date; returns what was left there as the user has it.

    The checkouts' indexes are held all the while. In between they are those of the commit before: what `git commit`
    records from them puts the old files back.
    """
    found = refresh.checkouts(shop.repo, branch)
    if found:
        # It may have been verified long ago, and no ref of the user's leads to it yet.
        shop.worktrees.store.hand_over(task.verified, task.verified_on)
    effect = shop.effects["refresh"]
    assert isinstance(effect, refresh.Refresh)
    with effect.holding(found):
        paths = [path for each in found for path in refresh.blockers(each, branch, task.verified_on, task.verified)]
        if paths:
            if is_noted:
                _note_wait(shop, task, branch, paths)
            raise LandingWaits(task=task.id, paths=", ".join(paths[:5]))
        intended = LandIntended(task.id, task.attempt, branch, task.verified_on, task.verified)
        carry_out(shop.ledger, shop.effects, "land", intended)
        shop.last_landed = task.landed
        return _refresh(shop, task, branch)


def _refresh(shop: RunContext, task: Task, branch: str) -> list[str]:
    """Brings every checkout of the branch up to date; returns what was left as the user has it."""
    left: list[str] = []
    if "refresh" in task.happened:
        return left
    for checkout in refresh.checkouts(shop.repo, branch):
        intended = RefreshIntended(task.id, task.attempt, str(checkout), task.verified_on, task.landed)
        left += carry_out(shop.ledger, shop.effects, "refresh", intended).get("left", [])
    if left:
        shop.note(task.id, f"landed; left as you have them in your checkout: {', '.join(left[:5])}")
    return left


def _close(shop: RunContext, task: Task, outcome: dict[str, object], branch: str = "") -> None:
    shop.move(task, TaskEvent.JANITOR_VERIFIED_AND_MERGED, TransitionReason.LANDED, outcome=outcome)
    pins.release(shop.repo, shop.layout, [task])
    branch = (branch or shop.branch).removeprefix("refs/heads/")
    without = "closed on its worker's word, with nothing to land" if task.attempt else "closed: its subtasks landed"
    if outcome.get("kind") == "answer":
        without = f"closed with an answer, and nothing changed: `holdfast show {task.id}`"
    shop.note(task.id, f"landed on {branch} as {task.landed[:12]}" if task.landed else without)
