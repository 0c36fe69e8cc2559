"""Who did what: the audit record of each journal entry that somebody may have to answer for.

What a person decided, what landed, where recovery closed something as parked or abandoned, and where a run began, took
over from another or ended; and what was done without a run, by `gc` and `check --repair`.

A record is appended after its journal entry and names it by `journal` (run, seq, entry_hash). So one that is missing
or doubled can be told, and whoever next owns the data root begins with what is missing: it goes on behind the last
entry that the log names. The end of a run has no entry of its own, and names the last one; where a run was killed, its
end is put on record when the next begins.

The work never waits for this log to be usable: where it cannot be written, that is said once, and what is missing
comes later.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast.clock import wall
from holdfast.durable import disk, process
from holdfast.durable.audit import Log
from holdfast.durable.audit_chain import Record, in_order, parse
from holdfast.durable.audit_key import Key, load_key
from holdfast.durable.chain import Chain, find
from holdfast.durable.entry import Entry, Ref
from holdfast.durable.journal import RUN_STARTED, Position
from holdfast.errors import HoldfastError, InputError
from holdfast.layout import Layout

RUN_ENDED = "run_ended"
_WITHOUT_RUN = ("gc", "repair")
# What is on record only after the run that it names has ended.
_AFTER_THE_END = {RUN_ENDED, *(f"{work}_{when}" for work in _WITHOUT_RUN for when in ("begun", "done"))}
_WORDS_MAX = 400

Say = Callable[[str], None]
Clock = Callable[[], float]
# Raises where the data root is no longer ours.
Expect = Callable[[], None]


class Told(msgspec.Struct, frozen=True):
    event: str
    actor: str
    details: dict[str, Any]


def told(entry: Entry) -> Told | None:
    """What the audit log says of an entry; None for one that it does not tell."""
    kind, inputs = entry.decision_type, entry.inputs
    facts = {name: _short(inputs[name]) for name in ("task", "attempt", "turn", "reason") if inputs.get(name)}
    decided = inputs.get("decided")
    if isinstance(decided, dict):
        choice = {"decision": _short(entry.output["decision"])} if entry.output.get("decision") else {}
        return Told(_short(decided.get("kind")), _short(decided.get("by")), {**facts, **choice, "entry": kind})
    if kind == RUN_STARTED:
        took_over = inputs.get("took_over")
        event = "run_taken_over" if took_over else RUN_STARTED
        more = {"took_over": _short(took_over)} if took_over else {}
        more |= {name: inputs[name] for name in ("restored", "copied_from") if inputs.get(name)}
        return Told(event, _short(inputs.get("by") or entry.actor), {"epoch": inputs.get("epoch"), **more})
    if kind == "task_land_confirmed":
        landing = {name: _short(entry.output.get(name, "")) for name in ("branch", "old", "new")}
        return Told("landed", entry.actor, {**facts, **landing})
    if "intent" in inputs and kind.endswith(("_parked", "_abandoned")):
        return Told(kind.rpartition("_")[2], entry.actor, {**facts, "entry": kind})
    return None


def _short(value: object) -> Any:
    return value if isinstance(value, int) else str(value)[:_WORDS_MAX]


class Auditor:
    """Writes the log of one data root, for who owns that. `say` is told once when it cannot."""

    def __init__(self, layout: Layout, say: Say, clock: Clock = wall, expect_owned: Expect = lambda: None) -> None:
        self._layout = layout
        self._expect_owned = expect_owned
        self._say = say
        self._clock = clock
        self._mutex = threading.Lock()
        self._log: Log | None = None
        self._last: Ref | None = None
        self._ended = ""

    def open(self, known: Position | None = None) -> None:
        """Appends what is missing. `known` is the journal's end before this run, where that has been read."""
        try:
            key = load_key(self._layout.root)
            self._log = Log(self._layout.audit, key, clock=self._clock)
            self._catch_up(key, known)
        except HoldfastError as error:
            self._give_up(error)

    def take(self, run: str, entry: Entry) -> None:
        """Puts an entry that is in the journal on record, if it is one to tell."""
        with self._mutex:
            self._take(run, entry)

    def record(self, event: str, details: dict[str, Any]) -> None:
        """Something that this process does and that the journal does not know, at the place where the journal is."""
        with self._mutex:
            self._append(event, process.user(), details, self._last)

    def end(self, how: str) -> None:
        """The run is over."""
        with self._mutex:
            if self._last is not None:
                self._append(RUN_ENDED, process.user(), {"how": how}, self._last)
            self._close()

    def close(self) -> None:
        with self._mutex:
            self._close()

    # -- what is missing ----------------------------------------------------------------------------------------------

    def _catch_up(self, key: Key, known: Position | None) -> None:
        chain = Chain(self._layout.wal)
        last = last_audited(self._layout, key)
        after = None
        if last is not None:
            self._last = ref = ref_of(last)
            assert ref is not None
            self._ended = ref.run if last.event in _AFTER_THE_END else ""
            after = known if known is not None and known.ref == ref else find(chain, ref)
            if after is None:
                self._append("journal_differs", process.user(), {"missing": ref}, known.ref if known else None)
                self._say(f"the audit log names entry {ref.seq} of run {ref.run}, which the journal does not have")
                after = known or _end_of(chain)
        for run, entry in chain.entries(after):
            self.take(run, entry)

    def settle(self) -> None:
        """Puts the end of the last run on record, for who owns the data root without a run of its own."""
        with self._mutex:
            self._end_of_killed(self._last)

    def _take(self, run: str, entry: Entry) -> None:
        if entry.decision_type == RUN_STARTED:
            previous = entry.inputs.get("previous")
            self._end_of_killed(msgspec.convert(previous, Ref) if previous else None)
        self._last = Ref(run, entry.seq, entry.entry_hash)
        if (words := told(entry)) is not None:
            self._append(words.event, words.actor, {**words.details, "at": entry.timestamp}, self._last)

    def _end_of_killed(self, last: Ref | None) -> None:
        if last is not None and last.run != self._ended:
            self._append(RUN_ENDED, "unknown", {"how": "it put no end on record"}, last)
            self._ended = last.run

    # -- writing ------------------------------------------------------------------------------------------------------

    def _append(self, event: str, actor: str, details: dict[str, Any], journal: Ref | None) -> None:
        # Not ours while it writes: what is interrupted in there must not be gone on with, nor may a later record pass
        # over one that is missing.
        log, self._log = self._log, None
        if log is None:
            return
        try:
            self._expect_owned()
            log.append(event, actor, {**details, "journal": journal})
        except HoldfastError as error:
            log.close()
            self._give_up(error)
            return
        self._log = log

    def _give_up(self, error: HoldfastError) -> None:
        self._close()
        self._say(
            f"nothing is written to the audit log for now: {error} The work goes on; what is missing there is added by "
            "the next command that can. `holdfast doctor` says more"
        )

    def _close(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            log.close()


@contextlib.contextmanager
def running(auditor: Auditor) -> Iterator[None]:
    """A run, from its first entry to its end."""
    try:
        yield
    except BaseException as error:
        auditor.end(f"it stopped with {type(error).__name__}")
        raise
    auditor.end("orderly")


@contextlib.contextmanager
def without_run(layout: Layout, work: str, say: Say, clock: Clock = wall) -> Iterator[dict[str, Any]]:
    """Work of a person's command that owns the data root and begins no run. What it puts into the facts is told."""
    if work not in _WITHOUT_RUN:
        raise InputError(detail=f"there is no work {work!r} to put on record")
    auditor, facts = Auditor(layout, say, clock), dict[str, Any]()
    auditor.open()
    auditor.settle()
    try:
        auditor.record(f"{work}_begun", {})
        yield facts
        auditor.record(f"{work}_done", facts)
    finally:
        auditor.close()


def complete(layout: Layout, say: Say, clock: Clock = wall) -> None:
    """Appends what is missing, for who owns the data root without a run of its own."""
    auditor = Auditor(layout, say, clock)
    auditor.open()
    auditor.settle()
    auditor.close()


# -- reading ----------------------------------------------------------------------------------------------------------


def ref_of(record: Record) -> Ref | None:
    """The journal entry that a record names."""
    try:
        return msgspec.convert(record.details.get("journal"), Ref)
    except msgspec.ValidationError:
        return None


def last_audited(layout: Layout, key: Key | None) -> Record | None:
    """The last record that names a journal entry."""
    for name in reversed(in_order(layout.audit, key)):
        path = layout.audit / name
        with disk.reading(path):
            lines = path.read_bytes().splitlines()
        for line in reversed(lines):
            record = parse(line, key)
            if record is not None and ref_of(record) is not None:
                return record
    return None


def _end_of(chain: Chain) -> Position | None:
    for _ in chain.entries():
        pass
    return chain.end
