"""Gates and verdicts: what was judged, how it came out, and how long it took."""

from __future__ import annotations

import contextlib
import functools
import itertools
import statistics

import msgspec

from holdfast.errors import HoldfastError
from holdfast.landing import gate_results
from holdfast.landing.verify import read_verdict
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, NewestQuery, Operation, row_from
from holdfast.storage.records.blobs import Blobs
from holdfast.views import hook_runs
from holdfast.views.history import Judged
from holdfast.views.hook_runs import HookRow

FILES_MAX = 100
HOOKS_MAX = 500


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """`outcome`: passed, failed, timed_out or not_run. `output` is the blob with what it printed, and `lines` are the
    last lines of that for one that did not pass; they are told where one task is asked for. `told`: it was not run
    again, because a person said that it had passed."""

    name: str
    passed: bool
    outcome: str
    seconds: float
    required: bool
    output: str
    command: str = ""
    code: int | None = None
    told: bool = False
    lines: list[str] = []


class VerdictRow(msgspec.Struct, frozen=True, kw_only=True):
    """One verification. Without `gates` none was set, or it did not come to them; `files` are those that were in the
    way, such as those of a conflict."""

    task: str
    attempt: str
    at: float
    passed: bool
    kind: str
    detail: str
    gates: list[GateResult]
    files: list[str] = []


class GateRow(msgspec.Struct, frozen=True):
    """Over the verdicts that are listed; one that was not run counts as neither."""

    name: str
    passed: int
    failed: int
    seconds_median: float


class Quality(msgspec.Struct, frozen=True):
    """The newest verdict first."""

    gates: list[GateRow]
    verdicts: list[VerdictRow]


def quality(api: Api, ask: Ask) -> Quality:
    query: NewestQuery = ask.query
    with api.chronicle as told:
        found = told.judged.get(query.task, ()) if query.task else told.verdicts
        judged = list(itertools.islice(reversed(found), query.limit))
    verdicts = [_row(api.context.blobs, each, bool(query.task)) for each in judged]
    return Quality(_gates(verdicts), verdicts)


def _row(blobs: Blobs, each: Judged, with_lines: bool) -> VerdictRow:
    results: tuple[GateResult, ...] = ()
    files: tuple[str, ...] = ()
    # One whose blob cannot be read is shown without its gates.
    with contextlib.suppress(HoldfastError, msgspec.MsgspecError):
        results, files = _results(blobs, each.verdict, with_lines) if each.verdict else ((), ())
    return row_from(VerdictRow, each, gates=list(results), files=list(files))


@functools.lru_cache(maxsize=2000)
def _results(blobs: Blobs, digest: str, with_lines: bool) -> tuple[tuple[GateResult, ...], tuple[str, ...]]:
    """A verdict never changes."""
    verdict = read_verdict(blobs, digest)
    told = [
        gate_results.facts(each, gate_results.shown_output(blobs, each) if with_lines else [])
        for each in verdict.results
    ]
    made = (
        row_from(GateResult, each, passed=each.outcome == "passed", output=each.blob, lines=each.output)
        for each in told
    )
    return tuple(made), tuple(verdict.files[:FILES_MAX])


def _gates(verdicts: list[VerdictRow]) -> list[GateRow]:
    by_name: dict[str, list[GateResult]] = {}
    for result in (each for verdict in verdicts for each in verdict.gates if each.outcome != "not_run"):
        by_name.setdefault(result.name, []).append(result)
    return [
        GateRow(name, sum(each.passed for each in found), sum(not each.passed for each in found),
                statistics.median(each.seconds for each in found))
        for name, found in sorted(by_name.items())
    ]  # fmt: skip


class HookList(msgspec.Struct, frozen=True):
    """The commands that made the worktrees of a task ready, the oldest first."""

    hooks: list[HookRow]


def list_hooks(api: Api, ask: Ask) -> HookList:
    return HookList(hook_runs.rows(api.layout, api.context.blobs, api.task(ask.task))[-HOOKS_MAX:])


OPERATIONS = [
    Operation("GET", "/tasks/{task}/hooks", "list_hooks", "The setup and hooks of a task's worktrees.", list_hooks,
              answer=HookList, lane="aside", tag="quality", problems=(404,)),
    Operation("GET", "/quality", "quality", "Verdicts, and how each gate comes out.", quality, answer=Quality,
              lane="aside", query=NewestQuery, tag="quality"),
]  # fmt: skip
