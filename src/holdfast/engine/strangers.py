"""Sets aside what a start of a journal that is gone has left: nothing of it is taken for an attempt of the same name.

A first start owns the whole folder. Of a later one its own files go, and the end of each ledger, with what it said and
spent: lines stand in the order of the starts, so what the journal knows keeps its place and its offsets.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.layout import Attempt, Layout
from holdfast.processes import starts
from holdfast.snapshots.snapshots import ROOT
from holdfast.snapshots.store import Store
from holdfast.storage.files.quarantine import set_aside, set_end_aside
from holdfast.storage.records import attempt_folder, ledger

# What a runner of a lost journal is given to end by itself.
GRACE_S = 5.0


def clear(layout: Layout, attempt: str, start: int, intent: str, reason: str, repo: Path | None = None) -> list[Path]:
    """Moves files in the way of a start that belong to another intent; ends the processes there first. Returns
    where each is now. With `repo`, its snapshots lose their names."""
    files = layout.attempt_files(attempt)
    if not attempt_folder.strangers(files, start, intent):
        return []
    starts.end_all(files, attempt, None, GRACE_S)
    found = attempt_folder.strangers(files, start, intent)
    own = attempt_folder.read_start(files, start)
    first = start + 1 if own is not None and own.intent == intent else start
    is_all = found == [files.root]
    # The files of the start last: they say that there is something to set aside.
    moved = []
    for path in () if is_all else (files.turns, files.events, files.traces, files.spend, files.provenance):
        if path.exists() and (kept := _end_before(path, first)) < path.stat().st_size:
            name = f"{attempt}-{path.name}"
            moved.append(set_end_aside(layout.quarantine, path, kept, reason, name, mode=attempt_folder.PRIVATE))
    if repo is not None:
        _forget_snapshots(layout, repo, attempt, first)
    names = {path: attempt if is_all else f"{attempt}-{path.name}" for path in found}
    return moved + [set_aside(layout.quarantine, path, reason, name) for path, name in names.items()]


def _end_before(path: Path, start: int) -> int:
    """Where the lines of the starts before this one end."""
    return max(
        (line.cursor for line in ledger.LineLedger(path).read() if line.record.get("start", 0) < start), default=0
    )


def _forget_snapshots(layout: Layout, repo: Path, attempt: str, start: int) -> None:
    """Refs in our own store that a lost start has made, by names that a new start uses, too."""
    store, files = Store.of(layout.snapshots, repo), layout.attempt_files(attempt)
    last = _last_turn(files)
    gone = {}
    for ref, commit in store.refs(f"{ROOT}/{attempt}/").items():
        kind, _, number = ref.rpartition("/")[2].rpartition("-")
        first = last + 1 if kind == "turn" else start
        if start == 1 or (kind != "found" and number.isdigit() and int(number) >= first):
            gone[ref] = commit
    store.forget(gone)


def _last_turn(files: Attempt) -> int:
    lines = ledger.LineLedger(files.turns).read() if files.turns.exists() else ()
    return max((line.record.get("turn", 0) for line in lines), default=0)
