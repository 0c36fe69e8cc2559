"""Deliveries as services send them: payloads in the form that each documents, and their signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from holdfast.integrations.triggers.trigger_file import TriggerConfig, read
from holdfast.storage.journal.reader import Chain
from kit.project import layout
from kit.server import Answer, Client

SECRET = "a secret of nobody's"
# Made of fixed bytes, so that each test has the same.
DISCORD_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
DISCORD_PUBLIC = DISCORD_KEY.public_key().public_bytes_raw().hex()
# What the references of SOURCES stand for.
VARIABLES = {"HOOK_SECRET": SECRET, "DISCORD_KEY": DISCORD_PUBLIC}

SOURCES = """\
sources:
  github:
    secret: env:HOOK_SECRET
    ours: [holdfast-bot]
  gitlab:
    token: env:HOOK_SECRET
  slack:
    signing_secret: env:HOOK_SECRET
    ours: [UOURS]
  discord:
    public_key: env:DISCORD_KEY
  sentry:
    type: webhook
    hmac: env:HOOK_SECRET
    signature_header: X-Sentry-Signature
    fields: {title: data.title, id: data.id, kind: action}
  standard:
    type: webhook
    hmac: env:HOOK_SECRET
    scheme: standard
  plain:
    type: webhook
    token: env:HOOK_SECRET
"""
# A rule for every source: the same goal, one task for each delivery.
ANY = """\
- name: any-{source}
  on: {{source: {source}}}
  task: {{goal: "See to {{event.id}}:\\n\\n{{event.body}}"}}
"""


def configure(repo: Path, rules: str = "", sources: str = SOURCES) -> Path:
    path = layout(repo).triggers
    path.write_text(sources + ("rules:\n" + rules if rules else ""))
    return path


def read_text(folder: Path, text: str) -> TriggerConfig:
    path = folder / "triggers.yaml"
    path.write_text(text)
    return read(path)


def cut_off(repo: Path, kept: int) -> None:
    """Leaves so many entries of the append of the one delivery: the delivery, its task, its judgement."""
    (run,) = Chain(layout(repo).wal).runs()
    lines = run.path.read_bytes().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if b'"delivery_received"' in line)
    os.truncate(run.path, sum(map(len, lines[: first + kept])))
    for path in layout(repo).backlog_open.glob("*.yaml"):
        path.unlink()


# -- signatures -------------------------------------------------------------------------------------------------------


def github(body: bytes, event: str = "issues", id: str = "d-1", secret: str = SECRET) -> dict[str, str]:
    made = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"X-GitHub-Event": event, "X-GitHub-Delivery": id, "X-Hub-Signature-256": f"sha256={made}"}


def gitlab(body: bytes, id: str = "g-1", secret: str = SECRET) -> dict[str, str]:
    return {"X-Gitlab-Event": "Issue Hook", "X-Gitlab-Event-UUID": id, "X-Gitlab-Token": secret}


def slack(body: bytes, moment: float | None = None, form: bool = False) -> dict[str, str]:
    at = str(int(time.time() if moment is None else moment))
    made = hmac.new(SECRET.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
    kind = "application/x-www-form-urlencoded" if form else "application/json"
    return {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": f"v0={made}", "Content-Type": kind}


def discord(body: bytes, moment: float | None = None) -> dict[str, str]:
    at = str(int(time.time() if moment is None else moment))
    return {"X-Signature-Timestamp": at, "X-Signature-Ed25519": DISCORD_KEY.sign(at.encode() + body).hex()}


def sentry(body: bytes) -> dict[str, str]:
    return {"X-Sentry-Signature": hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()}


def standard(body: bytes, id: str = "msg_1", moment: float | None = None) -> dict[str, str]:
    at = str(int(time.time() if moment is None else moment))
    made = hmac.new(SECRET.encode(), f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    return {"Webhook-Id": id, "Webhook-Timestamp": at, "Webhook-Signature": f"v1,{base64.b64encode(made).decode()}"}


def plain(body: bytes) -> dict[str, str]:
    return {"Authorization": f"Bearer {SECRET}"}


def post(client: Client, source: str, body: bytes, headers: dict[str, str]) -> Answer:
    return client.ask(
        "POST", f"/webhooks/{source}", body, **{name.replace("-", "_"): headers[name] for name in headers}
    )


# -- payloads, in the form that the services document -----------------------------------------------------------------


def issue(number: int = 7, title: str = "The login fails", body: str = "It says 500.", **more: Any) -> bytes:
    payload = {
        "action": "labeled",
        "issue": {
            "number": number,
            "title": title,
            "body": body,
            "html_url": f"https://github.example/o/r/issues/{number}",
            "labels": [{"name": "agent"}, {"name": "bug"}],
        },
        "label": {"name": "agent"},
        "repository": {"full_name": "o/r", "html_url": "https://github.example/o/r"},
        "sender": {"login": "ada"},
        **more,
    }
    return json.dumps(payload).encode()


PROJECT = {"id": 1, "web_url": "http://gitlab.example/g/p", "path_with_namespace": "g/p", "default_branch": "main"}
GITLAB: dict[str, dict[str, Any]] = {
    "issue.open": {
        "object_kind": "issue",
        "event_type": "issue",
        "user": {"id": 1, "name": "Administrator", "username": "root"},
        "project": PROJECT,
        "object_attributes": {
            "id": 301, "iid": 23, "title": "An API to change files", "description": "Create it.", "state": "opened",
            "action": "open", "url": "http://gitlab.example/g/p/issues/23", "labels": [{"id": 206, "title": "API"}],
        },
        "labels": [{"id": 206, "title": "API"}],
        "changes": {"updated_by_id": {"previous": None, "current": 1}},
    },
    "push": {
        "object_kind": "push",
        "event_name": "push",
        "ref": "refs/heads/main",
        "user_username": "jsmith",
        "user_name": "John Smith",
        "project": PROJECT,
        "commits": [
            {"id": "b6568db1", "message": "Update it.\n\nSee there.", "title": "Update it.", "added": ["CHANGELOG"],
             "modified": ["app/controller.rb"], "removed": []},
            {"id": "da156088", "message": "fix the readme", "title": "fix the readme", "added": [],
             "modified": ["README"], "removed": ["OLD"]},
        ],
        "total_commits_count": 2,
    },
    "tag_push": {"object_kind": "tag_push", "ref": "refs/tags/v1.0.0", "user_name": "John", "project": PROJECT,
                 "commits": []},
    "note.create": {
        "object_kind": "note",
        "user": {"username": "root"},
        "project": PROJECT,
        "object_attributes": {"id": 1241, "note": "Please fix this.", "noteable_type": "Issue", "action": "create",
                              "url": "http://gitlab.example/g/p/issues/17#note_1241"},
        "issue": {"id": 92, "iid": 17, "title": "It breaks", "labels": []},
    },
    "merge_request.open": {
        "object_kind": "merge_request",
        "user": {"username": "root"},
        "project": PROJECT,
        "object_attributes": {"iid": 1, "title": "MS-Viewport", "source_branch": "work", "target_branch": "main",
                              "state": "opened", "action": "open", "url": "http://gitlab.example/g/p/mr/1"},
        "labels": [],
    },
    "pipeline": {
        "object_kind": "pipeline",
        "object_attributes": {"id": 31, "iid": 3, "name": "Pipeline", "ref": "main", "status": "failed"},
        "user": {"username": "root"},
        "project": PROJECT,
        "builds": [{"id": 380, "stage": "deploy", "status": "skipped"}],
    },
    "build": {"object_kind": "build", "ref": "main", "build_name": "test", "build_status": "created",
              "user": {"username": "root"}, "project": PROJECT},
    "release.create": {"object_kind": "release", "action": "create", "name": "v1.1", "tag": "v1.1",
                       "description": "released", "url": "http://gitlab.example/g/p/v1.1", "project": PROJECT},
}  # fmt: skip
SLACK: dict[str, dict[str, Any]] = {
    "app_mention": {
        "token": "z26uFbvR1xHJEdHE1OQiO6t8",
        "team_id": "T061EG9R6",
        "api_app_id": "A0MDYCDME",
        "type": "event_callback",
        "event_id": "Ev0PV52K21",
        "event_time": 1515449522,
        "event": {"type": "app_mention", "user": "U061F7AUR", "text": "<@U0LAN0Z89> please fix the login",
                  "ts": "1515449522.000016", "channel": "C0LAN2Q65", "event_ts": "1515449522000016"},
    },
    "reaction_added": {
        "team_id": "T061EG9R6",
        "type": "event_callback",
        "event_id": "Ev1",
        "event": {"type": "reaction_added", "user": "U061F7AUR", "reaction": "robot_face",
                  "item": {"type": "message", "channel": "C0G9QF9GZ", "ts": "1360782400.498405"}},
    },
    "message.channel_join": {
        "team_id": "T061EG9R6",
        "type": "event_callback",
        "event_id": "Ev2",
        "event": {"type": "message", "subtype": "channel_join", "user": "U061F7AUR", "text": "joined",
                  "channel": "C0LAN2Q65", "ts": "1.2"},
    },
}  # fmt: skip
SLACK_COMMAND = (
    b"token=gIkuvaNzQIHg97ATvDxqgjtO&team_id=T0001&channel_id=C2147483705&user_id=U2147483697&user_name=Steve"
    b"&command=%2Fweather&text=94070+please&trigger_id=13345224609.738474920.8088930838d88f008e0&api_app_id=A123456"
)
DISCORD: dict[str, dict[str, Any]] = {
    "command.fix": {
        "type": 2,
        "token": "A_UNIQUE_TOKEN",
        "id": "786008729715212338",
        "application_id": "845027738276462632",
        "guild_id": "290926798626357999",
        "channel_id": "645027906669510667",
        "member": {"user": {"id": "53908232506183680", "username": "Mason"}, "roles": ["539082325061836999"]},
        "data": {"id": "771825006014889984", "name": "fix", "type": 1,
                 "options": [{"name": "what", "type": 3, "value": "the login"}]},
        "version": 1,
    },
    "component.click_one": {
        "type": 3, "token": "t", "id": "846462639134605312", "application_id": "845027738276462632", "version": 1,
        "data": {"custom_id": "click_one", "component_type": 2},
        "member": {"user": {"id": "53908232506183680"}}, "message": {"id": "1", "content": "a message"},
    },
    "modal.report": {
        "type": 5, "token": "t", "id": "846462639134605313", "application_id": "845027738276462632", "version": 1,
        "user": {"id": "53908232506183680"},
        "data": {"custom_id": "report", "components": [
            {"type": 1, "components": [{"type": 4, "custom_id": "text", "value": "It is slow."}]}]},
    },
    "event.application_authorized": {
        "version": 1, "application_id": "1234560123453231555", "type": 1,
        "event": {"type": "APPLICATION_AUTHORIZED", "timestamp": "2024-10-18T14:42:53.064834",
                  "data": {"integration_type": 1, "scopes": ["applications.commands"],
                           "user": {"id": "157370439887618048", "username": "ada"}}},
    },
}  # fmt: skip
