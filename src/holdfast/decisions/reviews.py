"""A person's review of a candidate that waits for approval: a draft, an approval, or the way back to its agent.

A draft is journalled like a decision and changes no task. What is submitted for a candidate that is not the newest any
more is refused, and kept as a draft: nobody writes a comment twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast import identity
from holdfast.decisions.context import Answer, DecisionContext, refused
from holdfast.decisions.tasks import expect_no_pull, who_goes_on
from holdfast.domain.fsm import Reason
from holdfast.domain.reviews.review_records import (
    COMMENTS_MAX,
    QUOTED_CHARS_MAX,
    QUOTED_LINES_MAX,
    REVIEW_CHARS_MAX,
    WORDS_MAX,
    CommentText,
    ReviewComment,
    ReviewDrafted,
    ReviewSubmitted,
    feedback_text,
)
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.errors import InputError, ReviewStale
from holdfast.snapshots.store import REVIEWED, Store
from holdfast.storage.journal.entry import Record
from holdfast.storage.records.redact import without_secrets
from holdfast.worktrees import landing_diffs, merges
from holdfast.worktrees.landing_diffs import ChangedFile

# What is read of a file to quote some of its lines.
QUOTED_FILE_BYTES_MAX = 8 << 20
# The operator of the server is the person whose token it is: who runs it.
OPERATOR = "operator"


class Review(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`candidate`: the one that was looked at. `draft` submits nothing, and an empty one removes the draft."""

    task: str
    candidate: Annotated[str, Meta(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?\Z")]
    verdict: Literal["approve", "send_back", "draft"]
    summary: Annotated[str, Meta(max_length=WORDS_MAX)] = ""
    comments: Annotated[tuple[CommentText, ...], Meta(max_length=COMMENTS_MAX)] = ()


def review(decision: DecisionContext, asked: Review) -> Answer:
    task = decision.task(asked.task)
    if not decision.has_begun():
        _expect_reviewable(task, asked)
        _begin(decision, task, asked)
    if asked.verdict == "draft":
        return decision.answer(task, note="kept as a draft" if asked.summary or asked.comments else "no draft is kept")
    if decision.has_done("review_drafted", 0):
        raise ReviewStale(task=task.id, candidate=asked.candidate[:12], newest=task.candidate[:12] or "none")
    what = "lands it" if asked.verdict == "approve" else "goes on with its conversation"
    return decision.answer(task, note=who_goes_on(decision, what))


def reviewer(by: str) -> str:
    """The name under which a person's drafts and reviews are found again, from a terminal and from the page."""
    return identity.user() if by == OPERATOR else by


def _expect_reviewable(task: Task, asked: Review) -> None:
    if asked.verdict == "send_back" and not asked.comments and not asked.summary.strip():
        raise InputError(detail="say what is to change: a comment, or a summary")
    size = len(asked.summary) + sum(len(each.words) for each in asked.comments)
    if size > REVIEW_CHARS_MAX:
        raise InputError(detail=f"a review has at most {REVIEW_CHARS_MAX:,} characters, and this one {size:,}")
    if not task.candidate or not task.attempt.id:
        raise refused(task, "reviewed", f"`holdfast show {task.id}` says what it is.", "it has no result yet")
    is_newest = asked.candidate == task.candidate
    if asked.verdict != "draft" and is_newest and task.state is not TaskState.PENDING_APPROVAL:
        hint = f"only what waits for an approval can be; `holdfast show {task.id}` says what it is."
        raise refused(task, "reviewed", hint)
    if asked.verdict != "draft" and is_newest:
        expect_no_pull(task, "approved" if asked.verdict == "approve" else "sent back")


def _begin(decision: DecisionContext, task: Task, asked: Review) -> None:
    by, summary = reviewer(decision.by), without_secrets(asked.summary)
    is_stale = asked.candidate != task.candidate
    # A draft keeps what cannot be submitted as it is.
    comments = quoted(decision.worktrees.store, task, asked.comments, is_kept=is_stale or asked.verdict == "draft")
    drafted = ReviewDrafted(task.id, asked.candidate, by, summary, comments)
    if asked.verdict == "draft" or is_stale:
        decision.append([decision.record("review_drafted", 0, msgspec.to_builtins(drafted))])
        return
    # Its attempt's own ref moves to the next candidate, and "since the last review" needs this one.
    for name, commit in (("candidate", task.candidate), ("merged", task.landing.verified)):
        if commit:
            merges.keep(decision.worktrees.store, REVIEWED, f"{task.attempt.id}/{name}-{commit[:12]}", commit)
    facts: dict[str, Any] = {"merged": task.landing.verified, "target": task.landing.verified_on}
    submitted = ReviewSubmitted(
        task.id, asked.candidate, by, asked.verdict, **facts, summary=summary, comments=comments
    )
    first = decision.record("review_submitted", 0, msgspec.to_builtins(submitted))
    decision.append([first, _verdict(decision, task, submitted)])


def _verdict(decision: DecisionContext, task: Task, submitted: ReviewSubmitted) -> Record:
    if submitted.verdict == "approve":
        facts = {"attempt": task.attempt.id, "agent": task.claim.agent}
        return decision.moved(task, TaskEvent.APPROVAL_GRANTED, Reason.APPROVED, 1, facts)
    told = feedback_text(submitted.summary, submitted.comments)
    return sent_back(decision, task, 1, decision.blobs.put(told.encode(), content_type="text/plain"))


def sent_back(decision: DecisionContext, task: Task, number: int = 0, feedback: str = "") -> Record:
    """The move by which the next start continues the same attempt and conversation; no attempt is spent.

    `number`: the record's place in the decision. `feedback`: the blob with the words for the agent.
    """
    if task.state is TaskState.PENDING_APPROVAL and not task.attempt.id:
        hint = f"`holdfast reject {task.id}` or `holdfast cancel {task.id}` ends it."
        raise refused(task, "sent back", hint, "no agent has worked on it")
    facts = {"attempt": task.attempt.id, **({"feedback": feedback} if feedback else {})}
    return decision.moved(task, TaskEvent.CHANGES_REQUESTED, Reason.CHANGES_REQUESTED, number, facts)


# -- the lines that a comment is about --------------------------------------------------------------------------------


def quoted(
    store: Store, task: Task, given: Sequence[CommentText], *, is_kept: bool = False
) -> tuple[ReviewComment, ...]:
    """The comments with the lines that they are about, as git has them. Where those are not there, `is_kept` keeps the
    words without them, and otherwise the comment is refused."""
    landing, files = task.landing, dict[str, ChangedFile]()
    if given and landing.verified:
        changed = landing_diffs.changed_files(store, landing.verified_on, landing.verified)
        files = {each.name: each for each in changed}
    texts: dict[str, list[str]] = {}
    made = []
    for each in given:
        file = files.get(each.path)
        if file is None and not is_kept:
            raise InputError(detail=f"the change has no file {each.path!r} to comment on")
        try:
            made.append(_quoted(store, file, each, texts))
        except InputError:
            if not is_kept:
                raise
            made.append(_quoted(store, None, each, texts))
    return tuple(made)


def _quoted(store: Store, file: ChangedFile | None, given: CommentText, texts: dict[str, list[str]]) -> ReviewComment:
    first, last, words = given.line, max(given.last, given.line), without_secrets(given.words)
    blob = "" if file is None else file.old_blob if given.side == "old" else file.new_blob
    if file is None or not first:
        return ReviewComment(given.path, given.side, first, last, quote="", blob=blob, words=words)
    if blob not in texts:
        text = landing_diffs.blob_text(store, blob, QUOTED_FILE_BYTES_MAX)
        texts[blob] = text.removesuffix("\n").split("\n") if text else []
    lines = texts[blob]
    if file.is_binary or not 1 <= first <= last <= len(lines):
        where = "the target's version" if given.side == "old" else "the new version"
        what = "is not text" if file.is_binary else f"has {len(lines)} lines in {where}"
        raise InputError(detail=f"the file {given.path!r} {what}, and the comment is about lines {first} to {last}")
    quote = without_secrets("\n".join(lines[first - 1 : last][:QUOTED_LINES_MAX]))
    if len(quote) > QUOTED_CHARS_MAX:
        quote = quote[:QUOTED_CHARS_MAX] + "…"
    return ReviewComment(given.path, given.side, first, last, quote=quote, blob=blob, words=words)
