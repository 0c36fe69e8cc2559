"""Every source: what it takes for genuine, and the event that it makes of what its service documents."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.errors import DeliveryUnreadable, SignatureRefused
from holdfast.integrations.triggers import signatures
from holdfast.integrations.triggers.event import Delivery, Handshake, TriggerEvent, TriggerSource
from holdfast.integrations.triggers.holder import TriggersHolder
from holdfast.integrations.triggers.registry import SOURCES
from holdfast.integrations.triggers.rules import own_reason
from holdfast.integrations.triggers.trigger_file import TriggerConfig
from holdfast.integrations.triggers.webhook import WebhookSettings, WebhookSource
from kit import deliveries as kit

SECRETS = {"env:HOOK_SECRET": kit.SECRET, "env:DISCORD_KEY": kit.DISCORD_PUBLIC}
SIGNERS: dict[str, Callable[[bytes], dict[str, str]]] = {
    "github": kit.github, "gitlab": kit.gitlab, "slack": kit.slack, "discord": kit.discord, "sentry": kit.sentry,
    "standard": kit.standard, "plain": kit.plain,
}  # fmt: skip


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TriggerConfig:
    return kit.read_text(tmp_path_factory.mktemp("config"), kit.SOURCES)


def delivery(body: bytes, headers: Mapping[str, str] = {}) -> Delivery:
    lower = {name.lower(): value for name, value in headers.items()}
    return Delivery(lower, body, hashlib.sha256(body).hexdigest())


def normal(config: TriggerConfig, source: str, payload: Any, headers: Mapping[str, str] = {}) -> TriggerEvent:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return config.sources[source].normalise(delivery(body, headers))


# -- the registry -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_keeps_the_contract(kind: str) -> None:
    made = SOURCES[kind]
    members = {name for name in vars(TriggerSource) if not name.startswith("_")}
    assert members <= {*dir(made), "name", "ours"}
    assert issubclass(made.settings_type, msgspec.Struct) and made.settings_type.__doc__
    assert made.settings_type.__struct_config__.forbid_unknown_fields
    assert made.hears == (made.body_bytes_max > 0)


def test_every_source_that_hears_is_tried_here(config: TriggerConfig) -> None:
    heard = {config.types[name] for name in SIGNERS}
    assert heard == {kind for kind, made in SOURCES.items() if made.hears}


# -- signatures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIGNERS)
def test_a_genuine_delivery_is_taken_and_a_changed_one_is_not(config: TriggerConfig, name: str) -> None:
    source, body = config.sources[name], b'{"type": 2, "id": "1"}'
    good = delivery(body, SIGNERS[name](body))
    source.verify(good, SECRETS, time.time())
    wrong = {ref: value[:-1] + ("0" if value[-1] != "0" else "1") for ref, value in SECRETS.items()}
    for broken, secrets in ((good, wrong), (delivery(body), SECRETS)):
        with pytest.raises(SignatureRefused):
            source.verify(broken, secrets, time.time())
    if name not in ("gitlab", "plain"):
        with pytest.raises(SignatureRefused):
            source.verify(delivery(body + b" ", SIGNERS[name](body)), SECRETS, time.time())


@pytest.mark.parametrize("sign", [kit.slack, kit.discord, kit.standard])
def test_an_old_or_early_delivery_is_refused_although_it_is_signed(
    config: TriggerConfig, sign: Callable[..., dict[str, str]]
) -> None:
    source, now, body = config.sources[sign.__name__], time.time(), b"{}"
    for apart in (-signatures.AGE_S_MAX + 30, signatures.AGE_S_MAX - 30):
        source.verify(delivery(body, sign(body, moment=now + apart)), SECRETS, now)
    for apart in (-signatures.AGE_S_MAX - 30, signatures.AGE_S_MAX + 30):
        with pytest.raises(SignatureRefused, match="off"):
            source.verify(delivery(body, sign(body, moment=now + apart)), SECRETS, now)


@pytest.mark.parametrize("moment", ["", "nan", "inf", "soon"])
def test_a_time_that_is_none_is_refused(moment: str) -> None:
    with pytest.raises(SignatureRefused):
        signatures.expect_fresh(moment, 0.0)


def test_the_signatures_that_the_services_publish_as_examples_are_right() -> None:
    # GitHub's page "Validating webhook deliveries".
    wanted = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    signatures.expect_hmac("It's a Secret to Everybody", b"Hello, World!", wanted, prefix="sha256=")
    # Slack's page "Verifying requests from Slack".
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    wanted = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    signatures.expect_hmac(secret, b"v0:1531420618:" + body, wanted, prefix="v0=")
    # The vector of the Standard Webhooks specification.
    source = WebhookSource("standard", WebhookSettings(hmac="env:S", scheme="standard"))
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    key = {"env:S": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
    source.verify(delivery(b'{"test": 2432232314}', headers), key, 1614265330.0)


def test_a_time_of_the_own_is_signed_with_the_body_where_a_header_has_it() -> None:
    source = WebhookSource("x", WebhookSettings(hmac="env:S", timestamp_header="X-Time", encoding="base64"))
    import base64
    import hmac

    made = base64.b64encode(hmac.new(b"s", b"100.{}", hashlib.sha256).digest()).decode()
    source.verify(delivery(b"{}", {"X-Time": "100", "X-Signature-256": made}), {"env:S": "s"}, 110.0)
    with pytest.raises(SignatureRefused):
        source.verify(delivery(b"{}", {"X-Time": "101", "X-Signature-256": made}), {"env:S": "s"}, 110.0)


# -- events -----------------------------------------------------------------------------------------------------------


def test_an_issue_of_github_becomes_an_event(config: TriggerConfig) -> None:
    made = normal(config, "github", kit.issue(), kit.github(b""))
    assert (made.kind, made.id, made.actor, made.title) == ("issues.labeled", "d-1", "ada", "The login fails")
    assert (made.body, made.number, made.label, made.labels) == ("It says 500.", "7", "agent", ("agent", "bug"))
    assert made.url.endswith("/issues/7") and made.repository == "o/r"


def test_a_push_to_github_has_its_branch_its_paths_and_its_newest_message(config: TriggerConfig) -> None:
    commit = {"message": "Land it\n\nHoldfast-Task: fix", "added": ["a.py"], "modified": ["b.py"], "removed": ["c.py"]}
    payload = {"ref": "refs/heads/main", "commits": [commit], "head_commit": commit, "pusher": {"name": "ada"}}
    made = normal(config, "github", payload, {"X-GitHub-Event": "push"})
    assert (made.kind, made.branch, made.paths) == ("push", "main", ("a.py", "b.py", "c.py"))
    assert made.title == "Land it" and "Holdfast-Task" in made.marks[0]


@pytest.mark.parametrize("kind", kit.GITLAB)
def test_a_payload_of_gitlabs_form_becomes_an_event(config: TriggerConfig, kind: str) -> None:
    made = normal(config, "gitlab", kit.GITLAB[kind], kit.gitlab(b""))
    assert made.kind == kind and made.id == "g-1" and made.repository == "g/p"
    assert made.actor or kind == "release.create"
    wanted = {"issue.open": ("An API to change files", "23"), "note.create": ("It breaks", "17")}
    if kind in wanted:
        assert (made.title, made.number) == wanted[kind]
    if kind == "push":
        assert made.paths == ("CHANGELOG", "OLD", "README", "app/controller.rb") and made.branch == "main"


@pytest.mark.parametrize("kind", kit.SLACK)
def test_a_payload_of_slacks_form_becomes_an_event(config: TriggerConfig, kind: str) -> None:
    made = normal(config, "slack", kit.SLACK[kind], {"Content-Type": "application/json"})
    assert made.kind == kind and made.id == kit.SLACK[kind]["event_id"] and made.actor == "U061F7AUR"


def test_a_slash_command_of_slack_is_a_form(config: TriggerConfig) -> None:
    made = normal(config, "slack", kit.SLACK_COMMAND, kit.slack(kit.SLACK_COMMAND, form=True))
    assert (made.kind, made.body, made.actor) == ("command.weather", "94070 please", "U2147483697")


@pytest.mark.parametrize("kind", kit.DISCORD)
def test_a_payload_of_discords_form_becomes_an_event(config: TriggerConfig, kind: str) -> None:
    made = normal(config, "discord", kit.DISCORD[kind])
    assert made.kind == kind and made.actor
    assert made.id == kit.DISCORD[kind].get("id", made.digest)
    assert {"command.fix": "the login", "modal.report": "It is slow."}.get(kind, made.body) == made.body


def test_a_webhook_of_any_service_is_read_by_the_paths_of_the_settings(config: TriggerConfig) -> None:
    payload = {"action": "created", "data": {"id": "e-1", "title": "ZeroDivisionError"}, "labels": ["a", {"name": "b"}]}
    made = normal(config, "sentry", payload)
    assert (made.kind, made.id, made.title, made.labels) == ("created", "e-1", "ZeroDivisionError", ("a", "b"))


@pytest.mark.parametrize(
    ("source", "payload", "answer"),
    [
        ("slack", {"type": "url_verification", "challenge": "3eZbrw1a"}, {"challenge": "3eZbrw1a"}),
        ("discord", {"type": 1, "token": "t", "application_id": "1", "version": 1}, {"type": 1}),
        ("discord", {"type": 0, "application_id": "1", "version": 1}, None),
    ],
)
def test_a_question_of_the_service_about_us_is_answered(
    config: TriggerConfig, source: str, payload: dict[str, Any], answer: Any
) -> None:
    found = config.sources[source].handshake(delivery(json.dumps(payload).encode()))
    assert found == Handshake(answer)


OUR_BRANCH, OUR_COMMIT = "holdfast/gh-1", {"message": "Fix it\n\nHoldfast-Task: gh-1\n"}
OUR_TEXT = "Goal\n" + "x" * 29_000 + "\n<!-- holdfast: pr:gh-1:abc -->"
REQUEST = {"number": 1, "title": "x", "body": "", "base": {"ref": "main"}, "head": {"ref": "work"}}
OWN: list[tuple[str, str, dict[str, Any]]] = [
    ("github", "workflow_run", {"workflow_run": {"head_branch": OUR_BRANCH}}),
    ("github", "workflow_run", {"workflow_run": {"head_branch": "main", "head_commit": OUR_COMMIT}}),
    ("github", "workflow_job", {"workflow_job": {"head_branch": OUR_BRANCH}}),
    ("github", "check_run", {"check_run": {"check_suite": {"head_branch": OUR_BRANCH}}}),
    ("github", "check_run", {"check_run": {"pull_requests": [{"head": {"ref": OUR_BRANCH}}]}}),
    ("github", "check_suite", {"check_suite": {"head_branch": OUR_BRANCH}}),
    ("github", "check_suite", {"check_suite": {"head_branch": "x", "head_commit": OUR_COMMIT}}),
    ("github", "push", {"ref": f"refs/heads/{OUR_BRANCH}", "deleted": True, "commits": [], "head_commit": None}),
    ("github", "delete", {"ref": OUR_BRANCH, "ref_type": "branch"}),
    ("github", "pull_request", {"pull_request": {**REQUEST, "head": {"ref": OUR_BRANCH}}}),
    ("github", "pull_request_review", {"review": {"body": "No"}, "pull_request": {**REQUEST, "body": OUR_TEXT}}),
    ("github", "pull_request_review_comment",
     {"comment": {"body": "No"}, "pull_request": {**REQUEST, "head": {"ref": OUR_BRANCH}}}),
    ("github", "issue_comment", {"comment": {"body": "No"}, "issue": {"pull_request": {}, "body": OUR_TEXT}}),
    ("gitlab", "", {"object_kind": "note", "merge_request": {"source_branch": OUR_BRANCH}}),
    ("gitlab", "", {"object_kind": "note", "merge_request": {"source_branch": "work", "description": OUR_TEXT}}),
    ("gitlab", "", {"object_kind": "merge_request", "object_attributes": {"source_branch": OUR_BRANCH}}),
    ("gitlab", "", {"object_kind": "pipeline", "object_attributes": {"ref": OUR_BRANCH}}),
    ("gitlab", "", {"object_kind": "pipeline", "object_attributes": {"ref": "main"}, "commit": OUR_COMMIT}),
    ("gitlab", "", {"object_kind": "pipeline", "merge_request": {"source_branch": OUR_BRANCH}}),
    ("gitlab", "", {"object_kind": "build", "ref": OUR_BRANCH}),
    ("gitlab", "", {"object_kind": "push", "ref": f"refs/heads/{OUR_BRANCH}", "commits": []}),
]  # fmt: skip


@pytest.mark.parametrize(("source", "event", "payload"), OWN)
def test_an_event_about_our_branches_and_requests_is_ours_whoever_caused_it(
    config: TriggerConfig, source: str, event: str, payload: dict[str, Any]
) -> None:
    made = normal(config, source, {**payload, "sender": {"login": "ada"}}, {"X-GitHub-Event": event})
    assert own_reason(made, (), config.branch_prefix)
    text = (
        json.dumps(payload).replace("holdfast/", "work/").replace("<!-- holdfast", "<!-- ours").replace("Holdfast-", "")
    )
    assert not own_reason(normal(config, source, text.encode(), {"X-GitHub-Event": event}), (), config.branch_prefix)


def test_the_prefix_of_our_branches_is_that_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "triggers.yaml").write_text(kit.SOURCES)
    config = TriggersHolder(tmp_path / "triggers.yaml", tmp_path, branch_prefix="bot/").current()
    reasons = [
        own_reason(normal(config, "github", {"ref": f"refs/heads/{name}"}), (), config.branch_prefix)
        for name in ("bot/x", "holdfast/x")
    ]
    assert reasons == ["the branch bot/x is ours", ""]


@pytest.mark.parametrize("name", SIGNERS)
@pytest.mark.parametrize(
    "body", [b"", b"[]", b"3", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 500 + b"1" + b"}" * 500]
)
def test_a_body_that_is_no_object_is_refused(config: TriggerConfig, name: str, body: bytes) -> None:
    with pytest.raises(DeliveryUnreadable):
        config.sources[name].normalise(delivery(body))


@pytest.mark.parametrize("name", SIGNERS)
@pytest.mark.parametrize("value", [None, 3, True, [], {}, [[1]], "x" * 100_000, "\ud800"])
def test_an_event_is_bounded_text_whatever_its_payload_holds(config: TriggerConfig, name: str, value: Any) -> None:
    words = "action issue sender commits labels user event data object_attributes project object_kind type id title ref"
    keys = (*words.split(), "comment", "member", "head_commit", "kind", "body")
    for payload in (dict.fromkeys(keys, value), {key: dict.fromkeys(keys, value) for key in keys}):
        made = normal(config, name, json.dumps(payload).encode())
        texts = [getattr(made, field) for field in made.__struct_fields__ if field not in ("payload",)]
        assert all(len(text) <= 20_000 for text in texts if isinstance(text, str))
        msgspec.json.encode(msgspec.structs.replace(made, payload=None))
