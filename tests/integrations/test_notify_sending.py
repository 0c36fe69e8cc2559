"""Notifications reach real receivers on loopback: once, late, gathered, or after a fault; counted there."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.domain.messages import outbox_records
from holdfast.domain.messages.outbox_records import Outgoing
from holdfast.domain.task import TaskState
from holdfast.errors import HoldfastError, PublishFailed, PublishRefused, PublishUnclear
from holdfast.integrations.notify.apprise_publisher import ApprisePublisher
from kit.clock import SetClock
from kit.notification_services import MailService, WebService, running
from kit.program import holdfast, start
from kit.project import add, layout, settings, sound, state
from kit.receiver import PAUSE_S
from kit.waiting import wait_for

MAKES = "write made.txt x"
FAILS = "fail no"
RULE = {"name": "all", "to": ["env:NOTIFY_URL"], "on": ["needs_you", "failed", "landed"]}
SECRET = "secret-path"
POINTS = (
    *(f"append.message_queued.{when}" for when in ("before", "after")),
    *(f"append.task_publish_intent.{when}" for when in ("before", "after")),
    *(f"effect.publish.{when}" for when in ("before", "after")),
    "publish.sent",
    *(f"append.task_publish_confirmed.{when}" for when in ("before", "after")),
)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebService]:
    monkeypatch.setattr(outbox_records, "PAUSE_S", PAUSE_S)
    with running(WebService()) as service:
        monkeypatch.setenv("NOTIFY_URL", f"json://127.0.0.1:{service.port}/{SECRET}")
        yield service


def rules(repo: Path, *more: dict[str, Any], **config: Any) -> None:
    settings(repo, notify=[{**RULE, **each} for each in more or ({},)], **config)
    # A rule tells of what comes after it.
    holdfast(repo, "run", code=None)


def test_a_landing_and_a_failure_are_sent_once_each(repo: Path, web: WebService) -> None:
    rules(repo, page_url="https://build.example.org")
    add(repo, "good", MAKES)
    add(repo, "bad", FAILS, max_attempts=1)
    holdfast(repo, "run", code=None)
    told = {each["title"]: each["message"] for each in web.received}
    assert sorted(told) == [f"{repo.name}: bad has failed", f"{repo.name}: good has landed"]
    assert "https://build.example.org/#/task/good" in told[f"{repo.name}: good has landed"]
    holdfast(repo, "run", code=None)
    assert len(web.received) == 2 and not state(repo).outbox
    sound(repo)


def test_a_rule_tells_nothing_of_the_time_before_it_was_there(repo: Path, web: WebService) -> None:
    add(repo, "old", MAKES)
    holdfast(repo, "run")
    rules(repo)
    assert web.received == []
    settings(repo)
    add(repo, "between", "write b.txt x")
    holdfast(repo, "run")
    rules(repo)
    assert web.received == [], "a rule that comes back begins anew"
    add(repo, "new", "write c.txt x")
    holdfast(repo, "run")
    assert web.titles == [f"{repo.name}: new has landed"]


def test_the_end_of_a_run_is_told_in_that_run(repo: Path, web: WebService) -> None:
    rules(repo, {"on": ["run_over"]})
    assert web.titles == [f"{repo.name}: the run is over"], "also of the first one"
    add(repo, "bad", FAILS, max_attempts=1)
    holdfast(repo, "run", code=None)
    assert web.titles == [f"{repo.name}: the run is over"] * 2 and "1 failed" in web.received[1]["message"]
    assert not state(repo).outbox


def test_the_end_of_a_stopped_run_is_told(repo: Path, web: WebService, tmp_path: Path) -> None:
    rules(repo, {"on": ["run_over"]})
    add(repo, "long", f"run while [ ! -e '{tmp_path}/go' ]; do sleep 0.05; done\nwrite a.txt x")
    run = start(repo, "run", "--plain")
    wait_for(lambda: "long" in (tasks := state(repo).tasks) and tasks["long"].state is TaskState.IN_PROGRESS)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=60)
    assert len(web.received) == 2 and not state(repo).outbox
    (tmp_path / "go").touch()
    holdfast(repo, "run", code=None)


def test_a_recovered_run_says_so(repo: Path, web: WebService) -> None:
    rules(repo, {"on": ["recovered"]})
    holdfast(repo, "run")
    assert web.received == [], "an orderly end is no crash"
    add(repo, "a", MAKES)
    run = start(repo, "run", HOLDFAST_CRASH_AT="effect.land.after:1")
    assert run.wait(60) == -signal.SIGKILL, "the fault did not fire"
    run.communicate()
    holdfast(repo, "run")
    assert web.titles == [f"{repo.name}: recovered after a crash"]
    assert "1 confirmed" in web.received[0]["message"]


def test_only_tasks_of_a_label_or_role_are_told(repo: Path, web: WebService) -> None:
    rules(repo, {"labels": ["urgent"]}, {"name": "role", "roles": ["docs"]})
    add(repo, "urgent", "write a.txt x", labels=["urgent", "x"])
    add(repo, "docs", "write b.txt x", role="docs")
    add(repo, "other", "write c.txt x")
    holdfast(repo, "run")
    assert sorted(web.titles) == [f"{repo.name}: docs has landed", f"{repo.name}: urgent has landed"]


# -- faults of a service ----------------------------------------------------------------------------------------------


def publisher(repo: Path, *, can_be_asked: bool = False) -> ApprisePublisher:
    return ApprisePublisher(repo, layout(repo), None, can_be_asked=can_be_asked)


def message(ref: str = "env:NOTIFY_URL") -> Outgoing:
    return Outgoing(key="notify:x", channel="notification", content={"title": "T", "body": "B", "to": ref})


@pytest.mark.parametrize(
    ("fault", "error", "taken"),
    [
        (500, PublishFailed, 0),
        (503, PublishFailed, 0),
        (429, PublishFailed, 0),
        (404, PublishRefused, 0),
        (401, PublishRefused, 0),
        ("cut", PublishUnclear, 0),
        ("keep", PublishUnclear, 1),
    ],
)
@pytest.mark.parametrize("scheme", ["json", "ntfy"])
def test_a_fault_of_a_service_means_what_is_known_of_it(
    repo: Path, web: WebService, monkeypatch: pytest.MonkeyPatch, scheme: str, fault: Any, error: Any, taken: int
) -> None:
    monkeypatch.setenv("NOTIFY_URL", f"{scheme}://127.0.0.1:{web.port}/topic")
    web.fail = [fault]
    with pytest.raises(error):
        publisher(repo).send(message())
    assert (web.fired, len(web.received)) == (1, taken), "the fault did not fire"
    assert publisher(repo).send(message())["service"]
    assert len(web.received) == taken + 1


@pytest.mark.parametrize("address", ["json://127.0.0.1:1/x", "ntfy://127.0.0.1:1/x", "mailto://127.0.0.1:1?to=a@b.org"])
def test_a_refused_connection_sends_nothing(repo: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_URL", f"{address}&from=c@d.org" if "mailto" in address else address)
    with pytest.raises(PublishFailed):
        publisher(repo).send(message())


def test_mail_is_sent_and_a_refusal_is_told_apart(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(MailService()) as mail:
        monkeypatch.setenv("NOTIFY_URL", f"mailto://127.0.0.1:{mail.port}?from=a@example.org&to=b@example.org")
        assert publisher(repo).send(message())["service"]
        assert len(mail.received) == 1 and "Subject: T" in mail.received[0]
        mail.fail = [451, 554]
        with pytest.raises(PublishFailed):
            publisher(repo).send(message())
        with pytest.raises(PublishRefused):
            publisher(repo).send(message())
        assert mail.fired == 2 and len(mail.received) == 1


@pytest.mark.parametrize(("value", "error"), [(None, PublishFailed), ("carrierpigeon://nest", PublishRefused)])
def test_an_address_that_is_none_keeps_the_message(
    repo: Path, monkeypatch: pytest.MonkeyPatch, value: str | None, error: type[HoldfastError]
) -> None:
    monkeypatch.delenv("NOTIFY_URL", raising=False)
    if value is not None:
        monkeypatch.setenv("NOTIFY_URL", value)
    with pytest.raises(error) as raised:
        publisher(repo).send(message())
    assert "nest" not in str(raised.value)


def test_a_message_of_a_service_that_is_away_leaves_when_it_is_back(repo: Path, web: WebService) -> None:
    rules(repo)
    add(repo, "a", MAKES)
    web.fail = [503]
    holdfast(repo, "run")
    assert web.fired == 1, "the fault did not fire"
    assert web.titles == [f"{repo.name}: a has landed"] and not state(repo).outbox


def test_each_address_is_told_once_also_where_another_is_away(
    repo: Path, web: WebService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWAY_URL", "json://127.0.0.1:1")
    rules(repo, {"to": ["env:AWAY_URL", "env:NOTIFY_URL"]})
    add(repo, "a", MAKES)
    holdfast(repo, "run")
    [left] = state(repo).outbox.values()
    holdfast(repo, "outbox", "--retry", left.key)
    holdfast(repo, "run")
    assert len(web.received) == 1 and left.content["to"] == "env:AWAY_URL"


# -- kills ------------------------------------------------------------------------------------------------------------


def killed_run(repo: Path, clock: SetClock, point: str) -> None:
    run = start(repo, "run", "--plain", HOLDFAST_CRASH_AT=f"{point}:1", **clock.env)
    out, _ = run.communicate(timeout=120)
    assert run.returncode == -signal.SIGKILL, f"the fault did not fire: {out}"


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(("repeat", "scheme"), [("never", "json"), ("after_crash", "ntfy"), ("after_crash", "json")])
def test_a_kill_at_each_point(
    repo: Path, web: WebService, monkeypatch: pytest.MonkeyPatch, point: str, repeat: str, scheme: str
) -> None:
    """`never` is never received twice, `after_crash` never not at all; and once where ntfy can be asked."""
    monkeypatch.setenv("NOTIFY_URL", f"{scheme}://127.0.0.1:{web.port}/topic")
    clock = SetClock(repo.parent)
    rules(repo, {"repeat": repeat})
    add(repo, "a", MAKES)
    killed_run(repo, clock, point)
    for _ in range(2):
        # A try of unknown end is put off for some seconds.
        clock.later(60)
        holdfast(repo, "run", env=clock.env)
    received, left = len(web.received), list(state(repo).outbox.values())
    if repeat == "never":
        assert received <= 1 and (received == 1 or left[0].parked)
        assert not left or left[0].parked
    else:
        assert not left and (received == 1 if scheme == "ntfy" else 1 <= received <= 2)
        is_doubled = scheme == "json" and point in ("effect.publish.after", "publish.sent", POINTS[-2])
        assert received == 2 if is_doubled else received == 1
    sound(repo)


def test_the_cache_of_ntfy_is_asked_before_a_message_is_repeated(
    repo: Path, web: WebService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_URL", f"ntfy://127.0.0.1:{web.port}/topic")
    rules(repo, {"repeat": "after_crash"})
    add(repo, "a", MAKES)
    web.fail = ["keep"]
    holdfast(repo, "run")
    assert web.fired == 1, "the fault did not fire"
    assert len(web.received) == 1 and len(web.polls) == 1 and not state(repo).outbox


# -- later and together -----------------------------------------------------------------------------------------------


def at_hour(clock: SetClock, hour: int) -> None:
    """Sets the clock to the next such hour, UTC."""
    clock.later((hour * 3600 - (time.time() + clock.passed_s)) % 86_400)


def test_quiet_hours_keep_a_message_until_they_are_over(repo: Path, web: WebService) -> None:
    clock = SetClock(repo.parent)
    rules(repo, {"quiet": "22:00-07:00", "time_zone": "UTC"})
    add(repo, "a", MAKES)
    at_hour(clock, 23)
    holdfast(repo, "run", env=clock.env)
    [left] = state(repo).outbox.values()
    assert web.received == [] and left.not_before % 86_400 == 7 * 3600
    clock.later(3600)
    holdfast(repo, "run", env=clock.env)
    assert web.received == []
    at_hour(clock, 7)
    clock.later(60)
    holdfast(repo, "run", env=clock.env)
    assert len(web.received) == 1 and not state(repo).outbox


@pytest.mark.parametrize("point", ["", *POINTS])
def test_a_digest_counts_every_event_once(repo: Path, web: WebService, point: str) -> None:
    clock = SetClock(repo.parent)
    rules(repo, {"digest_s": 3600, "repeat": "never"}, page_url="http://127.0.0.1:1")
    names = ["a", "b", "c"]
    for name in names:
        add(repo, name, f"write {name}.txt x")
    holdfast(repo, "run", env=clock.env)
    assert web.received == [] and len(state(repo).outbox) == 3
    clock.later(3601)
    if point:
        killed_run(repo, clock, point)
    for _ in range(3):
        clock.later(60)
        holdfast(repo, "run", env=clock.env)
    told = [line for each in web.received for line in re.findall(r"- repo: (\w+) has landed", each["message"])]
    assert sorted(told) == names and len(web.received) == 1 and not state(repo).outbox
    assert web.received[0]["title"] == "repo: 3 events" and "http://127.0.0.1:1/#/task/b" in web.received[0]["message"]
    sound(repo)


# -- the command, doctor, and secrets ---------------------------------------------------------------------------------


def test_the_command_lists_and_tries_and_shows_no_address(repo: Path, web: WebService) -> None:
    assert "There is no rule" in holdfast(repo, "notify")
    rules(repo, {"quiet": "22:00-07:00", "digest_s": 60.0}, {"name": "gone", "to": ["env:NOT_THERE"]})
    listed = json.loads(holdfast(repo, "notify", "list", "--json"))
    assert [(each["rule"], each["to"]) for each in listed] == [("all", "env:NOTIFY_URL"), ("gone", "env:NOT_THERE")]
    said = holdfast(repo, "notify") + holdfast(repo, "notify", "test", code=1)
    assert "all  env:NOTIFY_URL  sent by JSON" in said and "gone  env:NOT_THERE  not sent: The secret" in said
    assert len(web.received) == 1 and SECRET not in said and "quiet 22:00-07:00" in said
    (tried,) = json.loads(holdfast(repo, "notify", "test", "all", "--json"))
    assert tried == {"rule": "all", "to": "env:NOTIFY_URL", "sent": True, "service": "JSON"}
    assert "known are all, gone" in holdfast(repo, "notify", "test", "nobody", code=2)
    web.fail = [500]
    assert "not sent: the service could not be reached" in holdfast(repo, "notify", "test", "all", code=1)


def test_doctor_finds_what_keeps_notifications_back(
    repo: Path, web: WebService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD_URL", "carrierpigeon://nest")
    config = {"page_url": "https://build.example.org"}
    rules(repo, {}, {"name": "gone", "to": ["env:NOT_THERE"]}, {"name": "odd", "to": ["env:ODD_URL"]}, **config)
    parts = json.loads(holdfast(repo, "doctor", "--json", code=None))["parts"]
    (part,) = [each for each in parts if each["name"] == "notify"]
    said = " ".join(each["said"] for each in part["findings"])
    assert [each["next"].split()[-1] for each in part["findings"]][:2] == ["gone", "odd"]
    assert "env:NOT_THERE" in said and "env:ODD_URL" in said and "nest" not in said and "build.example.org" in said
    assert web.received == []


def test_a_secret_stands_in_no_file_and_no_output(repo: Path, web: WebService) -> None:
    rules(repo)
    add(repo, "a", MAKES)
    web.fail = [503]
    said = holdfast(repo, "run", "--plain") + holdfast(repo, "outbox") + holdfast(repo, "log")
    assert web.fired == 1 and SECRET not in said
    for path in layout(repo).root.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_an_address_itself_is_refused_and_not_repeated(repo: Path) -> None:
    layout(repo).settings.write_bytes(
        msgspec.yaml.encode({"notify": [{"name": "a", "to": ["slack://T1/B1/hidden-word"]}]})
    )
    said = holdfast(repo, "list", code=None)
    assert "env:SLACK_URL" in said and "hidden-word" not in said
