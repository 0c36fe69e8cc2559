"""Each decision is on record, signed, once, also after a kill between the journal and the record."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.errors import StaleEpoch
from holdfast.identity import user
from holdfast.storage.audit import seals
from holdfast.storage.audit.from_journal import RUN_ENDED, fact_of, ref_of
from holdfast.storage.audit.key import AuditKey, load_key
from holdfast.storage.audit.verify import AuditRecord as AuditRecord
from holdfast.storage.journal.entry import Record, Ref
from holdfast.storage.journal.reader import Chain
from holdfast.wiring import owned
from kit.audit import read
from kit.program import begin, holdfast, type_in
from kit.project import add, layout
from kit.waiting import wait_for


def key_of(repo: Path) -> AuditKey:
    return load_key(layout(repo).root, environ={"XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"]}, create=False)


def records(repo: Path) -> list[AuditRecord]:
    return list(read(layout(repo).audit, key_of(repo)))


def events(repo: Path) -> list[str]:
    return [record.event for record in records(repo)]


def day_of(record: AuditRecord) -> str:
    return datetime.fromtimestamp(record.timestamp, UTC).date().isoformat()


KILLED = (RUN_ENDED, "unknown")


def assert_all_on_record(repo: Path) -> None:
    """Each entry to tell has exactly one record, and each record an entry; every run that another followed ended."""
    entries = list(Chain(layout(repo).wal).entries())
    wanted = Counter(Ref(run, entry.seq, entry.entry_hash) for run, entry in entries if fact_of(entry) is not None)
    found = records(repo)
    without_run = {"gc_begun", "gc_done", "repair_begun", "repair_done"}
    # The end of a killed run has no entry.
    made = [each for each in found if each.event not in without_run and (each.event, each.actor) != KILLED]
    assert Counter(map(ref_of, made)) == wanted
    runs = list(dict.fromkeys(run for run, _ in entries))
    ended = [ref.run for record in found if record.event == RUN_ENDED and (ref := ref_of(record))]
    assert ended in (runs, runs[:-1])


def test_a_run_a_landing_and_a_persons_decisions_are_on_record_and_can_be_proved(repo: Path) -> None:
    add(repo, "one", "write one.txt x")
    add(repo, "two", "fail on purpose", max_attempts=1)
    holdfast(repo, "run", code=20)
    holdfast(repo, "retry", "two")
    holdfast(repo, "cancel", "two")
    found = {record.event: record for record in records(repo)}
    landed = found["landed"].details
    assert (landed["task"], landed["attempt"], landed["branch"]) == ("one", "one.1", "refs/heads/main")
    assert landed["old"] != landed["new"]
    assert [(found[event].actor, found[event].details["task"]) for event in ("retry", "cancel")] == [
        (user(), "two")
    ] * 2
    assert Counter(events(repo))["run_started"] == Counter(events(repo))["run_ended"] == 3
    assert {record.details["how"] for record in records(repo) if record.event == "run_ended"} == {"orderly"}
    assert_all_on_record(repo)

    holdfast(repo, "check", "--repair")
    holdfast(repo, "gc")
    assert events(repo)[-4:] == ["repair_begun", "repair_done", "gc_begun", "gc_done"]
    assert_all_on_record(repo)

    root = json.loads(holdfast(repo, "seal", "--json"))["root"]
    day, number = day_of(found["landed"]), found["landed"].seq
    proof = repo.parent / "proof.json"
    holdfast(repo, "prove", day, str(number), "--out", str(proof))
    assert f"Record {number}: landed by loop" in holdfast(repo, "prove", "--verify", str(proof), "--root", root)
    report = json.loads(holdfast(repo, "check", "--json"))
    audit = next(section for section in report["sections"] if section["name"] == "audit")
    # A run of more than some seconds seals a log that has none yet before its end, too.
    made = seals.seal_files(layout(repo).audit)
    assert report["sound"] and audit["counted"]["records"] == len(records(repo))
    assert audit["counted"]["seals"] == len(made) >= 2


@pytest.mark.heavy
@pytest.mark.parametrize("entry", ["task_land_confirmed", "task_cancelled", "task_claimed"])
def test_a_kill_between_the_journal_and_the_record_loses_and_doubles_nothing(repo: Path, entry: str) -> None:
    add(repo, "one", "write one.txt x")
    add(repo, "two", "write two.txt x")
    crash = {"HOLDFAST_CRASH_AT": f"append.{entry}.after:1"}
    command = ("cancel", "two") if entry == "task_cancelled" else ("run",)
    holdfast(repo, *command, code=-signal.SIGKILL, env=crash)
    before = events(repo)
    assert not {"landed", "cancel"} & set(before), "the kill came too late to mean anything"
    holdfast(repo, "run")
    assert_all_on_record(repo)
    assert set(events(repo)) > {"landed", *(["cancel"] if entry == "task_cancelled" else [])}
    how = [record.details["how"] for record in records(repo) if record.event == RUN_ENDED]
    assert how == ["it put no end on record", "orderly"]
    holdfast(repo, "seal")
    last = records(repo)[-1]
    assert f'"seq":{last.seq}' in holdfast(repo, "prove", day_of(last), str(last.seq)).replace("\\", "")
    assert "Sound." in holdfast(repo, "check")


@pytest.mark.heavy
def test_a_persons_request_to_a_living_run_and_a_take_over_are_on_record(repo: Path) -> None:
    add(repo, "slow", f"run until test -f {repo.parent}/go; do sleep 0.05; done\nwrite slow.txt x")
    add(repo, "other", "write x y", depends_on=["slow"])
    first = begin(repo)
    wait_for(lambda: (layout(repo).attempts / "slow.1" / "process.json").exists(), "the agent to begin")
    holdfast(repo, "cancel", "other")
    second = begin(repo, "--take-over")
    first.communicate()
    (repo.parent / "go").touch()
    second.communicate()
    assert (first.returncode, second.returncode) == (-signal.SIGKILL, 0)
    found = [record for record in records(repo) if record.event in ("cancel", "run_taken_over")]
    assert [(record.event, record.actor) for record in found] == [("cancel", user()), ("run_taken_over", user())]
    assert found[1].details["took_over"] == Chain(layout(repo).wal).runs()[0].run
    assert_all_on_record(repo)


@pytest.mark.heavy
def test_without_a_usable_key_the_work_goes_on_it_is_said_once_and_what_is_missing_comes_later(repo: Path) -> None:
    add(repo, "one", "write one.txt x")
    said = holdfast(repo, "run", env={"HOLDFAST_AUDIT_KEY": "short"})
    assert said.count("nothing is written to the audit log") == 1 and "HOLDFAST_AUDIT_KEY" in said
    assert "!!  audit" in holdfast(repo, "doctor", code=20, env={"HOLDFAST_AUDIT_KEY": "short"})
    assert not list(layout(repo).audit.glob("*.jsonl"))
    add(repo, "two", "write two.txt x")
    assert "audit log" not in holdfast(repo, "run")
    assert Counter(events(repo))["landed"] == 2
    assert_all_on_record(repo)
    assert "ok  audit" in type_in(repo, "doctor").stdout


def test_a_journal_that_lost_what_is_on_record_is_reported(repo: Path) -> None:
    add(repo, "one", "write one.txt x")
    holdfast(repo, "cancel", "one")
    old = {path.name: path.read_bytes() for path in layout(repo).wal.glob("*.wal.jsonl")}
    add(repo, "two", "write two.txt x")
    holdfast(repo, "cancel", "two")
    for path in [*layout(repo).wal.glob("*"), layout(repo).tasks, layout(repo).lock]:
        if path.is_file() and path.name not in old:
            path.unlink()
    assert "which it does not have" in holdfast(repo, "run", code=4) and "journal_differs" not in events(repo)
    assert "which the journal does not have" in holdfast(repo, "resolve", "--journal-restored")
    assert "journal_differs" in events(repo)
    assert "which" not in holdfast(repo, "run")


def test_an_owner_whose_lock_file_is_gone_writes_nothing_beside_another(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(repo.parent))
    said: list[str] = []
    with contextlib.ExitStack() as first:
        _, ledger, auditor = first.enter_context(owned(App.find(repo), say=said.append))
        ledger.append(ledger.epoch, [Record("task_added", {"task": "a", "definition": "0" * 64})])
        layout(repo).lock.unlink()
        with owned(App.find(repo)) as (_, second, _):
            assert second.epoch == ledger.epoch + 1
        kept = {path: path.read_bytes() for path in layout(repo).root.rglob("*") if path.is_file()}
        with pytest.raises(StaleEpoch):
            ledger.append(ledger.epoch, [Record("task_added", {"task": "b", "definition": "0" * 64})])
        auditor.record("let_in", {})
    assert {path: path.read_bytes() for path in layout(repo).root.rglob("*") if path.is_file()} == kept
    assert any("audit log" in line and "epoch" in line for line in said), said
    assert_all_on_record(repo)
