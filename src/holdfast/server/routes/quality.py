"""Gates and verdicts: what was judged, how it came out, and how long it took."""

from __future__ import annotations

import functools
import itertools
import statistics

import msgspec

from holdfast.durable.blobs import Blobs
from holdfast.engine.chronicle import Judged
from holdfast.engine.verify import read_verdict
from holdfast.errors import HoldfastError
from holdfast.server.context import Api
from holdfast.server.operations import Ask, NewestQuery, Operation


class GateResult(msgspec.Struct, frozen=True):
    """`output` is the blob with what it printed."""

    name: str
    passed: bool
    outcome: str
    seconds: float
    required: bool
    output: str


class VerdictRow(msgspec.Struct, frozen=True):
    task: str
    attempt: str
    at: float
    passed: bool
    kind: str
    detail: str
    gates: list[GateResult]


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
    verdicts = [_row(api.shop.blobs, each) for each in judged]
    return Quality(_gates(verdicts), verdicts)


def _row(blobs: Blobs, each: Judged) -> VerdictRow:
    try:
        results = list(_results(blobs, each.verdict)) if each.verdict else []
    except (HoldfastError, msgspec.MsgspecError):
        # One whose blob cannot be read is told without its gates.
        results = []
    return VerdictRow(each.task, each.attempt, each.at, each.passed, each.kind, each.detail, results)


@functools.lru_cache(maxsize=2000)
def _results(blobs: Blobs, digest: str) -> tuple[GateResult, ...]:
    """A verdict never changes."""
    found = read_verdict(blobs, digest).results
    return tuple(
        GateResult(each.name, each.outcome == "passed", each.outcome, each.seconds, each.required, each.output)
        for each in found
    )


def _gates(verdicts: list[VerdictRow]) -> list[GateRow]:
    by_name: dict[str, list[GateResult]] = {}
    for result in (each for verdict in verdicts for each in verdict.gates if each.outcome != "not_run"):
        by_name.setdefault(result.name, []).append(result)
    return [
        GateRow(name, sum(each.passed for each in found), sum(not each.passed for each in found),
                statistics.median(each.seconds for each in found))
        for name, found in sorted(by_name.items())
    ]  # fmt: skip


OPERATIONS = [
    Operation("GET", "/quality", "quality", "Verdicts, and how each gate comes out.", quality, Quality, lane="aside",
              query=NewestQuery, tag="quality"),
]  # fmt: skip
