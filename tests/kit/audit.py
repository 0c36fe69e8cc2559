"""What the audit tests share: a small log of several days, with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.storage.audit import log as audit
from holdfast.storage.audit import seals, verify
from holdfast.storage.audit.key import AuditKey

KEY = AuditKey(b"a key for tests, not for anything else")
NOON = 1_794_744_000.0  # 2026-11-15 12:00 UTC
DAY_S = 86_400.0
D1, D2, D3, D4 = (f"2026-11-{number}.jsonl" for number in (15, 16, 17, 18))


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        self.now += 0.25
        return self.now


def read(folder: Path, key: AuditKey | None) -> Iterator[verify.AuditRecord]:
    """Every record of every day, in order. Raises AuditCorrupt at the first thing that a crash cannot explain."""
    walk = verify.Walk(folder, key)
    for name in walk.names:
        for _, record in walk.day(name):
            walk.findings.require_none(folder)
            yield record
    walk.finish()
    walk.note_strays()
    walk.findings.require_none(folder)


def events(folder: Path, key: AuditKey | None = KEY) -> list[str]:
    return [found.event for found in read(folder, key)]


def found(folder: Path, key: AuditKey | None = KEY) -> list[tuple[str, int, str]]:
    return [(finding.file, finding.line, finding.what) for finding in seals.verify(folder, key).findings]


def fill(folder: Path, *counts: int, seal_after: tuple[int, ...] = ()) -> list[seals.Seal]:
    """One day after another with so many records each; sealed after the days with these numbers."""
    clock, made = Clock(), []
    with audit.AuditLog(folder, KEY, clock=clock) as log:
        for day, count in enumerate(counts):
            clock.now = NOON + day * DAY_S
            for number in range(count):
                log.append(f"{day}.{number}", "tests", {"number": number, "tricky": ',"hmac":"'})
            if day in seal_after:
                made.append(seals.seal(folder, KEY, clock=clock))
    return made


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)
