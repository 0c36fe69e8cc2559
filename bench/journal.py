"""The journal: how near a durable append comes to the bare system calls, and how far sharing a sync goes beyond."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import cast

from bench.harness import Row, alternate, seconds
from holdfast.decisions.context import DecisionContext
from holdfast.ledgers.files import FileLedger
from holdfast.server.batch_writer import Answers, BatchWriter, Job, answer_of
from holdfast.server.operations import Ask, Operation, Principal
from holdfast.storage.journal.data_root import create_root
from holdfast.storage.journal.entry import Record
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import Journal, run_file

INPUTS = {"task": "fix-login"}
RECORD = Record("turn_completed", INPUTS, {}, "loop")
RUN = "000001-bench"


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    rounds = 3 if quick else 9
    journal = Journal.start(folder, RUN, None)
    journal.append_many([RECORD])
    line = run_file(folder, RUN).read_bytes().splitlines(keepends=True)[-1]
    raw = RawLoop(folder / "raw", line)
    count = 300 if quick else 1000

    def compared(name: str, rate: Callable[[], float], bar: float, reference: Callable[[], float] = raw.rate) -> Row:
        ratio, mine, theirs = alternate(rate, reference, rounds)
        against = "raw write+fdatasync loop" if reference == raw.rate else "SQLite, WAL, synchronous=FULL, 16 threads"
        detail = f"{mine:,.0f}/s against {theirs:,.0f}/s; one raw write+sync took {1e6 / raw.rate():.0f} µs"
        return Row(name, against, ratio, bar, False, detail)

    yield compared(f"one writer, durable append of a {len(line)}-byte record", lambda: one_writer(journal, count), 0.90)
    yield compared("append_many of 64", lambda: batches(journal, count * 16), 20)
    journal.close()
    requests, sqlite = Requests(folder / "served"), Sqlite(folder / "sqlite.db", line)
    yield compared("64 requests at once, by the batch writer", lambda: requests.rate(64, count * 8), 5)
    versus = "16 requests at once, by the batch writer"
    yield compared(versus, lambda: requests.rate(16, count * 4), 5, lambda: sqlite.rate(16, count))
    requests.close()
    yield reading(folder, 100_000 if quick else 1_000_000, 1 if quick else 5)


class RawLoop:
    """The reference: the same line, by bare system calls, each synced before the next."""

    def __init__(self, path: Path, line: bytes) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._line = line

    def rate(self, count: int = 300) -> float:
        def loop() -> None:
            for _ in range(count):
                os.write(self._fd, self._line)
                os.fdatasync(self._fd)

        return count / seconds(loop)


class Sqlite:
    def __init__(self, path: Path, line: bytes) -> None:
        self._path = path
        self._text = line.decode()
        with sqlite3.connect(path) as setup:
            setup.execute("PRAGMA journal_mode=WAL")
            setup.execute("CREATE TABLE entries (seq INTEGER PRIMARY KEY, line TEXT)")

    def rate(self, threads: int, count: int) -> float:
        def work() -> None:
            connection = sqlite3.connect(self._path, timeout=60, isolation_level=None)
            connection.execute("PRAGMA synchronous=FULL")
            for _ in range(count // threads):
                connection.execute("INSERT INTO entries (line) VALUES (?)", (self._text,))
            connection.close()

        return count / seconds(lambda: in_threads(work, threads))


def one_writer(journal: Journal, count: int) -> float:
    def loop() -> None:
        for _ in range(count):
            journal.append("turn_completed", INPUTS, actor="loop")

    return count / seconds(loop)


def batches(journal: Journal, count: int) -> float:
    def loop() -> None:
        for _ in range(count // 64):
            journal.append_many([Record("turn_completed", INPUTS, {}, "loop") for _ in range(64)])

    return (count // 64 * 64) / seconds(loop)


def in_threads(work: Callable[[], None], threads: int) -> None:
    started = [threading.Thread(target=work) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


class Requests:
    """Changes as the server makes them: each is tried, folded and answered, and those that wait share a sync."""

    def __init__(self, root: Path) -> None:
        layout = create_root(root)
        self.ledger = FileLedger.open(layout)
        self.ledger.append(self.ledger.epoch, [Record("task_added", {"task": "t", "definition": "0" * 64})])
        decision = cast("DecisionContext", self)
        self._writer = BatchWriter(lambda key, by: decision, self.ledger, lambda: None, lambda error: None)
        self._operation = Operation("POST", "/bench", "bench", "", self._append, None, lane="batch", status=204)
        self._ask = Ask(principal=Principal("operator", "bench"), path={}, query=None, body=None)
        self._answers = Answers()

    def rate(self, clients: int, count: int) -> float:
        """On uvloop, as the server runs with the extra `speed`."""
        import uvloop

        each = count // clients

        async def client() -> None:
            for _ in range(each):
                job = Job(self._operation, self._ask, "", False, self._answers)
                self._writer.post(job)
                await answer_of(job)

        async def all_clients() -> None:
            await asyncio.gather(*(client() for _ in range(clients)))

        return each * clients / seconds(lambda: uvloop.run(all_clients()))

    def close(self) -> None:
        self._writer.close()
        self.ledger.close()

    def _append(self, decision: DecisionContext, ask: Ask) -> None:
        self.ledger.append(self.ledger.epoch, [Record("task_flagged", {"task": "t", "parked": "asked"}, {}, "api")])


def reading(folder: Path, count: int, rounds: int) -> Row:
    wal = folder / "million"
    wal.mkdir()
    with Journal.start(wal, RUN, None) as journal:
        for _ in range(count // 1000):
            journal.append_many([RECORD] * 1000)
    path = run_file(wal, RUN)

    def verify() -> float:
        return seconds(lambda: sum(1 for _ in Chain(wal).entries()))

    def plain() -> float:
        def loop() -> None:
            with path.open("rb", buffering=1 << 20) as lines:
                for line in lines:
                    sha256(line).digest()

        return seconds(loop)

    ratio, mine, theirs = alternate(verify, plain, rounds)
    grown = memory_growth(wal)
    detail = f"{mine:.2f} s against {theirs:.2f} s; memory grew by {grown / 1024:.1f} MiB while reading"
    name = f"read + verify + decode of {count:,} records"
    return Row(name, "hashlib.sha256 over the same lines", ratio, 3, True, detail)


def memory_growth(wal: Path) -> int:
    """KiB by which a fresh process grows from the 1,000th entry to the last."""
    done = subprocess.run([sys.executable, "-m", "bench.journal", str(wal)], capture_output=True, text=True, check=True)
    return int(done.stdout)


def _measure_memory(wal: Path) -> None:
    early = 0
    for number, _ in enumerate(Chain(wal).entries()):
        if number == 1000:
            early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - early)


if __name__ == "__main__":
    _measure_memory(Path(sys.argv[1]))
