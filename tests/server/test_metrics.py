"""What `/metrics` says, held against the journal and against its documentation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import metricdocs
from holdfast.server.observability import metrics as told
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import epoch_of
from kit.ops import Running, running
from kit.project import add, layout, settings, state
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy

Series = dict[tuple[str, ...], float]


def samples(text: str, name: str) -> Series:
    """The values of one metric, by the values of its labels."""
    families = text_string_to_metric_families(text)
    found = [sample for family in families for sample in family.samples if sample.name == name]
    return {tuple(sample.labels[label] for label in sorted(sample.labels)): sample.value for sample in found}


def only(server: Running, name: str, *labels: str) -> float:
    return samples(server.metrics(), name).get(labels, 0.0)


def wait_for_value(server: Running, value: float, name: str, *labels: str) -> None:
    wait_for(lambda: only(server, name, *labels) == value, f"{name} {labels} of {value}")


def test_the_page_is_up_to_date() -> None:
    assert metricdocs.main(["--check"]) == 0


def test_every_metric_is_documented_and_every_documented_one_exists(repo: Path) -> None:
    settings(repo, budgets={"usd_per_day": 5.0, "usd_per_run": 2.0})
    add(repo, "lands", "write a.txt one\nspend 0.5 100\nwrite b.txt two", verify=["test -e b.txt"])
    add(repo, "fails", "fail on purpose", max_attempts=1)
    add(repo, "waits", "unreachable no route")
    with running(repo) as server:
        wait_for(lambda: bool(samples(server.metrics(), "holdfast_outage_starts")), "the outage")
        server.wait_for_state("lands", "CLOSED")
        server.wait_for_state("fails", "FAILED")
        families = {family.name: family for family in text_string_to_metric_families(server.metrics())}
        documented = {named.name.removesuffix("_total"): named for named in told.NAMES.values()}
        assert {name: family.type for name, family in families.items()} == {
            name: named.kind for name, named in documented.items()
        }
        for name, family in families.items():
            assert family.documentation == documented[name].meaning
            labels = {tuple(sorted(set(sample.labels) - {"le"})) for sample in family.samples}
            assert labels == {tuple(sorted(documented[name].labels))}, name


def test_an_outage_is_told_by_metrics_and_by_the_page(repo: Path) -> None:
    settings(repo, outage_pause_s=1000, outage_after=1)
    add(repo, "waits", "write a.txt x\nunreachable no route")
    with running(repo) as server:
        wait_for(lambda: bool(samples(server.metrics(), "holdfast_outage_starts")), "the outage")
        (found,) = state(repo).outages.values()
        labels = ("scripted", "", "unreachable")
        assert only(server, "holdfast_outage_since_seconds", *labels) == pytest.approx(found.since, abs=1)
        assert only(server, "holdfast_outage_next_try_seconds", *labels) == pytest.approx(found.until, abs=1)
        (row,) = server.ask("/status").json["outages"]
        assert row["open"] and row["text"].startswith("scripted is unreachable since ")
        assert "no route" in server.ask("/tasks/waits").json["task"]["cause"]


def test_the_counts_are_those_of_the_journal(repo: Path) -> None:
    settings(repo, budgets={"usd_per_day": 5.0})
    add(repo, "lands", "write a.txt one\nspend 0.5 100\nwrite b.txt two", verify=["test -e b.txt"])
    add(repo, "fails", "write c.txt three", verify=["false"], max_attempts=1)
    with running(repo) as server:
        # It is added while the server is there: the others are in the journal before anybody serves.
        later = {"goal": "later", "id": "later", "script": "write d.txt four"}
        assert server.ask("/tasks", "POST", later).status == 201
        for task, end in (("lands", "CLOSED"), ("fails", "FAILED"), ("later", "CLOSED")):
            server.wait_for_state(task, end)
        wait_for(lambda: only(server, "holdfast_tasks_unfiled") == 0, "the task's file")
        looks: list[str] = []

        def is_of_one_moment() -> bool:
            """The audit's note may come while the numbers are collected."""
            looks.append(server.metrics())
            counted = samples(looks[-1], "holdfast_journal_entries_total")
            return bool(samples(looks[-1], "holdfast_journal_sequence")[()] == sum(counted.values()) + 3)

        wait_for(is_of_one_moment, "numbers that no entry came between")
        text = looks[-1]
        server.kill()
    in_journal = Counter(entry.decision_type for _, entry in Chain(layout(repo).wal).entries())
    # What stands there before the server: the run's begin, the tasks of the files, and recovery's own entry.
    in_journal.subtract({"run_started": 1, "task_added": 2, "wal_replay_completed": 1})
    assert in_journal["turn_completed"] == 4 and in_journal["task_land_confirmed"] == 2
    counted = samples(text, "holdfast_journal_entries_total")
    assert {kind: count for (kind,), count in counted.items() if count} == {k: n for k, n in in_journal.items() if n}
    known = state(repo)
    assert samples(text, "holdfast_turns_total") == {("scripted", ""): 4}
    assert samples(text, "holdfast_turn_seconds_count") == {("scripted",): 4}
    assert samples(text, "holdfast_spend_usd_total") == {("scripted", ""): pytest.approx(known.run.usd)}
    assert samples(text, "holdfast_tokens_total") == {("scripted", ""): known.run.tokens} == {("scripted", ""): 100}
    assert samples(text, "holdfast_run_spend_usd") == samples(text, "holdfast_day_spend_usd") == {(): 0.5}
    assert samples(text, "holdfast_budget_usd") == {("day",): 5.0}
    assert samples(text, "holdfast_landings_total")["confirmed",] == 2
    assert samples(text, "holdfast_land_seconds_count") == {("confirmed",): 2}
    assert samples(text, "holdfast_verify_seconds_count") == {("passed",): 2, ("refused",): 1}
    assert samples(text, "holdfast_attempts_failed_total") == {("gate_failed",): 1}
    states = Counter(task.state.value for task in known.tasks.values())
    assert {name: count for (name,), count in samples(text, "holdfast_tasks").items() if count} == states
    # Several entries may share an append; none is without one.
    assert 0 < samples(text, "holdfast_append_seconds_count")[()] <= sum(counted.values())
    assert samples(text, "holdfast_journal_sequence")[()] == sum(in_journal.values()) + 3


def test_agents_and_remote_workers_are_seen_and_a_lease_that_runs_out_is_counted(repo: Path) -> None:
    settings(repo, lease_s=1)
    add(repo, "long", "say hello\nhang")
    with running(repo) as server:
        wait_for_value(server, 1, "holdfast_agents")
        wait_for_value(server, 1, "holdfast_tasks", "IN_PROGRESS")
        wait_for(lambda: only(server, "holdfast_agent_silence_seconds") > 0, "an agent that is silent")
        assert server.ask("/tasks", "POST", {"goal": "x", "id": "far", "agent": "nobody-has-it"}).status == 201
        claimed = server.ask("/tasks/far/claim", "POST", {"worker": "elsewhere"})
        assert claimed.status == 200, claimed
        wait_for_value(server, 1, "holdfast_leases_expired_total")
        wait_for_value(server, 0, "holdfast_remote_claims")
        # Agents outlive the server: this one is ended first.
        assert server.ask("/tasks/long/cancel", "POST").status == 200
        wait_for_value(server, 0, "holdfast_agents")


def test_after_a_kill_the_next_server_says_what_recovery_did(repo: Path, tmp_path: Path) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    add(repo, "a", "write a.txt one", verify=[f"touch {begun}; while ! test -e {go_on}; do sleep 0.05; done"])
    with running(repo) as server:
        wait_for(begun.exists, "the gate")
        assert only(server, "holdfast_open_intents", "verify") == 1
        run = epoch_of(next(iter(samples(server.metrics(), "holdfast_info")))[0])
        server.kill()
    go_on.touch()
    with running(repo) as server:
        assert samples(server.metrics(), "holdfast_recovered_intents_total") == {
            ("confirmed",): 0, ("failed",): 1, ("abandoned",): 0, ("parked",): 0, ("released",): 0,
        }  # fmt: skip
        assert samples(server.metrics(), "holdfast_recovery_seconds_count") == {(): 1}
        assert epoch_of(next(iter(samples(server.metrics(), "holdfast_info")))[0]) == run + 1
        server.wait_for_state("a", "CLOSED")
        # The interval with the crash in it is nobody's duration.
        assert samples(server.metrics(), "holdfast_verify_seconds_count") == {("passed",): 1}


def test_denials_are_counted_and_nobody_scrapes_without_a_token(repo: Path) -> None:
    with running(repo) as server:
        assert server.ask("/metrics", token="").status == 401
        assert server.ask("/metrics", token="hfo_" + "0" * 40).status == 401
        assert server.ask("/tasks", "POST", {"goal": "x"}, token=server.reader_token).status == 403
        wait_for_value(server, 3, "holdfast_access_denied_total")
        assert only(server, "holdfast_request_seconds_count", "metrics", "401") == 2


def test_errors_of_the_server_are_counted_from_none_on(repo: Path) -> None:
    with running(repo) as server:
        assert samples(server.metrics(), "holdfast_request_errors_total") == {(): 0.0}, "there before the first"
        cas = layout(repo).cas
        cas.rename(cas.with_name("away"))
        cas.write_text("no folder")
        try:
            assert server.ask("/blobs", "POST", b"some text").status == 503
        finally:
            cas.unlink()
            cas.with_name("away").rename(cas)
        assert server.ask("/tasks/none").status == 404
        assert samples(server.metrics(), "holdfast_request_errors_total") == {(): 1.0}


def test_labels_stay_few() -> None:
    values = told.Values()
    kept = [values.keep(f"model-{number}") for number in range(told.VALUES_MAX + 10)]
    assert kept[: told.VALUES_MAX] == [f"model-{number}" for number in range(told.VALUES_MAX)]
    assert set(kept[told.VALUES_MAX :]) == {told.OTHER} and values.keep("model-3") == "model-3"
