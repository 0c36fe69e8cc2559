"""What every implementation of `ports.Ledger` must do. A second one subclasses `LedgerContract` and gives `reopen`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast import errors
from holdfast.domain.claims import Claim
from holdfast.domain.entries import MOVE_TO
from holdfast.domain.state import State
from holdfast.domain.task import TASK, TaskEvent, TaskState
from holdfast.ledgers.observers import ORDER
from holdfast.ports import Ledger
from holdfast.storage.journal.entry import Entry, Record, Ref
from holdfast.storage.journal.pages import WantedPage
from kit.disks import SCRATCH

LEASE_S = 60.0
# Who claimed a task keeps it in these states, and in no other.
HELD = {TaskState.CLAIMED, TaskState.IN_PROGRESS, TaskState.ORPHANED, TaskState.DONE, TaskState.PENDING_APPROVAL}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


def added(task: str) -> Record:
    return Record("task_added", {"task": task, "definition": "d" * 64})


def move(ledger: Ledger, task: str, event: TaskEvent) -> Record:
    target = TASK.next(ledger.state.tasks[task].state, event)
    return Record(MOVE_TO[target], {"task": task, "event": event, "reason": "test"})


class Listener:
    """An observer that writes down of what it was told."""

    def __init__(self, name: str, told: list[str], cursor: Ref | None = None) -> None:
        self.name, self.told, self.cursor = name, told, cursor
        self.tasks: list[str] = []

    def observe(self, run: str, entry: Entry) -> None:
        self.told.append(f"{self.name} {entry.decision_type}")
        self.tasks.append(entry.inputs["task"])


class LedgerContract:
    """`reopen(folder, clock)` opens the ledger there as a new owner; the one before is closed or dead."""

    @staticmethod
    def reopen(folder: Path, clock: Clock) -> Any:
        raise AssertionError("an implementation's own tests give this")

    @staticmethod
    def crash(ledger: Any) -> None:
        raise AssertionError("an implementation's own tests give this")

    @staticmethod
    def pass_time(ledger: Any, clock: Clock, seconds: float) -> None:
        """The time passes, and somebody looks all the while."""
        end = clock.now + seconds
        while clock.now < end:
            clock.now += 1
            ledger.expired()

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def ledger(self, tmp_path: Path, clock: Clock) -> Any:
        ledger = self.reopen(tmp_path, clock)
        yield ledger
        ledger.close()

    def test_an_append_is_folded_and_there_after_a_reopening(self, tmp_path: Path, clock: Clock) -> None:
        first = self.reopen(tmp_path, clock)
        first.append(first.epoch, [added("a"), added("b")])
        self.crash(first)
        second = self.reopen(tmp_path, clock)
        assert list(second.state.tasks) == ["a", "b"] and second.state.tasks == first.state.tasks
        assert second.epoch > first.epoch
        second.close()

    def test_another_epoch_is_refused_and_nothing_is_written(self, ledger: Ledger) -> None:
        ledger.append(ledger.epoch, [added("a")])
        for epoch in (ledger.epoch - 1, ledger.epoch + 1):
            with pytest.raises(errors.StaleEpoch):
                ledger.append(epoch, [added("b")])
        assert list(ledger.state.tasks) == ["a"]

    def test_a_record_that_is_refused_refuses_its_whole_batch(self, ledger: Ledger) -> None:
        ledger.append(ledger.epoch, [added("a")])
        before = [entry for _, entry in ledger.watch(None, lambda: False)]
        unfit = Record("task_closed", {"task": "b", "event": "retry", "reason": "x"})
        for batch in ([added("b"), added("a")], [added("b"), unfit], [added("b"), Record("task_vanished", {})]):
            with pytest.raises(errors.HoldfastError):
                ledger.append(ledger.epoch, batch)
        assert list(ledger.state.tasks) == ["a"]
        assert [entry for _, entry in ledger.watch(None, lambda: False)] == before

    def test_an_intent_is_closed_once(self, ledger: Ledger) -> None:
        ledger.append(ledger.epoch, [added("a")])
        intent = Record("task_land_intent", {"task": "a"}, committed=False)
        ref = ledger.append(ledger.epoch, [intent])[0]
        closing = Record("task_land_confirmed", {"intent": ref, "task": "a"})
        ledger.append(ledger.epoch, [closing])
        with pytest.raises(errors.PairingBroken):
            ledger.append(ledger.epoch, [closing])
        assert ledger.pairing.open_intents() == []

    def test_a_task_is_handed_out_once(self, ledger: Ledger) -> None:
        ledger.append(ledger.epoch, [added("a")])
        claim = ledger.claim("one", "a", lease_s=LEASE_S)
        assert (claim.attempt, claim.worker) == ("a.1", "one")
        with pytest.raises(errors.ClaimRefused, match="it is claimed"):
            ledger.claim("two", "a", lease_s=LEASE_S)
        with pytest.raises(errors.ClaimRefused, match="no such task"):
            ledger.claim("two", "b", lease_s=LEASE_S)
        ledger.append(ledger.epoch, [added("c"), Record("task_flagged", {"task": "c", "not_before": 4e9})])
        with pytest.raises(errors.ClaimRefused, match="not before 2096-10-02 07:06:40Z"):
            ledger.claim("two", "c", lease_s=LEASE_S)

    def test_only_the_holder_completes_and_only_once(self, ledger: Ledger) -> None:
        ledger.append(ledger.epoch, [added("a")])
        claim = ledger.claim("one", "a", lease_s=LEASE_S)
        ledger.complete(claim, TaskEvent.FAST_COMPLETION, "agent_reported", {"summary": "x"})
        assert ledger.state.tasks["a"].state is TaskState.DONE
        ledger.append(ledger.epoch, [move(ledger, "a", TaskEvent.VERIFICATION_REJECTED)])
        ledger.append(ledger.epoch, [move(ledger, "a", TaskEvent.RETRY)])
        again = ledger.claim("one", "a", lease_s=LEASE_S)
        assert again.attempt == "a.2"
        with pytest.raises(errors.ClaimLost):
            ledger.complete(claim, TaskEvent.FAST_COMPLETION, "agent_reported", {})
        with pytest.raises(errors.ClaimLost):
            ledger.heartbeat(claim, lease_s=LEASE_S)

    def test_an_orphan_is_continued_under_its_attempt_id_by_a_new_claim(self, ledger: Ledger) -> None:
        ledger.append(ledger.epoch, [added("a")])
        lost = ledger.claim("one", "a", lease_s=LEASE_S)
        for event in (TaskEvent.AGENT_STARTS_WORK, TaskEvent.CRASH, TaskEvent.REQUEUED_FOR_RETRY):
            ledger.append(ledger.epoch, [move(ledger, "a", event)])
        found = ledger.claim("one", "a", lease_s=LEASE_S)
        assert found.attempt == lost.attempt == "a.1" and found.token != lost.token
        with pytest.raises(errors.ClaimLost):
            ledger.complete(lost, TaskEvent.FAST_COMPLETION, "agent_reported", {})

    def test_leases_run_out_unless_they_are_extended(self, ledger: Ledger, clock: Clock) -> None:
        ledger.append(ledger.epoch, [added("a"), added("b")])
        one, two = (ledger.claim("w", task, lease_s=10.0) for task in "ab")
        self.pass_time(ledger, clock, 8)
        one = ledger.heartbeat(one, lease_s=10.0)
        self.pass_time(ledger, clock, 8)
        assert ledger.expired() == [two]
        assert ledger.state.tasks["b"].state is TaskState.CLAIMED, "nobody takes a claim back by itself"
        ledger.complete(two, TaskEvent.FAST_COMPLETION, "agent_reported", {})
        self.pass_time(ledger, clock, 100)
        assert ledger.expired() == [one]

    def test_a_claim_without_a_lease_never_runs_out(self, ledger: Ledger, clock: Clock) -> None:
        ledger.append(ledger.epoch, [added("a")])
        own = ledger.claim("w", "a", lease_s=None)
        self.pass_time(ledger, clock, 100)
        assert ledger.expired() == [] and ledger.lease("a") is None
        ledger.complete(own, TaskEvent.FAST_COMPLETION, "agent_reported", {})
        assert ledger.state.tasks["a"].state is TaskState.DONE

    def test_a_short_lease_begins_anew_after_a_short_time_in_which_nobody_looked(
        self, ledger: Ledger, clock: Clock
    ) -> None:
        ledger.append(ledger.epoch, [added("a")])
        one = ledger.claim("w", "a", lease_s=3.0)
        clock.now += 5
        assert ledger.expired() == []
        self.pass_time(ledger, clock, 5)
        assert [lease.token for lease in ledger.expired()] == [one.token]

    def test_after_a_time_in_which_nobody_looked_every_lease_begins_anew(self, ledger: Ledger, clock: Clock) -> None:
        ledger.append(ledger.epoch, [added("a")])
        one = ledger.claim("w", "a", lease_s=10.0)
        self.pass_time(ledger, clock, 8)
        clock.now += 86_400
        assert ledger.expired() == []
        known = ledger.lease("a")
        assert known is not None and known.token == one.token and known.until > clock.now + 5
        self.pass_time(ledger, clock, 8)
        assert ledger.expired() == []
        self.pass_time(ledger, clock, 8)
        assert ledger.expired() == [known]

    def test_observers_get_entries_in_their_order(self, ledger: Ledger) -> None:
        told: list[str] = []
        for name in reversed(ORDER):
            ledger.observe(Listener(name, told))
        ledger.append(ledger.epoch, [added("a")])
        assert told == [f"{name} task_added" for name in ORDER] and [each.name for each in ledger.observers] == [*ORDER]

    def test_in_a_batch_only_followers_of_the_state_get_entries_before_the_sync(self, ledger: Ledger) -> None:
        told: list[str] = []
        for name in ORDER:
            ledger.observe(Listener(name, told))
        with ledger.together():
            ledger.append(ledger.epoch, [added("a")])
            assert told == [f"{name} task_added" for name, when in ORDER.items() if when == "folded"]
        assert sorted(told) == sorted(f"{name} task_added" for name in ORDER)

    def test_an_observer_is_told_what_it_missed_and_each_entry_once(self, ledger: Ledger) -> None:
        told: list[str] = []
        first, *_ = ledger.append(ledger.epoch, [added("a"), added("b"), added("c")])
        observer = Listener("audit", told, first)
        ledger.observe(observer)
        assert told == ["audit task_added"] * 2 and observer.tasks == ["b", "c"]
        ledger.append(ledger.epoch, [added("d")])
        assert observer.tasks == ["b", "c", "d"]
        ledger.stop_observing(observer)
        ledger.append(ledger.epoch, [added("e")])
        assert observer.tasks == ["b", "c", "d"] and not ledger.observers

    def test_an_observer_that_nobody_named_is_refused(self, ledger: Ledger) -> None:
        with pytest.raises(errors.InputError, match="ORDER"):
            ledger.observe(Listener("another", []))
        with pytest.raises(errors.InputError, match="has no entry"):
            ledger.observe(Listener("audit", [], Ref(ledger.run, 5, "f" * 64)))

    def test_reading_begins_behind_any_entry(self, ledger: Ledger) -> None:
        refs = ledger.append(ledger.epoch, [added(name) for name in "abc"])
        for number, ref in enumerate(refs):
            assert [entry.inputs["task"] for _, entry in ledger.read(ref)] == [*"abc"][number + 1 :]
            assert ledger.has(ref)
        everything = list(ledger.read())
        assert [entry.seq for _, entry in everything[-3:]] == [ref.seq for ref in refs]
        strange = Ref(ledger.run, refs[0].seq, "f" * 64)
        assert not ledger.has(strange)
        with pytest.raises(errors.InputError, match="has no entry"):
            list(ledger.read(strange))

    def test_an_entry_is_found_by_its_key_also_by_the_next_owner(self, tmp_path: Path, clock: Clock) -> None:
        first = self.reopen(tmp_path, clock)
        key = {"idempotency_key": "k1"}
        first.append(first.epoch, [added("a"), Record("task_flagged", {"task": "a", "parked": "asked", **key})])
        for ledger in (first, self.reopen_after(first, tmp_path, clock)):
            found = ledger.find("task_flagged", "k1")
            assert found is not None and found.inputs["parked"] == "asked"
            assert ledger.find("task_added", "k1") is None and ledger.find("task_flagged", "k2") is None
        ledger.close()

    def reopen_after(self, ledger: Any, folder: Path, clock: Clock) -> Any:
        self.crash(ledger)
        return self.reopen(folder, clock)

    def test_pages_go_in_both_directions_and_no_further_than_asked(self, ledger: Ledger) -> None:
        refs = ledger.append(ledger.epoch, [added(name) for name in "abcd"])
        wanted, end = WantedPage(kinds=("task_added",)), (ledger.epoch, refs[2].seq)
        first = ledger.page(wanted, None, 2, end=end)
        assert [entry.inputs["task"] for _, entry in first.items] == ["a", "b"] and first.next
        newest = ledger.page(wanted, None, 2, end=end, is_backward=True)
        assert [entry.inputs["task"] for _, entry in newest.items] == ["c", "b"]
        assert [entry.inputs["task"] for _, entry in ledger.page(WantedPage("d"), None, 9, end=end).items] == []

    def test_folding_gives_the_same_with_and_without_a_saved_state(self, ledger: Ledger) -> None:
        ledger.append(ledger.epoch, [added(name) for name in "abc"])
        for after in ((0, -1), (ledger.epoch, ledger.position.seq)):
            assert ledger.fold(State, after).tasks == ledger.state.tasks

    def test_watch_sees_each_entry_once_from_a_cursor_on(self, ledger: Ledger) -> None:
        ledger.append(ledger.epoch, [added("a")])
        seen: list[tuple[Ref, str]] = []
        more = iter([added("b"), added("c")])

        def wait() -> bool:
            record = next(more, None)
            if record is not None:
                ledger.append(ledger.epoch, [record])
            return record is not None

        for ref, entry in ledger.watch(None, wait):
            seen.append((ref, entry.inputs.get("task", "")))
        assert [task for _, task in seen] == ["", "a", "b", "c"]
        rest = [entry.inputs["task"] for _, entry in ledger.watch(seen[1][0], lambda: False)]
        assert rest == ["b", "c"]
        with pytest.raises(errors.InputError, match="no entry"):
            list(ledger.watch(Ref("000009-x", 3, "0" * 64), lambda: False))


def claimers(contract: type[LedgerContract]) -> type[RuleBasedStateMachine]:
    """The model-based part: several claimers, kills and reopenings in any order, against a plain model."""

    class Claimers(RuleBasedStateMachine):
        tasks: ClassVar[str] = "abc"

        @initialize()
        def begin(self) -> None:
            self.folder = tempfile.TemporaryDirectory(prefix="holdfast-", dir=SCRATCH)
            self.clock = Clock()
            self.ledger = contract.reopen(Path(self.folder.name), self.clock)
            self.ledger.append(self.ledger.epoch, [added(task) for task in self.tasks])
            self.model: dict[str, TaskState] = dict.fromkeys(self.tasks, TaskState.OPEN)
            self.holder: dict[str, Claim] = {}
            self.claims: list[Claim] = []

        def teardown(self) -> None:
            if hasattr(self, "ledger"):
                self.ledger.close()
                self.folder.cleanup()

        @rule(worker=strategies.sampled_from(["one", "two", "three"]), task=strategies.sampled_from("abc"))
        def claim(self, worker: str, task: str) -> None:
            if self.model[task] is TaskState.OPEN:
                claim = self.ledger.claim(worker, task, lease_s=LEASE_S)
                assert claim.token not in {earlier.token for earlier in self.claims}
                self.claims.append(claim)
                self.holder[task], self.model[task] = claim, TaskState.CLAIMED
            else:
                with pytest.raises(errors.ClaimRefused):
                    self.ledger.claim(worker, task, lease_s=LEASE_S)

        @rule(pick=strategies.integers(min_value=0), event=strategies.sampled_from(list(TaskEvent)))
        def complete(self, pick: int, event: TaskEvent) -> None:
            if not self.claims:
                return
            claim = self.claims[pick % len(self.claims)]
            state = self.model[claim.task]
            held = self.holder.get(claim.task) == claim
            if not held:
                with pytest.raises(errors.ClaimLost):
                    self.ledger.complete(claim, event, "test", {})
            elif event not in TASK.legal(state):
                with pytest.raises(errors.IllegalTransition):
                    self.ledger.complete(claim, event, "test", {})
            else:
                self.ledger.complete(claim, event, "test", {})
                self.moved(claim.task, TASK.next(state, event))

        @rule(task=strategies.sampled_from("abc"), pick=strategies.integers(min_value=0))
        def decide(self, task: str, pick: int) -> None:
            """The owner itself moves a task, as the loop or a person does."""
            legal = sorted(set(TASK.legal(self.model[task])) - {TaskEvent.AGENT_CLAIMS_TASK})
            if legal:
                event = legal[pick % len(legal)]
                self.ledger.append(self.ledger.epoch, [move(self.ledger, task, event)])
                self.moved(task, TASK.next(self.model[task], event))

        def moved(self, task: str, state: TaskState) -> None:
            self.model[task] = state
            if state not in HELD:
                self.holder.pop(task, None)

        @rule(pick=strategies.integers(min_value=0))
        def heartbeat(self, pick: int) -> None:
            if not self.claims:
                return
            claim = self.claims[pick % len(self.claims)]
            if self.holder.get(claim.task) == claim:
                assert self.ledger.heartbeat(claim, lease_s=LEASE_S).until > self.clock.now
            else:
                with pytest.raises(errors.ClaimLost):
                    self.ledger.heartbeat(claim, lease_s=LEASE_S)

        @rule()
        def die_and_start_again(self) -> None:
            epoch, before = self.ledger.epoch, self.ledger.state.tasks
            contract.crash(self.ledger)
            self.ledger = contract.reopen(Path(self.folder.name), self.clock)
            assert self.ledger.epoch > epoch and self.ledger.state.tasks == before

        @invariant()
        def nothing_is_lost_and_nothing_closed_twice(self) -> None:
            if hasattr(self, "ledger"):
                assert {name: task.state for name, task in self.ledger.state.tasks.items()} == self.model
                written = [entry for _, entry in self.ledger.watch(None, lambda: False)]
                closed = [entry.inputs["task"] for entry in written if entry.decision_type == "task_closed"]
                assert sorted(closed) == [task for task in self.tasks if self.model[task] is TaskState.CLOSED]

    return Claimers
