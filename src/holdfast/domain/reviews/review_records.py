"""The records of reviews: what the journal's entries hold, and what a task remembers of them.

A review belongs to one candidate. A comment is about lines of one file, on one side of the diff between the target and
the candidate merged onto it, and holds the lines as they were, so that it can be read without the file.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

Side = Literal["old", "new"]
Verdict = Literal["approve", "send_back"]

COMMENTS_MAX = 200
WORDS_MAX = 8_000
PATH_MAX = 4_096
LINE_MAX = 100_000_000
# Of the quoted lines: enough to find them again; a range may be longer.
QUOTED_LINES_MAX, QUOTED_CHARS_MAX = 40, 4_000
# All words of one review together.
REVIEW_CHARS_MAX = 200_000
# Whose drafts and reviews a task remembers: the last ones.
REVIEWERS_MAX = 8


class CommentText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A comment as a person gives it: lines `line` to `last` of a file; 0: the file as a whole. Without `last` it is
    about one line. `side`: `new` is the file as it would land, `old` as the target has it."""

    path: Annotated[str, Meta(min_length=1, max_length=PATH_MAX)]
    words: Annotated[str, Meta(min_length=1, max_length=WORDS_MAX)]
    line: Annotated[int, Meta(ge=0, le=LINE_MAX)] = 0
    last: Annotated[int, Meta(ge=0, le=LINE_MAX)] = 0
    side: Side = "new"


def name_words(path: str) -> str:
    """The name of a file on one line, in printable characters: what else there is becomes its escape."""
    # As `wording.plain` does, which is of a room that reads this one.
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in path)


class ReviewComment(msgspec.Struct, frozen=True):
    """A comment with the lines that it is about. `blob` is git's name of the file's content on that side."""

    path: str
    side: Side
    line: int
    last: int
    quote: str
    blob: str
    words: str

    @property
    def place(self) -> str:
        """`src/a.py, line 3`, `src/a.py, lines 3-5 (as before the change)`; the name alone for a whole file."""
        path = name_words(self.path)
        if not self.line:
            return path
        lines = f"line {self.line}" if self.last == self.line else f"lines {self.line}-{self.last}"
        return f"{path}, {lines}" + (" (as before the change)" if self.side == "old" else "")


class ReviewDrafted(msgspec.Struct, frozen=True):
    """A draft replaces the one that its reviewer saved before; an empty one removes it."""

    task: str
    candidate: str
    by: str
    summary: str = ""
    comments: tuple[ReviewComment, ...] = ()


class ReviewSubmitted(msgspec.Struct, frozen=True):
    """`merged` is what was reviewed: the candidate merged onto `target`."""

    task: str
    candidate: str
    by: str
    verdict: Verdict
    merged: str = ""
    target: str = ""
    summary: str = ""
    comments: tuple[ReviewComment, ...] = ()


class DraftReview(ReviewDrafted, frozen=True, kw_only=True):
    """A draft, and when it was saved."""

    at: float


class PastReview(ReviewSubmitted, frozen=True, kw_only=True):
    """The last review that a person has submitted, and when."""

    at: float


class TaskReviews(msgspec.Struct, frozen=True):
    """What a task remembers while it is not over: of each reviewer the draft and the last review, the oldest first."""

    drafts: tuple[DraftReview, ...] = ()
    submitted: tuple[PastReview, ...] = ()

    def draft_of(self, by: str) -> DraftReview | None:
        return next((each for each in self.drafts if each.by == by), None)

    def last_of(self, by: str) -> PastReview | None:
        """The person's own last review, or else the last of anybody."""
        own = [each for each in self.submitted if each.by == by]
        return (own or self.submitted)[-1] if self.submitted else None

    def drafted(self, entry: ReviewDrafted, at: float) -> TaskReviews:
        kept = tuple(each for each in self.drafts if each.by != entry.by)
        if entry.summary or entry.comments:
            kept = (*kept, DraftReview(**asdict(entry), at=at))
        return TaskReviews(kept[-REVIEWERS_MAX:], self.submitted)

    def reviewed(self, entry: ReviewSubmitted, at: float) -> TaskReviews:
        drafts = tuple(each for each in self.drafts if each.by != entry.by)
        kept = tuple(each for each in self.submitted if each.by != entry.by)
        return TaskReviews(drafts, (*kept, PastReview(**asdict(entry), at=at))[-REVIEWERS_MAX:])


def feedback_text(summary: str, comments: tuple[ReviewComment, ...]) -> str:
    """The words for the agent's conversation: each comment with its file, its lines as they were, and what was said."""
    parts = ["A person has read your work and wants changes before it lands. Nothing has failed: go on from it."]
    parts += [summary.strip()] if summary.strip() else []
    for number, each in enumerate(comments, 1):
        quoted = "\n".join(f"> {line}" for line in each.quote.splitlines())
        parts.append("\n\n".join(filter(None, (f"{number}. {each.place}:", quoted, each.words.strip()))))
    if comments:
        parts.append(
            "Lines are counted in the file as it would land. Answer each comment with a change, or say why not."
        )
    return "\n\n".join(parts) + "\n"
