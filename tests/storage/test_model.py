"""Journal, checkpoint and blobs together against a model, over any interleaving of work, kills and power cuts."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from holdfast.errors import BlobUndescribed
from holdfast.storage.files import disk, kernel
from holdfast.storage.journal import checkpoint
from holdfast.storage.journal.entry import Record, Ref
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import Journal, epoch_of, run_id
from holdfast.storage.records.blobs import Blobs
from holdfast.testing import powercut
from holdfast.testing.recorder import PowerCut, Recorder
from kit.blobs import flaws
from kit.disks import SCRATCH
from kit.journal_writer import Counts

inputs = strategies.dictionaries(
    strategies.text(max_size=5), strategies.text(max_size=80) | strategies.integers(), max_size=3
)


class Machine(RuleBasedStateMachine):
    """The model knows what was acknowledged; what was under way at a crash may be there or not, but never half."""

    open_intents = Bundle("open_intents")

    @initialize()
    def begin(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="holdfast-", dir=SCRATCH))
        self.lives = 0
        self.acknowledged: dict[tuple[str, int], tuple[str, str, dict[str, Any]]] = {}
        self.closed: set[tuple[str, int]] = set()
        self.keys: set[str] = set()
        self.blobs: dict[str, bytes] = {}
        self.root = self.base / "0"
        self.root.mkdir()
        self.start()

    def teardown(self) -> None:
        if hasattr(self, "base"):
            kernel.calls = self.kernel_before
            shutil.rmtree(self.base)

    # -- the program ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """As the product starts: recover, check against the model, begin a run."""
        self.recorder = Recorder(self.root)
        self.kernel_before = getattr(self, "kernel_before", kernel.calls)
        kernel.calls = self.recorder
        (self.root / "wal").exists() or disk.mkdir(self.root / "wal")
        fold, found = self.recover()
        self.expect(fold, found)
        previous = found.end.ref if found.end else None
        self.journal = Journal.start(
            self.root / "wal", run_id(epoch_of(previous.run) + 1 if previous else 1, 0.0), previous
        )
        self.note(self.journal.position().ref, "run_started", None)
        self.store = Blobs(self.root / "cas")

    def recover(self) -> tuple[Counts, checkpoint.Recovered]:
        root = self.root
        files = checkpoint.Files(root / "tasks.jsonl", root / "uncommitted.idx.json", root / "idempotency.jsonl")
        fold, found = checkpoint.recover(Chain(root / "wal"), files, Counts)
        assert isinstance(fold, Counts)
        return fold, found

    def expect(self, fold: Counts, found: checkpoint.Recovered) -> None:
        entries = {(run, entry.seq): entry for run, entry in Chain(self.root / "wal").entries()}
        for place, (entry_hash, kind, given) in self.acknowledged.items():
            assert entries[place].entry_hash == entry_hash and entries[place].decision_type == kind
            assert given is None or entries[place].inputs == given
        assert sum(fold.counts.values()) == len(entries)
        still_open = {(intent.run, intent.entry.seq) for intent in found.pairing.open_intents()}
        assert not still_open & self.closed
        intents = {place for place, (_, kind, _) in self.acknowledged.items() if kind == "task_spawn_intent"}
        maybe_closed = {
            (entry.inputs["intent"]["run"], entry.inputs["intent"]["seq"])
            for entry in entries.values()
            if "intent" in entry.inputs
        }
        assert intents - maybe_closed <= still_open
        assert all(found.pairing.find_executed("task_added", key) for key in self.keys)
        store = Blobs(self.root / "cas")
        assert all(store.get(digest) == data for digest, data in self.blobs.items())
        # Of a put that was cut short the blob may be there without its description; the next put of it mends that.
        found = flaws(store)
        assert not found.keys() & self.blobs.keys() and set(found.values()) <= {BlobUndescribed}

    def note(self, ref: Ref, kind: str, given: dict[str, Any] | None) -> None:
        self.acknowledged[ref.run, ref.seq] = (ref.entry_hash, kind, given)  # type: ignore[assignment]

    # -- what it does ---------------------------------------------------------------------------------------------

    @rule(given=inputs)
    def append(self, given: dict[str, Any]) -> None:
        self.note(self.journal.append("turn_completed", given), "turn_completed", given)

    @rule(many=strategies.lists(inputs, min_size=1, max_size=4))
    def append_many(self, many: list[dict[str, Any]]) -> None:
        for ref, given in zip(self.journal.append_many([Record("turn_completed", g) for g in many]), many, strict=True):
            self.note(ref, "turn_completed", given)

    @rule(key=strategies.sampled_from("abcdef"))
    def request(self, key: str) -> None:
        self.note(self.journal.append("task_added", {"idempotency_key": key}), "task_added", {"idempotency_key": key})
        self.keys.add(key)

    @rule(target=open_intents)
    def intend(self) -> Ref:
        ref = self.journal.append("task_spawn_intent", {"task": "t"}, committed=False)
        self.note(ref, "task_spawn_intent", {"task": "t"})
        return ref

    @rule(intent=consumes(open_intents))
    def close_intent(self, intent: Ref) -> None:
        # A crash may have kept a closing that was never acknowledged; the product asks before it closes, and so here.
        _, found = self.recover()
        if intent in [item.ref for item in found.pairing.open_intents()]:
            ref = self.journal.append("task_spawn_confirmed", {"intent": intent})
            self.note(ref, "task_spawn_confirmed", None)
        self.closed.add((intent.run, intent.seq))

    @rule(data=strategies.binary(max_size=700), many=strategies.integers(min_value=1, max_value=3))
    def put(self, data: bytes, many: int) -> None:
        if many == 1:
            self.blobs[self.store.put(data)] = data
        else:
            pieces = [data[number:] for number in range(many)]
            self.blobs.update(zip(self.store.put_many(pieces), pieces, strict=True))

    @rule()
    def write_checkpoint(self) -> None:
        fold, found = self.recover()
        root = self.root
        files = checkpoint.Files(root / "tasks.jsonl", root / "uncommitted.idx.json", root / "idempotency.jsonl")
        assert found.end == self.journal.position()
        checkpoint.write(Chain(root / "wal"), files, self.journal.position(), fold, found.pairing)

    # -- what happens to it ---------------------------------------------------------------------------------------

    @rule()
    def kill(self) -> None:
        """The process dies between two operations; the kernel keeps what it was given."""
        self.start()

    @rule(pick=strategies.integers(min_value=0))
    def lose_power(self, pick: int) -> None:
        """Any of the disks that could be left, also one that lost what was written and not synced."""
        disks = list(powercut.Crash(self.recorder, len(self.recorder.calls), limit=16).disks())
        self.lives += 1
        self.root = self.base / str(self.lives)
        self.root.mkdir()
        powercut.lay(disks[pick % len(disks)], self.root)
        self.start()

    @rule(
        steps=strategies.integers(min_value=0, max_value=12),
        pick=strategies.integers(min_value=0),
        work=strategies.data(),
    )
    def lose_power_at_work(self, steps: int, pick: int, work: strategies.DataObject) -> None:
        """The power goes in the middle of an operation, which nobody then acknowledges."""
        act = work.draw(strategies.sampled_from([self.append_many, self.put, self.write_checkpoint, self.request]))
        self.recorder.die_at(len(self.recorder.calls) + steps)
        arguments: dict[Any, dict[str, Any]] = {
            self.append_many: {"many": [{"pad": "x" * 300}] * 2},
            self.put: {"data": b"y" * 600, "many": 1 + steps % 3},
            self.request: {"key": "z"},
        }
        try:
            act(**arguments.get(act, {}))
        except PowerCut:
            assert self.recorder.fired
        self.lose_power(pick)

    @precondition(lambda self: hasattr(self, "journal"))
    @invariant()
    def position_is_the_last_acknowledged(self) -> None:
        ref = self.journal.position().ref
        assert self.acknowledged[ref.run, ref.seq][0] == ref.entry_hash


TestStateful = Machine.TestCase
TestStateful.settings = settings(stateful_step_count=25)
TestStateful.pytestmark = [pytest.mark.fuzz]
