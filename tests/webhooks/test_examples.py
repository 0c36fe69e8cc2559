"""Payloads that nobody here wrote: all examples of `@octokit/webhooks-examples`, and signatures of the services' own
libraries. `make test-triggers` installs them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.integrations.triggers.event import Delivery
from kit import deliveries as kit
from kit.project import make_repo, sound, state
from kit.server import Server, served

FOLDER = os.environ.get("HOLDFAST_WEBHOOKS", "")
if not FOLDER:
    pytest.skip("`make test-triggers` installs the examples", allow_module_level=True)
PACKAGE = Path(FOLDER) / "node_modules" / "@octokit" / "webhooks-examples"
NODE = """\
const [library, call] = process.argv.slice(1);
import(library).then(async found => {
  const input = JSON.parse(require('fs').readFileSync(0, 'utf8'));
  const main = found.default ?? found;
  console.log(JSON.stringify(await (found[call] ?? main[call])(...input)));
});
"""
RULES = """\
- name: issue
  on: {source: github, kind: [issues.opened, issues.labeled]}
  key: "issue-{event.id}"
  task: {title: "{event.title}", goal: "Fix:\\n{event.body}"}
- name: comment
  on: {source: github, kind: issue_comment.created}
  task: {goal: "Answer:\\n{event.body}"}
- name: push
  on: {source: github, kind: push}
  task: {goal: "Look at {event.number} {event.paths}"}
- name: failed
  on: {source: github, kind: workflow_run.completed}
  if: {fields: {workflow_run.conclusion: failure}}
  task: {goal: "Mend {event.url}"}
"""


def examples() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Edition, event and payload of each."""
    for path in sorted(PACKAGE.glob("*/index.json")):
        for group in json.loads(path.read_text()):
            for payload in group["examples"]:
                yield path.parent.name, group["name"], payload


EXAMPLES = list(examples())


def node(library: str, call: str, *values: Any) -> Any:
    path = Path(FOLDER) / "node_modules" / library
    ran = subprocess.run(
        ["node", "-e", NODE, str(path), call], input=json.dumps(values), capture_output=True, text=True, check=True
    )
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repo = make_repo(tmp_path_factory.mktemp("examples") / "repo")
    kit.configure(repo, RULES)
    with served(repo, **kit.VARIABLES) as serving:
        yield serving


def wanted(event: str, payload: dict[str, Any]) -> str:
    """The rule that the payload itself asks for."""
    match event, payload.get("action"):
        case "issues", "opened" | "labeled":
            return "issue"
        case "issue_comment", "created":
            return "comment"
        case "push", _:
            return "push"
        case "workflow_run", "completed" if payload["workflow_run"]["conclusion"] == "failure":
            return "failed"
    return ""


def test_every_example_is_taken_and_the_expected_ones_fire(server: Server) -> None:
    assert len(EXAMPLES) > 700, "the package has all its examples"
    fired: Counter[str] = Counter()
    expected: Counter[str] = Counter()
    for number, (edition, event, payload) in enumerate(EXAMPLES):
        body = json.dumps(payload).encode()
        answer = kit.post(server.nobody, "github", body, kit.github(body, event, f"{edition}-{number}"))
        assert answer.status == 200, (edition, event, answer)
        if event == "ping":
            continue
        rule = wanted(event, payload)
        expected[rule] += bool(rule)
        fired[rule] += len(answer.json["tasks"])
        assert len(answer.json["tasks"]) == bool(rule), (edition, event, payload.get("action"), answer)
    assert +fired == +expected and all(fired[rule] for rule in ("issue", "comment", "push"))
    print(f"{len(EXAMPLES)} examples, {fired.total()} tasks: {dict(fired)}")


def test_the_data_root_is_sound_behind_them(server: Server) -> None:
    server.process.terminate()
    server.process.wait(60)
    assert not state(server.repo).connections.triggers.unjudged
    sound(server.repo)


def test_every_example_has_a_kind_and_most_have_an_actor(tmp_path: Path) -> None:
    source = kit.read_text(tmp_path, kit.SOURCES).sources["github"]
    actors = 0
    for _, event, payload in EXAMPLES:
        made = source.normalise(Delivery({"x-github-event": event}, json.dumps(payload).encode(), "0" * 64))
        assert made.kind == event + (f".{payload['action']}" if payload.get("action") else "")
        actors += bool(made.actor)
        login = payload.get("sender", {}).get("login")
        assert not login or made.actor == login
    assert actors > 0.9 * len(EXAMPLES)


def test_the_event_of_most_payloads_is_guessed_without_its_header(tmp_path: Path) -> None:
    from holdfast.integrations.triggers.github import guess_event

    common = {"issues", "issue_comment", "push", "pull_request", "pull_request_review", "release", "discussion"}
    seen = [(event, guess_event(payload)) for _, event, payload in EXAMPLES if event in common]
    assert seen and all(event == guessed for event, guessed in seen)


def test_a_signature_of_githubs_library_is_taken(tmp_path: Path) -> None:
    source = kit.read_text(tmp_path, kit.SOURCES).sources["github"]
    body = json.dumps(EXAMPLES[0][2])
    signature = node("@octokit/webhooks-methods/dist-node/index.js", "sign", kit.SECRET, body)
    headers = {"x-hub-signature-256": signature}
    source.verify(Delivery(headers, body.encode()), {"env:HOOK_SECRET": kit.SECRET}, time.time())


def test_the_libraries_of_slack_discord_and_standard_webhooks_take_what_the_tests_sign() -> None:
    from slack_sdk.signature import SignatureVerifier
    from standardwebhooks.webhooks import Webhook

    body = json.dumps(kit.SLACK["app_mention"]).encode()
    headers = kit.slack(body)
    assert SignatureVerifier(kit.SECRET).is_valid_request(body, headers)
    signed = kit.discord(body)
    values = (body.decode(), signed["X-Signature-Ed25519"], signed["X-Signature-Timestamp"], kit.DISCORD_PUBLIC)
    assert node("discord-interactions/dist/index.js", "verifyKey", *values) is True
    import base64

    found = {name.lower(): value for name, value in kit.standard(body).items()}
    assert Webhook(base64.b64encode(kit.SECRET.encode()).decode()).verify(body, found)
