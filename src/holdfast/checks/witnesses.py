"""Files beside the journal that are written after it: each proves how far the journal once reached.

A journal that was restored from an older backup is whole in itself. Work that continued from it would repeat effects
that took place, and take the files of a lost attempt for those of a new one of the same name. So before a run begins,
the journal must have every entry that these name:

    runtime/lock             the last entry that the previous owner had written when it released the lock
    audit/                   the entry that the last record names
    metrics/position.json    the last entry that the metrics have followed
    attempts/<id>/start-<n>  the intent of the start
    refs/holdfast/landed/    in the repository: the intent of the newest landing

All of them are written only once the entry is on stable storage, so no crash leaves one that is ahead. A person may say
that the newer journal is lost (`holdfast resolve --journal-restored`): `run_started` then says so in `restored`, and
what the journal does not know is moved to `quarantine/`. engine/recovery.py finds what landed meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.domain.state import State
from holdfast.domain.task import OVER
from holdfast.engine.earlier_starts import set_strangers_aside
from holdfast.errors import DiskError, JournalShorter
from holdfast.layout import Layout
from holdfast.ledgers.reader import FileLedgerReader, read_state
from holdfast.storage.audit.from_journal import last_audited, ref_of
from holdfast.storage.files import disk
from holdfast.storage.files.json_file import read_json
from holdfast.storage.files.quarantine import set_aside
from holdfast.storage.journal.entry import Ref
from holdfast.storage.journal.lock import Holder, read_holder
from holdfast.storage.records import attempt_folder
from holdfast.worktrees import pins

_SHOWN_MAX = 5
_REASON = "the journal was put back from an older backup, and does not know this"
# An intent that no file of an attempt names, so that every start counts as foreign.
_NONE = "-"


class _Reached(msgspec.Struct, frozen=True):
    position: Ref


def contradictions(
    layout: Layout, state: State, end: Ref | None, before: Holder | None, repo: Path | None
) -> list[str]:
    """The evidence that the journal was longer. `end` is its last entry, `before` the lock's note on its last owner;
    without `repo`, git is not asked."""
    landings = _strange_landings(repo, layout) if repo is not None else {}
    landed = [f"{at} names entry {ref.seq} of run {ref.run}, which it does not have" for at, ref in landings.items()]
    starts = [layout.attempt_files(name).start(start) for name, start in _strange_starts(layout, state)]
    begun = [f"{path} is of a start that it does not have" for path in starts]
    return [*_named(layout, end, before), *begun, *landed]


def expect_whole(layout: Layout, state: State, end: Ref | None, before: Holder | None, repo: Path | None) -> None:
    if found := contradictions(layout, state, end, before, repo):
        raise JournalShorter(wal=layout.wal, witnesses=in_short(found))


def expect_whole_root(layout: Layout, repo: Path | None) -> None:
    """Refuses a shortened journal, for an owner without a run of its own, before anything is removed or rebuilt."""
    state, found = read_state(layout)
    expect_whole(layout, state, found.end.ref if found.end else None, read_holder(layout.lock), repo)


def in_short(found: list[str]) -> str:
    more = f"; and {len(found) - _SHOWN_MAX} more" if len(found) > _SHOWN_MAX else ""
    return "; ".join(found[:_SHOWN_MAX]) + more


# -- entries that are named -------------------------------------------------------------------------------------------


def _named(layout: Layout, end: Ref | None, before: Holder | None) -> Iterator[str]:
    journal = FileLedgerReader(layout)
    for place, ref in (
        (layout.lock, before.reached if before else None),
        (layout.audit, _audited(layout)),
        (layout.metrics_position, _followed(layout)),
    ):
        if ref is not None and ref != end and not journal.has(ref):
            yield f"{place} names entry {ref.seq} of run {ref.run}, which it does not have"


def _audited(layout: Layout) -> Ref | None:
    try:
        record = last_audited(layout, None)
    except DiskError:
        # The checks of the audit log report that.
        return None
    return ref_of(record) if record is not None else None


def _followed(layout: Layout) -> Ref | None:
    reached = read_json(layout.metrics_position, _Reached, lenient=True)
    return reached.position if reached is not None else None


def _strange_landings(repo: Path, layout: Layout) -> dict[str, Ref]:
    journal = FileLedgerReader(layout)
    return {name: ref for name, ref in pins.landed_refs(repo, layout).items() if not journal.has(ref)}


# -- attempts ---------------------------------------------------------------------------------------------------------


def _strange_starts(layout: Layout, state: State) -> Iterator[tuple[str, int]]:
    """Attempts that have begun and that the journal does not know, each with its first unknown start."""
    try:
        names = sorted(os.listdir(layout.attempts))
    except FileNotFoundError:
        return
    for name in names:
        task, _, number = name.rpartition(".")
        known = state.tasks.get(task)
        if not number.isdigit():
            continue
        if known is None or int(number) > known.attempts:
            start = 1
        elif known.attempt.id == name and known.state not in OVER:
            # The last start, if its file names another intent; else the next one.
            last = known.start
            found = attempt_folder.read_start(layout.attempt_files(name), last.number) if last.intent else None
            is_another = found is not None and not attempt_folder.is_of(found, last.intent)
            start = last.number if is_another else last.number + 1
        else:
            continue
        if layout.attempt_files(name).start(start).exists():
            yield name, start


# -- letting go of them -----------------------------------------------------------------------------------------------


def set_unknown_aside(layout: Layout, state: State, repo: Path) -> list[str]:
    """Sets aside what only the lost journal knew, and returns the new paths. The audit log and the branch keep what
    they have: only the refs that prove landings are removed."""
    moved = []
    pins.forget_landed(repo, _strange_landings(repo, layout))
    for name, start in list(_strange_starts(layout, state)):
        if attempt_folder.strangers(layout.attempt_files(name), start, _NONE):
            moved += set_strangers_aside(layout, name, start, _NONE, _REASON, repo=repo)
    if (position := _followed(layout)) is not None and not FileLedgerReader(layout).has(position):
        # Projections: rebuilt from the journal as it is now.
        ledgers = (layout.metrics, *sorted(layout.root.glob("sessions.*")))
        moved += [set_aside(layout.quarantine, path, _REASON) for path in ledgers]
        disk.mkdir(layout.metrics)
    return [str(path) for path in moved]
