"""Deliveries over HTTP: durable before they are answered, once each, and refused where they prove nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.checks.gc import Collector
from holdfast.config.layers import load
from holdfast.decisions.connections.deliveries import DELIVERY_POINTS
from holdfast.ledgers.reader import FileLedgerReader
from holdfast.server.access.delivery_quotas import AT_ONCE, BYTES_AT_ONCE, DeliveryQuotas
from holdfast.server.problems import Problem
from holdfast.storage.records.blobs import Blobs
from kit import TOP
from kit import deliveries as kit
from kit.program import holdfast
from kit.project import layout, make_repo, settings, sound, state
from kit.server import Server, served
from kit.waiting import wait_for

RULE = """\
- name: fix
  on: {source: github, kind: issues.*}
  if: {label: [agent]}
  key: issue-{event.number}
  task:
    title: "{event.title}"
    goal: "Fix it:\\n{event.body}"
    labels: [from-github]
    verify: ["true"]
"""
EVERY = RULE + "".join(kit.ANY.format(source=name) for name in ("gitlab", "slack", "discord", "sentry", "plain"))
ENTRIES = ("delivery_received", "task_added", "delivery_judged")


def entries(repo: Path, kind: str) -> list[dict[str, Any]]:
    return [entry.inputs for _, entry in FileLedgerReader(layout(repo)).read() if entry.decision_type == kind]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repo = make_repo(tmp_path_factory.mktemp("hooks") / "repo")
    kit.configure(repo, EVERY)
    with served(repo, **kit.VARIABLES) as serving:
        yield serving


def send(server: Server, body: bytes, id: str, **more: str) -> Any:
    return kit.post(server.nobody, "github", body, kit.github(body, id=id) | more)


def test_a_delivery_is_on_disk_when_it_is_answered_and_the_same_one_gets_the_same_answer(server: Server) -> None:
    body = kit.issue(number=1, title="Fix the page")
    first = send(server, body, "once")
    assert (first.status, first.json) == (200, {"delivery": "github:once", "tasks": ["fix-page"]})
    (received,) = [each for each in entries(server.repo, "delivery_received") if each["id"] == "once"]
    assert Blobs(layout(server.repo).cas).get(received["body"]) == body
    assert received["actor"] == "ada" and kit.SECRET not in json.dumps(received)
    again = send(server, body, "once")
    assert (again.status, again.content) == (first.status, first.content)
    assert len([each for each in entries(server.repo, "task_added") if each.get("delivery") == "github:once"]) == 1
    shown = server.operator.get("/tasks/fix-page")
    assert shown["task"]["labels"] == ["from-github"] and "> It says 500." in shown["definition"]["goal"]


def test_events_with_one_key_have_one_task(server: Server) -> None:
    bodies = [kit.issue(number=2, title="One of them", body=f"The {n}th") for n in range(3)]
    answers = [send(server, body, f"key-{n}").json["tasks"] for n, body in enumerate(bodies)]
    assert answers == [["one-them"]] * 3


@pytest.mark.parametrize(
    ("source", "payload", "sign"),
    [
        ("gitlab", kit.GITLAB["issue.open"], kit.gitlab),
        ("slack", kit.SLACK["app_mention"], kit.slack),
        ("discord", kit.DISCORD["command.fix"], kit.discord),
        ("sentry", {"data": {"id": "e-1", "title": "broken"}, "body": "x"}, kit.sentry),
        ("plain", {"id": "p-1", "body": "x"}, kit.plain),
    ],
)
def test_every_source_makes_a_task_of_a_genuine_delivery(server: Server, source: str, payload: Any, sign: Any) -> None:
    body = json.dumps(payload).encode()
    answer = kit.post(server.nobody, source, body, sign(body))
    assert answer.status == 200, answer
    assert [each for each in entries(server.repo, "task_added") if each.get("rule") == f"any-{source}"]
    if source == "discord":
        assert answer.json["type"] == 4 and "Noted" in answer.json["data"]["content"]


def test_the_services_questions_about_us_are_answered_and_not_journalled(server: Server) -> None:
    before = len(entries(server.repo, "delivery_received"))
    challenge = json.dumps({"type": "url_verification", "challenge": "c"}).encode()
    assert kit.post(server.nobody, "slack", challenge, kit.slack(challenge)).json == {"challenge": "c"}
    ping = json.dumps({"type": 1, "token": "t", "version": 1}).encode()
    assert kit.post(server.nobody, "discord", ping, kit.discord(ping)).json == {"type": 1}
    event = json.dumps({"type": 0, "version": 1}).encode()
    assert kit.post(server.nobody, "discord", event, kit.discord(event)).status == 204
    zen = json.dumps({"zen": "Keep it."}).encode()
    assert kit.post(server.nobody, "github", zen, kit.github(zen, event="ping")).status == 200
    assert len(entries(server.repo, "delivery_received")) == before


def test_a_wrong_signature_is_refused_audited_and_leaves_nothing(server: Server) -> None:
    body = kit.issue(number=3)
    for headers in (kit.github(body, secret="wrong"), {"X-GitHub-Event": "issues"}, kit.github(body + b" ")):
        assert kit.post(server.nobody, "github", body, headers).code == "signature_refused"
    old = json.dumps(kit.SLACK["app_mention"]).encode()
    refused = kit.post(server.nobody, "slack", old, kit.slack(old, moment=1_000_000))
    assert (refused.status, refused.code) == (401, "signature_refused")
    day = next(layout(server.repo).audit.glob("*.jsonl"))
    wait_for(lambda: day.read_text().count('"signature_refused"') >= 4, "the denials in the audit log")
    assert not [each for each in entries(server.repo, "delivery_received") if each["title"] == "3"]


def test_a_source_that_is_not_configured_is_no_path(server: Server) -> None:
    for name in ("nobody", "cron", "..", "GITHUB"):
        assert server.nobody.ask("POST", f"/webhooks/{name}", b"{}").status == 404


def test_a_body_that_is_too_long_is_not_read_to_its_end(server: Server) -> None:
    body = b'{"text": "' + b"x" * (1 << 20) + b'"}'
    answer = kit.post(server.nobody, "slack", body, kit.slack(body))
    assert (answer.status, answer.code) == (413, "body_too_large")
    # GitHub's may have 25 MB.
    large = kit.issue(number=4, title="A large one", body="x" * (2 << 20))
    assert send(server, large, "large").json["tasks"] == ["large-one"]


def test_a_body_that_is_no_object_is_refused(server: Server) -> None:
    for body in (b"[]", b"nothing", b""):
        assert kit.post(server.nobody, "github", body, kit.github(body)).code == "delivery_unreadable"


def test_events_of_our_own_make_no_task(server: Server) -> None:
    marked = kit.issue(number=5, body="Done.\n<!-- holdfast: x -->")
    by_us = kit.issue(number=5, sender={"login": "holdfast-bot"})
    for number, body in enumerate((marked, by_us)):
        assert send(server, body, f"own-{number}").json["tasks"] == []
    owns = {each["delivery"]: each["own"] for each in entries(server.repo, "delivery_judged") if each["own"]}
    assert owns["github:own-0"] == "it has our mark" and "holdfast-bot" in owns["github:own-1"]


def test_the_operator_sees_sources_rules_and_deliveries(server: Server) -> None:
    send(server, kit.issue(number=6, title="Seen"), "seen")
    listed = server.operator.get("/triggers")
    assert {each["name"] for each in listed["rules"]} >= {"fix", "any-gitlab"} and not listed["problem"]
    newest = server.operator.get("/deliveries?limit=1")["deliveries"]
    assert newest[0]["delivery"] == "github:seen" and newest[0]["outcomes"][0]["task"] == "seen"
    assert server.reader.ask("GET", "/deliveries").status == 403
    again = server.operator.post("/deliveries/replay", {"delivery": "github:seen"})
    assert again["outcomes"][0]["task"] == "seen" and "has its task" in again["outcomes"][0]["reason"]
    assert server.operator.post("/triggers/fix/enable")["rule"] == "fix"
    assert server.operator.ask("POST", "/triggers/none/enable", {}).status == 422


def test_a_file_that_breaks_while_the_server_lives_changes_nothing(repo: Path) -> None:
    path = kit.configure(repo, RULE)
    with served(repo, **kit.VARIABLES) as server:
        assert send(server, kit.issue(number=1), "a").status == 200
        path.write_text("sources: [")
        assert send(server, kit.issue(number=2, title="Still"), "b").json["tasks"] == ["still"]
        assert "line 2" in server.operator.get("/triggers")["problem"]
        for said in (holdfast(repo, "triggers", "list", code=2), holdfast(repo, "doctor", code=20)):
            assert "a living run goes on with the rules that it has read" in " ".join(said.split())
        path.write_text("")
        assert send(server, kit.issue(number=3), "c").status == 404
    path.write_text("sources: [")
    with served(repo, **kit.VARIABLES) as server:
        assert send(server, kit.issue(number=4), "d").code == "triggers_unusable"
        assert "line 2" in holdfast(repo, "doctor", code=20)
        kit.configure(repo, RULE)
        assert send(server, kit.issue(number=4, title="Now"), "d").json["tasks"] == ["now"]
    sound(repo)


def test_a_secret_that_cannot_be_read_is_our_fault_and_nothing_is_kept(repo: Path) -> None:
    kit.configure(repo, RULE)
    with served(repo) as server:
        assert send(server, kit.issue(), "a").code == "secret_missing"


def test_limits_of_a_rule_hold_also_behind_a_restart(repo: Path) -> None:
    kit.configure(repo, RULE + "  max_per_hour: 2\n  approve_first: true\n")
    for ids in ((1, 2), (3, 4)):
        with served(repo, **kit.VARIABLES) as server:
            for number in ids:
                send(server, kit.issue(number=number, title=f"Task number {number}"), f"d-{number}")
    made = state(repo).tasks
    assert {name: str(task.state) for name, task in made.items()} == dict.fromkeys(
        ("task-number-1", "task-number-2"), "PLANNED"
    )
    assert "within an hour" in holdfast(repo, "triggers")
    holdfast(repo, "approve", "task-number-1")
    assert str(state(repo).tasks["task-number-1"].state) == "OPEN"
    sound(repo)


def test_a_rule_that_fires_on_what_it_made_is_set_aside_until_a_person_enables_it(repo: Path) -> None:
    kit.configure(repo, RULE.replace("issue-{event.number}", "'{event.id}'"))
    with served(repo, **kit.VARIABLES) as server:
        send(server, kit.issue(title="Fix the loop"), "d-0")
        answers = [send(server, kit.issue(body=f"{n} on fix-loop"), f"d-{n}").json["tasks"] for n in range(1, 7)]
    assert [bool(each) for each in answers] == [True, True, True, False, False, False]
    assert "on what it had made itself" in state(repo).connections.triggers.rules["fix"].set_aside
    assert "holdfast triggers enable fix" in holdfast(repo, "doctor", code=20)
    holdfast(repo, "triggers", "enable", "fix")
    assert not state(repo).connections.triggers.rules["fix"].set_aside
    with served(repo, **kit.VARIABLES) as server:
        assert send(server, kit.issue(body="about fix-loop"), "d-9").json["tasks"]
    sound(repo)


# -- kills ------------------------------------------------------------------------------------------------------------


POINTS = (*DELIVERY_POINTS, *(f"append.{name}.{when}" for name in ENTRIES for when in ("before", "after")))


@pytest.mark.heavy
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_loses_and_doubles_nothing(repo: Path, point: str) -> None:
    """The sender delivers again until it is answered, as services do; what it was answered stays so."""
    kit.configure(repo, RULE)
    body = kit.issue(number=1, title="Fix it once")
    with served(repo, HOLDFAST_CRASH_AT=f"{point}:1", **kit.VARIABLES) as server:
        with pytest.raises((ConnectionError, OSError)):
            send(server, body, "d-1")
        assert server.process.wait(60) == -signal.SIGKILL, "the fault fired"
    with served(repo, **kit.VARIABLES) as server:
        first = send(server, body, "d-1")
        assert first.json["tasks"] == ["fix-it-once"]
        assert send(server, body, "d-1").content == first.content
    assert list(state(repo).tasks) == ["fix-it-once"]
    assert Counter(each["idempotency_key"] for each in entries(repo, "delivery_received")) == {"github:d-1": 1}
    sound(repo)


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_a_delivery_that_a_kill_cut_off_is_completed_by_the_next_run(repo: Path, kept: int) -> None:
    """Of the one append a beginning may be on disk: delivery, then task, then judgement."""
    settings(repo, max_agents=1, agent="scripted")
    kit.configure(repo, RULE.replace('verify: ["true"]', "script: say done\n    may_change_nothing: true"))
    with served(repo, **kit.VARIABLES) as server:
        send(server, kit.issue(number=1, title="Fix it once"), "d-1")
        server.kill()
    kit.cut_off(repo, kept)
    assert len(state(repo).connections.triggers.unjudged) == (1 <= kept < 3)
    if kept:
        assert ("pending" in holdfast(repo, "check", code=None)) or kept == 3
    holdfast(repo, "run", code=None, env=kit.VARIABLES)
    assert list(state(repo).tasks) == (["fix-it-once"] if kept else [])
    assert not state(repo).connections.triggers.unjudged
    assert len(entries(repo, "delivery_judged")) == bool(kept)
    if kept:
        assert len(state(repo).connections.triggers.rules["fix"].fired) == 1
    sound(repo)


def test_a_delivery_whose_source_is_gone_is_judged_with_that_reason(repo: Path) -> None:
    kit.configure(repo, RULE)
    with served(repo, **kit.VARIABLES) as server:
        send(server, kit.issue(number=1), "d-1")
        server.kill()
    kit.cut_off(repo, 1)
    kit.configure(repo, sources="sources: {}\n")
    holdfast(repo, "run")
    (judged,) = entries(repo, "delivery_judged")
    assert "no source github any more" in judged["own"] and not state(repo).tasks
    assert "no source github any more" in holdfast(repo, "triggers", "history")
    sound(repo)


# -- bodies -----------------------------------------------------------------------------------------------------------


def one_delivery(repo: Path) -> str:
    kit.configure(repo, RULE)
    with served(repo, **kit.VARIABLES) as server:
        send(server, kit.issue(number=1), "d-1")
    (received,) = entries(repo, "delivery_received")
    return str(received["body"])


def test_a_body_is_kept_for_its_days_and_then_removed(repo: Path) -> None:
    body = one_delivery(repo)
    root, days = layout(repo), 86_400.0
    path = root.cas / body[:2] / body
    os.utime(path, (0, 0))

    def garbage(after_s: float) -> set[str]:
        moment = time.time() + after_s
        found = Collector(
            repo,
            root,
            load(repo, environ={}).config,
            state(repo).tasks.values(),
            clock=lambda: moment,
            note=lambda task, text: None,
        )
        return {each.name for each in found.find(30) if each.kind == "blob"}

    assert body not in garbage(29 * days) and body in garbage(31 * days)


def test_a_lost_body_is_a_finding_and_cannot_be_judged_again(repo: Path) -> None:
    body = one_delivery(repo)
    (layout(repo).cas / body[:2] / body).unlink()
    said = holdfast(repo, "check", code=None)
    assert f"the body of the delivery github:d-1, blob {body}, is missing" in said
    assert "no longer kept" in holdfast(repo, "triggers", "replay", "github:d-1", code=2)


def test_too_many_deliveries_and_bytes_at_once_are_put_off() -> None:
    now = [0.0]
    quotas = DeliveryQuotas(lambda: now[0])
    for _ in range(AT_ONCE):
        quotas.expect_room("github")
    with pytest.raises(Problem) as refused:
        quotas.expect_room("github")
    assert refused.value.document.status == 429 and refused.value.headers["Retry-After"]
    quotas.expect_room("gitlab")
    now[0] += 1.0
    quotas.expect_room("github")
    with quotas.holding("", BYTES_AT_ONCE), pytest.raises(Problem), quotas.holding("1", 10):
        pass
    assert quotas.held == 0


def test_every_example_of_the_page_is_a_file_that_can_be_used(tmp_path: Path) -> None:
    page = (TOP / "docs" / "triggers.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) > 6
    for block in blocks:
        assert kit.read_text(tmp_path, block).path
    assert len(blocks[0].splitlines()) == 10
    for block in blocks[:2]:
        rule = kit.read_text(tmp_path, block).rules[0]
        assert rule.name == "fix-issues" and rule.on.kinds == ("issues.labeled",)
    assert page.index("## A GitHub webhook to a landed pull request, in ten lines") < page.index(blocks[1])
    assert len(blocks[1].splitlines()) == 10 and blocks[1].count("land: pull_request") == 1
