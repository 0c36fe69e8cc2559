"""Taking over a data root whose owner writes its journal: kill, wait, new epoch, read the old end, `run_started`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.storage.journal import checkpoint
from holdfast.storage.journal.data_root import open_root
from holdfast.storage.journal.entry import Ref
from holdfast.storage.journal.lock import DataLock
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import Journal, epoch_of, run_id
from kit import TESTS
from kit.journal_writer import Counts, acknowledged, files

WRITER = TESTS / "kit" / "journal_writer.py"


def name_run(epoch: int) -> str:
    return run_id(epoch, time.time())


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_the_new_owner_goes_on_behind_every_acknowledged_entry(tmp_path: Path, stopped: bool) -> None:
    root = tmp_path / "root"
    writer = subprocess.Popen([sys.executable, str(WRITER), str(root)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    heard: list[Ref] = []

    def listen() -> None:
        assert writer.stdout is not None
        heard.extend(ref for line in writer.stdout if (ref := acknowledged(line)) is not None)

    listener = threading.Thread(target=listen)
    listener.start()
    while len(heard) < 50:
        time.sleep(0.01)
    layout = open_root(root)
    with pytest.raises(errors.Locked, match=f"pid {writer.pid} "):
        DataLock.acquire(layout.lock, name_run)
    if stopped:
        os.kill(writer.pid, signal.SIGSTOP)

    lock = DataLock.take_over(layout.lock, name_run)
    assert writer.wait(120) == -signal.SIGKILL
    listener.join(120)
    _, found = checkpoint.recover(Chain(layout.wal), files(layout), Counts)
    assert found.end is not None and lock.epoch == epoch_of(heard[-1].run) + 1
    with Journal.start(layout.wal, lock.run, found.end.ref) as journal:
        for intent in found.pairing.open_intents():
            journal.append("task_spawn_abandoned", {"intent": intent.ref})
    lock.release()

    entries = list(Chain(layout.wal).entries())
    assert set(heard) <= {Ref(run, entry.seq, entry.entry_hash) for run, entry in entries}
    started = next(entry for run, entry in entries if run == lock.run)
    assert started.inputs["epoch"] == lock.epoch and started.inputs["previous"]["run"] == heard[-1].run
    assert checkpoint.recover(Chain(layout.wal), files(layout), Counts)[1].pairing.open_intents() == []
