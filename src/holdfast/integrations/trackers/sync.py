"""Carries out what follows from a round's issues: writes task files, and decides about tasks whose issues were closed.

In order: the files, then what the journal takes in of them, then the decisions, then the memory of the tracker. A kill
between any two leaves what the next round does again: a file that is there is not written twice, a task that is known
is not added twice, a decision is made once under its key, and without the memory everything is only asked for again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.backlog.issue_files import merged
from holdfast.config.trackers import SourceSettings
from holdfast.crashpoints import point
from holdfast.decisions import mailbox
from holdfast.decisions.context import DecisionContext, Later
from holdfast.domain.definition import Definition, render
from holdfast.domain.issues.issue_records import RateLimit
from holdfast.domain.state import State
from holdfast.domain.task import TaskState
from holdfast.engine.context import RunContext
from holdfast.errors import HoldfastError, is_fatal
from holdfast.integrations.trackers import memory as memories
from holdfast.integrations.trackers.issue_plan import IssueChange, Known, cancel_key, changes_of
from holdfast.integrations.trackers.registry import tracker_of
from holdfast.integrations.trackers.source_rounds import Fetcher, SourceRound, remembered, tracked
from holdfast.layout import Layout
from holdfast.orchestrator.background import PeriodicJob
from holdfast.ports import TaskFile

ACTOR = "sync"
SYNC_POINTS = ("sync.fetched", "sync.written", "sync.taken_in", "sync.decided", "sync.remembered")
# So many files are written for one sync of the disk.
WRITTEN_MAX = 200


class SyncOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a round came to, for people: the changes that were made, and what the tracker said of its limit."""

    source: str
    changes: list[IssueChange] = []
    issues: int = 0
    limit: RateLimit = RateLimit()
    not_before: float = 0.0
    error: str = ""

    def tasks(self, *kinds: str) -> list[str]:
        return [each.task for each in self.changes if each.kind in kinds]


def known_here(
    executed: Callable[[str, str], object], files: Mapping[str, TaskFile], state: State, source: str
) -> Known:
    tasks = {name: task for name, task in state.tasks.copy().items() if name.startswith(f"{source}-")}
    ended = {
        name
        for name, task in tasks.items()
        if task.state is TaskState.CANCELLED and executed("task_cancelled", cancel_key(name)) is not None
    }
    return Known(tasks, {name: files[name].definition for name in tasks if name in files}, ended)


def apply_round(context: RunContext, source: SourceSettings, found: SourceRound) -> SyncOutcome:
    """In the thread that owns the data root. Returns what was changed."""
    point("sync.fetched")
    context.board.take_in()
    known = known_here(context.ledger.pairing.find_executed, context.board.files, context.ledger.state, source.name)
    changes = changes_of(source, found, known)
    done, put_off = _write(context, changes)
    point("sync.written")
    if any(each.kind in ("add", "edit") for each in done):
        context.board.take_in()
        context.board.keep_up()
    point("sync.taken_in")
    for change in changes:
        if change.kind in ("cancel", "ask"):
            if (made := _decide(context, change)) is None:
                continue
            done.append(made)
            if made.kind in ("problem", "later"):
                put_off.add(change.number)
        elif change.kind == "later":
            put_off.add(change.number)
        elif change.kind == "problem":
            done.append(change)
    point("sync.decided")
    before = memories.recall(context.layout, source)
    memories.keep(context.layout, source.name, remembered(before, found, put_off))
    point("sync.remembered")
    return outcome_of(found, done)


def outcome_of(found: SourceRound, changes: Sequence[IssueChange]) -> SyncOutcome:
    return SyncOutcome(
        source=found.source,
        changes=[each for each in changes if each.kind != "later"],
        issues=sum(len(page.numbers) for page in found.pages),
        limit=found.limit,
        not_before=found.not_before,
        error=found.error,
    )


def _write(context: RunContext, changes: Sequence[IssueChange]) -> tuple[list[IssueChange], set[str]]:
    """Writes the files of new and edited issues; returns what was done, and the issues that have to be seen again."""
    done: list[IssueChange] = []
    put_off: set[str] = set()
    new = iter([each for each in changes if each.kind == "add"])
    while some := list(itertools.islice(new, WRITTEN_MAX)):
        texts = {each.task: each.file.text for each in some if each.file is not None}
        context.backlog.add_many(texts, "issues")
        done += some
    for change in changes:
        if change.kind != "edit" or change.file is None:
            continue
        wanted = change.file.definition
        try:
            context.backlog.change(change.task, lambda found, text, wanted=wanted: _rewritten(found, wanted))  # type: ignore[misc]
            done.append(change)
        except HoldfastError as error:
            if is_fatal(error):
                raise
            put_off.add(change.number)
            done.append(msgspec.structs.replace(change, kind="problem", why=str(error), file=None))
    return done, put_off


def _rewritten(found: TaskFile, wanted: Definition) -> bytes:
    made = merged(found.definition, wanted) if found.definition.origin is not None else found.definition
    return render(msgspec.structs.replace(made, claim=None, result=None, error=None))


def _decide(context: RunContext, change: IssueChange) -> IssueChange | None:
    """The change as it was made; None where the same was decided before, and a person has gone on."""
    decision = DecisionContext.of(context, change.key, by=ACTOR, actor=ACTOR)
    try:
        if change.kind == "cancel":
            mailbox.decide(decision, "cancel", {"tasks": [change.task]})
        elif not decision.has_begun():
            task = decision.task(change.task)
            hint = f"`holdfast cancel {task.id}` gives it up, `holdfast resolve {task.id} --retry` goes on"
            told = f"{change.why}: {hint}"
            decision.append([decision.flagged(task, 0, parked=told, not_before=task.not_before)])
        else:
            return None
    except Later:
        return msgspec.structs.replace(change, kind="later")
    except HoldfastError as error:
        if is_fatal(error):
            raise
        return msgspec.structs.replace(change, kind="problem", why=f"{change.why}, and {error}")
    return change


# -- beside the loop --------------------------------------------------------------------------------------------------


def sync_jobs(context: RunContext) -> list[PeriodicJob[SourceRound]]:
    """One job for each source: asks in a thread of its own, and applies in the loop's."""
    return [_job(context, source) for source in context.config.sources]


def job_name(source: str) -> str:
    return f"sync:{source}"


def _job(context: RunContext, source: SourceSettings) -> PeriodicJob[SourceRound]:
    fetcher: list[Fetcher] = []
    told: set[tuple[str, str]] = set()

    def fetch() -> SourceRound:
        if not fetcher:
            fetcher.append(Fetcher(source, tracker_of(source, context.repo)))
        return fetch_round(fetcher[0], context.layout, context.ledger.state, context.board.files)

    def apply(found: SourceRound) -> list[str]:
        outcome = apply_round(context, source, found)
        lines = lines_of(outcome)
        for line in lines:
            if line not in told:
                context.note(*line)
        # What is still so in the next round need not be said again.
        told.clear()
        told.update(lines)
        return outcome.tasks("add", "edit", "cancel", "ask")

    return PeriodicJob(name=job_name(source.name), every_s=source.every_s, fetch=fetch, apply=apply, comes_first=True)


def fetch_round(
    fetcher: Fetcher,
    layout: Layout,
    state: State,
    files: Mapping[str, TaskFile],
    progress: Callable[[str], None] = lambda line: None,
    *,
    anew: bool = False,
) -> SourceRound:
    """`anew`: asks for everything, also for what has not changed since it was applied."""
    memory = memories.recall(layout, fetcher.source)
    if anew:
        memory = msgspec.structs.replace(memory, pages={}, absent={})
    return fetcher.fetch(memory, tracked(fetcher.source.name, state.tasks.copy(), files), progress)


def lines_of(outcome: SyncOutcome) -> list[tuple[str, str]]:
    """What to tell a person, as a task and a sentence."""
    said = {
        "add": "added from {url}", "edit": "rewritten: {why} ({url})", "cancel": "cancelled: {why} ({url})",
        "ask": "waits for you: {why} ({url})", "problem": "{why} ({url})",
    }  # fmt: skip
    failed = [("", f"{outcome.source}: {outcome.error}")] if outcome.error else []
    return failed + [
        (each.task, said[each.kind].format(url=each.url or outcome.source, why=each.why))
        for each in outcome.changes
        if each.kind in said
    ]
