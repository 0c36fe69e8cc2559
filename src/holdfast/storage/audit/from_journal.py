"""Makes the audit record of each journal entry for which a person or a run is responsible.

These are people's decisions, landings, effects that recovery closed as parked or abandoned, and the start, take-over
and end of each run; and work without a run, by `gc` and `check --repair`.

A record is appended after its journal entry and names it by `journal` (run, seq, entry_hash). So a missing or doubled
one is noticed, and the next owner of the data root begins with what is missing: it continues behind the last entry that
the log names. A run that was killed has no entry for its end: that is recorded when the next run begins, and names
the last entry.

The journal notes in turn how far the log reached (notes.py). Where such a record is gone, the log was cut, which no
kill does. Every run says so until a person has acknowledged it, and lost records are not signed once more with a new
time.

The work never waits for this log: where it cannot be written, that is said once, and what is missing is added later.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from holdfast import identity
from holdfast.clock import wall
from holdfast.domain.entries import AuditNoted
from holdfast.errors import DiskError, HoldfastError
from holdfast.layout import Layout
from holdfast.storage.audit import seals
from holdfast.storage.audit.days import day_files, moment, name_of
from holdfast.storage.audit.key import AuditKey, load_key
from holdfast.storage.audit.log import AuditLog
from holdfast.storage.audit.notes import WAY_BACK, content, cut, holds, noted_in
from holdfast.storage.audit.verify import AuditRecord, last_first, parse
from holdfast.storage.journal.entry import Entry, Ref
from holdfast.storage.journal.reader import Chain, find
from holdfast.storage.journal.writer import RUN_STARTED, Position

RUN_ENDED = "run_ended"
Work = Literal["gc", "repair"]
# Events that say nothing but that a run or a server began or ended.
_ROUTINE = {RUN_STARTED, RUN_ENDED, "server_started"}
_AFTER_THE_END = {RUN_ENDED, *(f"{work}_{when}" for work in get_args(Work) for when in ("begun", "done"))}
_WORDS_MAX = 400

Say = Callable[[str], None]
Clock = Callable[[], float]
# Raises where the data root is no longer ours.
Expect = Callable[[], None]


class AuditFact(msgspec.Struct, frozen=True):
    event: str
    actor: str
    details: dict[str, Any]


def fact_of(entry: Entry) -> AuditFact | None:
    """The audit fact of an entry; None for one that the log leaves out."""
    kind, inputs = entry.decision_type, entry.inputs
    facts = {name: _short(inputs[name]) for name in ("task", "attempt", "turn", "reason") if inputs.get(name)}
    decided = inputs.get("decided")
    if isinstance(decided, dict):
        choice = {"decision": _short(entry.output["decision"])} if entry.output.get("decision") else {}
        return AuditFact(_short(decided.get("kind")), _short(decided.get("by")), {**facts, **choice, "entry": kind})
    if kind == RUN_STARTED:
        took_over = inputs.get("took_over")
        event = "run_taken_over" if took_over else RUN_STARTED
        more = {"took_over": _short(took_over)} if took_over else {}
        more |= {name: inputs[name] for name in ("restored", "audit_lost", "copied_from") if inputs.get(name)}
        return AuditFact(event, _short(inputs.get("by") or entry.actor), {"epoch": inputs.get("epoch"), **more})
    if kind == RUN_ENDED:
        how = inputs.get("reason") or inputs.get("how", "")
        return AuditFact(kind, _short(inputs.get("by") or entry.actor), {"how": _short(how)})
    if kind == "task_land_confirmed":
        landing = {name: _short(entry.output.get(name, "")) for name in ("branch", "old", "new")}
        return AuditFact("landed", entry.actor, {**facts, **landing})
    if "intent" in inputs and kind.endswith(("_parked", "_abandoned")):
        return AuditFact(kind.rpartition("_")[2], entry.actor, {**facts, "entry": kind})
    return None


def _short(value: object) -> Any:
    return value if isinstance(value, int) else str(value)[:_WORDS_MAX]


class Auditor:
    """Writes the log for the owner of a data root. Calls `say` once when it cannot."""

    name = "audit"

    def __init__(
        self,
        layout: Layout,
        say: Say,
        clock: Clock = wall,
        expect_owned: Expect = lambda: None,
        key_path: Path | None = None,
    ) -> None:
        self._layout = layout
        self._expect_owned = expect_owned
        self._say = say
        self._key_path = key_path
        self._key: AuditKey | None = None
        self._clock = clock
        self._mutex = threading.Lock()
        self._log: AuditLog | None = None
        self._last: Ref | None = None
        self._ended = ""
        # Whether there may be records that no seal has.
        self._is_new = True

    def open(self, known: Position | None = None, noted: AuditNoted | None = None, *, is_lost: bool = False) -> None:
        """Appends what is missing. `known` is the journal's end before this run, if it was read; `noted`, how far the
        log reached according to the journal. `is_lost`: a person has acknowledged that those records are lost."""
        try:
            self._key = key = load_key(self._layout.root, self._key_path)
            self._log = AuditLog(self._layout.audit, key, clock=self._clock)
            is_cut = noted is not None and not holds(self._layout, noted)
            if is_lost or (is_cut and not self._is_on_record(noted)):
                self._continue_after_loss(known, noted, is_lost)
            else:
                self._catch_up(key, known)
            if is_cut and not is_lost and noted is not None:
                self._say(f"{cut(self._layout, noted)} {WAY_BACK}")
        except HoldfastError as error:
            self._give_up(error)

    @property
    def cursor(self) -> Ref | None:
        return self._last if self._log is not None else None

    def observe(self, run: str, entry: Entry) -> None:
        """Records an entry that is in the journal, if the log covers its kind."""
        with self._mutex:
            self._record_entry(run, entry)

    def record(self, event: str, details: dict[str, Any]) -> None:
        """Records something that this process does and the journal does not know, at the journal's current end."""
        with self._mutex:
            self._append(event, identity.user(), details, self._last)

    def end(self, *, seals_it: bool = False) -> None:
        """Closes the log. `seals_it`: also seals it if it has news, and not only once a day."""
        with self._mutex:
            is_usable = self._log is not None
            self._close()
            if is_usable and (self._is_unsealed_for_long() or (seals_it and has_news(self._layout))):
                self._seal()

    def seal_daily(self) -> bool:
        """Seals the log if that was not done for a day; True if it was done now."""
        with self._mutex:
            return self._log is not None and self._is_new and self._is_unsealed_for_long() and self._seal()

    def _is_unsealed_for_long(self) -> bool:
        try:
            names = seals.seal_files(self._layout.audit)
        except HoldfastError:
            return False
        # A seal is named by its moment.
        day = name_of(moment(self._clock()).date()).removesuffix(".jsonl").replace("-", "")
        return not names or names[-1].removeprefix("seal-")[:8] < day

    def _seal(self) -> bool:
        assert self._key is not None
        try:
            self._expect_owned()
            seals.seal(self._layout.audit, self._key, clock=self._clock, only_changed=True)
        except HoldfastError as error:
            self._say(f"the audit log was not sealed: {error}")
            return False
        self._is_new = False
        return True

    def close(self) -> None:
        with self._mutex:
            self._close()

    # -- what is missing ----------------------------------------------------------------------------------------------

    def _catch_up(self, key: AuditKey, known: Position | None) -> None:
        chain = Chain(self._layout.wal)
        last = last_audited(self._layout, key)
        after = None
        if last is not None:
            self._last = ref = ref_of(last)
            assert ref is not None
            self._ended = ref.run if last.event in _AFTER_THE_END else ""
            after = known if known is not None and known.ref == ref else find(chain, ref)
            if after is None:
                # Continues behind the newest entry that both have: what follows there was never recorded.
                shared = last_audited(self._layout, key, lambda each: find(chain, each) is not None)
                self._last = common = ref_of(shared) if shared is not None else None
                self._ended = common.run if common and shared and shared.event in _AFTER_THE_END else ""
                after = find(chain, common) if common else None
                self._append("journal_differs", identity.user(), {"missing": ref}, common)
                self._say(f"the audit log names entry {ref.seq} of run {ref.run}, which the journal does not have")
        for run, entry in chain.entries(after):
            self.observe(run, entry)

    def _continue_after_loss(self, known: Position | None, noted: AuditNoted | None, is_lost: bool) -> None:
        """Continues behind the journal's end: what was recorded before is not signed again with a new time."""
        at = known or _end_of(Chain(self._layout.wal))
        if at is not None:
            self._last, self._ended = at.ref, at.ref.run
        facts = {"noted": noted, "accepted": is_lost}
        self._append("records_missing", identity.user(), facts, at.ref if at else None)
        for run, entry in Chain(self._layout.wal).entries(at):
            self.observe(run, entry)

    def _is_on_record(self, noted: AuditNoted | None) -> bool:
        """Whether a later record of the log says that this record was lost."""
        records = (record for _, record in last_first(self._layout.audit, self._key))
        before = (record.details.get("noted") for record in records if record.event == "records_missing")
        return msgspec.to_builtins(noted) in before

    def settle(self) -> None:
        """Records the end of the last run, for an owner of the data root without a run of its own."""
        with self._mutex:
            self._end_of_killed(self._last)

    def _record_entry(self, run: str, entry: Entry) -> None:
        if entry.decision_type == RUN_STARTED:
            previous = entry.inputs.get("previous")
            self._end_of_killed(msgspec.convert(previous, Ref) if previous else None)
        self._last = Ref(run, entry.seq, entry.entry_hash)
        if (fact := fact_of(entry)) is not None:
            self._append(fact.event, fact.actor, {**fact.details, "at": entry.timestamp}, self._last)
        if entry.decision_type == RUN_ENDED:
            self._ended = run

    def _end_of_killed(self, last: Ref | None) -> None:
        if last is not None and last.run != self._ended:
            self._append(RUN_ENDED, "unknown", {"how": "it put no end on record"}, last)
            self._ended = last.run

    # -- writing ------------------------------------------------------------------------------------------------------

    def _append(self, event: str, actor: str, details: dict[str, Any], journal: Ref | None) -> None:
        # Not ours while it writes: an interrupted log must not be used again, and no later record may be written
        # while one is missing.
        log, self._log = self._log, None
        if log is None:
            return
        try:
            self._expect_owned()
            log.append(event, actor, {**details, "journal": journal})
            self._is_new = True
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
def without_run(
    layout: Layout, work: Work, say: Say, clock: Clock = wall, key_path: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Wraps a person's command that owns the data root and begins no run. The facts that it adds are recorded."""
    facts: dict[str, Any] = {}
    with contextlib.closing(_completed(layout, say, clock, key_path)) as auditor:
        auditor.record(f"{work}_begun", {})
        yield facts
        auditor.record(f"{work}_done", facts)


def complete(layout: Layout, say: Say, clock: Clock = wall, key_path: Path | None = None) -> None:
    """Appends what is missing, for an owner of the data root without a run of its own."""
    _completed(layout, say, clock, key_path).close()


def _completed(layout: Layout, say: Say, clock: Clock, key_path: Path | None) -> Auditor:
    auditor = Auditor(layout, say, clock, key_path=key_path)
    auditor.open(noted=noted_in(layout))
    auditor.settle()
    return auditor


# -- reading ----------------------------------------------------------------------------------------------------------


def ref_of(record: AuditRecord) -> Ref | None:
    """The journal entry that a record names."""
    try:
        return msgspec.convert(record.details.get("journal"), Ref)
    except msgspec.ValidationError:
        return None


def has_news(layout: Layout) -> bool:
    """Whether a record behind the newest seal says more than that a run began or ended."""
    try:
        names = seals.seal_files(layout.audit)
        newest = seals.parse_seal(content(layout.seals / names[-1]), None) if names else ""
        if not isinstance(newest, seals.Seal):
            return True
        last = newest.days[-1]
        behind = [name for name in day_files(layout.audit) if name >= last.file]
        texts = [content(layout.audit / name)[last.size if name == last.file else 0 :] for name in behind]
    except DiskError:
        return True
    records = [parse(line, None) for text in texts for line in text.splitlines()]
    return any(record is None or record.event not in _ROUTINE for record in records)


def named_entries(layout: Layout) -> set[str]:
    """The hashes of all journal entries that have a record."""
    refs = (ref_of(record) for _, record in last_first(layout.audit, None))
    return {ref.entry_hash for ref in refs if ref is not None}


def last_audited(
    layout: Layout, key: AuditKey | None, is_known: Callable[[Ref], bool] = lambda ref: True
) -> AuditRecord | None:
    """The last record that names a known journal entry."""
    for _, record in last_first(layout.audit, key):
        if (ref := ref_of(record)) is not None and is_known(ref):
            return record
    return None


def _end_of(chain: Chain) -> Position | None:
    for _ in chain.entries():
        pass
    return chain.end
