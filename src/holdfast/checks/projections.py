"""Reads the whole journal once from its beginning, and compares each projection with it at the projection's position.

This is the checker's own reading: it trusts no checkpoint, and judges the three checkpoint files by the documented
format alone, not with the code that wrote them. A projection is read before the journal, so that the journal always
reaches as far as the projection does, also while both are being written.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec

from holdfast.checks.expectations import Recorded
from holdfast.domain.state import State
from holdfast.domain.wording import plural
from holdfast.errors import FileMissing, JournalCorrupt
from holdfast.layout import Layout
from holdfast.storage.audit.from_journal import fact_of
from holdfast.storage.journal import checkpoint
from holdfast.storage.journal.entry import Entry
from holdfast.storage.journal.intents import OpenIntent, Pairing
from holdfast.storage.journal.reader import Chain, RunFile
from holdfast.storage.journal.writer import Position

PROGRESS_EVERY = 1 << 16
_READINGS_MAX = 3


class _Written(msgspec.Struct, frozen=True):
    format: int
    fold_version: int


class _Head(_Written, frozen=True):
    position: Position
    lines: int
    open: list[OpenIntent] = []


class Projection:
    """One checkpoint file. `flaw` says how it is damaged, or differs from the journal; `foreign`, why it is not read.

    A missing one is neither: it is written again at the next checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position: Position | None = None
        self.flaw = self.foreign = ""
        self.compared = False
        self._intents: list[OpenIntent] = []
        self._lines: list[bytes] = []
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            self.flaw = f"it cannot be read ({error.strerror})"
            return
        self._parse(content)

    def _parse(self, content: bytes) -> None:
        first, _, body = content.partition(b"\n")
        signed, _, digest = first.rpartition(b',"sha256":"')
        if digest != sha256(signed + body).hexdigest().encode() + b'"}':
            self.flaw = "it does not hold what its SHA-256 says"
            return
        try:
            written = msgspec.json.decode(first, type=_Written)
            if (written.format, written.fold_version) != (checkpoint.FORMAT, State.version):
                versions = f"format {written.format} and fold version {written.fold_version}"
                self.foreign = f"it has {versions}, of another Holdfast"
                return
            head = msgspec.json.decode(first, type=_Head)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self.flaw = f"it does not read as a checkpoint ({error})"
            return
        lines = body.split(b"\n")[:-1]
        if head.lines != len(lines):
            self.flaw = f"it has {plural(len(lines), 'line')}, and says {head.lines}"
            return
        self.position, self._intents, self._lines = head.position, head.open, lines

    def compare(self, lines: list[bytes], intents: list[OpenIntent] | None = None) -> None:
        """Notes in `flaw` how it differs from the lines and intents that the journal gives for its position."""
        self.compared = True
        if self._intents != (intents or []):
            self.flaw = "its open intents are not those that the journal has at its position"
        elif self._lines != lines:
            both = enumerate(zip(self._lines, lines, strict=False), 2)
            shorter = min(len(self._lines), len(lines))
            number = next((number for number, (mine, theirs) in both if mine != theirs), shorter + 2)
            self.flaw = f"its line {number} is not what the journal gives for its position"


class Reading:
    """The result of one reading of the journal. `corrupt`: its chain is broken; `unfit`: it contradicts itself."""

    def __init__(self, layout: Layout, *, fold: bool = True, progress: Callable[[int], None] | None = None) -> None:
        self.tasks = Projection(layout.tasks)
        self.index = Projection(layout.uncommitted)
        self.keys = Projection(layout.idempotency)
        self.chain = Chain(layout.wal)
        self.runs: list[RunFile] = []
        self.state, self.pairing = State(), Pairing()
        self.corrupt: JournalCorrupt | None = None
        self.unfit: JournalCorrupt | None = None
        self.entries = self.intents = self.closings = 0
        self.recorded = Recorded()
        self.recovered_runs: set[str] = set()
        self.keys_repeated: list[str] = []
        self.facts_repeated: list[str] = []
        self._once: set[tuple[str, str]] = set()
        # What the audit log must have: a record of each of these entries, and every seal that was noted.
        self.audited: dict[str, str] = {}
        self.seals_noted: dict[str, str] = {}
        self._fold = fold
        self._read(progress)
        if self.flaw is None and fold:
            self._expect_positions()

    @property
    def projections(self) -> tuple[Projection, ...]:
        return self.tasks, self.index, self.keys

    @property
    def flaw(self) -> JournalCorrupt | None:
        return self.corrupt or self.unfit

    def count_of(self, decision_type: str) -> int:
        return sum(kind == decision_type for kind, _ in self._once)

    def _read(self, progress: Callable[[int], None] | None) -> None:
        wanted = {each.position.ref.entry_hash for each in self.projections if each.position is not None}
        try:
            self.runs = self.chain.runs()
            for run, entry in self.chain.entries():
                self.entries += 1
                if self._fold and self.unfit is None:
                    self._apply(run, entry)
                    if entry.entry_hash in wanted:
                        self._compare(run, entry)
                if progress is not None and self.entries % PROGRESS_EVERY == 0:
                    progress(self.entries)
        except JournalCorrupt as error:
            self.corrupt = error

    def _apply(self, run: str, entry: Entry) -> None:
        place = f"entry {entry.seq} of run {run}"
        key = entry.inputs.get("idempotency_key")
        if isinstance(key, str) and (earlier := self.pairing.find_executed(entry.decision_type, key)):
            first = f"entry {earlier.seq} of run {earlier.run}"
            self.keys_repeated.append(
                f"the key {key!r} of {entry.decision_type} was executed by {first} and by {place}"
            )
        try:
            self.pairing.apply(run, entry)
            self.state.apply(run, entry)
        except JournalCorrupt as error:
            self.unfit = error
            return
        self.recorded.add(entry)
        self._apply_audit(run, entry)
        self.intents += not entry.committed
        self.closings += entry.committed and "intent" in entry.inputs
        if entry.decision_type in ("task_closed", "task_land_confirmed"):
            this = (entry.decision_type, entry.inputs["task"])
            if this in self._once:
                self.facts_repeated.append(f"the task {this[1]} has a second {this[0]}, {place}")
            self._once.add(this)
        elif entry.decision_type == "run_ended":
            if (entry.decision_type, run) in self._once:
                self.facts_repeated.append(f"the run {run} has a second end, {place}")
            self._once.add((entry.decision_type, run))
        elif entry.decision_type == "landing_promoted":
            # A landing that a person promotes may be confirmed once more.
            self._once.discard(("task_land_confirmed", entry.inputs["task"]))
        elif entry.decision_type == "wal_replay_completed":
            self.recovered_runs.add(run)

    def _apply_audit(self, run: str, entry: Entry) -> None:
        if entry.inputs.get("audit_lost"):
            # The records before are lost, and a person has acknowledged it.
            self.audited.clear()
            self.seals_noted.clear()
        if (fact := fact_of(entry)) is not None:
            self.audited[entry.entry_hash] = f"{fact.event} (entry {entry.seq} of run {run})"
        noted = entry.inputs.get("audit") if entry.decision_type == "run_started" else entry.inputs
        if noted and entry.decision_type in ("run_started", "audit_noted") and noted.get("seal"):
            self.seals_noted[noted["seal"]] = noted["seal_sha256"]

    def _compare(self, run: str, entry: Entry) -> None:
        at = (run, entry.seq, entry.entry_hash)

        def stands_here(projection: Projection) -> bool:
            position = projection.position
            return position is not None and (position.ref.run, position.ref.seq, position.ref.entry_hash) == at

        if stands_here(self.tasks):
            self.tasks.compare(list(self.state.dump()))
        if stands_here(self.index):
            self.index.compare([], self.pairing.open_intents())
        if stands_here(self.keys):
            self.keys.compare([msgspec.json.encode(done) for done in self.pairing.executed()])

    def _expect_positions(self) -> None:
        """Finds a whole checkpoint whose position the journal does not have: then the journal lost something."""
        for projection in self.projections:
            if projection.position is None:
                continue
            try:
                # Reads only that one entry, and whether it is at the offset that the checkpoint says.
                Chain(self.chain.wal).entries(projection.position)
            except JournalCorrupt as error:
                self.corrupt = error
                return
            if not projection.compared:
                projection.flaw = "the journal has no such position"


def read_journal(layout: Layout, *, fold: bool = True, progress: Callable[[int], None] | None = None) -> Reading:
    """Reads again when run files were archived meanwhile: then one may have been missed, or gone when opened."""
    for _ in range(_READINGS_MAX - 1):
        try:
            reading = Reading(layout, fold=fold, progress=progress)
        except FileMissing:
            continue
        if reading.corrupt is None or not _has_moved(reading):
            return reading
    return Reading(layout, fold=fold, progress=progress)


def _has_moved(reading: Reading) -> bool:
    try:
        return Chain(reading.chain.wal).runs()[: len(reading.runs)] != reading.runs
    except JournalCorrupt:
        return False
