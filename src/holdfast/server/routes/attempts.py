"""Attempts: what was done in each turn, what it changed and cost."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holdfast.domain.task import TaskState
from holdfast.engine.turn_follower import new_turns
from holdfast.errors import NeverAttempted
from holdfast.layout import Attempt
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, Operation, row_from
from holdfast.server.routes.agents import known_attempt
from holdfast.storage.records import ledger
from holdfast.views.diffs import Diffs
from holdfast.views.history import AttemptFacts
from holdfast.worktrees.attempt_commits import snapshots_of

PATCH_BYTES_MAX = 1 << 20
FILES_MAX = 1000
FILES_IN_A_TURN_MAX = 100
LINES_MAX = 10_000
Turn = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is where the attempt has brought its task; `ended` is null while it works."""

    id: str
    task: str
    agent: str
    model: str
    why: str
    base: str
    began: float
    ended: float | None
    state: TaskState
    turns: int
    usd: float
    tokens: int
    seconds: float
    session: str
    outcome: dict[str, Any]


class AttemptList(msgspec.Struct, frozen=True):
    attempts: list[AttemptView]


class TurnRow(msgspec.Struct, frozen=True, kw_only=True):
    """`undone`: a person put the worktree back to before it. `files` are the first of what it changed."""

    turn: int
    start: int
    began: float
    at: float
    seconds: float
    tool: str
    files: list[str]
    usd: float
    tokens: int
    snapshot: str
    undone: bool


class Turns(msgspec.Struct, frozen=True):
    """`next` is what `after` is for the next page; 0 on the last one."""

    turns: list[TurnRow]
    next: int = 0


class TurnQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: Turn = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000


class DiffQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From the end of one turn to the end of another; 0: as the attempt began. Without `from`: what `to` changed."""

    from_: Turn | None = msgspec.field(name="from", default=None)
    to: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None


class FileCount(msgspec.Struct, frozen=True):
    """Lines; null for a file that is not text. `old_path`: what it was called before."""

    path: str
    added: int | None
    removed: int | None
    old_path: str = ""


class Diff(msgspec.Struct, frozen=True):
    from_: str = msgspec.field(name="from")
    to: str
    patch: str
    truncated: bool
    files: list[FileCount]
    files_total: int
    # Of a task's whole change: files with conflict markers, and whether it has landed so.
    conflicts: list[str] = []
    landed: bool = False


class SpendLine(msgspec.Struct, frozen=True):
    at: float
    turn: int
    usd: float
    tokens_in: int
    tokens_out: int
    model: str
    estimated: bool


class Spending(msgspec.Struct, frozen=True):
    """The last lines; `usd` and `tokens` are of all of them."""

    lines: list[SpendLine]
    usd: float
    tokens: int


class Lines(msgspec.Struct, frozen=True):
    lines: list[dict[str, Any]]


class LineQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=LINES_MAX)] = 1000


class SnapshotRow(msgspec.Struct, frozen=True):
    name: str
    commit: str


class Snapshots(msgspec.Struct, frozen=True):
    snapshots: list[SnapshotRow]


# -- as a whole -------------------------------------------------------------------------------------------------------


def view(known: AttemptFacts) -> AttemptView:
    spent = known.spent
    return row_from(AttemptView, known, usd=spent.usd, tokens=spent.tokens, seconds=spent.seconds)


def list_attempts(api: Api, ask: Ask) -> AttemptList:
    task = api.task(ask.task)
    with api.chronicle as told:
        names = told.of_task.get(task.id, [])[-FILES_MAX:]
        return AttemptList([view(told.attempts[name]) for name in names])


def show_attempt(api: Api, ask: Ask) -> AttemptView:
    return view(facts_of(api, ask.attempt))


def facts_of(api: Api, name: str) -> AttemptFacts:
    attempt = known_attempt(api, name)
    with api.chronicle as told:
        return msgspec.structs.replace(told.attempts.get(attempt) or AttemptFacts(attempt, attempt.rpartition(".")[0]))


def _files(api: Api, ask: Ask) -> Attempt:
    return api.layout.attempt_files(known_attempt(api, ask.attempt))


# -- turn by turn -----------------------------------------------------------------------------------------------------


def list_turns(api: Api, ask: Ask) -> Turns:
    query: TurnQuery = ask.query
    undone = facts_of(api, ask.attempt).undone
    lines = [line for _, line in new_turns(_files(api, ask), 0, 0) if line.turn > query.after]
    rows = [
        row_from(
            TurnRow,
            line,
            began=line.ts - line.seconds,
            at=line.ts,
            files=line.files[:FILES_IN_A_TURN_MAX],
            undone=line.turn in undone,
        )
        for line in lines[: query.limit]
    ]
    return Turns(rows, rows[-1].turn if len(lines) > len(rows) else 0)


def show_diff(api: Api, ask: Ask) -> Diff:
    query: DiffQuery = ask.query
    attempt = known_attempt(api, ask.attempt)
    diffs = Diffs(api.context.repo, api.layout, api.task(attempt.rpartition(".")[0]), attempt, api.context.ledger)
    turn = query.to
    if turn is None:
        lines = new_turns(_files(api, ask), 0, 0)
        turn = lines[-1][1].turn if lines else 0
    new = diffs.after(turn)
    old = diffs.after(query.from_) if query.from_ is not None else diffs.before(turn) if turn else new
    return _diff(diffs, old, new)


def show_change(api: Api, ask: Ask) -> Diff:
    """The whole change of the task's last attempt, as it would land or has landed."""
    task = api.task(ask.task)
    if not task.attempt.id:
        raise NeverAttempted(task=task.id, state=task.state)
    diffs = Diffs(api.context.repo, api.layout, task, task.attempt.id, api.context.ledger)
    change = diffs.as_landed(api.config)
    made = _diff(diffs, change.old, change.new)
    return msgspec.structs.replace(made, conflicts=change.conflicts[:FILES_MAX], landed=change.landed)


def _diff(diffs: Diffs, old: str, new: str) -> Diff:
    patch = diffs.beginning(old, new, PATCH_BYTES_MAX + 1, "-p", "--full-index")
    counts = diffs.counts(old, new)
    files = [FileCount(each["path"], each["added"], each["deleted"], each.get("old_path", "")) for each in counts]
    text = patch[:PATCH_BYTES_MAX].decode(errors="backslashreplace")
    return Diff(old, new, text, len(patch) > PATCH_BYTES_MAX, files[:FILES_MAX], files_total=len(files))


def list_snapshots(api: Api, ask: Ask) -> Snapshots:
    found = snapshots_of(api.context.worktrees.store, known_attempt(api, ask.attempt))
    return Snapshots([SnapshotRow(name, commit) for name, commit in itertools.islice(found.items(), LINES_MAX)])


# -- ledgers ----------------------------------------------------------------------------------------------------------


def list_spend(api: Api, ask: Ask) -> Spending:
    lines: deque[SpendLine] = deque(maxlen=ask.query.limit)
    usd, tokens = 0.0, 0
    for line in _records(_files(api, ask).spend):
        counted = (line.get("tokens_in", 0), line.get("tokens_out", 0))
        usd, tokens = usd + line.get("usd", 0.0), tokens + sum(counted)
        facts = (str(line.get("model", "")), bool(line.get("estimated")))
        lines.append(SpendLine(line.get("ts", 0.0), line.get("turn", 0), line.get("usd", 0.0), *counted, *facts))
    return Spending(list(lines), usd, tokens)


def list_provenance(api: Api, ask: Ask) -> Lines:
    return Lines(list(deque(_records(_files(api, ask).provenance), maxlen=ask.query.limit)))


def _records(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from (line.record for line in ledger.LineLedger(path).read())


def _of_attempt(path: str, name: str, summary: str, function: Any, answer: Any, **more: Any) -> Operation:
    whole = f"/attempts/{{attempt}}{path}"
    return Operation(
        "GET", whole, name, summary, function, answer=answer, lane="aside", tag="attempts", problems=(404,), **more
    )


OPERATIONS = [
    Operation("GET", "/tasks/{task}/diff", "show_change", "A task's whole change as it would land, as a patch.",
              show_change, answer=Diff, lane="aside", problems=(404, 409), tool="person"),
    Operation("GET", "/tasks/{task}/attempts", "list_attempts", "The attempts of a task.", list_attempts,
              answer=AttemptList, lane="aside", tag="attempts", problems=(404,)),
    _of_attempt("", "show_attempt", "One attempt.", show_attempt, AttemptView),
    _of_attempt("/turns", "list_turns", "What each turn did and cost.", list_turns, Turns, query=TurnQuery),
    _of_attempt("/diff", "show_diff", "What changed between two turns, as a patch.", show_diff, Diff, query=DiffQuery),
    _of_attempt("/spend", "list_spend", "What was spent, line by line.", list_spend, Spending, query=LineQuery),
    _of_attempt("/provenance", "list_provenance", "Which turn and tool made each change to a file.", list_provenance,
                Lines, query=LineQuery),
    _of_attempt("/snapshots", "list_snapshots", "The snapshots of its tree, as git commits.", list_snapshots,
                Snapshots),
]  # fmt: skip
