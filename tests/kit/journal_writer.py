"""Writes a journal until it is killed: `python tests/kit/journal_writer.py <data root> [threads]`.

It starts as the product does: lock, recovery from a checkpoint or by a scan, a new run; it closes what was left
open. Then threads append intents and their outcomes, and now and then a checkpoint is written. Each entry is printed
on standard output, on a line of its own, after it was acknowledged: `ack <run> <seq> <hash>`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from holdfast.layout import Layout
from holdfast.storage.journal import checkpoint
from holdfast.storage.journal.checkpoint import Files
from holdfast.storage.journal.data_root import create_root
from holdfast.storage.journal.entry import Entry, Ref
from holdfast.storage.journal.intents import Pairing
from holdfast.storage.journal.lock import DataLock
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import Journal, epoch_of, run_id


class Counts:
    """A small fold: how many entries there were of each decision type."""

    version = 1

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def apply(self, run: str, entry: Entry) -> None:
        self.counts[entry.decision_type] = self.counts.get(entry.decision_type, 0) + 1

    def dump(self) -> Iterable[bytes]:
        return [b"%b %d" % (name.encode(), count) for name, count in self.counts.items()]

    def load(self, lines: list[bytes]) -> None:
        self.counts = {name.decode(): int(count) for name, count in (line.split() for line in lines)}


def files(layout: Layout) -> Files:
    return Files(layout.tasks, layout.uncommitted, layout.idempotency)


class Life:
    """One start of the writer. `lock` is held until the process dies."""

    def __init__(self, root: Path) -> None:
        self.layout = create_root(root)
        runs = Chain(self.layout.wal).runs()
        epoch_min = epoch_of(runs[-1].run) if runs else 0
        self.lock = DataLock.acquire(self.layout.lock, lambda epoch: run_id(epoch, time.time()), epoch_min)
        _, self.found = checkpoint.recover(Chain(self.layout.wal), files(self.layout), Counts)
        end = self.found.end
        self.journal = Journal.start(self.layout.wal, self.lock.run, end.ref if end else None)
        # A journal has one caller at a time.
        self.mutex = threading.Lock()
        acknowledge(self.journal.position().ref)
        for intent in self.found.pairing.open_intents():
            acknowledge(self.journal.append("task_spawn_abandoned", {"intent": intent.ref}))

    def work(self, worker: int) -> None:
        while True:
            with self.mutex:
                intent = self.journal.append("task_spawn_intent", {"task": f"task-{worker}"}, committed=False)
            acknowledge(intent)
            with self.mutex:
                done = self.journal.append("task_spawn_confirmed", {"intent": intent, "worker": worker})
            acknowledge(done)

    def write_checkpoint(self) -> None:
        """For the end as it is now; the threads append on meanwhile, behind that position."""
        position, fold, pairing = self.journal.position(), Counts(), Pairing()
        for run, entry in Chain(self.layout.wal).entries():
            fold.apply(run, entry)
            pairing.apply(run, entry)
            if (run, entry.seq) == (position.ref.run, position.ref.seq):
                break
        checkpoint.write(Chain(self.layout.wal), files(self.layout), position, fold, pairing)


def acknowledge(ref: Ref) -> None:
    os.write(1, f"ack {ref.run} {ref.seq} {ref.entry_hash}\n".encode())


def acknowledged(line: str) -> Ref | None:
    """The entry that a line of the writer's output tells of; None for a line that the kill cut short."""
    parts = line.split(" ")
    return Ref(parts[1], int(parts[2]), parts[3].rstrip("\n")) if parts[0] == "ack" and line.endswith("\n") else None


def main(root: str, threads: str = "4") -> None:
    life = Life(Path(root))
    found = life.found
    torn = sum(torn.length for torn in found.torn)
    facts = (found.entries_read, torn, len(found.pairing.open_intents()), found.scanned == "", life.lock.run)
    os.write(1, (" ".join(["started", *map(str, facts)]) + "\n").encode())
    for worker in range(int(threads)):
        threading.Thread(target=life.work, args=(worker,)).start()
    while True:
        life.write_checkpoint()
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
