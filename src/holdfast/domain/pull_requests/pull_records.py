"""The record of a task's pull request, and what entries make of it.

A look at the service is journalled only where it found something new (`pull_request_seen`). What follows from it is
`due` in the record until the task's move is journalled: a crash in between leaves it due. A comment is in `seen` from
the entry on that has its words in `feedback`, so it reaches the agent once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

# The kind of outcome with which a task waits for its pull request.
PULL_REQUEST = "pull_request"
# How the key of every message begins that opens or updates one.
PULL_KEY = "pr:"
# How many comments and commits are remembered.
COMMENTS_KEPT, HEADS_KEPT = 2000, 100
PullState = Literal["", "open", "merged", "closed"]
# What follows from the last look. `changes`: back to the agent; `renew`: merged with the newer base and verified anew;
# `merged`: the task is closed; `ask`: a person has to decide.
Due = Literal["", "changes", "renew", "merged", "ask"]


class PullRequestPublished(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that push `head` and open or update the pull request are in the outbox, and the answers to the
    comments that it is an answer to."""

    task: str
    attempt: str
    branch: str
    base: str
    head: str


class PullRequestSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Something new at the service. `comments`: those that go to the agent, by id; `feedback`: the blob with the
    words for it. `judged`: the commit whose failed checks are among it. `why`: the step that is due, in words."""

    task: str
    number: int
    state: PullState
    head: str = ""
    merged: str = ""
    checks: str = ""
    judged: str = ""
    comments: tuple[str, ...] = ()
    due: Due = ""
    why: str = ""
    feedback: str = ""


class PullRequestSteered(msgspec.Struct, frozen=True, kw_only=True):
    """A person allows so many rounds in all."""

    task: str
    rounds_max: int


class PullRequest(msgspec.Struct, frozen=True, gc=False):
    """`head` was queued last, `pushed` is what the remote took last. `heads`: every commit of ours for the branch.

    `rounds`: how often it went back to the agent; `rounds_max`: as a person said, or 0. `answering`: comments that the
    next commit answers.
    """

    branch: str = ""
    base: str = ""
    head: str = ""
    pushed: str = ""
    heads: tuple[str, ...] = ()
    number: int = 0
    url: str = ""
    state: PullState = ""
    merged: str = ""
    checks: str = ""
    judged: str = ""
    seen: tuple[str, ...] = ()
    answering: tuple[str, ...] = ()
    due: Due = ""
    why: str = ""
    feedback: str = ""
    rounds: int = 0
    rounds_max: int = 0

    @property
    def words(self) -> str:
        """Where it stands, in a few words."""
        name = f"#{self.number}" if self.number else f"{self.branch}, not opened yet"
        state = f", {self.state}" if self.state else ""
        checks = f", checks {self.checks}" if self.checks and self.state == "open" else ""
        return f"{name}{state}{checks}"


# -- what entries make of it ------------------------------------------------------------------------------------------


def folded(pull: PullRequest | None, entry: msgspec.Struct, moment: float = 0.0) -> PullRequest:
    """The record after an entry about it."""
    pull = pull or PullRequest()
    match entry:
        case PullRequestPublished():
            return _published(pull, entry)
        case PullRequestSeen():
            return _seen(pull, entry)
        case PullRequestSteered():
            return replace(pull, rounds_max=entry.rounds_max)
    raise TypeError(entry)


def _published(pull: PullRequest, entry: PullRequestPublished) -> PullRequest:
    heads = (*(each for each in pull.heads if each != entry.head), entry.head)[-HEADS_KEPT:]
    # Its checks are those of another commit.
    checks = pull.checks if entry.head == pull.head else ""
    kept = replace(pull, state="", due="", why="") if pull.state == "closed" else pull
    return replace(
        kept, branch=entry.branch, base=entry.base, head=entry.head, heads=heads, checks=checks, answering=()
    )


def _seen(pull: PullRequest, entry: PullRequestSeen) -> PullRequest:
    known = set(pull.seen)
    new = tuple(each for each in entry.comments if each not in known)
    return replace(
        pull,
        number=entry.number,
        state=entry.state,
        merged=entry.merged or pull.merged,
        checks=entry.checks,
        judged=entry.judged or pull.judged,
        seen=(*pull.seen, *new)[-COMMENTS_KEPT:],
        answering=(*pull.answering, *new),
        due=entry.due,
        why=entry.why,
        feedback=entry.feedback,
    )


def sent(
    pull: PullRequest | None, channel: str, content: Mapping[str, Any], result: Mapping[str, Any]
) -> PullRequest | None:
    """A message of the task has left. What it told may be older than what was seen since."""
    if channel not in ("push", "pull_request") or content.get("delete"):
        return pull
    pull = pull or PullRequest()
    if channel == "push":
        head = str(content.get("head", ""))
        heads = pull.heads if head in pull.heads else (*pull.heads, head)[-HEADS_KEPT:]
        return replace(pull, pushed=head, heads=heads, branch=pull.branch or str(content.get("branch", "")))
    number = int(result.get("number", 0) or pull.number)
    is_another = number != pull.number
    state: PullState = "open" if is_another or not pull.state else pull.state
    return replace(pull, number=number, url=str(result.get("url", "") or pull.url), state=state)


def moved(pull: PullRequest | None, reason: str) -> PullRequest | None:
    """What was due is done by a move for that reason."""
    if pull is None or reason != REASONS.get(pull.due):
        return pull
    rounds = pull.rounds + (pull.due == "changes")
    return replace(pull, due="", why="", feedback="", rounds=rounds)


# The reason of the move that each step is done by.
REASONS: dict[str, str] = {
    "changes": "pull_request_changes",
    "renew": "pull_request_outdated",
    "merged": "pull_request_merged",
}
ENTRIES = (PullRequestPublished, PullRequestSeen, PullRequestSteered)
