"""The material of a review: what a candidate would change on the target, what was said of the one before, and what has
become of that. Read-only; git may learn new objects.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.domain.reviews.hunks import LineSpan, followed, hunks, is_touched, spans
from holdfast.domain.reviews.review_records import DraftReview, PastReview, ReviewComment
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task
from holdfast.errors import InputError
from holdfast.git import command as git
from holdfast.layout import Layout
from holdfast.ports import LedgerReader
from holdfast.snapshots.store import Store
from holdfast.views.diffs import Diffs
from holdfast.worktrees import landing_diffs, merges
from holdfast.worktrees.landing_diffs import ChangedFile

FILES_MAX = 2_000
PATCH_BYTES_MAX = 1 << 20
SPAN_BYTES_MAX = 4 << 20
# Lines of one file's change that are compared with those of another landing.
COMPARED_LINES_MAX = 4_000

# `whole`: all that would land. `since`: since the last review. `turn`: what one turn did. `resolution`: how the agent
# has resolved a conflict. `landing`: the change that was approved beside the one that lands.
ReviewView = Literal["whole", "since", "turn", "resolution", "landing"]


class ReviewFile(msgspec.Struct, frozen=True, kw_only=True):
    """`added` and `removed` count lines; null for a file that is not text."""

    path: str
    old_path: str
    status: str
    added: int | None
    removed: int | None
    old_blob: str
    new_blob: str


class ShownComment(msgspec.Struct, frozen=True, kw_only=True):
    """`touched`: the newest candidate has changed these lines; null where it is the reviewed one itself."""

    path: str
    side: Literal["old", "new"]
    line: int
    last: int
    quote: str
    blob: str
    words: str
    touched: bool | None = None


class ShownReview(msgspec.Struct, frozen=True, kw_only=True):
    """`verdict` is empty for a draft."""

    by: str
    at: float
    candidate: str
    verdict: str
    summary: str
    comments: list[ShownComment]


class Relanding(msgspec.Struct, frozen=True, kw_only=True):
    """What was approved, and what lands in its place, because the target has moved. `differs`: files whose change
    itself is another now; where there are none, only the lines around it are."""

    approved: str
    approved_on: str
    lands: str
    lands_on: str
    differs: list[str]


class ReviewMaterial(msgspec.Struct, frozen=True, kw_only=True):
    """`why`: the reason why the result waits for a person. `resolved`: files in which the agent has resolved a merge
    conflict. `since`: whether there is a difference to the last review. `conflicts`: files in which the reviewed state
    does not fit the newer target."""

    task: str
    title: str
    state: TaskState
    attempt: str
    candidate: str
    target: str
    merged: str
    why: str
    waits: bool
    turns: int
    view: str
    files: list[ReviewFile]
    files_total: int
    resolved: list[str]
    since: bool
    conflicts: list[str]
    last: ShownReview | None
    draft: ShownReview | None
    relanding: Relanding | None


class ReviewDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The hunks of one file. `truncated`: there is more than these."""

    path: str
    old_path: str
    status: str
    patch: str
    truncated: bool
    binary: bool
    old_blob: str
    new_blob: str


class Reviews(msgspec.Struct, frozen=True):
    """The reviews of one task, for one person."""

    repo: Path
    layout: Layout
    task: Task
    journal: LedgerReader
    by: str
    title: str = ""

    @property
    def store(self) -> Store:
        return Store.of(self.layout.snapshots, self.repo)

    @property
    def last(self) -> PastReview | None:
        return self.task.reviews.last_of(self.by)

    def whole(self) -> tuple[str, str]:
        """The target, and the candidate merged onto it; before it was verified, its base and the candidate itself."""
        landing, candidate = self.task.landing, self.task.candidate
        if not candidate:
            hint = "there is no result yet" if self.task.attempt.id else "nobody has worked on it yet"
            raise InputError(detail=f"the task {self.task.id} has nothing to review: {hint}")
        return (landing.verified_on, landing.verified) if landing.verified else (self.task.attempt.base, candidate)

    def since(self) -> tuple[str, str, tuple[str, ...]]:
        """What was reviewed last, merged onto the target of the newest candidate; that candidate; and conflicts."""
        target, merged = self.whole()
        last = self.last
        if last is None:
            raise InputError(detail=f"nobody has submitted a review of {self.task.id} yet, so there is nothing since")
        if last.target == target and last.merged:
            return last.merged, merged, ()
        before, conflicts = landing_diffs.merged_onto(self.store, target, last.candidate)
        return before, merged, tuple(git.readable(path) for path in conflicts)

    def pair(self, view: ReviewView, turn: int = 0) -> tuple[str, str]:
        """The two commits that a view compares."""
        match view:
            case "since":
                return self.since()[:2]
            case "turn":
                task = self.task
                diffs = Diffs(self.repo, self.layout, task, task.attempt.id, self.journal)
                number = turn or task.attempt.turn
                return diffs.before(number), diffs.after(number)
            case "resolution":
                return self.task.attempt.begun or self.task.attempt.base, self.task.candidate
            case _:
                return self.whole()

    def files(self, view: ReviewView, turn: int = 0) -> list[ChangedFile]:
        if view == "landing":
            return [_interfile(name, _interdiff(*each)) for name, each in self._differing().items()]
        found = landing_diffs.changed_files(self.store, *self.pair(view, turn))
        if view == "resolution":
            resolved = set(self.resolved())
            return [each for each in found if each.name in resolved]
        return found

    def material(self, view: ReviewView = "whole", turn: int = 0, *, with_draft: bool = True) -> ReviewMaterial:
        task, (target, merged) = self.task, self.whole()
        files, last = self.files(view, turn), self.last
        is_newer = last is not None and last.candidate != task.candidate
        waits = task.state is TaskState.PENDING_APPROVAL
        draft = task.reviews.draft_of(self.by) if with_draft else None
        return ReviewMaterial(
            task=task.id,
            title=self.title,
            state=task.state,
            attempt=task.attempt.id,
            candidate=task.candidate,
            target=target,
            merged=merged,
            why=str(task.outcome.get("detail", "")) if waits else "",
            waits=waits,
            turns=task.attempt.turn,
            view=view,
            files=[shown_file(each) for each in files[:FILES_MAX]],
            files_total=len(files),
            resolved=self.resolved(),
            since=is_newer,
            conflicts=list(self.since()[2]) if is_newer else [],
            last=shown(last, last.verdict, self.touched() if is_newer else ()) if last else None,
            draft=shown(draft, "") if draft else None,
            relanding=self.relanding(),
        )

    def diff(self, path: str, view: ReviewView = "whole", turn: int = 0) -> ReviewDiff:
        """The diff of one file, whose name is as `files` shows it."""
        file = next((each for each in self.files(view, turn) if each.name == path), None)
        if file is None:
            raise InputError(detail=f"this change has no file {path!r}")
        if view == "landing":
            return _made(file, "\n".join([*_interdiff(*self._differing()[file.path]), ""]), truncated=False)
        old, new = self.pair(view, turn)
        content = landing_diffs.file_patch(self.store, old, new, file, most=PATCH_BYTES_MAX + 1)
        text = content[:PATCH_BYTES_MAX].decode(errors="backslashreplace")
        begin = 0 if text.startswith("@@ ") else text.find("\n@@ ") + 1
        is_text = begin > 0 and not file.is_binary
        return _made(file, text[begin:] if is_text else "", truncated=len(content) > PATCH_BYTES_MAX)

    # -- what the agent resolved, and what lands in place of what was approved ----------------------------------------

    def resolved(self) -> list[str]:
        """Files that had conflict markers when the attempt began, and that its agent has resolved."""
        attempt = self.task.attempt
        if not attempt.begun or attempt.begun == attempt.base:
            return []
        return [git.readable(name) for name in merges.conflict_markers(self.store.seen, attempt.base, attempt.begun)]

    def relanding(self) -> Relanding | None:
        landing = self.task.landing
        if landing.approved in ("", landing.verified):
            return None
        return Relanding(
            approved=landing.approved,
            approved_on=landing.approved_on,
            lands=landing.verified,
            lands_on=landing.verified_on,
            differs=[git.readable(name) for name in self._differing()][:FILES_MAX],
        )

    def _differing(self) -> dict[str, tuple[Sequence[str], Sequence[str]]]:
        """The files whose approved change is another than the one that lands, with both."""
        landing = self.task.landing
        if landing.approved in ("", landing.verified):
            return {}
        pairs = (landing.approved_on, landing.approved), (landing.verified_on, landing.verified)
        return landing_diffs.differing(self.store, *pairs)

    # -- what became of the comments ----------------------------------------------------------------------------------

    def touched(self) -> list[bool]:
        """For each comment of the last review, whether its lines were changed in the newest candidate."""
        last = self.last
        assert last is not None, "the caller has seen it"
        target, _ = self.whole()
        before, merged, _ = self.since()
        shown_then = last.merged or before
        names = {
            each.name: each.path for each in landing_diffs.changed_files(self.store, last.target or target, shown_then)
        }
        ways = _Ways(self.store, target, shown_then, before, merged)
        return [ways.is_touched(each, names.get(each.path, each.path)) for each in last.comments]


class _Ways(msgspec.Struct, frozen=True):
    """From what was commented on to the newest candidate: `shown` as it was, `before` on the newer target, `now`."""

    store: Store
    target: str
    shown: str
    before: str
    now: str

    def is_touched(self, comment: ReviewComment, path: str) -> bool:
        if comment.side == "old":
            there, here = (self._hunks(end, path, comment) for end in (self.before, self.now))
            return there != here
        changed = self._spans(self.before, self.now, path)
        if not comment.line:
            return bool(changed)
        moved = self._spans(self.shown, self.before, path) if self.shown != self.before else []
        first, last = (followed(line, moved) for line in (comment.line, comment.last))
        return is_touched(first, last, changed)

    def _patch(self, old: str, new: str, path: str) -> str:
        file = _named(path)
        patch = landing_diffs.file_patch(self.store, old, new, file, most=SPAN_BYTES_MAX, context=0)
        return patch.decode(errors="backslashreplace")

    def _spans(self, old: str, new: str, path: str) -> Sequence[LineSpan]:
        patch = self._patch(old, new, path)
        # A file that is not text has no lines: all of it was changed.
        return spans(patch) or ([LineSpan(1, 1 << 30, 1, 1 << 30)] if patch else [])

    def _hunks(self, end: str, path: str, comment: ReviewComment) -> list[tuple[tuple[str, str], ...]]:
        """What became of the target's lines that a comment is about."""
        first, last = comment.line, comment.last
        found = (hunk.lines for hunk in hunks(self._patch(self.target, end, path)))
        return [
            tuple((line.kind, line.text) for line in lines)
            for lines in found
            if not first or any(first <= line.old <= last for line in lines)
        ]


def _named(path: str, status: str = "", added: int = 0, removed: int = 0) -> ChangedFile:
    facts = dict.fromkeys(("old_path", "old_blob", "new_blob", "old_mode", "new_mode"), "")
    return ChangedFile(path=path, status=status, **facts, added=added, removed=removed)


def _interdiff(approved: Sequence[str], lands: Sequence[str]) -> list[str]:
    """The change that was approved beside the one that lands, as a diff of the two."""
    before, now = (_without_names(each)[:COMPARED_LINES_MAX] for each in (approved, lands))
    return list(difflib.unified_diff(before, now, lineterm="", n=3))[2:]


def _without_names(change: Sequence[str]) -> Sequence[str]:
    """A file's change without the lines that name the file: `diff --git`, and the pair of `---` and `+++`."""
    end = next((at for at, line in enumerate(change) if line.startswith("+++ ")), 0)
    return [*change[1 : end - 1], *change[end + 1 :]] if end else change[1:]


def _interfile(path: str, lines: Sequence[str]) -> ChangedFile:
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return _named(path, "changed", added, removed)


def shown_file(file: ChangedFile) -> ReviewFile:
    names = {"path": file.name, "old_path": git.readable(file.old_path), "status": file.status}
    blobs = {"old_blob": file.old_blob, "new_blob": file.new_blob}
    return ReviewFile(**names, **blobs, added=file.added, removed=file.removed)


def shown(review: PastReview | DraftReview, verdict: str, touched: Sequence[bool] = ()) -> ShownReview:
    known = [*touched, *[None] * (len(review.comments) - len(touched))]
    comments = [
        ShownComment(**msgspec.structs.asdict(each), touched=is_touched)
        for each, is_touched in zip(review.comments, known, strict=True)
    ]
    facts = {"candidate": review.candidate, "verdict": verdict, "summary": review.summary}
    return ShownReview(by=review.by, at=review.at, **facts, comments=comments)


def _made(file: ChangedFile, patch: str, *, truncated: bool) -> ReviewDiff:
    return ReviewDiff(
        path=file.name,
        old_path=git.readable(file.old_path),
        status=file.status,
        patch=patch,
        truncated=truncated,
        binary=file.is_binary,
        old_blob=file.old_blob,
        new_blob=file.new_blob,
    )
