"""Recovery with real small effects: a file, a child process, a git ref."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import errors
from holdfast.backlog.folder import Backlog
from holdfast.backlog.sync import take_in
from holdfast.config.settings import Config
from holdfast.domain import effect_entries
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.engine.recovery import recover
from holdfast.engine.spawn import Spawn
from holdfast.ledgers.files import FileLedger
from holdfast.ports import DidNotHappen, Effect, Happened, InDoubt, Reconciled
from holdfast.storage.files import disk
from holdfast.storage.journal.data_root import create_root
from holdfast.storage.journal.entry import Record
from holdfast.storage.journal.intents import OpenIntent
from holdfast.storage.journal.reader import Chain
from holdfast.storage.records.blobs import Blobs
from holdfast.testing.recorder import Recorder
from holdfast.wiring import build_effects
from kit.disks import each_disk, record, scratch, some_disks
from kit.git import git, repository
from kit.ledger_contract import added, move
from kit.roots import project


class FileEffect:
    """Writes a file; afterwards its content tells."""

    def perform(self, intent: OpenIntent) -> dict[str, Any]:
        disk.replace(Path(intent.entry.inputs["path"]), b"made")
        return {"size": 4}

    def reconcile(self, intent: OpenIntent) -> Reconciled:
        path = Path(intent.entry.inputs["path"])
        return Happened({"size": path.stat().st_size}) if path.exists() else DidNotHappen()


class ProcessEffect:
    """Starts a child that leaves a mark; without the mark, and with no child, nobody knows how far it came."""

    def perform(self, intent: OpenIntent) -> dict[str, Any]:
        script = "import sys; open(sys.argv[1], 'w').write('ran')"
        return {"code": subprocess.run([sys.executable, "-c", script, intent.entry.inputs["mark"]]).returncode}

    def reconcile(self, intent: OpenIntent) -> Reconciled:
        if Path(intent.entry.inputs["mark"]).exists():
            return Happened({"code": 0})
        return InDoubt("the child may have run without leaving its mark")


class RefEffect:
    """Moves a git ref; the ref tells."""

    def perform(self, intent: OpenIntent) -> dict[str, Any]:
        self._git(intent, "update-ref", "refs/heads/target", intent.entry.inputs["new"], intent.entry.inputs["old"])
        return {"at": intent.entry.inputs["new"]}

    def reconcile(self, intent: OpenIntent) -> Reconciled:
        at = self._git(intent, "rev-parse", "refs/heads/target")
        return Happened({"at": at}) if at == intent.entry.inputs["new"] else DidNotHappen()

    @staticmethod
    def _git(intent: OpenIntent, *command: str) -> str:
        done = subprocess.run(
            ["git", "-C", intent.entry.inputs["repo"], *command], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()


class BrokenEffect:
    def perform(self, intent: OpenIntent) -> dict[str, Any]:
        raise AssertionError("recovery performs nothing")

    def reconcile(self, intent: OpenIntent) -> Reconciled:
        raise errors.GitFailed(command="rev-parse", path="/x", code=128, stderr="no repository")


EFFECTS: dict[type[effect_entries.EffectIntended], Effect] = {
    effect_entries.SpawnIntended: ProcessEffect(),
    effect_entries.LandIntended: RefEffect(),
    effect_entries.RefreshIntended: FileEffect(),
}


def open_ledger(base: Path, clock: Callable[[], float] = time.time) -> FileLedger:
    return FileLedger.open(create_root(base / ".sdd"), clock=clock)


def intend(ledger: FileLedger, effect: str, **inputs: str) -> OpenIntent:
    ledger.append(ledger.epoch, [Record(f"task_{effect}_intent", {"task": "t", **inputs}, committed=False)])
    return ledger.pairing.open_intents()[-1]


def closings(base: Path) -> list[tuple[str, str, dict[str, Any]]]:
    found = [entry for _, entry in Chain(base / ".sdd" / "runtime" / "wal").entries() if "intent" in entry.inputs]
    return [(entry.decision_type, entry.inputs.get("reason", ""), entry.output) for entry in found]


@pytest.fixture
def target(tmp_path: Path) -> tuple[Path, str, str]:
    path = repository(tmp_path / "repo")
    commits = []
    for message in ("old", "new"):
        git(path, "commit", "-q", "--allow-empty", "-m", message)
        commits.append(git(path, "rev-parse", "HEAD"))
    git(path, "update-ref", "refs/heads/target", commits[0])
    return path, commits[0], commits[1]


def test_every_effect_is_built_and_has_its_own_intent(tmp_path: Path) -> None:
    # That of messages is put in beside them, where there is an outbox.
    wanted = {intent for intent, name in effect_entries.EFFECT_OF.items() if name != "publish"}
    layout = create_root(tmp_path / "root")
    built = build_effects(tmp_path, layout, Config(), Blobs(layout.cas), Spawn(layout, ()))
    assert built.keys() == wanted
    assert effect_entries.EffectIntended not in wanted, "each has a type of its own, by which it is found"


def test_recovery_confirms_fails_or_parks_by_what_reconcile_finds(
    tmp_path: Path, target: tuple[Path, str, str]
) -> None:
    path, old, new = target
    ledger = open_ledger(tmp_path)
    ledger.append(ledger.epoch, [added("t")])
    done, open_file, mark = tmp_path / "done", tmp_path / "open", tmp_path / "mark"
    FileEffect().perform(intend(ledger, "refresh", path=str(done)))
    intend(ledger, "refresh", path=str(open_file))
    RefEffect().perform(intend(ledger, "land", repo=str(path), old=old, new=new))
    intend(ledger, "spawn", mark=str(mark))
    ledger._lock.release()

    with open_ledger(tmp_path) as again:
        counts, told = recover(again, EFFECTS, time.time(), 3600)
        assert (counts.confirmed, counts.failed, counts.parked, counts.abandoned) == (2, 1, 1, 0)
        assert again.pairing.open_intents() == [] and "task_spawn_parked" in again.state.tasks["t"].parked
    assert closings(tmp_path) == [
        ("task_refresh_confirmed", "found done after a crash", {"size": 4}),
        ("task_refresh_failed", "not_started", {}),
        ("task_land_confirmed", "found done after a crash", {"at": new}),
        ("task_spawn_parked", "the child may have run without leaving its mark", {}),
    ]
    assert [item.how for item in told] == ["confirmed", "failed", "confirmed", "parked"]
    assert not open_file.exists() and not mark.exists(), "recovery performed something"
    last = [entry for _, entry in Chain(again.layout.wal).entries()][-1]
    assert last.decision_type == "wal_replay_completed" and last.inputs["confirmed"] == 2


def test_an_intent_that_is_too_old_is_abandoned_unless_it_happened(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path, clock=lambda: 1000.0)
    ledger.append(ledger.epoch, [added("t")])
    (tmp_path / "done").write_text("made")
    intend(ledger, "refresh", path=str(tmp_path / "done"))
    intend(ledger, "refresh", path=str(tmp_path / "open"))
    intend(ledger, "spawn", mark=str(tmp_path / "mark"))
    ledger._lock.release()
    with open_ledger(tmp_path, clock=lambda: 9000.0) as again:
        counts, told = recover(again, EFFECTS, 9000.0, 3600)
    assert (counts.confirmed, counts.abandoned, counts.failed, counts.parked) == (1, 2, 0, 0)
    assert "8000 s old" in told[1].reason


def test_an_effect_that_nobody_knows_or_that_cannot_be_asked_is_parked(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    ledger.append(ledger.epoch, [added("t")])
    intend(ledger, "verify")
    intend(ledger, "land")
    ledger._lock.release()
    with open_ledger(tmp_path) as again:
        counts, told = recover(again, {effect_entries.LandIntended: BrokenEffect()}, time.time(), 3600)
    assert counts.parked == 2
    assert "nothing here knows" in told[0].reason and "looking for it failed" in told[1].reason


def test_stale_claims_are_released_and_cost_no_attempt(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    ledger.append(ledger.epoch, [added("a"), added("b")])
    ledger.claim("worker", "a", lease_s=60)
    ledger._lock.release()
    with open_ledger(tmp_path) as again:
        counts, _ = recover(again, {}, time.time(), 3600)
        assert counts.released == 1 and again.state.tasks["a"].state is TaskState.OPEN
        assert again.claim("other", "a", lease_s=60).attempt == "a.1" and again.state.tasks["a"].attempts == 1


class _Growing(dict[str, Any]):
    """A task is added by another thread whenever somebody walks over the tasks."""

    def values(self) -> Any:
        for each in super().values():
            self[f"new-{len(self)}"] = msgspec.structs.replace(each)
            yield each


def test_tasks_that_are_added_while_recovery_looks_are_no_trouble(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    ledger.append(ledger.epoch, [added("a"), added("b")])
    ledger.claim("someone", "a", lease_s=1)
    with pytest.raises(RuntimeError, match="changed size"):
        list(_Growing(ledger.state.tasks).values())
    ledger.state.tasks = _Growing(ledger.state.tasks)
    counts, _ = recover(ledger, {}, 0.0, 1.0)
    assert counts.released == 1
    ledger.state.tasks = dict(ledger.state.tasks)
    ledger.close()


def test_recovery_survives_a_power_cut_at_every_operation_and_closes_each_intent_once() -> None:
    with scratch() as base:
        ledger = open_ledger(base)
        ledger.append(ledger.epoch, [added("t")])
        (base / "done").write_text("made")
        for name in ("done", "open"):
            intend(ledger, "refresh", path=str(base / name))
        ledger._lock.release()
        ledger._journal._file.close()

        def program(recorder: Recorder) -> None:
            with open_ledger(base) as again:
                recover(again, EFFECTS, time.time(), 3600)
                recorder.mark("recovered")

        disks = 0
        for _, root in each_disk(record(base, program), limit=12):
            with open_ledger(root) as second:
                recover(second, EFFECTS, time.time(), 3600)
                assert second.pairing.open_intents() == []
            found = closings(root)
            assert [kind for kind, _, _ in found] == ["task_refresh_confirmed", "task_refresh_failed"]
            disks += 1
        assert disks > 30


def test_a_second_power_cut_during_recovery_changes_nothing() -> None:
    """Work, a power cut anywhere in it, recovery, a power cut anywhere in that: one legal outcome all the same."""
    with scratch() as base:
        open_ledger(base).close()

        def work(recorder: Recorder) -> None:
            with open_ledger(base) as ledger:
                ledger.append(ledger.epoch, [added("t")])
                intent = intend(ledger, "refresh", path=str(base / "made"))
                recorder.mark("intended")
                FileEffect().perform(intent)
                closing = Record("task_refresh_confirmed", {"intent": intent.ref, "task": "t"}, {"size": 4})
                ledger.append(ledger.epoch, [closing])
                recorder.mark("confirmed")

        seen = 0
        # Thousands of pairs could be tried; these are spread evenly over both.
        for first, root in some_disks(record(base, work), 15):

            def again(recorder: Recorder, root: Path = root) -> None:
                with open_ledger(root) as ledger:
                    recover(ledger, EFFECTS, time.time(), 3600)

            for _, twice in some_disks(record(root, again), 6):
                with open_ledger(twice) as ledger:
                    recover(ledger, EFFECTS, time.time(), 3600)
                    assert ledger.pairing.open_intents() == []
                kinds = [kind for kind, _, _ in closings(twice)]
                assert len(kinds) <= 1 and ("intended" not in first or len(kinds) == 1)
                if "confirmed" in first:
                    assert kinds == ["task_refresh_confirmed"]
                seen += 1
        assert seen > 30


# -- each operation of several steps, cut, and its recovery cut too ----------------------------------------------------


@contextlib.contextmanager
def session(base: Path) -> Iterator[tuple[FileLedger, Backlog]]:
    """As a short run of the product: recovers, takes the files in, and puts them where they belong."""
    with open_ledger(base) as ledger:
        backlog, blobs = Backlog(ledger.layout.backlog), Blobs(ledger.layout.cas)
        recover(ledger, {}, time.time(), 3600)
        take_in(ledger, backlog, blobs)
        yield ledger, backlog
        take_in(ledger, backlog, blobs)
        project(ledger, backlog)


def outcome(base: Path) -> object:
    """Where a start comes to: each task with its attempts and text, and where its file stands."""
    with session(base) as (ledger, backlog):
        pass
    tasks = {name: (str(task.state), task.attempts, task.definition) for name, task in ledger.state.tasks.items()}
    places = {path.stem: path.parent.name for path in backlog.folder.glob("*/*.yaml")}
    entries = [entry for _, entry in Chain(ledger.layout.wal).entries()]
    closed = sorted(entry.inputs["task"] for entry in entries if entry.decision_type == "task_closed")
    return tasks, places, closed


Step = Callable[[FileLedger, Backlog], object]


def moving(event: TaskEvent) -> Step:
    return lambda ledger, backlog: ledger.append(ledger.epoch, [move(ledger, "old", event)])


def adding(text: bytes, name: str, folder: str = "open") -> Step:
    return lambda ledger, backlog: backlog.add(text, name, folder)


def taking_in(ledger: FileLedger, backlog: Backlog) -> None:
    take_in(ledger, backlog, Blobs(ledger.layout.cas))


def claiming(ledger: FileLedger, backlog: Backlog) -> None:
    ledger.claim("worker", "old", lease_s=60)


OPERATIONS: dict[str, list[Step]] = {
    "add": [adding(b"goal: more\n", "more"), taking_in],
    "claim": [claiming, project],
    "close": [claiming, moving(TaskEvent.FAST_COMPLETION), moving(TaskEvent.JANITOR_VERIFIED_AND_MERGED), project],
    "checkpoint": [claiming, moving(TaskEvent.IMMEDIATE_FAILURE), lambda ledger, backlog: ledger.save()],
    "import": [
        adding(b"goal: c\nresult:\n  commit: abc\n", "c", "closed"),
        adding(b"goal: f\nerror:\n  message: broke\n", "f", "failed"),
        taking_in,
    ],
}


@pytest.mark.parametrize("moments", [12, pytest.param(60, marks=pytest.mark.crash)], ids=["some", "many"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_and_its_recovery_both_cut_come_to_what_uncut_ones_do(operation: str, moments: int) -> None:
    """Up to the step that was acknowledged, or further."""
    steps = OPERATIONS[operation]
    with scratch() as base:
        with session(base) as (_, backlog):
            backlog.add(b"goal: old\n", "old")

        def run(root: Path, count: int, done: Callable[[int], object]) -> None:
            with session(root) as (ledger, backlog):
                for number, step in enumerate(steps[:count], 1):
                    step(ledger, backlog)
                    done(number)

        uncut = []
        for count in range(len(steps) + 1):
            with scratch() as other:
                shutil.copytree(base, other, dirs_exist_ok=True)
                run(other, count, lambda number: None)
                uncut.append(outcome(other))
        recorded = record(base, lambda recorder: run(base, len(steps), recorder.mark))
        seen = []
        for said, first in some_disks(recorded, moments):
            for _, second in some_disks(record(first, lambda _, root=first: outcome(root)), 6):
                found = outcome(second)
                assert found in uncut[len(said) :]
                seen.append(found)
        assert uncut[0] in seen and uncut[-1] in seen
