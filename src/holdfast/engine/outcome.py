"""Turns the end of a start, as its runner wrote it, into the task's next state. Without an end, see `orphans.py`.

Before anything else every turn that the attempt completed is journalled.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.domain.attempt_records import Ending, Exit
from holdfast.domain.fsm import Reason
from holdfast.domain.spend import Spend
from holdfast.domain.task import TaskEvent
from holdfast.domain.task_record import Task
from holdfast.domain.wording import plural
from holdfast.engine import budget, outages
from holdfast.engine.context import RunContext
from holdfast.errors import SnapshotLost
from holdfast.git import command as git
from holdfast.layout import Attempt
from holdfast.storage.records import attempt_folder
from holdfast.storage.records import ledger as jsonl
from holdfast.worktrees import commit_messages, merges

# How much of an agent's output is read for its last lines, and how much of a line is shown.
TAIL_BYTES, LINE_CHARS_MAX, LINES_TOLD = 4096, 300, 3
# What a runner says where the agent itself gave no reason.
_WITHOUT_REASON = (
    "The agent ended with code ",
    "The command ended with code ",
    "The agent was killed by ",
    "The agent said that it has failed.",
)

_FAILED: dict[Ending, Reason] = {
    Ending.FAILED: Reason.AGENT_FAILED,
    Ending.REFUSED: Reason.AGENT_REFUSED,
    Ending.NOT_STARTED: Reason.NOT_STARTED,
    Ending.TIMEOUT: Reason.TIMEOUT,
    Ending.STALLED: Reason.STALLED,
    Ending.CIRCUIT_OPEN: Reason.CIRCUIT_OPEN,
    Ending.WORKTREE_LOST: Reason.WORKTREE_LOST,
}
_SPOILT = {Ending.REFUSED, Ending.CIRCUIT_OPEN}
_USED_UP = {
    "usd": Reason.BUDGET_EXHAUSTED,
    "tokens": Reason.TOKENS_EXHAUSTED,
    "turns": Reason.TURNS_EXHAUSTED,
    "seconds": Reason.TIMEOUT,
}


def apply_exit(context: RunContext, task: Task, ended: Exit) -> None:
    """Turns the runner's `exit.json` into the task's next state."""
    context.turns.follow(task)
    match ended.ending:
        case Ending.DONE if any(each.id not in ended.told for each in task.told):
            # Told meanwhile, and not to be landed before it has heard that.
            _give_back(context, task, Reason.TOLD, ended)
        case Ending.DONE:
            _done(context, task, ended)
        case Ending.TOLD:
            _give_back(context, task, Reason.TOLD, ended)
        case Ending.UNREACHABLE | Ending.RATE_LIMITED | Ending.QUOTA:
            outages.pause(context, task, ended, **_end_of(context, task, ended))
        case Ending.ENVIRONMENT:
            # The machine failed, and not the task: it goes on with the same attempt, when the loop says.
            outcome = {"kind": "environment", "detail": ended.detail, "attempt": task.attempt.id}
            more = _end_of(context, task, ended)
            back = context.moved(task, TaskEvent.REQUEUE, Reason.ENVIRONMENT, outcome=outcome, **more)
            context.append(back, context.held_up(task, ended.detail))
        case Ending.AUTH_MISSING:
            _fail_for_good(context, task, Reason.AUTH_MISSING, "auth_missing", ended)
        case Ending.ASKING:
            _give_back(context, task, Reason.ASKED, ended)
        case Ending.STOPPED:
            _give_back(context, task, Reason.SHUTDOWN, ended)
        case Ending.SESSION_FULL:
            _rotate(context, task, ended)
        case Ending.LIMIT:
            _limit(context, task, ended)
        case Ending.OVER_LIMIT:
            # Not a passing fault of the machine: the next attempt gets it as feedback, and begins with the last turn.
            why, said = Reason.OVER_LIMIT, f"Your work was cut short. {ended.detail}"
            more = _end_of(context, task, ended)
            context.fail(task, TaskEvent.AGENT_REPORTS_FAILURE, why, "over_limit", ended.detail, feedback=said, **more)
        case Ending.CRASHED | Ending.RUNNER_FAILED:
            context.move(
                task,
                TaskEvent.CRASH,
                Reason.CRASHED,
                session=ended.session,
                rest=uncounted_spend(context, task, ended),
                told=ended.told,
            )
            context.note(task.id, f"{task.attempt.id} crashed: {_with_last_lines(context, task, ended)}")
        case Ending.FAILED | Ending.NOT_STARTED if _is_lost(context, task, ended):
            _begin_anew(context, task, ended)
        case failed:
            more = _end_of(context, task, ended)
            # An agent that refused, or goes in circles, would do so again.
            more |= {"forget": True} if failed in _SPOILT else {}
            detail = _with_last_lines(context, task, ended)
            context.fail(task, TaskEvent.AGENT_REPORTS_FAILURE, _FAILED[failed], failed, detail, **more)


def _is_lost(context: RunContext, task: Task, ended: Exit) -> bool:
    """Whether a start that was to resume a conversation did nothing: no turn, no output, no spending."""
    agent = context.agents.get(task.claim.worked_by)
    if not task.session or agent is None or not agent.can.resume or not task.start.came_to_nothing:
        return False
    traces = context.layout.attempt_files(task.attempt.id).traces
    told = (line.record for line in jsonl.LineLedger(traces).read()) if traces.exists() else ()
    return not (ended.spent.usd or ended.spent.tokens or any(each.get("start") == ended.start for each in told))


def _begin_anew(context: RunContext, task: Task, ended: Exit) -> None:
    """The next start begins another conversation. The first time in an attempt, that is no fault of the attempt's."""
    detail = f"The conversation {task.session} was lost: it could not be resumed. {ended.detail.rstrip('.')}."
    if lines := _last_lines(context.layout.attempt_files(task.attempt.id), ended.start):
        detail += f' Its last words: "{lines[-1]}".' if lines[-1] not in detail else ""
    more: dict[str, Any] = {**_end_of(context, task, ended), "session": "", "forget": True}
    if task.lost_in == task.attempt.id:
        context.fail(task, TaskEvent.AGENT_REPORTS_FAILURE, _FAILED[ended.ending], ended.ending, detail, **more)
        return
    outcome = {"kind": "conversation_lost", "detail": detail, "attempt": task.attempt.id}
    context.move(task, TaskEvent.REQUEUE, Reason.CONVERSATION_LOST, outcome=outcome, **more)
    context.note(task.id, f"{detail} {task.attempt.id} begins another one, with the history in its prompt.")


def _with_last_lines(context: RunContext, task: Task, ended: Exit) -> str:
    """The ending, with the last output where it gave no reason."""
    lines = _last_lines(context.layout.attempt_files(task.attempt.id), ended.start)
    if not lines or not ended.detail.startswith(_WITHOUT_REASON) or lines[-1] in ended.detail:
        return ended.detail
    return f'{ended.detail} It printed: "{" / ".join(lines)}".'


def _last_lines(files: Attempt, start: int) -> list[str]:
    """The last lines that the agent printed for people, of the end of its output; empty where it printed none."""
    try:
        if files.output.stat().st_mtime < files.start(start).stat().st_mtime:
            return []
        with files.output.open("rb") as output:
            start_at = max(0, output.seek(0, os.SEEK_END) - TAIL_BYTES)
            output.seek(start_at)
            lines = output.read().decode(errors="replace").splitlines()
            # The first one may have begun before: its rest would not be known for JSON.
            lines = lines[1:] if start_at else lines
    except OSError:
        return []
    words = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith(("{", "["))]
    return [line[:LINE_CHARS_MAX] for line in words[-LINES_TOLD:]]


def _end_of(context: RunContext, task: Task, ended: Exit) -> dict[str, Any]:
    """The facts that the end of a start adds to any move: the next start continues from its tree."""
    rest = uncounted_spend(context, task, ended)
    return {"session": ended.session, "rest": rest, "tree": ended.snapshot, "told": ended.told}


def uncounted_spend(context: RunContext, task: Task, ended: Exit | None) -> Spend:
    """The spending of a start that no turn has counted: an agent pays for its last words, too."""
    used = task.start.used
    if ended is not None:
        spent = ended.spent
    else:
        ledger = jsonl.LineLedger(context.layout.attempt_files(task.attempt.id).spend)
        lines = [line.record for line in ledger.read() if line.record["start"] == task.start.number]
        tokens = sum(line["tokens_in"] + line["tokens_out"] for line in lines)
        spent = Spend(sum(line["usd"] for line in lines), tokens, 0, used.seconds)
    # Less than nothing where an agent says in the end that it cost less than was estimated.
    usd = round(spent.usd - used.usd, 9)
    return Spend(usd, max(spent.tokens - used.tokens, 0), 0, max(spent.seconds - used.seconds, 0.0))


def unsettled_spend(context: RunContext, task: Task) -> Spend:
    """The spending of the last start, which has ended, after its last turn."""
    if not task.start.number or task.claim.remote:
        return Spend()
    files = context.layout.attempt_files(task.attempt.id)
    return uncounted_spend(context, task, attempt_folder.read_exit(files, task.start.number, task.start.intent))


def _done(context: RunContext, task: Task, ended: Exit) -> None:
    candidate = ""
    try:
        context.expect_result(task, ended.snapshot)
    except SnapshotLost as error:
        # Its tree is what the next start has to begin with, and that is for a person to decide.
        back = context.moved(task, TaskEvent.REQUEUE, Reason.PARKED, **_end_of(context, task, ended))
        context.append(back, context.flagged(task, parked=str(error), not_before=task.not_before))
        context.note(task.id, str(error))
        return
    if ended.snapshot:
        if (found := unfit(context, task, ended.snapshot)) is not None:
            _refuse(context, task, ended, found)
            return
        candidate = make_candidate(context, task, ended.snapshot)
    context.move(
        task,
        TaskEvent.AGENT_REPORTS_SUCCESS,
        Reason.AGENT_REPORTED,
        candidate=candidate,
        session=ended.session,
        rest=uncounted_spend(context, task, ended),
        # A person may send it back: then the same attempt goes on with it.
        tree=ended.snapshot,
        agent=task.claim.agent,
        outcome={"detail": ended.detail} if ended.detail else {},
        told=ended.told,
    )
    context.note(task.id, f"{task.attempt.id} is done after {plural(task.attempt.turn, 'turn')}")


def make_candidate(context: RunContext, task: Task, snapshot: str) -> str:
    """The attempt's changes up to the snapshot, as a commit on its base; the base where there are none."""
    trees = context.worktrees
    who = merges.identity(context.repo, context.config)
    message = commit_messages.of_candidate(context, task, context.board.worked_on(task))
    more = (trees.store, task.attempt.base, snapshot, message, who)
    made = merges.candidate(*more, exclude=trees.exclude, modules=trees.modules, attempt=task.attempt.id)
    return made or task.attempt.base


class UnfitTree(msgspec.Struct, frozen=True):
    """The reason why a tree cannot become a candidate, with the way out; `kind` is that of the failure."""

    kind: str
    detail: str
    way: str = ""


def unfit(context: RunContext, task: Task, snapshot: str) -> UnfitTree | None:
    trees, base = context.worktrees, task.attempt.base
    if inner := merges.nested(trees.store, base, snapshot, trees.exclude):
        return _with_nested(context, task, [git.readable(path) for path in inner])
    if found := merges.below_submodules(trees.store, base, snapshot, trees.modules):
        return _with_submodules(context, task, found)
    return None


def _with_submodules(context: RunContext, task: Task, found: Mapping[str, list[str]]) -> UnfitTree:
    """A result with changes inside submodules, which only the attempt's turns keep."""
    paths = ", ".join([path for each in found.values() for path in each][:5])
    if context.worktrees.modules is None:
        kind = "submodule"
        detail = f"it changes {paths}, which is a submodule or below one: only its own repository has that. Agents get "
        detail += "the files of submodules, and may move them to other commits, with `submodules: init` in "
        detail += "config/settings.yaml; it is `keep` now"
        way = "Leave submodules as they are, and change only this repository"
    else:
        kind, names, one = "submodule_ahead", ", ".join(found), next(iter(found))
        detail = f"it leaves work in the submodule {names} ({paths}) that the repository's own copy does not have; "
        detail += f"it is kept in the turns of {task.attempt.id}"
        way = f"Leave the submodule as it was, or check out a commit that is in its repository already: `git -C {one} "
        way += "log --all`. New work in it goes to its own repository first, and a person types `git fetch` in it here"
    return UnfitTree(kind, detail, way)


def _with_nested(context: RunContext, task: Task, paths: Sequence[str]) -> UnfitTree:
    """The repositories stay in the worktree, where the next attempt finds them."""
    one, top = paths[0], context.worktrees.path(task.id)
    detail = f"it leaves a git repository of its own in {', '.join(paths[:5])}, of which at most the commit is saved. "
    detail += f"Remove {one}/.git in {top} if its files are to land, or list {one}/ in .gitignore to keep it out"
    return UnfitTree("nested_repository", detail)


def _refuse(context: RunContext, task: Task, ended: Exit, found: UnfitTree) -> None:
    told = f"Your work was not taken: {found.detail}." + (f" {found.way}." if found.way else "")
    more: dict[str, Any] = {"session": ended.session, "rest": uncounted_spend(context, task, ended), "told": ended.told}
    reason = Reason.VERIFICATION_FAILED
    context.fail(task, TaskEvent.AGENT_REPORTS_FAILURE, reason, found.kind, found.detail, feedback=told, **more)


def _limit(context: RunContext, task: Task, ended: Exit) -> None:
    made = context.board.worked_on(task)
    cap = budget.binding(task, made, context.config, context.ledger.state, ended.limit)
    if cap == "task":
        # Another attempt would have nothing to spend, either.
        _fail_for_good(context, task, _USED_UP[ended.limit], "limit", ended)
    else:
        _give_back(context, task, _USED_UP[ended.limit], ended)


def _fail_for_good(context: RunContext, task: Task, reason: Reason, kind: str, ended: Exit) -> None:
    """No other attempt follows by itself: a person has to change something first."""
    outcome = {"kind": kind, "detail": ended.detail, "attempt": task.attempt.id}
    more = _end_of(context, task, ended)
    context.move(task, TaskEvent.AGENT_REPORTS_FAILURE, reason, outcome=outcome, **more)
    context.note(task.id, ended.detail)


def _rotate(context: RunContext, task: Task, ended: Exit) -> None:
    """Opens the task again, for another conversation in the same attempt: no fault, and costs no attempt."""
    outcome = {"kind": str(ended.ending), "detail": ended.detail, "attempt": task.attempt.id}
    more: dict[str, Any] = {**_end_of(context, task, ended), "session": "", "forget": True}
    context.move(task, TaskEvent.REQUEUE, Reason.SESSION_FULL, outcome=outcome, **more)
    context.note(task.id, f"{ended.detail} {task.attempt.id} begins another one, with the history in its prompt.")


def _give_back(context: RunContext, task: Task, reason: Reason, ended: Exit) -> None:
    """Opens the task again: it continues the same attempt and conversation when its turn comes."""
    context.move(task, TaskEvent.REQUEUE, reason, **_end_of(context, task, ended))
    if reason is Reason.TOLD:
        context.note(task.id, f"{task.attempt.id} goes on with what a person has told it")
        return
    context.note(task.id, f"{task.attempt.id} pauses: {ended.detail}")
