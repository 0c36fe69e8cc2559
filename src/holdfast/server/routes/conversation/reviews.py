"""Reviews: what a candidate would change, file by file, the comments on it, and the verdict."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.decisions.context import DecisionContext
from holdfast.decisions.reviews import reviewer
from holdfast.domain.reviews.review_records import COMMENTS_MAX, PATH_MAX, WORDS_MAX, CommentText
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, Operation
from holdfast.server.routes.decisions import Changed, decided
from holdfast.views.reviews import ReviewDiff, ReviewMaterial, Reviews, ReviewView

Turn = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Commit = Annotated[str, Meta(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?\Z")]


class ReviewQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`turn`: for the view of one turn; 0: the last one."""

    view: ReviewView = "whole"
    turn: Turn = 0


class ReviewDiffQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(min_length=1, max_length=PATH_MAX)]
    view: ReviewView = "whole"
    turn: Turn = 0


class DraftText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replaces the draft that was saved before; without a summary and comments it is removed."""

    candidate: Commit
    summary: Annotated[str, Meta(max_length=WORDS_MAX)] = ""
    comments: Annotated[tuple[CommentText, ...], Meta(max_length=COMMENTS_MAX)] = ()


class ReviewText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`candidate`: the one that was looked at. One that is not the newest any more is refused, and kept as a draft."""

    candidate: Commit
    verdict: Literal["approve", "send_back"]
    summary: Annotated[str, Meta(max_length=WORDS_MAX)] = ""
    comments: Annotated[tuple[CommentText, ...], Meta(max_length=COMMENTS_MAX)] = ()


def _reviews(api: Api, ask: Ask) -> Reviews:
    context, task = api.context, api.task(ask.task)
    made = api.definition(task.id)
    title = (made.title or "") if made else ""
    by = reviewer(ask.principal.name)
    return Reviews(context.repo, api.layout, task, context.ledger, by, title=title)


def show_review(api: Api, ask: Ask) -> ReviewMaterial:
    query: ReviewQuery = ask.query
    return _reviews(api, ask).material(query.view, query.turn, with_draft=ask.principal.role == "operator")


def show_diff(api: Api, ask: Ask) -> ReviewDiff:
    query: ReviewDiffQuery = ask.query
    return _reviews(api, ask).diff(query.path, query.view, query.turn)


def submit(decision: DecisionContext, ask: Ask) -> Changed:
    return decided("review", decision, {"task": ask.task, **msgspec.to_builtins(ask.body)})


def draft(decision: DecisionContext, ask: Ask) -> Changed:
    return decided("review", decision, {"task": ask.task, "verdict": "draft", **msgspec.to_builtins(ask.body)})


OPERATIONS = [
    Operation("GET", "/tasks/{task}/review", "show_review", "What a result would change, and what was said of it.",
              show_review, answer=ReviewMaterial, lane="aside", query=ReviewQuery, tag="reviews", problems=(404, 422),
              tool="person"),
    Operation("GET", "/tasks/{task}/review/diff", "show_review_diff", "The diff of one file of it.", show_diff,
              answer=ReviewDiff, lane="aside", query=ReviewDiffQuery, tag="reviews", problems=(404, 422),
              tool="person"),
    Operation("PUT", "/tasks/{task}/review/draft", "draft_review", "Keep comments as a draft.", draft, answer=Changed,
              right="operate", lane="loop", body=DraftText, tag="reviews", problems=(404, 409)),
    Operation("POST", "/tasks/{task}/review", "review_task", "Approve a result, or send it back with comments.", submit,
              answer=Changed, right="operate", lane="loop", body=ReviewText, tag="reviews", problems=(404, 409),
              tool="person", hint="The verdict is the person's. `candidate` is the one that `show_review` has named."),
]  # fmt: skip
