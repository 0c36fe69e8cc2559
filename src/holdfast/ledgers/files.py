"""The ledger on plain files: the default implementation of `ports.Ledger`.

Opening one takes the data root's lock, reads the journal from its checkpoint on, and begins a run. From then on every
record is tried on the state first, written when the state allows it, and folded in once it is on disk: memory never
knows more than the journal, and the journal never holds what the fold would refuse.

Leases live in memory only. After a restart nobody's heartbeat is known; recovery looks at the attempts themselves.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import msgspec

from holdfast import identity
from holdfast.clock import monotonic, wall
from holdfast.crashpoints import point
from holdfast.domain import claims
from holdfast.domain.claims import Claim
from holdfast.domain.entries import MOVE_TO
from holdfast.domain.state import State
from holdfast.domain.task import AT_WORK, TASK, TaskEvent, TaskState, verb_of
from holdfast.domain.task_record import Task
from holdfast.errors import (
    ClaimLost,
    ClaimRefused,
    DiskError,
    HoldfastError,
    IllegalTransition,
    JournalClosed,
    MoveRefused,
    StaleEpoch,
)
from holdfast.layout import Layout
from holdfast.ledgers.leases import Leases
from holdfast.ledgers.observers import Observers
from holdfast.ledgers.reader import FileLedgerReader
from holdfast.ports import Observer
from holdfast.storage.journal import checkpoint
from holdfast.storage.journal.entry import GENESIS, Entry, Record, Ref, encode, encode_middle
from holdfast.storage.journal.intents import Pairing
from holdfast.storage.journal.lock import DataLock, Holder
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import Journal, StagedEntries, epoch_of, run_id

Clock = Callable[[], float]

CHECKPOINT_EVERY = 5000
# The state as it was read, the last entry, and what the lock said of its last owner; gives facts for `run_started`.
Judge = Callable[[State, Ref | None, Holder | None], dict[str, Any]]


class FileLedger(FileLedgerReader):
    def __init__(self, layout: Layout, lock: DataLock, clock: Clock, judge: Judge, steady: Clock = monotonic) -> None:
        super().__init__(layout)
        self._lock = lock
        self._clock = clock
        self._now = clock()
        self._mutex = threading.RLock()
        self._leases = Leases(clock, steady)
        self._observers = Observers()
        self._staged: StagedEntries | None = None
        # State and journal are not at the same entry, because one was just given to the other, or an interrupt or a
        # failed sync came between: while this is so nothing may follow, and no checkpoint is written.
        self._is_apart = False
        self._save_at = CHECKPOINT_EVERY
        self._unheard: list[Entry] = []
        self.on_append: Callable[[float, int], None] = lambda seconds, count: None
        self.on_unsaved: Callable[[DiskError], None] = lambda error: None
        fold, self.found = checkpoint.recover(Chain(layout.wal), checkpoint.Files.of(layout), State)
        self._state, self._pairing = fold, self.found.pairing
        self._unsaved = self.found.entries_read
        previous = self.found.end.ref if self.found.end else None
        # The journal asks for the time while an append of ours is under way, and gets the moment that we fold with.
        facts: dict[str, Any] = {"by": identity.user(), "ends_journalled": True}
        facts |= {"took_over": lock.took_over} if lock.took_over else {}
        facts |= judge(fold, previous, lock.before)
        self._journal = Journal.start(layout.wal, lock.run, previous, facts=facts, clock=lambda: self._now)
        started = next(entry for _, entry in Chain(layout.wal).entries(self.found.end) if entry.seq == 0)
        self._take_in(started)
        lock.note(self.position)

    @classmethod
    def open(
        cls,
        layout: Layout,
        *,
        take_over: bool = False,
        clock: Clock = wall,
        steady: Clock = monotonic,
        judge: Judge = lambda state, end, before: {},
    ) -> FileLedger:
        """Becomes the owner of the data root, or raises Locked. `take_over` kills the owner that there is.

        `judge` sees what was read before anything is written: it may raise, and what it returns `run_started` says.
        `steady`: the clock by which leases run out, which nobody sets.
        """
        runs = Chain(layout.wal).runs()
        acquire = DataLock.take_over if take_over else DataLock.acquire
        lock = acquire(layout.lock, lambda epoch: run_id(epoch, clock()), epoch_of(runs[-1].run) if runs else 0)
        try:
            return cls(layout, lock, clock, judge, steady)
        except BaseException:
            lock.release()
            raise

    @property
    def epoch(self) -> int:
        return self._lock.epoch

    @property
    def run(self) -> str:
        return self._lock.run

    def expect_owned(self) -> None:
        """Raises StaleEpoch where the lock file is gone or another's: then somebody else may own the data root."""
        if not self._lock.is_intact():
            raise StaleEpoch(epoch=self.epoch, current="somebody else")

    @property
    def state(self) -> State:
        return self._state

    @property
    def pairing(self) -> Pairing:
        return self._pairing

    @property
    def position(self) -> Ref:
        return self._journal.position().ref

    @property
    def observers(self) -> Sequence[Observer]:
        return self._observers.present

    def observe(self, observer: Observer) -> None:
        with self._mutex:
            after = observer.cursor
            for run, entry in self.read(after) if after is not None and after != self.position else ():
                observer.observe(run, entry)
            self._observers.add(observer)

    def stop_observing(self, observer: Observer) -> None:
        self._observers.remove(observer)

    # -- reading, beside what a reader does that owns nothing --------------------------------------------------------

    def find(self, kind: str, key: str) -> Entry | None:
        done = self._pairing.find_executed(kind, key)
        return None if done is None else self.entry(done.run, done.seq)

    def watch(self, after: Ref | None, wait: Callable[[], bool]) -> Iterator[tuple[Ref, Entry]]:
        while True:
            for run, entry in self.read(after):
                after = Ref(run, entry.seq, entry.entry_hash)
                yield after, entry
            if not wait():
                return

    # -- writing ------------------------------------------------------------------------------------------------------

    def append(self, epoch: int, records: Sequence[Record]) -> list[Ref]:
        with self._mutex:
            self._expect_usable()
            if epoch != self.epoch or (self._staged is None and not self._lock.is_intact()):
                raise StaleEpoch(epoch=epoch, current=f"epoch {self.epoch}" if epoch != self.epoch else "somebody else")
            self._now = self._clock()
            self._try(records)
            synced, last = self._journal.position().ref.seq, self._end
            middles = [encode_middle(record) for record in records]
            for record in records:
                point(f"append.{record.decision_type}.before")
            self._is_apart = True
            if self._staged is None:
                began = time.perf_counter()
                refs = self._journal.append_encoded(middles)
                self.on_append(time.perf_counter() - began, len(refs))
            else:
                refs = self._staged.add(middles, encode(self._now))
            entries = [
                _entry(ref, record, self._now, before.entry_hash, synced)
                for before, ref, record in zip([last, *refs], refs, records, strict=False)
            ]
            for entry in entries:
                self._take_in(entry)
            self._unheard += entries
            self._is_apart = False
            if self._staged is None:
                self._tell()
            return refs

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Lets the appends of this thread share one sync. They are on stable storage when it ends.

        The state knows it at once, but nobody else can append before it is durable; if it cannot be made so, the
        journal takes nothing any more, and the process has to end.
        """
        with self._mutex:
            self._expect_usable()
            if self._staged is not None:
                yield
                return
            self.expect_owned()
            self._staged = staged = self._journal.stage()
            try:
                yield
            finally:
                # Nothing is written behind what was interrupted half-way: the state may lack a part of it.
                if not self._is_apart:
                    self._is_apart = True
                    self._write(staged)

    @contextlib.contextmanager
    def end_journalled(self) -> Iterator[None]:
        """Journals how the run ended, when this is left. A run without such an entry was killed."""
        how, reason = "stopped", ""
        try:
            yield
            how = "orderly"
        except BaseException as error:
            reason = f"it stopped with {type(error).__name__}"
            raise
        finally:
            with contextlib.suppress(HoldfastError):
                ended = {"how": how, "reason": reason, "by": identity.user()}
                self.append(self.epoch, [Record("run_ended", ended)])

    def _write(self, staged: StagedEntries) -> None:
        began = time.perf_counter()
        if staged.lines:
            self._journal.append_staged(staged)
        self._staged = None
        self._is_apart = False
        if staged.lines:
            self.on_append(time.perf_counter() - began, len(staged.lines))
            self._tell()

    def _expect_usable(self) -> None:
        if self._is_apart:
            # Where the disk failed, this says so.
            self._journal.append_many([])
            raise JournalClosed(run=self.run)

    @property
    def _end(self) -> Ref:
        return self._journal.position().ref if self._staged is None else self._staged.ref

    def _tell(self) -> None:
        entries, self._unheard = self._unheard, []
        for entry in entries:
            point(f"append.{entry.decision_type}.after")
        for entry in entries:
            self._observers.tell("durable", self.run, entry)
        # It takes as long as there are tasks: so much for each entry, however many there are.
        if self._unsaved >= max(self._save_at, len(self._state.tasks)):
            self._save_if_possible()

    def claim(
        self, worker: str, task: str, *, lease_s: float | None, model: str = "", why: str = "", **facts: Any
    ) -> Claim:
        with self._mutex:
            known = self._state.tasks.get(task)
            if known is None:
                raise ClaimRefused(task=task, reason="there is no such task")
            if reason := claims.refusal(known, self._clock()):
                raise ClaimRefused(task=task, reason=reason)
            entry = Record(MOVE_TO[TaskState.CLAIMED], claims.facts_of(known, worker, model, why, facts))
            self.append(self.epoch, [entry])
            claim = claims.claim_of(known)
            return claim if lease_s is None else self._leases.grant(claim, lease_s)

    def heartbeat(self, claim: Claim, *, lease_s: float) -> Claim:
        with self._mutex:
            self._expect_held(claim)
            return self._leases.grant(claim, lease_s)

    def renew_all(self, lease_s: float) -> None:
        """Gives every claim through the API a whole lease: after a restart no heartbeat is known."""
        with self._mutex:
            for task in self._state.tasks.values():
                if task.claim.remote and task.state in AT_WORK:
                    self._leases.grant(claims.claim_of(task), lease_s)

    def lease(self, task: str) -> Claim | None:
        return self._leases.of(task)

    def expired(self) -> list[Claim]:
        with self._mutex:
            return self._leases.expired()

    def complete(self, claim: Claim, event: TaskEvent, reason: str, outcome: Mapping[str, Any]) -> Ref:
        with self._mutex:
            task = self._expect_held(claim)
            return self._move(task, event, reason, attempt=claim.attempt, agent=claim.worker, outcome=dict(outcome))

    def refuse(self, task: Task, error: IllegalTransition, reason: str, actor: str = "holdfast") -> MoveRefused:
        refused = {"task": task.id, "state": task.state, "event": error.event, "reason": reason}
        self.append(self.epoch, [Record("task_move_refused", refused, actor=actor)])
        return MoveRefused(**{**error.facts, "what": f"The task {task.id}", "verb": verb_of(error.event)})

    def save(self) -> None:
        """Writes the checkpoint for the journal's end, so that the next run reads only what comes behind it."""
        with self._mutex:
            self.expect_owned()
            chain, files = Chain(self.layout.wal), checkpoint.Files.of(self.layout)
            checkpoint.write(chain, files, self._journal.position(), self._state, self._pairing)
            self._unsaved, self._save_at = 0, CHECKPOINT_EVERY

    def _save_if_possible(self) -> None:
        """Saves a checkpoint. If that fails, nothing is lost: a later run reads more of the journal."""
        try:
            self.save()
        except StaleEpoch:
            return  # The checkpoint is the next owner's to write.
        except DiskError as error:
            self._save_at = self._unsaved + CHECKPOINT_EVERY
            self.on_unsaved(error)

    def close(self) -> None:
        with self._mutex, contextlib.ExitStack() as whatever_happens:
            whatever_happens.callback(self._lock.release)
            whatever_happens.callback(self._journal.close)
            if not self._is_apart and self._lock.is_intact():
                self._lock.note(self.position)
            if self._unsaved and not self._is_apart:
                self._save_if_possible()

    def _try(self, records: Sequence[Record]) -> None:
        """Raises what the fold would raise, before anything is written."""
        trial, pairs = self._state.trial(), self._pairing.trial()
        for number, record in enumerate(records):
            ref = Ref(self.run, self._end.seq + 1 + number, GENESIS)
            entry = _entry(ref, record, self._now, GENESIS, 0)
            pairs.apply(self.run, entry)
            trial.apply(self.run, entry)

    def _take_in(self, entry: Entry) -> None:
        self._pairing.apply(self.run, entry)
        self._state.apply(self.run, entry)
        self._unsaved += 1
        self._observers.tell("folded", self.run, entry)
        name = entry.inputs.get("task", "")
        if self._leases.of(name) is not None and self._state.tasks[name].state not in AT_WORK:
            self._leases.drop(name)

    def _move(self, task: Task, event: TaskEvent, reason: str, **more: Any) -> Ref:
        try:
            target = TASK.next(task.state, event)
        except IllegalTransition as error:
            raise self.refuse(task, error, reason) from error
        inputs = {"task": task.id, "event": event, "reason": reason, **more}
        return self.append(self.epoch, [Record(MOVE_TO[target], inputs)])[0]

    def _expect_held(self, claim: Claim) -> Task:
        task = self._state.tasks.get(claim.task)
        if task is None:
            raise ClaimLost(task=claim.task, worker=claim.worker, reason="there is no such task")
        if (task.claim.agent, claims.token_of(task)) != (claim.worker, claim.token):
            holder = f"{task.claim.agent} holds it as {task.attempt.id}" if task.claim.agent else "nobody holds it"
            raise ClaimLost(task=claim.task, worker=claim.worker, reason=f"it is {task.state}, and {holder}")
        return task

    def __enter__(self) -> FileLedger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _entry(ref: Ref, record: Record, moment: float, prev_hash: str, synced: int) -> Entry:
    """An entry as the journal has it, without reading it back."""
    return Entry(
        ref.seq, prev_hash, moment, record.decision_type, msgspec.to_builtins(record.inputs, str_keys=True),
        output=msgspec.to_builtins(record.output, str_keys=True), actor=record.actor, committed=record.committed,
        synced=synced, entry_hash=ref.entry_hash,
    )  # fmt: skip
