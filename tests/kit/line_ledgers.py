"""What the tests of ledgers share."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from holdfast.storage.records.ledger import LineLedger, Segment, Skip
from holdfast.storage.records.redact import Scrubber

quiet = Scrubber(environ={})


def ledger_in(folder: Path, **options: Any) -> LineLedger:
    return LineLedger(folder / "events.jsonl", scrub=quiet, **options)


def numbers(ledger: LineLedger, cursor: int = 0, skips: list[Skip] | None = None) -> list[int]:
    return [line.record["n"] for line in ledger.read(cursor, (skips if skips is not None else []).append)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def rotate(ledger: LineLedger) -> None:
    """Seals the live file now, whatever its size and age; an empty one stays."""
    with ledger._writing():
        live = ledger._live or ledger._open()
        if live.size:
            ledger._seal(live)


def prune(ledger: LineLedger, now: float | None = None) -> list[Segment]:
    """What a rotation at this time drops."""
    with ledger._writing():
        before = ledger._segments.listing()
        ledger._prune(ledger._clock() if now is None else now)
        return [segment for segment in before if segment not in ledger._segments.listing()]


def grown(folder: Path, **options: Any) -> LineLedger:
    """Six segments of one record each, n at second n, and a live file with record 6."""
    now = itertools.count()
    ledger = ledger_in(folder, clock=lambda: 0.0)
    for n in now:
        ledger.append({"n": n, "ts": float(n)})
        if n == 6:
            break
        rotate(ledger)
    ledger.close()
    return ledger_in(folder, **options)
