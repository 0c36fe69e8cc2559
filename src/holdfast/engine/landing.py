"""From done to closed: merge with the newest target, verify that very commit, land it, refresh, file the result.

Each step begins with what the journal says is already so: a crash between two leaves the rest to do, and nothing to do
twice. A landing that loses a race, or finds the target moved, starts over with the newer one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

import msgspec

from holdfast.domain.effect_entries import LandIntended, RefreshIntended, VerifyIntended
from holdfast.domain.entries import GateWarned, LandingPromoted, LandingWaiting
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.domain.task_record import Landing, Task
from holdfast.domain.wording import plural
from holdfast.engine import recovery
from holdfast.engine.context import PullLanding, RunContext
from holdfast.engine.effects import carry_out
from holdfast.engine.starting.worktree_hooks import leave_worktree
from holdfast.errors import HoldfastError, LandingLost, LandingWaits
from holdfast.landing import approval, foreign_code, gate_results, refresh, verify
from holdfast.landing.branch import branch_of, reaches
from holdfast.landing.gate_kinds import gates_of
from holdfast.landing.gates import Gate
from holdfast.landing.lost_landings import settle_rewritten, undone
from holdfast.landing.merge_queue import CandidateKind, JudgeAhead, QueueView
from holdfast.storage.journal.entry import Record
from holdfast.storage.records import ledger as jsonl
from holdfast.worktrees import commit_messages, merges, pins
from holdfast.worktrees.content import judging_worktrees

_UNJUDGED = (
    "it lands unchecked, because there is no gate: give the task a `verify:`, or set `gates:` in config/settings.yaml"
)
ANSWER_CHARS_MAX = 20_000
# What a runner says where the agent ended without words of its own.
_WITHOUT_WORDS = ("", "The agent has finished.", "The command has finished.")


class LandingResult(StrEnum):
    CLOSED = "closed"
    REJECTED = "rejected"
    APPROVAL = "approval"


def verify_and_land(context: RunContext, task: Task) -> LandingResult:
    """Verifies, lands and closes a task that is done, as far as it gets."""
    if not task.candidate and not task.attempt.id:
        # Its subtasks were its work, and each has landed by itself.
        _close(context, task, {"kind": "subtasks"})
        return LandingResult.CLOSED
    if not task.candidate and task.claim.remote and not gates_of(context.board.worked_on(task), context.config):
        # There is nothing to land, and nothing that could judge it.
        _close(context, task, {**task.outcome, "kind": "reported", "attempt": task.attempt.id})
        return LandingResult.CLOSED
    if _is_answer(context, task):
        leave_worktree(context, task, task.candidate or task.attempt.base)
        answer = _answer_of(context, task)
        _close(context, task, {"kind": "answer", "answer": answer, "attempt": task.attempt.id})
        return LandingResult.CLOSED
    left: list[str] | None = None
    if context.pulls is not None and task.pull is not None and task.pull.state == "merged" and not task.landing.commit:
        left = context.pulls.take_merged(context, task, _land)
    while not task.landing.commit:
        verdict = _verify(context, task)
        if verdict is not None:
            return verdict
        if _has_landed(task):
            break
        made, rules = context.board.worked_on(task), context.config.approve
        if why := approval.reason_to_ask(context.worktrees.store, task, made, rules):
            told = {"kind": "approval", "detail": why, "attempt": task.attempt.id}
            asked = (task, TaskEvent.APPROVAL_REQUESTED, Reason.APPROVAL_REQUIRED)
            context.move(*asked, agent=task.claim.agent, outcome=told)
            context.note(task.id, f"waits for `holdfast review` or `holdfast approve`: {why}")
            return LandingResult.APPROVAL
        if (pulls := _pulls(context, task)) is not None:
            pulls.publish(context, task)
            return LandingResult.APPROVAL
        branch = context.branch
        try:
            left = _land(context, task, branch)
        except LandingLost:
            context.note(task.id, "the target moved meanwhile; verifying with the newer one")
    branch = task.landing.branch or context.branch
    left = left if left is not None else _refresh(context, task, branch)
    # Before the task is closed: nobody comes back to one that is.
    leave_worktree(context, task, task.candidate)
    outcome = {"commit": task.landing.commit, "branch": branch, "attempt": task.attempt.id, "left": left}
    if task.pull is not None and task.pull.url:
        outcome["pull_request"] = task.pull.url
    _close(context, task, outcome, branch)
    return LandingResult.CLOSED


def _verify(context: RunContext, task: Task) -> LandingResult | None:
    """None when the commit that would land has passed (`task.landing.verified`), or has landed, unknown to us."""
    verdict = judge(context, task)
    if verdict is None or (verdict.kind == "empty_change" and recovery.recognise(context, task)):
        return None
    if verdict.kind == "empty_change" and task.pull is not None and (pulls := _pulls(context, task)) is not None:
        # The base has it already: what became of its pull request is seen at the next look.
        pulls.wait(context, task)
        return LandingResult.APPROVAL
    reason = Reason.LANDING_CONFLICT if verdict.kind == "conflict" else Reason.VERIFICATION_FAILED
    told = gate_results.feedback(verdict, context.blobs)
    context.fail(task, TaskEvent.VERIFICATION_REJECTED, reason, verdict.kind, verdict.detail, feedback=told)
    for line in gate_results.failed_output(context.blobs, verdict):
        context.note(task.id, gate_results.OUTPUT + line)
    return LandingResult.REJECTED


def queue_view(context: RunContext, active: Collection[str], landing: str) -> QueueView:
    """What is judged and landed now, and which of the candidates that wait are judged in a way of their own."""
    most, judgings = context.config.judging, context.judgings
    if most == 1:
        return QueueView(landing)
    tasks = (context.board.task(name) for name in active)
    done = [task for task in tasks if task.state is TaskState.DONE and not task.parked]
    return QueueView(
        landing,
        judgings.merged.copy(),
        judgings.ahead.copy(),
        withdrawn=judgings.withdrawn.copy(),
        refused={name: ended.asked.on for name, ended in judgings.refused.items()},
        apart={task.id for task in done if _kind(context, task).by_request or _asks(context, task)},
        once={task.id for task in done if _has_nothing_to_judge(task) or _is_once(context, task)},
        most=most,
    )


def _asks(context: RunContext, task: Task) -> bool:
    return not task.approved and _kind(context, task).asks


def _is_once(context: RunContext, task: Task) -> bool:
    """What lands by pull request is judged on another target, and so only in its turn."""
    return _kind(context, task).is_once or _kind(context, task).by_request


def _pulls(context: RunContext, task: Task) -> PullLanding | None:
    """How it lands by pull request; None where it does not."""
    return context.pulls if context.pulls is not None and context.pulls.is_for(context, task) else None


def _kind(context: RunContext, task: Task) -> CandidateKind:
    """Read once for each candidate: the queue is looked at in every round."""
    kinds, key = context.judgings.kinds, (task.id, task.candidate)
    if key not in kinds:
        try:
            made = context.board.worked_on(task)
            is_once = not all(gate.repeatable for gate in gates_of(made, context.config))
            # The rules are asked about the change as the agent made it; merged, it is asked about again.
            landing = Landing(verified=task.candidate, verified_on=task.attempt.base)
            as_made = msgspec.structs.replace(task, landing=landing, approved=False)
            why = approval.reason_to_ask(context.worktrees.store, as_made, made, context.config.approve)
            by_request = _pulls(context, task) is not None
            kinds[key] = CandidateKind(asks=bool(why), is_once=is_once, by_request=by_request)
        except HoldfastError:
            # What is wrong with it is seen to in its turn.
            return CandidateKind(asks=False, is_once=True)
    return kinds[key]


def _has_nothing_to_judge(task: Task) -> bool:
    return not task.candidate or task.candidate == task.attempt.base or bool(task.landing.commit)


def judge(context: RunContext, task: Task) -> verify.GateVerdict | None:
    """Merges the candidate with the newest target and verifies that; None when it has passed."""
    branch = context.branch
    context.expect_result(task, task.candidate, task.landing.verified)
    if (pulls := _pulls(context, task)) is not None:
        return _judge_on(context, task, pulls.target(context, task) or merges.newest(context.repo, branch))
    target = merges.newest(context.repo, branch)
    if context.last_landed not in ("", target) and not reaches(context.repo, branch, context.last_landed):
        missed, context.last_landed = context.last_landed, ""
        try:
            see_to_lost(context)
        except HoldfastError:
            # It waits for a checkout, say: nothing lands on top before it was seen to.
            context.last_landed = missed
            raise
        target = merges.newest(context.repo, branch)
    if (known := context.judgings.verdict_on(task.id, task.candidate, target)) is not None:
        return known
    return _judge_on(context, task, target)


def judge_ahead(context: RunContext, task: Task, asked: JudgeAhead) -> verify.GateVerdict | None:
    """Judges the candidate before its turn, on top of one that has not landed yet; None when it has passed.

    What comes of it counts only where exactly that commit is the target when its turn has come.
    """
    context.expect_result(task, task.candidate)
    branch_at = merges.newest(context.repo, context.branch)
    effect = context.effects[VerifyIntended]
    assert isinstance(effect, verify.Verify)
    effect.is_wanted = context.judgings.is_wanted
    # The gates' git reads the commit before it, too, and no ref of the user's leads there yet.
    context.worktrees.store.hand_over(asked.on, branch_at)
    return _judge_on(context, task, asked.on, behind=asked.behind, branch_at=branch_at)


def _judge_on(
    context: RunContext, task: Task, target: str, behind: str = "", branch_at: str = ""
) -> verify.GateVerdict | None:
    """Merges the candidate with `target` and has the gates judge that; None when it has passed."""
    if task.landing.verified and task.landing.verified_on == target:
        context.judgings.announce(task.id, target, task.landing.verified)
        return None
    made = context.board.worked_on(task)
    if not task.candidate:
        return verify.no_candidate()
    who = merges.identity(context.repo, context.config)
    merged = merges.merge(
        context.worktrees.store, target, task.candidate, commit_messages.of_landing(context, task, made), who
    )
    if merged.conflicts:
        return verify.conflict(merged.conflicts)
    gates = gates_of(made, context.config)
    context.judgings.announce(task.id, target, merged.commit)
    with context.judgings.place() as place:
        intended = VerifyIntended(
            task=task.id,
            attempt=task.attempt.id,
            candidate=task.candidate,
            target=target,
            merged=merged.commit,
            gates=verify.pin(gates, made.paths, context.blobs, *context.confinement(made)),
            repeatable=all(gate.repeatable for gate in gates),
            happened=tuple(each.removeprefix("gate:") for each in task.happened if each.startswith("gate:")),
            place=place,
            behind=behind,
            branch_at=branch_at,
        )
        ahead = f", ahead of its turn, on top of {behind}" if behind else ""
        told = f"verifying {merged.commit[:12]} with {plural(len(gates), 'gate')}{ahead}"
        context.note(task.id, told if gates else _UNJUDGED)
        result = carry_out(context, intended)
        _warn_of_foreign_code(context, task, gates, place)
    return None if result["passed"] else verify.read_verdict(context.blobs, result["verdict"])


def _warn_of_foreign_code(context: RunContext, task: Task, gates: Sequence[Gate], place: int) -> None:
    """Journals of each gate, once in a run, that it tests another checkout. Asked once its worktree is set up."""
    if not (new := context.unwarned(gates)):
        return
    checkouts = foreign_code.Checkouts(context.repo, judging_worktrees(context.layout))
    for each in foreign_code.foreign_code(new, checkouts, context.worktrees.judging_path(place)):
        warning = f"{each.sentence()} To mend it, {each.advice()}"
        warned = GateWarned(task.id, task.attempt.id, each.gate, warning)
        context.append(Record("gate_warned", msgspec.to_builtins(warned), actor="loop"))
        if warning not in context.remarked:
            context.note(task.id, warning)


def _has_landed(task: Task) -> bool:
    return bool(task.landing.commit)


def _land(
    context: RunContext, task: Task, branch: str, *, is_noted: bool = True, old: str = "", new: str = ""
) -> list[str]:
    """Moves the branch and brings its checkouts up to date; returns what was left there as the user has it.

    The checkouts' indexes are held all the while. In between they are those of the commit before: what `git commit`
    records from them puts the old files back. `old` and `new`: where not the verified commit lands.
    """
    found, landing = refresh.checkouts(context.repo, branch), task.landing
    old, new = old or landing.verified_on, new or landing.verified
    if found:
        # It may have been verified long ago, and no ref of the user's leads to it yet.
        context.worktrees.store.hand_over(new, old)
    effect = context.effects[RefreshIntended]
    assert isinstance(effect, refresh.Refresh)
    with effect.holding(found):
        blockers = (refresh.blockers(each, branch, old, new) for each in found)
        paths = [path for each in blockers for path in each]
        if paths:
            # Journalled once for the same paths, so that everybody sees it, also without a run.
            if is_noted and landing.waits != tuple(paths):
                waiting = LandingWaiting(task.id, task.attempt.id, branch, paths)
                context.append(Record("landing_waits", msgspec.to_builtins(waiting), actor="loop"))
            raise LandingWaits(task=task.id, paths=", ".join(paths[:5]))
        carry_out(context, LandIntended(task.id, task.attempt.id, branch, old, new))
        context.last_landed = task.landing.commit
        return _refresh(context, task, branch)


def _refresh(context: RunContext, task: Task, branch: str) -> list[str]:
    """Brings every checkout of the branch up to date; returns what was left as the user has it."""
    left: list[str] = []
    if "refresh" in task.happened:
        return left
    landing = task.landing
    for checkout in refresh.checkouts(context.repo, branch):
        old = landing.old or landing.verified_on
        intended = RefreshIntended(task.id, task.attempt.id, str(checkout), old, landing.commit)
        left += carry_out(context, intended).get("left", [])
    if left:
        context.note(task.id, f"landed; left as you have them in your checkout: {', '.join(left[:5])}")
    return left


def _close(context: RunContext, task: Task, outcome: Mapping[str, object], branch: str = "") -> None:
    context.move(task, TaskEvent.JANITOR_VERIFIED_AND_MERGED, Reason.LANDED, outcome=outcome)
    pins.release(context.repo, context.layout, [task])
    branch = (branch or context.branch).removeprefix("refs/heads/")
    without = "closed on its worker's word, with nothing to land" if task.attempt.id else "closed: its subtasks landed"
    if outcome.get("kind") == "answer":
        without = f"closed with an answer, and nothing changed: `holdfast show {task.id}`"
    context.note(task.id, f"landed on {branch} as {task.landing.commit[:12]}" if task.landing.commit else without)


# -- tasks that change nothing ----------------------------------------------------------------------------------------


def _is_answer(context: RunContext, task: Task) -> bool:
    """Whether it may change nothing (a question, a review), and has changed nothing: what was said is its result."""
    is_unchanged = not task.landing.commit and task.candidate in ("", task.attempt.base)
    return is_unchanged and bool(context.board.worked_on(task).may_change_nothing)


def _answer_of(context: RunContext, task: Task) -> str:
    """The agent's last words: those of its end, or else the last that it said, or that its command printed."""
    told = str(task.outcome.get("detail", "")).strip()
    if told in _WITHOUT_WORDS:
        traces = context.layout.attempt_files(task.attempt.id).traces
        records = [line.record for line in jsonl.LineLedger(traces).read()] if traces.exists() else []
        said = [str(record.get("text", "")) for record in records if record.get("kind") == "said"]
        printed = [str(record["output"]) for record in records if record.get("kind") == "tool" and "output" in record]
        told = (said or printed or [""])[-1].strip()
    return told if len(told) <= ANSWER_CHARS_MAX else told[:ANSWER_CHARS_MAX] + "…"


# -- landings elsewhere, and once more --------------------------------------------------------------------------------


def land_on(context: RunContext, task: Task, branch: str) -> verify.GateVerdict | None:
    """Lands the verified commit as a new branch, where no checkout is in its way; None when it did."""
    if (verdict := judge(context, task)) is not None:
        return verdict
    intended = LandIntended(task.id, task.attempt.id, branch, "0" * len(task.landing.verified), task.landing.verified)
    carry_out(context, intended)
    leave_worktree(context, task, task.candidate)
    outcome = {"commit": task.landing.commit, "branch": branch, "attempt": task.attempt.id, "left": []}
    _close(context, task, outcome, branch)
    return None


def see_to_lost(context: RunContext) -> None:
    """Settles rewritten landings, and lands again those that were undone by accident; notes the rest once."""
    lost, tasks = (
        settle_rewritten(context.repo, context.ledger, context.layout, context.note),
        context.ledger.state.tasks,
    )
    for task in undone(context.repo, [tasks[name] for name in lost if branch_of(tasks[name]) == context.branch]):
        commit = task.landing.commit
        context.note(task.id, f"a `git reset` or `git stash` undid its landing {commit[:12]}, which came meanwhile")
        promoted = LandingPromoted(task.id, task.attempt.id, branch_of(task), commit)
        context.append(Record("landing_promoted", msgspec.to_builtins(promoted), actor="loop"))
        if (rejected := land_again(context, task)) is None:
            context.note(task.id, f"landed again as {task.landing.commit[:12]}")
            del lost[task.id]
        else:
            context.note(task.id, f"it cannot be landed again: {rejected.kind}: {rejected.detail}")
    for name in lost.keys() - context.lost.keys():
        context.note("", lost[name])
    context.lost = lost


def land_again(context: RunContext, task: Task) -> verify.GateVerdict | None:
    """Verifies and lands what has landed before and was lost; None when it is there again. The task stays closed."""
    branch = context.branch
    while True:
        if (verdict := judge(context, task)) is not None:
            return verdict
        with contextlib.suppress(LandingLost):
            _land(context, task, branch, is_noted=False)
            return None
