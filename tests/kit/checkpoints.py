"""A small journal, its checkpoint, and what is read from them."""

from __future__ import annotations

import shutil
from pathlib import Path

from holdfast.storage.journal import checkpoint
from holdfast.storage.journal.checkpoint import Files, Recovered
from holdfast.storage.journal.entry import Record, Ref
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import Journal
from kit.disks import scratch
from kit.journal_writer import Counts


def files(root: Path) -> Files:
    return Files(root / "tasks.jsonl", root / "uncommitted.idx.json", root / "idempotency.jsonl")


def recover(root: Path, fold: type[Counts] = Counts) -> tuple[Counts, Recovered]:
    found, recovered = checkpoint.recover(Chain(root), files(root), fold)
    assert isinstance(found, Counts)
    return found, recovered


def intent(journal: Journal, name: str) -> Ref:
    return journal.append("task_spawn_intent", {"task": name}, committed=False)


def build(root: Path, run: str = "000001-a", previous: Ref | None = None) -> Journal:
    """Two intents, one of them closed, and a request with a key."""
    journal = Journal.start(root, run, previous)
    closed = intent(journal, "one")
    intent(journal, "two")
    journal.append("task_spawn_confirmed", {"intent": closed})
    journal.append("task_added", {"idempotency_key": "k1"})
    return journal


def view(fold: Counts, recovered: Recovered) -> object:
    return fold.counts, recovered.pairing.open_intents(), recovered.pairing.executed(), recovered.end


def keyed(journal: Journal, *keys: str) -> None:
    journal.append_many([Record("task_added", {"idempotency_key": key}) for key in keys])


def save(root: Path, journal: Journal) -> None:
    fold, recovered = recover(root)
    checkpoint.write(Chain(root), files(root), journal.position(), fold, recovered.pairing)


def by_scan(root: Path) -> tuple[Counts, Recovered]:
    """What the journal alone gives."""
    with scratch() as alone:
        for path in root.glob("*.wal.jsonl"):
            shutil.copy(path, alone)
        return recover(alone)
