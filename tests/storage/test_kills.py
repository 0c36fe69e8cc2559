"""SIGKILL at random moments of real writers: no acknowledged record is lost, and what is there verifies.

The fast tests do a few; `make crash` does HOLDFAST_KILLS of each.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.storage.journal import checkpoint
from holdfast.storage.journal.data_root import open_root
from holdfast.storage.journal.entry import Ref
from holdfast.storage.journal.reader import Chain
from holdfast.storage.records.blobs import Blobs
from kit import TESTS
from kit.blobs import flaws
from kit.journal_writer import Counts, acknowledged, files

HERE = TESTS / "kit"
KILLS = int(os.environ.get("HOLDFAST_KILLS", "200"))


def run_and_kill(script: str, *argv: str, after_s: float, lines: int = 1) -> list[str]:
    """What the writer said before it was killed, `after_s` from the end of so many lines on."""
    writer = subprocess.Popen([sys.executable, str(HERE / script), *argv], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    said = [writer.stdout.readline() for _ in range(lines)]
    timer = threading.Timer(after_s, writer.send_signal, (signal.SIGKILL,))
    timer.start()
    said += list(writer.stdout)
    timer.join()
    assert writer.wait() == -signal.SIGKILL, "it was not the kill that ended the writer"
    return said


def kill_journal_writers(root: Path, kills: int, seed: int, lines: int = 1) -> dict[str, int]:
    chance = random.Random(seed)
    heard: set[Ref] = set()
    facts = {"kills": 0, "acknowledged": 0, "torn": 0, "open intents closed": 0, "from a checkpoint": 0}
    for number in range(kills):
        said = run_and_kill("journal_writer.py", str(root), "4", after_s=chance.uniform(0.0, 0.25), lines=lines)
        heard |= {ref for line in said if (ref := acknowledged(line)) is not None}
        for line in said:
            if line.startswith("started"):
                _, _, torn, closed, served, _ = line.split()
                facts["torn"] += torn != "0"
                facts["open intents closed"] += int(closed)
                facts["from a checkpoint"] += served == "True"
        facts["kills"] += 1
        facts["acknowledged"] = len(heard)
        if number % 10 == 9 or number == kills - 1:
            layout = open_root(root)
            found = {Ref(run, entry.seq, entry.entry_hash) for run, entry in Chain(layout.wal).entries()}
            assert heard <= found, "an acknowledged entry is lost"
            scanned, _ = checkpoint.recover(Chain(layout.wal), files(layout), Counts)
            assert isinstance(scanned, Counts) and sum(scanned.counts.values()) == len(found)
    return facts


def kill_blob_writers(root: Path, kills: int, seed: int, lines: int = 1) -> dict[str, int]:
    chance = random.Random(seed)
    heard: set[str] = set()
    for number in range(kills):
        argv, after_s = (str(root), str(seed + number)), chance.uniform(0.0, 0.15)
        said = run_and_kill("blob_writer.py", *argv, after_s=after_s, lines=lines)
        heard |= {line.strip() for line in said if line.endswith("\n") and len(line) == 65}
        if number % 20 == 19 or number == kills - 1:
            store = Blobs(root)
            assert all(store.get(digest) is not None for digest in heard), "an acknowledged blob is lost"
            assert flaws(store) == {}
    return {"kills": kills, "acknowledged": len(heard), "blobs": sum(1 for _ in Blobs(root).digests())}


# So few kills must each come after some work, or on a busy machine they would show nothing.
def test_a_few_kills_of_a_journal_writer(tmp_path: Path) -> None:
    facts = kill_journal_writers(tmp_path / "root", 6, seed=1, lines=12)
    assert facts["acknowledged"] > 50


def test_a_few_kills_of_a_blob_writer(tmp_path: Path) -> None:
    assert kill_blob_writers(tmp_path / "cas", 4, seed=1, lines=4)["acknowledged"] > 4


@pytest.mark.crash
def test_many_kills_of_a_journal_writer(tmp_path: Path) -> None:
    facts = kill_journal_writers(tmp_path / "root", KILLS, seed=random.randrange(1 << 30))
    print("\njournal:", facts)
    assert facts["kills"] == KILLS and facts["acknowledged"] > KILLS
    assert facts["open intents closed"] > 0 and facts["from a checkpoint"] > 0


@pytest.mark.crash
def test_many_kills_of_a_blob_writer(tmp_path: Path) -> None:
    facts = kill_blob_writers(tmp_path / "cas", KILLS, seed=random.randrange(1 << 30))
    print("\nblobs:", facts)
    assert facts["kills"] == KILLS and facts["acknowledged"] > KILLS // 2
