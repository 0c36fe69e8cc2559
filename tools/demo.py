"""`make demo`: a journal is written, killed with SIGKILL again and again, and recovered before your eyes.

Each round starts a writer (tests/journal_writer.py) in a process of its own. Four threads append intents and their
outcomes, and every entry that was acknowledged is told to this process. Then the writer is killed in the middle of its
work. The next start reads what is on the disk, closes the intents that were left open, and goes on in a new run.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY / "tests"))

from holdfast.durable.chain import Chain  # noqa: E402
from holdfast.durable.entry import Ref  # noqa: E402
from holdfast.errors import HoldfastError  # noqa: E402
from journal_writer import acknowledged  # noqa: E402

KILLS = 8


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        root = Path(folder) / ".sdd"
        print(f"A journal in {root}/runtime/wal\n")
        heard: set[Ref] = set()
        for number in range(1, KILLS + 1):
            heard |= one_life(root, number)
        return report(root / "runtime" / "wal", heard)


def one_life(root: Path, number: int) -> set[Ref]:
    writer = subprocess.Popen(
        [sys.executable, str(REPOSITORY / "tests" / "journal_writer.py"), str(root)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    heard: set[Ref] = set()
    for line in writer.stdout:
        if line.startswith("started"):
            _, read, torn, closed, checkpoint, run = line.split()
            source = "behind a checkpoint" if checkpoint == "True" else "from the start"
            print(f"  start {number}: {read:>5} entries read {source:19}  {torn:>4} torn bytes passed over  "
                  f"{closed:>2} open intents closed", end="", flush=True)  # fmt: skip
            threading.Timer(random.uniform(0.15, 0.45), writer.send_signal, (signal.SIGKILL,)).start()
        elif (ref := acknowledged(line)) is not None:
            heard.add(ref)
    if writer.wait() != -signal.SIGKILL:
        sys.exit("The writer ended by itself; see its error above.")
    print(f"  run {run}: {len(heard):>5} acknowledged, kill -9")
    return heard


def report(wal: Path, heard: set[Ref]) -> int:
    chain = Chain(wal)
    try:
        found = {Ref(run, entry.seq, entry.entry_hash) for run, entry in chain.entries()}
        verdict = "valid"
    except HoldfastError as error:
        found, verdict = set(), str(error)
    lost = heard - found
    print(f"\n  kills                 {KILLS}")
    print(f"  acknowledged entries  {len(heard)}")
    print(f"  of those lost         {len(lost)}")
    print(f"  chain over {len(chain.runs())} runs     {verdict}, {chain.count} entries")
    return 0 if heard and not lost and verdict == "valid" else 1


if __name__ == "__main__":
    sys.exit(main())
