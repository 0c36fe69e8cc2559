"""What people say to agents in the tests: a message, and a review with comments."""

from __future__ import annotations

import json

from holdfast.domain.task import TaskState
from kit.model_server import Request
from real_agents.site import Site

WORDS = "Mind the gap, please."
LINES = ["one", "two-4711", "right"]
COMMENTS = [
    {"path": "a.txt", "line": 2, "words": "Not this number, please."},
    {"path": "a.txt", "line": 1, "last": 3, "words": "Shorter."},
]


def send_back(site: Site) -> None:
    """As a person does it, with two comments and words about the whole."""
    (site.top / "comments.json").write_text(json.dumps(COMMENTS))
    site.holdfast("review", "T", "--send-back", "-m", "Nearly there.", "--comments", str(site.top / "comments.json"))
    assert site.task.state is TaskState.OPEN and site.task.attempts == 1


def expect_comments(request: Request) -> None:
    assert request.has("A person has read your work and wants changes") and request.has("Nearly there.")
    assert request.has("1. a.txt, line 2:\n\n> two-4711\n\nNot this number, please.")
    assert request.has("2. a.txt, lines 1-3:\n\n> one\n> two-4711\n> right\n\nShorter.")
