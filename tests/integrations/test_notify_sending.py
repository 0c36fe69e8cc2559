"""Notifications reach real receivers on loopback: once, late, gathered, or after a fault; counted there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.notification_services import WebService, running
from kit.program import holdfast
from kit.project import add, settings, sound, state

MAKES = "write made.txt x"
FAILS = "fail no"
RULE = {"name": "all", "to": ["env:NOTIFY_URL"], "on": ["needs_you", "failed", "landed"]}


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebService]:
    with running(WebService()) as service:
        monkeypatch.setenv("NOTIFY_URL", f"json://127.0.0.1:{service.port}/secret-path")
        yield service


def rules(repo: Path, *more: dict[str, Any], **config: Any) -> None:
    settings(repo, notify=[{**RULE, **each} for each in more or ({},)], **config)
    # A rule tells of what comes after it.
    holdfast(repo, "run")


def test_what_lands_and_what_fails_is_told_once_each(repo: Path, web: WebService) -> None:
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
