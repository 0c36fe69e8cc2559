"""Reviews through the API: the material, a draft under a key of its own, who may see it, and the verdict."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from holdfast.storage.journal.reader import Chain
from kit.program import holdfast
from kit.project import add, layout, sound, state
from kit.server import served

WORDS = [{"path": "a.txt", "line": 1, "words": "Why?"}]


@pytest.fixture
def waiting(repo: Path) -> Path:
    """A result that waits, with a file whose name is no text, and a link that leads out of the repository."""
    odd = "run printf x > \"$(printf 'odd\\377')\"; ln -s /etc/passwd link"
    add(repo, "t", f"write a.txt one\n{odd}", approve=True)
    holdfast(repo, "run", code=20)
    return repo


def kinds(repo: Path) -> list[str]:
    return [entry.decision_type for _, entry in Chain(layout(repo).wal).entries()]


def test_a_review_is_shown_drafted_once_under_its_key_and_submitted(waiting: Path) -> None:
    with served(waiting) as server:
        told = server.operator.ask("GET", "/tasks/t/review").json
        assert {each["path"]: each["status"] for each in told["files"]} == {
            "a.txt": "added",
            "link": "added",
            "odd\\xff": "added",
        }
        assert told["waits"] and told["why"] == "the task says `approve: true`" and told["draft"] is None
        for path in ("odd\\xff", "link"):
            diff = server.operator.ask("GET", f"/tasks/t/review/diff?path={quote(path)}").json
            # A link is its target's name, and never its content.
            assert diff["patch"].startswith("@@ -0,0 +1 @@\n+") and "root:" not in diff["patch"], diff
        draft = {"candidate": told["candidate"], "summary": "Soon.", "comments": WORDS}
        for _ in range(2):
            kept = server.operator.ask("PUT", "/tasks/t/review/draft", draft, Idempotency_Key="once")
            assert (kept.status, kept.json["note"]) == (200, "kept as a draft")
        assert kinds(waiting).count("review_drafted") == 1
        shown = server.operator.ask("GET", "/tasks/t/review").json["draft"]
        assert (shown["summary"], shown["comments"][0]["quote"]) == ("Soon.", "one")
        assert server.reader.ask("GET", "/tasks/t/review").json["draft"] is None
        assert server.reader.ask("PUT", "/tasks/t/review/draft", draft).status == 403
        for path, body, status in (
            ("/tasks/t/review/diff?path=none", None, 422),
            ("/tasks/t/review?view=since", None, 422),
            ("/tasks/none/review", None, 404),
            ("/tasks/t/review", {"candidate": "0" * 40, "verdict": "approve"}, 409),
            ("/tasks/t/review", {"candidate": told["candidate"], "verdict": "maybe"}, 422),
            ("/tasks/t/review", {"candidate": told["candidate"], "verdict": "send_back"}, 422),
        ):
            assert server.operator.ask("POST" if body else "GET", path, body).status == status, path
        asked = {"candidate": told["candidate"], "verdict": "send_back", "comments": WORDS}
        for _ in range(2):
            back = server.operator.ask("POST", "/tasks/t/review", asked, Idempotency_Key="back")
            assert (back.status, back.json["task"]["state"]) == (200, "OPEN")
        assert kinds(waiting).count("review_submitted") == 1
    task = state(waiting).tasks["t"]
    assert task.continues and task.reviews.drafts == () and task.reviews.submitted[0].comments[0].quote == "one"
    sound(waiting)
