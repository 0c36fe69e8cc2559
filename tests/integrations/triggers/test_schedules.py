"""Schedules and watched files: an event for each moment and each change, once, also over outages and set clocks."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.integrations.triggers.cron import LATE_S, CronSettings, CronSource
from holdfast.integrations.triggers.file_watch import FileWatchSettings, FileWatchSource, WatchedFiles
from holdfast.ledgers.reader import FileLedgerReader
from holdfast.orchestrator.loop import Loop
from holdfast.wiring import run_context
from kit import deliveries as kit
from kit.git import git
from kit.program import QUICK, begin, holdfast
from kit.project import layout, settings, sound, state
from kit.waiting import wait_for

MINUTE, HOUR = 60.0, 3600.0
NIGHTLY = """\
sources:
  nightly:
    type: cron
    schedule: "{schedule}"
    catch_up: {catch_up}
rules:
- name: nightly
  on: {{source: nightly}}
  task: {{title: "Nightly {{event.id}}", script: say done, may_change_nothing: true}}
"""


def moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def source(schedule: str, zone: str = "UTC", catch_up: str = "none") -> CronSource:
    return CronSource("s", CronSettings(schedule=schedule, zone=zone, catch_up=catch_up))  # type: ignore[arg-type]


# -- moments ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("catch_up", "due", "left_out"), [("none", 0, 5), ("last", 1, 4), ("all", 5, 0)])
def test_moments_without_a_run_are_caught_up_as_asked(catch_up: str, due: int, left_out: int) -> None:
    last, now = moment("2026-03-01T00:00:00"), moment("2026-03-01T05:30:00")
    slots, left = source("0 * * * *", catch_up=catch_up).due(last, now)
    assert (len(slots), left) == (due, left_out)
    if slots:
        assert slots[-1] == moment("2026-03-01T05:00:00")


def test_a_moment_on_time_is_due_and_is_the_last_of_those_missed() -> None:
    last, now = moment("2026-03-01T00:00:00"), moment("2026-03-01T05:00:01")
    for catch_up, count in (("none", 1), ("last", 1), ("all", 5)):
        slots, _ = source("0 * * * *", catch_up=catch_up).due(last, now)
        assert len(slots) == count and slots[-1] == now - 1


def test_a_schedule_follows_its_zone_over_the_change_of_clocks() -> None:
    berlin = source("30 2 * * *", "Europe/Berlin", "all")
    # On 29 March there is no 2:30, on 25 October there are two.
    spring, _ = berlin.due(moment("2026-03-27T12:00:00"), moment("2026-03-31T12:00:00"))
    assert (
        len(spring) == 4 and spring[0] == moment("2026-03-28T01:30:00") and spring[-1] == moment("2026-03-31T00:30:00")
    )
    autumn, _ = berlin.due(moment("2026-10-23T12:00:00"), moment("2026-10-27T12:00:00"))
    assert len(autumn) == 4


def test_a_clock_that_is_set_back_gives_no_moment_twice() -> None:
    hourly = source("0 * * * *", catch_up="all")
    assert hourly.due(moment("2026-03-01T05:00:00"), moment("2026-03-01T03:10:00")) == ([], 0)
    assert hourly.body_of(moment("2026-03-01T05:00:00")) == hourly.body_of(moment("2026-03-01T05:00:00"))


# -- runs -------------------------------------------------------------------------------------------------------------


class SetTime:
    def __init__(self, at: float) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


def one_run(repo: Path, at: float) -> None:
    """A run that ends when nothing is left to do, at this time."""
    app = App.find(repo, environ=QUICK)
    app.clock = SetTime(at)
    with run_context(app) as context:
        Loop(context).run()


def delivered(repo: Path) -> list[str]:
    read = FileLedgerReader(layout(repo)).read()
    return [entry.inputs["id"] for _, entry in read if entry.decision_type == "delivery_received"]


@pytest.mark.parametrize(("catch_up", "count"), [("none", 1), ("last", 1), ("all", 3)])
def test_runs_deliver_what_was_missed_once(repo: Path, catch_up: str, count: int) -> None:
    settings(repo, agent="scripted")
    layout(repo).triggers.write_text(NIGHTLY.format(schedule="0 3 * * *", catch_up=catch_up))
    begun = moment("2030-03-01T12:00:00")
    one_run(repo, begun)
    # The first run only notes from when on it counts.
    assert delivered(repo) == [] and state(repo).connections.triggers.schedules["nightly"].last == begun
    late = moment("2030-03-04T12:00:00") if catch_up != "none" else moment("2030-03-04T03:00:01")
    for at in (late, late, late - HOUR, late + 1):
        one_run(repo, at)
    assert len(delivered(repo)) == count == len(state(repo).tasks)
    assert delivered(repo)[-1] == "2030-03-04T03:00:00Z"
    sound(repo)


def test_a_clock_that_was_far_ahead_is_set_right_and_the_schedule_goes_on(repo: Path) -> None:
    settings(repo, agent="scripted")
    layout(repo).triggers.write_text(NIGHTLY.format(schedule="0 3 * * *", catch_up="all"))
    one_run(repo, moment("2030-03-01T12:00:00"))
    one_run(repo, moment("2030-03-03T12:00:00"))
    assert len(delivered(repo)) == 2
    one_run(repo, moment("2030-03-01T13:00:00"))
    one_run(repo, moment("2030-03-04T12:00:00"))
    # What was delivered ahead of its time is not delivered again.
    assert sorted(delivered(repo)) == ["2030-03-02T03:00:00Z", "2030-03-03T03:00:00Z", "2030-03-04T03:00:00Z"]
    sound(repo)


def test_a_changed_schedule_begins_anew(repo: Path) -> None:
    settings(repo, agent="scripted")
    layout(repo).triggers.write_text(NIGHTLY.format(schedule="0 3 * * *", catch_up="all"))
    one_run(repo, moment("2030-03-01T12:00:00"))
    layout(repo).triggers.write_text(NIGHTLY.format(schedule="0 * * * *", catch_up="all"))
    one_run(repo, moment("2030-03-02T12:30:00"))
    assert delivered(repo) == []
    one_run(repo, moment("2030-03-02T13:30:00"))
    assert delivered(repo) == ["2030-03-02T13:00:00Z"]


def test_a_living_run_delivers_each_moment_at_its_time(repo: Path) -> None:
    settings(repo, agent="scripted")
    layout(repo).triggers.write_text(NIGHTLY.format(schedule="* * * * * *", catch_up="none"))
    process = begin(repo, "--stay")
    try:
        wait_for(lambda: len(delivered(repo)) >= 3, "three moments")
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert len(set(delivered(repo))) == len(delivered(repo))
    gaps = {later - earlier for earlier, later in zip(_moments(repo), _moments(repo)[1:], strict=False)}
    assert min(gaps) >= 1.0


def _moments(repo: Path) -> list[float]:
    return [moment(each.removesuffix("Z")) for each in delivered(repo)]


# -- watched files ----------------------------------------------------------------------------------------------------


def watched(repo: Path, *paths: str) -> WatchedFiles:
    return WatchedFiles(FileWatchSource("w", FileWatchSettings(paths=paths, debounce_ms=50)), repo, [repo / ".sdd"])


@pytest.mark.parametrize(
    ("rule", "seen", "unseen"),
    [
        ("docs/**", "docs/deep/a.md", "src/a.py"),
        ("docs", "docs/a.md", "src/a.py"),
        ("docs/*.md", "docs/a.md", "docs/a.txt"),
        ("*.md", "docs/deep/b.md", "docs/a.txt"),
        ("/README.md", "README.md", "docs/README.md"),
    ],
)
def test_changes_are_seen_where_a_rule_asks_for_them(repo: Path, rule: str, seen: str, unseen: str) -> None:
    for folder in ("docs/deep", "src"):
        (repo / folder).mkdir(parents=True)
    files = watched(repo, rule)
    try:
        files.take(0.05)

        def look() -> bool:
            # The kernel may not watch yet: written until it is seen.
            for path in (unseen, ".sdd/config/x.md", seen):
                (repo / path).write_text(str(time.time()))
            return any(path == seen for _, path in files.take(0.5))

        assert wait_for(look, "the change")
    finally:
        files.close()


WATCH = """\
sources:
  docs: {type: file_watch, paths: [docs/**], debounce_ms: 50}
rules:
- name: docs
  on: {source: docs}
  key: once
  task: {title: Check the docs, script: "write docs/made.md x", labels: [docs]}
"""


def test_a_changed_file_makes_a_task_and_its_landing_makes_none(repo: Path) -> None:
    settings(repo, agent="scripted")
    (repo / "docs").mkdir()
    layout(repo).triggers.write_text(WATCH)
    process = begin(repo, "--stay")
    try:

        def change() -> bool:
            (repo / "docs" / "a.md").write_text(str(time.time()))
            return bool(delivered(repo))

        wait_for(change, "a delivery")
        wait_for(lambda: [str(task.state) for task in state(repo).tasks.values()] == ["CLOSED"], "a task that landed")
        wait_for(lambda: (repo / "docs" / "made.md").exists(), "its landing in the checkout")
        count = len(delivered(repo))
        # The next change is seen behind that of the landing, which was none.
        (repo / "docs" / "b.md").write_text("x")
        wait_for(lambda: len(delivered(repo)) > count, "the next change")
    finally:
        process.terminate()
        print(process.communicate(timeout=60)[0])
    read = FileLedgerReader(layout(repo)).read()
    titles = [entry.inputs["title"] for _, entry in read if entry.decision_type == "delivery_received"]
    assert titles and not any("made.md" in title for title in titles)
    assert git(repo, "log", "--format=%s", "main")


# -- the command ------------------------------------------------------------------------------------------------------


def test_a_payload_is_tried_and_every_rule_says_why(repo: Path, tmp_path: Path) -> None:
    rules = """\
- name: fix
  on: {source: github, kind: issues.labeled}
  if: {label: [agent]}
  key: issue-{event.number}
  task: {title: "{event.title}", goal: "Fix:\\n{event.body}"}
- name: other
  on: {source: github, kind: push}
  task: {goal: x}
"""
    kit.configure(repo, rules, kit.SOURCES.partition("  gitlab:")[0])
    payload = tmp_path / "payload.json"
    payload.write_bytes(kit.issue())
    said = holdfast(repo, "triggers", "test", str(payload), "--event", "issues")
    assert "fix: yes, under the key issue-7" in said and "> It says 500." in said
    assert "other: no, it is for push, and this is issues.labeled" in said
    # Without the header the event is guessed from the payload.
    assert "fix: yes" in holdfast(repo, "triggers", "test", str(payload))
    assert not state(repo).tasks and "Nothing has arrived" in holdfast(repo, "triggers", "history")
    as_json = holdfast(repo, "triggers", "test", str(payload), "--json")
    assert '"fires": true' in as_json and '"reason": "it is for push' in as_json
    assert "rule fix  on github issues.labeled" in holdfast(repo, "triggers", "list")
    assert "no source 'x'" in holdfast(repo, "triggers", "test", str(payload), "--source", "x", code=2)
    assert "needs a delivery" in holdfast(repo, "triggers", "replay", code=2)
    assert "holdfast triggers history" in holdfast(repo, "triggers", "replay", "github:none", code=2)


def test_late_is_later_than_the_longest_look() -> None:
    from holdfast.orchestrator.schedules import LOOK_S_MAX

    assert LATE_S > 2 * LOOK_S_MAX
