"""One-time links: forged, expired, reused, previewed; each counts once and gives no other right."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.integrations.notify.answer_links import AnswerClaim, links, token_of
from holdfast.server.pages import HEADERS
from holdfast.storage.records.server_secret import ServerSecret, load_secret
from kit.git import git
from kit.notification_services import WebService, running
from kit.program import holdfast
from kit.project import add, layout, settings, state
from kit.server import Server, served
from kit.waiting import wait_for

ASKS = "ask-later run echo x >> {ran}\nwrite made.txt x"
FORM = {"content_type": "application/x-www-form-urlencoded", "accept": "text/html,*/*"}


@pytest.fixture
def question(repo: Path, tmp_path: Path) -> str:
    """The id of a question that waits."""
    add(repo, "a", ASKS.format(ran=tmp_path / "ran"), permissions="ask")
    holdfast(repo, "run", code=None)
    (found,) = state(repo).tasks["a"].questions
    return found.id


@pytest.fixture
def server(repo: Path, question: str) -> Iterator[Server]:
    with served(repo) as running_server:
        yield running_server


def path_of(repo: Path, question: str, answer: str = "allow", expires: float = 0.0) -> str:
    claim = AnswerClaim(question, answer, expires or time.time() + 600)  # type: ignore[arg-type]
    return f"/answer/{token_of(load_secret(layout(repo)), claim)}"


def test_the_page_asks_and_the_button_answers_once(repo: Path, server: Server, question: str) -> None:
    path = path_of(repo, question)
    for method in ("GET", "HEAD", "GET"):
        shown = server.nobody.ask(method, path, sec_fetch_site="cross-site")
        assert shown.status == 200 and state(repo).tasks["a"].questions[0].is_open, "a preview changes nothing"
        assert {name: shown.headers[name] for name in HEADERS} == HEADERS
    page = server.nobody.ask("GET", path).content.decode()
    assert '<form method="post">' in page and "<script" not in page and "echo x" in page
    given = server.nobody.ask("POST", path, b"", **FORM)
    assert given.status == 200 and b"Answered" in given.content
    (answered,) = state(repo).tasks["a"].questions
    assert (answered.answer, answered.by) == ("allow", "answer link")
    for method in ("GET", "POST"):
        again = server.nobody.ask(method, path, b"" if method == "POST" else None, **FORM)
        assert again.status == 410 and b"answered by answer link already" in again.content
        assert again.headers["content-type"].startswith("text/html")
    other = server.nobody.ask("POST", path_of(repo, question, "deny"), b"", **FORM)
    assert other.status == 410, "the other button is dead, too"
    server.kill()
    assert "answer link" in audit_log(repo)


def audit_log(repo: Path) -> str:
    return "".join(path.read_text() for path in sorted(layout(repo).audit.rglob("*.jsonl")))


def test_a_forged_an_expired_and_a_revoked_link_change_nothing(repo: Path, server: Server, question: str) -> None:
    good = path_of(repo, question)
    head, _, signed = good.removeprefix("/answer/").partition(".")
    others = AnswerClaim(question, "allow", time.time() + 600)
    forged = [
        f"/answer/{head}.{signed[:-1]}{'0' if signed[-1] != '0' else '1'}",
        f"/answer/{head[:-2]}AA.{signed}",
        f"/answer/{token_of(ServerSecret('0' * 64), others)}",
        "/answer/x", "/answer/.", f"/answer/{'a' * 3000}.b", "/answer/%00.é",
    ]  # fmt: skip
    for path in forged:
        for method in ("GET", "POST"):
            assert server.nobody.ask(method, quoted(path), b"" if method == "POST" else None, **FORM).status == 404
    dead = path_of(repo, question, expires=time.time() - 1)
    for method in ("GET", "POST"):
        refused = server.nobody.ask(method, dead, b"" if method == "POST" else None, **FORM)
        assert refused.status == 410 and b"has expired" in refused.content
    server.operator.post("/auth/revoke", {"role": "operator"})
    assert server.nobody.ask("POST", good, b"", **FORM).status == 404
    assert state(repo).tasks["a"].questions[0].is_open
    server.kill()
    audited = audit_log(repo)
    assert "answer_link_unknown" in audited and signed[:16] not in audited


def quoted(path: str) -> str:
    return re.sub(r"[^\x21-\x7e]", "%C3", path)


def test_a_form_of_another_page_is_refused(repo: Path, server: Server, question: str) -> None:
    path = path_of(repo, question)
    assert server.nobody.ask("POST", path, b"", origin="https://evil.example", **FORM).status == 403
    assert server.nobody.ask("POST", path, b"", sec_fetch_site="cross-site", **FORM).status == 403
    assert server.nobody.ask("GET", path, host="evil.example").status == 421
    assert state(repo).tasks["a"].questions[0].is_open


def test_a_link_gives_no_other_right(repo: Path, server: Server, question: str) -> None:
    token = path_of(repo, question).removeprefix("/answer/")
    assert server.with_token(token).ask("GET", "/tasks").status == 401


def test_an_answer_in_words_needs_words(repo: Path, tmp_path: Path) -> None:
    add(repo, "a", "ask-later question Which colour?\n", permissions="ask")
    holdfast(repo, "run", code=None)
    (asked,) = state(repo).tasks["a"].questions
    with served(repo) as server:
        path = path_of(repo, asked.id, "say")
        assert b"<textarea" in server.nobody.ask("GET", path).content
        assert server.nobody.ask("POST", path, b"words=+", **FORM).status == 422
        assert server.nobody.ask("POST", path, b"words=the+blue+one", **FORM).status == 200
    holdfast(repo, "run")
    assert git(repo, "show", "main:answer.txt") == "the blue one"


def test_a_notification_leads_to_the_answer_and_no_token_is_kept(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(WebService()) as web:
        monkeypatch.setenv("NOTIFY_URL", f"ntfy://user:hidden-word@127.0.0.1:{web.port}/builds")
        settings(repo, notify=[{"name": "me", "to": ["env:NOTIFY_URL"]}], page_url="http://127.0.0.1:1")
        holdfast(repo, "run")
        add(repo, "a", ASKS.format(ran=tmp_path / "ran"), permissions="ask")
        holdfast(repo, "run", code=None)
        (told,) = web.received
    assert [each["label"] for each in told["actions"]] == ["Allow", "Deny"] and told["topic"] == "builds"
    assert told["click"] == "http://127.0.0.1:1/#/task/a"
    (asked,) = state(repo).tasks["a"].questions
    path = told["actions"][0]["url"].removeprefix("http://127.0.0.1:1")
    for kept in layout(repo).root.rglob("*"):
        if kept.is_file():
            content = kept.read_bytes()
            assert path[-40:].encode() not in content and b"hidden-word" not in content, kept
    with served(repo) as server:
        assert server.nobody.ask("POST", path, b"", **FORM).status == 200
        wait_for(lambda: not state(repo).tasks["a"].questions or not state(repo).tasks["a"].questions[0].is_open)
    assert links(layout(repo), "http://127.0.0.1:1", asked.id, ["allow"], 1.0)
