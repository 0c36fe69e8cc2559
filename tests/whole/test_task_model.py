"""Tasks against a model of their own: any order of commands, kills, power cuts and failing disks.

The model is written from the tables in the documents and asks nothing of the code for what it expects. What was
acknowledged must be there after any crash; of the command that was under way, all or nothing.
"""

from __future__ import annotations

import copy
import errno
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast import errors
from holdfast.backlog import sync
from holdfast.backlog.folder import Backlog
from holdfast.domain.claims import Claim
from holdfast.domain.effect_entries import RefreshIntended
from holdfast.domain.state import State, fold
from holdfast.domain.task import TaskEvent
from holdfast.engine.recovery import recover
from holdfast.ledgers import files
from holdfast.ledgers.files import FileLedger
from holdfast.ports import DidNotHappen, Happened, Reconciled
from holdfast.storage.files import disk, kernel
from holdfast.storage.journal.data_root import create_root
from holdfast.storage.journal.entry import Record
from holdfast.storage.journal.intents import OpenIntent
from holdfast.storage.journal.reader import Chain
from holdfast.storage.records.blobs import Blobs
from holdfast.testing import powercut
from holdfast.testing.recorder import PowerCut, Recorder
from kit.disks import SCRATCH, examples
from kit.ledger_contract import Clock
from kit.roots import project

# -- the tables, once more --------------------------------------------------------------------------------------------

MOVES = {
    "OPEN": {"agent_claims_task": "CLAIMED", "manual_cancel": "CANCELLED"},
    "CLAIMED": {
        "agent_starts_work": "IN_PROGRESS", "unclaim": "OPEN", "fast_completion": "DONE",
        "immediate_failure": "FAILED", "dependency_discovered": "BLOCKED", "manual_cancel": "CANCELLED",
    },
    "IN_PROGRESS": {
        "agent_reports_success": "DONE", "agent_reports_failure": "FAILED", "requeue": "OPEN",
        "crash": "ORPHANED", "heartbeat_timeout": "ORPHANED", "manual_cancel": "CANCELLED",
    },
    "ORPHANED": {
        "requeued_for_retry": "OPEN", "partial_work_merged": "DONE", "unrecoverable": "FAILED",
        "manual_cancel": "CANCELLED",
    },
    "BLOCKED": {"dependency_resolved": "OPEN", "manual_cancel": "CANCELLED"},
    "DONE": {
        "janitor_verified_and_merged": "CLOSED", "verification_rejected": "FAILED",
        "approval_requested": "PENDING_APPROVAL", "changes_requested": "OPEN", "manual_cancel": "CANCELLED",
    },
    "PENDING_APPROVAL": {
        "approval_granted": "DONE", "approval_rejected": "FAILED", "changes_requested": "OPEN",
        "manual_cancel": "CANCELLED",
    },
    "FAILED": {"retry": "OPEN", "manual_cancel": "CANCELLED"},
    "CLOSED": {},
    "CANCELLED": {},
}  # fmt: skip
ENTRY = {
    "OPEN": "task_opened", "CLAIMED": "task_claimed", "IN_PROGRESS": "task_started", "ORPHANED": "task_orphaned",
    "BLOCKED": "task_blocked", "DONE": "task_done", "PENDING_APPROVAL": "task_approval_requested",
    "FAILED": "task_failed", "CLOSED": "task_closed", "CANCELLED": "task_cancelled",
}  # fmt: skip
FOLDER = {"OPEN": "open", "BLOCKED": "open", "CLOSED": "closed", "CANCELLED": "closed", "FAILED": "failed"}
HELD = {"CLAIMED", "IN_PROGRESS", "ORPHANED", "DONE", "PENDING_APPROVAL"}
EDITABLE = {"OPEN", "BLOCKED", "CLAIMED", "IN_PROGRESS"}
GIVE_BACK = {"unclaim", "requeue", "changes_requested"}
PICKS = strategies.integers(min_value=0, max_value=10**6)
# Of a dead process: what the kernel was given (none), or one of the disks that a power cut leaves.
LEFT = strategies.none() | PICKS


def way_to(state: str) -> list[str]:
    """Events that lead a new task to a state, by the shortest way."""
    ways: dict[str, list[str]] = {"OPEN": []}
    while state not in ways:
        for source, way in list(ways.items()):
            for event, target in MOVES[source].items():
                ways.setdefault(target, [*way, event])
    return ways[state]


@dataclass
class Expected:
    """A task as it must be. `text` is what its file says, `pinned` what the journal has of it."""

    text: str
    pinned: str = ""
    worked_on: str = ""
    state: str = "OPEN"
    attempts: int = 0
    resumes: int = 0
    claims: int = 0
    attempt: str = ""
    agent: str = ""
    continues: bool = False
    approved: bool = False

    def move(self, name: str, event: str, worker: str = "") -> None:
        source, self.state = self.state, MOVES[self.state][event]
        if event == "agent_claims_task":
            if not self.continues:
                self.attempts, self.resumes, self.worked_on = self.attempts + 1, 0, self.pinned
                self.attempt = f"{name}.{self.attempts}"
            self.agent, self.claims = worker, self.claims + 1
        self.resumes += event == "requeued_for_retry"
        # Only the next claim of an open task asks for it.
        self.continues = self.state == "OPEN" and (source == "ORPHANED" or event in GIVE_BACK)
        is_kept = self.approved and self.state in HELD and event != "approval_requested"
        self.approved = event == "approval_granted" or is_kept
        if self.state not in HELD:
            self.agent = ""

    def delete(self, name: str) -> None:
        if self.state in ("OPEN", "BLOCKED", "FAILED"):
            self.move(name, "manual_cancel")
        self.text = self.pinned


@dataclass
class Model:
    tasks: dict[str, Expected] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)

    def take_in(self) -> None:
        for task in self.tasks.values():
            if not task.pinned or task.state in EDITABLE:
                task.pinned = task.text

    def start(self) -> None:
        """A start: an orchestrator that had claimed a task and not begun it is gone."""
        for name, task in self.tasks.items():
            if task.state == "CLAIMED":
                task.move(name, "unclaim")
        self.take_in()

    def view(self) -> dict[str, Any]:
        return {
            name: (
                task.state, digest(task.pinned), digest(task.worked_on), task.attempts, task.resumes, task.claims,
                task.attempt, task.agent, task.continues, task.approved,
            )
            for name, task in self.tasks.items()
        }  # fmt: skip


def view(state: State) -> dict[str, Any]:
    """The same of what Holdfast says."""
    return {
        name: (
            str(task.state), task.definition, task.attempt.worked_on, task.attempts, task.attempt.resumes,
            task.claim.number, task.attempt.id, task.claim.agent,
            task.state == "OPEN" and task.continues, task.approved,
        )
        for name, task in state.tasks.items()
    }  # fmt: skip


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest() if text else ""


class Publishing:
    """Leaves a file; that it is there tells that it happened."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def perform(self, intent: OpenIntent) -> dict[str, Any]:
        disk.replace(self.root / intent.entry.inputs["attempt"], b"made")
        return {}

    def reconcile(self, intent: OpenIntent) -> Reconciled:
        return Happened({}) if (self.root / intent.entry.inputs["attempt"]).exists() else DidNotHappen()


@dataclass
class Command:
    name: str
    act: Callable[[], object]
    expect: Callable[[Model], object]


class Tasks(RuleBasedStateMachine):
    """`model` is what was acknowledged. A command is carried out, and the model with it, or it is interrupted."""

    @initialize(states=strategies.lists(strategies.sampled_from(list(MOVES)), min_size=1, max_size=2))
    def begin(self, states: list[str]) -> None:
        """With tasks that have come this far already."""
        self.before = kernel.calls, files.CHECKPOINT_EVERY, sync.LOOK_AGAIN_S
        files.CHECKPOINT_EVERY, sync.LOOK_AGAIN_S = 9, 0.0
        self.base = Path(tempfile.mkdtemp(prefix="holdfast-", dir=SCRATCH))
        self.clock, self.lives, self.number = Clock(), 0, 0
        self.model, self.claims = Model(), list[Claim]()
        self.insert_disk({})
        self.start()
        for name, state in zip(("t0", "t1"), states, strict=False):
            self.do(self.adding(name))
            for event in way_to(state):
                self.do(self.moving(name, event))

    def teardown(self) -> None:
        if hasattr(self, "base"):
            self.let_go()
            kernel.calls, files.CHECKPOINT_EVERY, sync.LOOK_AGAIN_S = self.before
            shutil.rmtree(self.base)

    # -- lives --------------------------------------------------------------------------------------------------------

    def insert_disk(self, content: dict[str, bytes | None]) -> None:
        self.lives += 1
        self.root = self.base / str(self.lives)
        self.root.mkdir()
        powercut.lay(content, self.root)
        self.recorder = Recorder(self.root)
        kernel.calls = self.recorder

    def start(self) -> None:
        """As a session does."""
        layout = create_root(self.root / ".sdd")
        self.ledger = FileLedger.open(layout, clock=self.clock)
        self.backlog, self.blobs = Backlog(layout.backlog), Blobs(layout.cas)
        self.effect = Publishing(self.root)
        recover(self.ledger, {RefreshIntended: self.effect}, self.clock.now, 3600)
        self.keep_up()

    def keep_up(self) -> None:
        sync.take_in(self.ledger, self.backlog, self.blobs)
        project(self.ledger, self.backlog)

    def let_go(self) -> None:
        """What the kernel does for a process that is dead."""
        ledger = self.__dict__.pop("ledger", None)
        if ledger is not None:
            ledger._lock.release()
            with suppress(PowerCut, errors.DiskError):
                ledger._journal._file.close()

    def die(self, pick: int | None) -> None:
        """The process is gone: with a pick the power too, and one of the disks is left that there could be."""
        self.let_go()
        if pick is None:
            self.recorder._dead = False
            self.recorder._faults.clear()
        else:
            disks = list(powercut.Crash(self.recorder, len(self.recorder.calls), limit=4).disks())
            self.insert_disk(disks[pick % len(disks)])

    def expect_one_of(self, *models: Model) -> None:
        """After a start: all of what was acknowledged, and of what was not, all or nothing."""
        for model in models:
            model.start()
        found = view(self.ledger.state)
        fitting = [model for model in models if model.view() == found and self.texts() == texts_of(model)]
        assert fitting, f"{found}, {self.texts()} is none of {[(m.view(), texts_of(m)) for m in models]}"
        self.model = fitting[0]

    # -- what can be done ---------------------------------------------------------------------------------------------

    def commands(self) -> list[Command]:
        found = [self.adding(f"t{len(self.model.tasks)}")]
        for name, task in self.model.tasks.items():
            found += [self.moving(name, event) for event in MOVES[task.state]]
            found.append(self.editing(name))
            # Not always: a task that is deleted early shows little.
            found += [self.refreshing(name)] if self.number % 2 else []
            found += [self.deleting(name)] if self.number % 3 == 1 else []
        return found

    def adding(self, name: str) -> Command:
        text = f"goal: do {name}\n"
        return Command(
            f"add {name}",
            lambda: self.backlog.add(text.encode(), name),
            lambda model: model.tasks.update({name: Expected(text)}),
        )

    def editing(self, name: str) -> Command:
        text = f"goal: do {name}, version {self.number}\n"

        def act() -> None:
            self.backlog.edit(name, text.encode(), self.backlog.read(name)[0].digest)

        return Command(f"edit {name}", act, lambda model: setattr(model.tasks[name], "text", text))

    def deleting(self, name: str) -> Command:
        def act() -> None:
            disk.unlink(self.backlog.read(name)[0].path)

        return Command(f"delete {name}", act, lambda model: model.tasks[name].delete(name))

    def moving(self, name: str, event: str) -> Command:
        task, worker = self.model.tasks[name], f"w{self.number % 3}"
        held = [claim for claim in self.claims if self.holds(claim) and claim.task == name]

        def act() -> None:
            if event == "agent_claims_task":
                claim = self.ledger.claim(worker, name, lease_s=60.0)
                assert claim.token not in {earlier.token for earlier in self.claims}
                self.claims.append(claim)
            elif held and self.number % 2:
                self.ledger.complete(held[0], TaskEvent(event), "test", {})
            else:
                inputs = {"task": name, "event": event, "reason": "test"}
                self.ledger.append(self.ledger.epoch, [Record(ENTRY[MOVES[task.state][event]], inputs)])

        return Command(f"{event} {name}", act, lambda model: model.tasks[name].move(name, event, worker))

    def refreshing(self, name: str) -> Command:
        key = f"made-{self.number}"

        def act() -> None:
            intent = Record("task_refresh_intent", {"task": name, "attempt": key}, committed=False)
            self.ledger.append(self.ledger.epoch, [intent])
            found = self.ledger.pairing.open_intents()[-1]
            result = self.effect.perform(found)
            closing = Record("task_refresh_confirmed", {"task": name, "intent": found.ref}, result)
            self.ledger.append(self.ledger.epoch, [closing])

        return Command(f"refresh {name}", act, lambda model: model.made.add(key))

    def holds(self, claim: Claim) -> bool:
        task = self.model.tasks[claim.task]
        return (task.agent, f"{task.attempt}/{task.claims}") == (claim.worker, claim.token)

    def choose(self, pick: int) -> tuple[Command, Model]:
        """A command that is legal now, and the model after it."""
        self.number += 1
        known = self.commands()
        command = known[pick % len(known)]
        return command, self.model_after(command)

    def model_after(self, command: Command) -> Model:
        after = copy.deepcopy(self.model)
        command.expect(after)
        after.take_in()
        return after

    def taken_in_later(self, command: Command) -> list[Model]:
        """A deletion that nobody saw before the crash meets the task as the start leaves it: a claim is given back."""
        if not command.name.startswith("delete"):
            return []
        later = copy.deepcopy(self.model)
        later.start()
        command.expect(later)
        return [later]

    def do(self, command: Command) -> None:
        """Carries a command out; when this returns it is acknowledged."""
        after = self.model_after(command)
        command.act()
        self.keep_up()
        self.model = after

    # -- what happens -------------------------------------------------------------------------------------------------

    def work(self, picks: list[int]) -> None:
        """Commands that are carried out and acknowledged."""
        for pick in picks:
            self.do(self.choose(pick)[0])

    @rule(picks=strategies.lists(PICKS, min_size=1, max_size=6))
    def work_on(self, picks: list[int]) -> None:
        self.work(picks)

    @rule(
        picks=strategies.lists(PICKS, max_size=5),
        pick=PICKS,
        steps=strategies.integers(min_value=0, max_value=40),
        left=LEFT,
        again=strategies.none() | strategies.tuples(strategies.integers(min_value=0, max_value=60), LEFT),
    )
    def work_and_die(self, picks: list[int], pick: int, steps: int, left: int | None, again: Any) -> None:
        """At some operation of the last command; and, once more, at one of the recovery."""
        self.work(picks)
        command, after = self.choose(pick)
        self.recorder.die_at(len(self.recorder.calls) + steps)
        models = [self.model, after, *self.taken_in_later(command)]
        with suppress(PowerCut):
            command.act()
            self.keep_up()
            models = [after]
        self.die(left)
        if again is not None:
            self.recorder.die_at(len(self.recorder.calls) + again[0])
            with suppress(PowerCut):
                self.start()
            self.die(again[1])
        self.start()
        self.expect_one_of(*models)

    @rule(
        picks=strategies.lists(PICKS, max_size=5),
        pick=PICKS,
        steps=strategies.integers(min_value=0, max_value=12),
        code=strategies.sampled_from([errno.ENOSPC, errno.EIO]),
    )
    def work_on_a_failing_disk(self, picks: list[int], pick: int, steps: int, code: int) -> None:
        """The process lives to see it: what it holds in memory then stands in the journal, and it stops."""
        self.work(picks)
        command, after = self.choose(pick)
        self.recorder.fail_at(len(self.recorder.calls) + steps, code)
        models = [self.model, after, *self.taken_in_later(command)]
        with suppress(errors.DiskError):
            command.act()
            self.keep_up()
            models = [after]
        written = fold(Chain(self.ledger.layout.wal).entries())
        assert view(self.ledger.state) in (view(written), self.model.view())
        self.die(None)
        self.start()
        self.expect_one_of(*models)

    @rule(name=strategies.sampled_from(["t0", "t1", "t2"]), event=strategies.sampled_from(sorted(TaskEvent)))
    def try_what_is_not_legal(self, name: str, event: str) -> None:
        task = self.model.tasks.get(name)
        if task is not None and event in MOVES[task.state]:
            return
        for kind in ("task_closed", "task_opened"):
            with pytest.raises(errors.EntryUnfit):
                inputs = {"task": name, "event": event, "reason": "test"}
                self.ledger.append(self.ledger.epoch, [Record(kind, inputs)])
        if task is None or task.state != "OPEN":
            with pytest.raises(errors.ClaimRefused):
                self.ledger.claim("w", name, lease_s=60.0)

    @rule(pick=strategies.integers(min_value=0, max_value=100))
    def try_an_old_claim(self, pick: int) -> None:
        stale = [claim for claim in self.claims if not self.holds(claim)]
        if stale:
            with pytest.raises(errors.ClaimLost):
                self.ledger.complete(stale[pick % len(stale)], TaskEvent.FAST_COMPLETION, "test", {})

    @rule()
    def save(self) -> None:
        self.ledger.save()

    @rule()
    def stop_and_start(self) -> None:
        self.ledger.close()
        self.start()
        self.expect_one_of(self.model)

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def the_journal_gives_what_the_model_says(self) -> None:
        if not hasattr(self, "ledger"):
            return
        entries = list(Chain(self.ledger.layout.wal).entries())
        assert view(fold(entries)) == view(self.ledger.state) == self.model.view()
        closed = [entry.inputs["task"] for _, entry in entries if entry.decision_type == "task_closed"]
        assert sorted(closed) == sorted(name for name, task in self.model.tasks.items() if task.state == "CLOSED")
        intents = [(run, entry.seq) for run, entry in entries if not entry.committed]
        closings = [
            (entry.inputs["intent"]["run"], entry.inputs["intent"]["seq"])
            for _, entry in entries
            if "intent" in entry.inputs
        ]
        assert sorted(intents) == sorted(closings)
        assert all((self.root / key).read_bytes() == b"made" for key in self.model.made)
        assert self.texts() == texts_of(self.model)

    def texts(self) -> dict[str, tuple[str, str]]:
        return dict(self._texts())

    def _texts(self) -> Iterator[tuple[str, tuple[str, str]]]:
        for path in self.backlog.folder.glob("*/*.yaml"):
            yield path.stem, (path.parent.name, path.read_text().splitlines()[0])


def texts_of(model: Model) -> dict[str, tuple[str, str]]:
    """Where each file stands, and what a person wrote there."""
    return {name: (FOLDER.get(task.state, "claimed"), task.text.strip()) for name, task in model.tasks.items()}


TestTasks = Tasks.TestCase
TestTasks.settings = settings(max_examples=examples(20), stateful_step_count=12)
TestTasks.pytestmark = [pytest.mark.fuzz]
