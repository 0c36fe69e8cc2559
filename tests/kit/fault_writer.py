"""Acknowledges work over a socket while strace makes its calls fail: `fault_writer.py <kind> <root> <socket fd>`.

It says `ready`, waits for `go`, then tries a number of operations; after each it sends `ack <what>` or `error <class>`.
A socket, because the faults also hit `write`, and the answers must get through.
"""

from __future__ import annotations

import itertools
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.storage.audit.key import AuditKey
from holdfast.storage.audit.log import AuditLog
from holdfast.storage.files import disk
from holdfast.storage.journal import checkpoint
from holdfast.storage.journal.intents import Pairing
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import Journal
from holdfast.storage.records.blobs import Blobs
from holdfast.storage.records.ledger import LineLedger
from kit.journal_writer import Counts

ATTEMPTS = 12


def journal(root: Path) -> Callable[[int], str]:
    writer = Journal.start(root, "000001-a", None)
    return lambda number: str(writer.append("work", {"number": number}).seq)


def checkpoints(root: Path) -> Callable[[int], str]:
    writer = Journal.start(root, "000001-a", None)
    files = checkpoint.Files(root / "tasks.jsonl", root / "uncommitted.idx.json", root / "idempotency.jsonl")
    fold, pairing = Counts(), Pairing()
    for run, entry in Chain(root).entries():
        fold.apply(run, entry)
        pairing.apply(run, entry)

    def act(number: int) -> str:
        checkpoint.write(Chain(root), files, writer.position(), fold, pairing)
        return str(writer.position().ref.seq)

    return act


def blobs(root: Path) -> Callable[[int], str]:
    store = Blobs(root)
    store.put(b"first")
    return lambda number: store.put(b"content %d" % number)


def batches(root: Path) -> Callable[[int], str]:
    store = Blobs(root)
    store.put_many([b"first"])
    return lambda number: ",".join(store.put_many([b"content %d of %d" % (which, number) for which in range(3)]))


def ledger(root: Path) -> Callable[[int], str]:
    log = LineLedger(root / "events.jsonl")
    log.append({"number": -1})

    def act(number: int) -> str:
        log.append({"number": number})
        return str(number)

    return act


def rotation(root: Path) -> Callable[[int], str]:
    """Every append cuts a segment. One that cannot be cut stops nothing, and is spoken of."""
    log = LineLedger(root / "events.jsonl", rotate_bytes_max=1)
    for number in (-3, -2, -1):
        log.append({"number": number})

    def act(number: int) -> str:
        log.append({"number": number})
        return f"{number} upkeep: {log.upkeep_failure}" if log.upkeep_failure else str(number)

    return act


def starts(root: Path) -> Callable[[int], str]:
    """Every operation begins a run."""
    last = Journal.start(root, "000001-a", None).position().ref

    def act(number: int) -> str:
        nonlocal last
        run = f"{number + 2:06d}-a"
        last = Journal.start(root, run, last).position().ref
        return run

    return act


def days(root: Path) -> Callable[[int], str]:
    """Every record is the first of its day, so each one makes a file."""
    seconds = itertools.count(0, 86400)
    log = AuditLog(root, AuditKey(b"k" * 40), clock=lambda: float(next(seconds)))
    log.append("login", "tester")
    return lambda number: log.append("login", "tester", {"number": number}).hmac


def audit(root: Path) -> Callable[[int], str]:
    log = AuditLog(root, AuditKey(b"k" * 40))
    log.append("login", "tester")
    return lambda number: str(log.append("login", "tester", {"number": number}).seq)


def files(root: Path) -> Callable[[int], str]:
    def act(number: int) -> str:
        disk.replace(root / f"file-{number}", b"x" * 5000)
        return str(number)

    return act


KINDS = {
    "journal": journal,
    "checkpoints": checkpoints,
    "blobs": blobs,
    "batches": batches,
    "ledger": ledger,
    "rotation": rotation,
    "starts": starts,
    "audit": audit,
    "days": days,
    "files": files,
}


def main(kind: str, root: str, fd: str) -> None:
    channel = socket.socket(fileno=int(fd))
    act = KINDS[kind](Path(root))
    # Reads who this process is, once: a fault on `openat` is meant for the disk.
    disk.temp_name()
    channel.send(b"ready\n")
    channel.recv(3)
    for number in range(ATTEMPTS):
        try:
            said = f"ack {act(number)}"
        except HoldfastError as error:
            said = f"error {type(error).__name__} {error}"
        channel.send(said.replace("\n", " ").encode() + b"\n")
    channel.send(b"done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
