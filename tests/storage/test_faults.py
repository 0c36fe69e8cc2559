"""Real system calls of a real process fail, by strace: nothing may be acknowledged that is not on disk."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from holdfast.storage.audit.key import AuditKey
from holdfast.storage.journal.checkpoint import Files, recover
from holdfast.storage.journal.reader import Chain
from holdfast.storage.records import ledger
from holdfast.storage.records.blobs import Blobs
from kit import TESTS
from kit import audit as audit_chain
from kit.blobs import flaws
from kit.disks import require_strace
from kit.fault_writer import ATTEMPTS
from kit.journal_writer import Counts
from kit.waiting import WAIT_S_MAX

require_strace()

Verify = Callable[[Path, list[str]], None]


def journal_holds(root: Path, acknowledged: list[str]) -> None:
    assert {int(seq) for seq in acknowledged} <= {entry.seq for _, entry in Chain(root).entries()}


def starts_hold(root: Path, acknowledged: list[str]) -> None:
    assert set(acknowledged) <= {run for run, _ in Chain(root).entries()}


def checkpoint_holds(root: Path, acknowledged: list[str]) -> None:
    files = Files(root / "tasks.jsonl", root / "uncommitted.idx.json", root / "idempotency.jsonl")
    fold, found = recover(Chain(root), files, Counts)
    assert isinstance(fold, Counts) and fold.counts == {"run_started": 1} and found.pairing.open_intents() == []


def blobs_hold(root: Path, acknowledged: list[str]) -> None:
    digests = [digest for said in acknowledged for digest in said.split(",")]
    assert all(Blobs(root).get(digest).startswith(b"content") for digest in digests)
    assert flaws(Blobs(root)) == {}


def ledger_holds(root: Path, acknowledged: list[str]) -> None:
    found = [line.record["number"] for line in ledger.LineLedger(root / "events.jsonl").read()]
    assert found == sorted(found) and {int(number) for number in acknowledged} <= set(found)


def audit_holds(root: Path, acknowledged: list[str]) -> None:
    found = [record.seq for record in audit_chain.read(root, AuditKey(b"k" * 40))]
    assert {int(seq) for seq in acknowledged} <= set(found)


def days_hold(root: Path, acknowledged: list[str]) -> None:
    assert set(acknowledged) <= {record.hmac for record in audit_chain.read(root, AuditKey(b"k" * 40))}


def files_hold(root: Path, acknowledged: list[str]) -> None:
    assert all((root / f"file-{number}").read_bytes() == b"x" * 5000 for number in acknowledged)


# What fails, and whether the writer refuses everything afterwards (it cannot know what the disk has of its files).
CASES: list[tuple[str, str, bool, Verify]] = [
    ("journal", "write", True, journal_holds),
    ("journal", "fdatasync", True, journal_holds),
    ("checkpoints", "write", False, checkpoint_holds),
    ("checkpoints", "fsync", False, checkpoint_holds),
    ("checkpoints", "rename", False, checkpoint_holds),
    ("checkpoints", "openat", False, checkpoint_holds),
    ("blobs", "write", False, blobs_hold),
    ("blobs", "fsync", True, blobs_hold),
    ("blobs", "rename", False, blobs_hold),
    ("blobs", "openat", False, blobs_hold),
    ("blobs", "link", False, blobs_hold),
    ("batches", "link", False, blobs_hold),
    *(("batches", f"syncfs@{when}", True, blobs_hold) for when in (3, 4)),
    ("ledger", "write", True, ledger_holds),
    ("ledger", "fdatasync", True, ledger_holds),
    *(("rotation", f"openat@{when}", False, ledger_holds) for when in range(1, 12)),
    ("rotation", "rename", False, ledger_holds),
    ("rotation", "fsync", True, ledger_holds),
    *(("starts", f"openat@{when}", False, starts_hold) for when in (4, 5)),
    ("audit", "write", True, audit_holds),
    ("audit", "fdatasync", True, audit_holds),
    *(("days", f"openat@{when}", True, days_hold) for when in (4, 5, 6)),
    ("days", "fsync", True, days_hold),
    ("days", "link", True, days_hold),
    ("files", "write", False, files_hold),
    ("files", "fsync", False, files_hold),
    ("files", "rename", False, files_hold),
    ("files", "openat", False, files_hold),
]


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize(("kind", "call", "final", "verify"), CASES, ids=[f"{kind}-{call}" for kind, call, *_ in CASES])
def test_nothing_is_acknowledged_after_a_fault(
    tmp_path: Path, kind: str, call: str, final: bool, verify: Verify, error: str
) -> None:
    name, _, when = call.partition("@")
    said, hit = inject(kind, tmp_path, f"{name}:error={error}:when={when or 4}")
    assert len(said) == ATTEMPTS
    assert said[hit].startswith("error") or " upkeep: " in said[hit], (
        "what failed was acknowledged, and nobody was told"
    )
    failed = [number for number, line in enumerate(said) if line.startswith("error")]
    if final:
        assert failed == list(range(hit, ATTEMPTS)), "something was acknowledged after the fault"
    assert all(str(tmp_path) in said[number] for number in failed), "the error does not name the path"
    verify(tmp_path, [line.split()[1] for line in said if line.startswith("ack")])


@contextlib.contextmanager
def writing_under(fault: str, kind: str, root: Path) -> Iterator[tuple[subprocess.Popen[bytes], TextIO, Path]]:
    """A writer that has started, with strace and its fault attached, just told to go; its answers; strace's log."""
    ours, theirs = socket.socketpair()
    log = root.parent / f"{root.name}.strace"
    writer = subprocess.Popen(
        [sys.executable, "-m", "kit.fault_writer", kind, str(root), str(theirs.fileno())],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    with ours, ours.makefile("r") as answers:
        try:
            assert answers.readline() == "ready\n"
            call = fault.split(":")[0]
            chosen = ["-e", f"trace={call},sendto", "-e", f"inject={fault}"]
            command = ["strace", "-f", "-p", str(writer.pid), "-o", str(log), *chosen]
            tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            assert tracer.stderr is not None and "attached" in tracer.stderr.readline()
            ours.send(b"go\n")
            yield writer, answers, log
        finally:
            writer.kill()
            writer.wait()
        tracer.wait(WAIT_S_MAX)


def inject(kind: str, root: Path, fault: str) -> tuple[list[str], int]:
    """What the writer said of its attempts, and which of them met the fault: the answers sent before it are counted."""
    with writing_under(fault, kind, root) as (writer, answers, log):
        said = [line.rstrip("\n") for line in answers]
        assert writer.wait(WAIT_S_MAX) == 0 and said.pop() == "done"
    before, fired, _ = log.read_text().partition("(INJECTED)")
    assert fired, "the fault never fired"
    return said, before.count("sendto(")


def test_a_writer_killed_in_the_middle_of_a_sync_leaves_a_journal_that_reads(tmp_path: Path) -> None:
    """strace kills the writer as it enters the third sync."""
    with writing_under("fdatasync:signal=SIGKILL:when=3", "journal", tmp_path) as (writer, answers, log):
        heard = [answers.readline(), answers.readline()]
        assert answers.read() == "" and writer.wait(WAIT_S_MAX) == -signal.SIGKILL
    assert log.read_text().splitlines()[-2].endswith("= ?") and "killed by SIGKILL" in log.read_text()
    assert all(line.startswith("ack") for line in heard)
    journal_holds(tmp_path, [line.split()[1] for line in heard])
    assert len(list(Chain(tmp_path).entries())) == 4, "the entry whose sync never returned is there, unacknowledged"
