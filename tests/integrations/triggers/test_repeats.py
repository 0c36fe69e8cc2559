"""The same body under another id: where only the body is signed, it is the delivery that came before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.ledgers.reader import FileLedgerReader
from kit import deliveries as kit
from kit.project import layout, sound, state
from kit.server import served

ONCE = """\
- name: fix
  on: {source: github, kind: issues.*}
  task: {title: "{event.title}", goal: "Fix it."}
"""


def received(repo: Path) -> list[str]:
    found = FileLedgerReader(layout(repo)).read()
    return [entry.inputs["id"] for _, entry in found if entry.decision_type == "delivery_received"]


def hmac_alone(body: bytes, id: str) -> dict[str, str]:
    return kit.sentry(body) | {"X-Delivery-Id": id, "X-Event": id}


@pytest.mark.parametrize(
    ("source", "sign"),
    [
        ("github", lambda body, id: kit.github(body, id=id)),
        ("gitlab", lambda body, id: kit.gitlab(body, id=id)),
        ("sentry", hmac_alone),
    ],
)
def test_a_body_that_came_before_makes_nothing_under_another_id_also_behind_a_restart(
    repo: Path, source: str, sign: Any
) -> None:
    """Neither the id nor the event is signed: an outsider with one delivery could send it again under others."""
    rules = (kit.ANY.format(source=source).replace("name: any", f"name: {name}") for name in ("one", "other"))
    kit.configure(repo, "".join(rules))
    body = kit.issue(title="Only once") if source == "github" else json.dumps(kit.GITLAB["issue.open"]).encode()
    with served(repo, **kit.VARIABLES) as server:
        first = kit.post(server.nobody, source, body, sign(body, "one"))
        assert first.json["delivery"] == f"{source}:one" and len(first.json["tasks"]) == 2
        for headers in (sign(body, "two"), sign(body, "one"), sign(body, "three") | {"X-GitHub-Event": "push"}):
            assert kit.post(server.nobody, source, body, headers).json == first.json
    with served(repo, **kit.VARIABLES) as server:
        for id in ("four", "one"):
            assert kit.post(server.nobody, source, body, sign(body, id)).json == first.json
        other = body.replace(b"{", b"{ ", 1)
        # The id that is known is answered as before, and a body that is new is one of its own.
        assert kit.post(server.nobody, source, other, sign(other, "one")).json == first.json
        assert len(kit.post(server.nobody, source, other, sign(other, "five")).json["tasks"]) == 2
    assert received(repo) == ["one", "five"]
    assert len(state(repo).tasks) == 4
    sound(repo)


def test_a_sender_whose_bodies_are_all_alike_may_say_so(repo: Path) -> None:
    settings_of_it = "type: webhook, hmac: env:HOOK_SECRET, signature_header: X-Sentry-Signature, repeats: true"
    sources = f"sources:\n  sentry: {{{settings_of_it}}}\n"
    kit.configure(repo, kit.ANY.format(source="sentry"), sources)
    with served(repo, **kit.VARIABLES) as server:
        for id in ("one", "two", "two"):
            assert kit.post(server.nobody, "sentry", b"{}", hmac_alone(b"{}", id)).status == 200
    assert received(repo) == ["one", "two"]
    assert len(state(repo).tasks) == 2
    sound(repo)


@pytest.mark.parametrize("kept", [1, 2])
def test_a_body_under_another_id_finds_the_delivery_that_a_kill_cut_off(repo: Path, kept: int) -> None:
    kit.configure(repo, ONCE)
    body = kit.issue(number=1, title="Fix it once")
    with served(repo, **kit.VARIABLES) as server:
        kit.post(server.nobody, "github", body, kit.github(body, id="d-1"))
        server.kill()
    kit.cut_off(repo, kept)
    with served(repo, **kit.VARIABLES) as server:
        again = kit.post(server.nobody, "github", body, kit.github(body, id="d-2"))
        assert again.json == {"delivery": "github:d-1", "tasks": ["fix-it-once"]}
    assert list(state(repo).tasks) == ["fix-it-once"]
    sound(repo)
