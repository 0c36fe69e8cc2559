"""Which events are sent, by which rule, and when: pure, from entries and clocks."""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args
from zoneinfo import ZoneInfo

import msgspec
import pytest

from holdfast.config.notify import NotifyKind, NotifyRule
from holdfast.config.sections import Budgets
from holdfast.config.settings import Config
from holdfast.domain.definition import Definition
from holdfast.domain.fsm import Reason
from holdfast.domain.messages import outbox_records
from holdfast.domain.messages.outbox_records import MessageQueued, Outbox
from holdfast.domain.outage import Outage
from holdfast.domain.spend import Spend
from holdfast.domain.state import State
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task
from holdfast.integrations.notify.digests import PARTS_MAX, digest_of
from holdfast.integrations.notify.events import KINDS, EventFacts, Notification, clean, found_in, run_over
from holdfast.integrations.notify.rules import DIGEST, ONCE, REPEATED, leaves_at, messages, quiet_until, wants
from holdfast.storage.journal.entry import Entry

DAY = 86_400.0
CONFIG = Config(budgets=Budgets(usd_per_run=10.0, usd_per_day=100.0, turns_per_task=10))


def entry(named: str, output: dict[str, Any] | None = None, /, **inputs: Any) -> Entry:
    return Entry(seq=7, timestamp=1000.0, prev_hash="", synced=0, committed=True, decision_type=named, inputs=inputs,
                 output=output or {}, actor="loop", entry_hash="h")  # fmt: skip


def facts(**more: Any) -> EventFacts:
    state = State()
    state.tasks["a"] = Task("a", TaskState.OPEN, "", 0.0, 0.0)
    return EventFacts(**{"run": "000001-x", "state": state, "config": CONFIG, **more})


def spent(usd: float) -> EventFacts:
    found = facts()
    found.state.spend(found.state.tasks["a"], Spend(usd=usd, turns=1), 1000.0)
    return found


def with_outage(in_a_row: int) -> EventFacts:
    found = facts()
    out = Outage("claude", "", Reason.UNREACHABLE, "connection refused", 5.0, 9.0, in_a_row=in_a_row)
    found.state.outages[(out.agent, out.endpoint)] = out
    return found


REQUEUED = entry("task_opened", task="a", event="requeue", reason="unreachable", until=9.0)
TURN = entry("turn_completed", task="a", attempt="a.1", turn=1, end_offset=1)
# Of each kind: entries that are told, and such that are not.
TOLD: dict[NotifyKind, list[tuple[Entry, EventFacts]]] = {
    "needs_you": [
        (entry("task_flagged", task="a", parked="nobody can know"), facts()),
        (entry("task_approval_requested", task="a"), facts()),
        (entry("question_asked", id="a.1.q1", task="a", kind="permission", tool="Bash", preview="$ ls"), facts()),
        (entry("landing_waits", task="a", paths=["x.py"]), facts()),
        (entry("message_flagged", key="pr:a:open", how="parked", reason="refused"), facts()),
        (entry("task_publish_parked", key="pr:a:open", task="a", reason="in doubt"), facts()),
        (entry("task_publish_confirmed", {"number": 1, "url": "https://x/1"}, key="pr:a:f", task="a"), facts()),
        (entry("task_land_parked", task="a", reason="in doubt"), facts()),
        (entry("task_verify_abandoned", task="a", reason="too old"), facts()),
    ],
    "failed": [(entry("task_failed", task="a", outcome={"detail": "the gate failed"}), facts())],
    "landed": [(entry("task_land_confirmed", {"branch": "refs/heads/main", "new": "f" * 40}, task="a"), facts())],
    "run_over": [],
    "budget": [(TURN, spent(8.0)), (entry("task_opened", task="a", rest={"usd": 8.0}), spent(8.0))],
    "agent_unreachable": [(REQUEUED, with_outage(3))],
    "recovered": [
        (entry("wal_replay_completed", confirmed=1, failed=0), facts()),
        (entry("wal_replay_completed", confirmed=0), facts(was_killed=True)),
    ],
}
SILENT: dict[NotifyKind, list[tuple[Entry, EventFacts]]] = {
    "needs_you": [
        (entry("task_flagged", task="a", parked=""), facts()),
        (entry("task_flagged", task="a", parked="a person has stopped its agent"), facts()),
        (entry("task_flagged", task="a", parked="known before", cause="the disk is full"), facts()),
        (entry("message_flagged", key="notify:all:x", how="parked"), facts()),
        (entry("task_publish_parked", key="notify:all:x", task="a"), facts()),
        (entry("message_flagged", key="pr:a:open", how="retry"), facts()),
        (entry("task_publish_confirmed", {"branch": "holdfast/a"}, key="push:a:f", task="a"), facts()),
        # The notification follows with the address.
        (entry("task_approval_requested", task="a", outcome={"kind": "pull_request"}), facts()),
    ],
    "failed": [(entry("task_failed", task="a", again=True), facts())],
    "landed": [(entry("task_land_failed", task="a"), facts())],
    "run_over": [(entry("run_ended", how="orderly"), facts())],
    "budget": [(TURN, spent(7.9)), (entry("task_claimed", task="a"), spent(9.0))],
    "agent_unreachable": [(REQUEUED, with_outage(2)), (entry("task_opened", task="a"), with_outage(3))],
    "recovered": [(entry("wal_replay_completed", confirmed=0), facts())],
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_found_where_it_is_and_nowhere_else(kind: NotifyKind) -> None:
    for each, around in TOLD[kind]:
        (told,) = found_in(each, around, (kind,))
        assert told.kind == kind and told.subject and told.title and told.body and told.place.startswith("#/"), each
        assert [other for other in KINDS if other != kind and found_in(each, around, (other,))] == []
    for each, around in SILENT[kind]:
        assert found_in(each, around, (kind,)) == [], each


def test_the_settings_and_the_registry_name_the_same_kinds() -> None:
    assert tuple(KINDS) == get_args(NotifyKind) and KINDS.keys() == TOLD.keys() == SILENT.keys()


def test_the_end_of_a_run_counts_its_tasks() -> None:
    told = run_over("000001-x", facts().state)
    assert told.subject == "run_over:000001-x" and "1 open" in told.body


def test_a_budget_is_told_once_for_each_run_day_and_task() -> None:
    subjects = {each.subject for each in found_in(TURN, spent(85.0), ("budget",))}
    assert subjects == {"budget:day:0:usd", "budget:run:000001-x:usd"}
    earlier = msgspec.structs.replace(spent(85.0), is_present=False)
    assert {each.subject for each in found_in(TURN, earlier, ("budget",))} == {"budget:day:0:usd"}


def test_a_question_can_be_answered_and_words_are_not_buttons() -> None:
    ask = entry("question_asked", id="a.1.q1", task="a", kind="words", preview="Which colour?")
    (told,) = found_in(ask, facts(), ("needs_you",))
    assert (told.question, told.answers) == ("a.1.q1", ("say",)) and "Which colour?" in told.body


def test_text_of_others_rings_no_phone_and_is_not_endless() -> None:
    assert "@everyone" not in clean("@everyone look") and "<!channel" not in clean("<!channel>")
    assert clean("a\x1b[31mb") == "a[31mb" and len(clean("x" * 5000)) < 700


# -- rules -------------------------------------------------------------------------------------------------------------


def rule(**more: Any) -> NotifyRule:
    return msgspec.convert({"name": "r", "to": ["env:URL"], **more}, NotifyRule)


def told(kind: NotifyKind = "failed", **more: Any) -> Notification:
    return Notification(kind=kind, subject="s", title="t", body="b", **more)


def test_a_rule_wants_its_kinds_labels_and_roles_only() -> None:
    made = Definition("a", goal="a", labels=("x", "y"), role="docs")
    assert wants(rule(), told(), None) and not wants(rule(), told("landed"), made)
    assert wants(rule(labels=["y"]), told(), made) and not wants(rule(labels=["z"]), told(), made)
    assert wants(rule(roles=["docs"]), told(), made) and not wants(rule(roles=["x"]), told(), made)
    assert not wants(rule(labels=["y"]), told(), None)


def test_one_message_for_each_address_and_a_channel_for_each_way() -> None:
    made = messages(rule(to=["env:A", "env:B", "env:A"]), told(), "p", 5.0)
    assert len({each.idempotency_key for each in made}) == 2 and {each.channel for each in made} == {ONCE}
    assert {each.channel for each in messages(rule(repeat="after_crash"), told(), "p", 5.0)} == {REPEATED}
    (part,) = messages(rule(digest_s=60.0), told(), "p", 5.0)
    assert (part.channel, part.not_before, part.content["channel"]) == (DIGEST, 60.0, ONCE)


@pytest.mark.parametrize(
    ("quiet", "zone", "now", "until"),
    [
        ("22:00-07:00", "UTC", "2026-01-01T21:59", ""),
        ("22:00-07:00", "UTC", "2026-01-01T22:00", "2026-01-02T07:00"),
        ("22:00-07:00", "UTC", "2026-01-02T06:59", "2026-01-02T07:00"),
        ("22:00-07:00", "UTC", "2026-01-02T07:00", ""),
        ("12:00-13:00", "UTC", "2026-01-01T12:30", "2026-01-01T13:00"),
        ("22:00-07:00", "Europe/Vienna", "2026-03-28T23:00", "2026-03-29T07:00"),
        ("22:00-07:00", "Europe/Vienna", "2026-10-24T23:00", "2026-10-25T07:00"),
        ("22:00-07:00", "Asia/Kolkata", "2026-01-01T22:30", "2026-01-02T07:00"),
    ],
)
def test_quiet_hours_end_by_the_wall(quiet: str, zone: str, now: str, until: str) -> None:
    """Also in the nights in which the clocks are changed."""
    local = ZoneInfo(zone)
    moment = datetime.fromisoformat(now).replace(tzinfo=local).timestamp()
    expected = datetime.fromisoformat(until).replace(tzinfo=local).timestamp() if until else 0.0
    assert quiet_until(rule(quiet=quiet, time_zone=zone), moment) == expected


def test_a_digest_that_ends_in_quiet_hours_waits_for_their_end() -> None:
    made = rule(quiet="22:00-07:00", time_zone="UTC", digest_s=3600.0)
    assert leaves_at(made, 21.5 * 3600) == DAY + 7 * 3600 and leaves_at(made, 20.5 * 3600) == 21 * 3600
    assert leaves_at(rule(), 5.0) == 0.0


# -- digests -----------------------------------------------------------------------------------------------------------


def test_a_digest_takes_its_parts_out_of_the_outbox_with_one_entry() -> None:
    outbox: Outbox = {}
    for number in range(PARTS_MAX + 2):
        (part,) = messages(rule(digest_s=60.0), told(task=""), "p", 5.0)
        outbox_records.queue(outbox, msgspec.structs.replace(part, idempotency_key=f"notify:{number}"), 5.0)
    other = MessageQueued(idempotency_key="other", channel="x")
    outbox_records.queue(outbox, other, 5.0)
    parts = [each for each in outbox.values() if each.channel == DIGEST]
    made = digest_of(parts[0], parts, "p")
    assert outbox_records.queue(outbox, made, 61.0) == ""
    assert list(outbox) == ["other", "notify:0:digest"] and outbox["notify:0:digest"].channel == ONCE
    assert made.content["title"] == f"p: {PARTS_MAX + 2} events" and made.content["body"] == "… and 2 more"
