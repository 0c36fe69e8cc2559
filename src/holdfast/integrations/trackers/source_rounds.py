"""Asks one source's tracker what has changed. Changes nothing here: what was found is applied by `sync.py`.

A round asks for the pages of open issues, each with the etag that it had when it was last applied, and then one by one
for the issues whose tasks are not over and that are on no page: they were closed there, or have lost their label. It
ends early where the tracker wants no more requests; what it has by then is applied, and the next round goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from holdfast.clock import monotonic, wall
from holdfast.config.trackers import SourceSettings
from holdfast.domain.issues.issue_records import NUMBER_PATTERN, Issue, IssuePage, RateLimit, is_task_of
from holdfast.domain.task import OVER
from holdfast.domain.task_record import Task
from holdfast.domain.wording import plural
from holdfast.errors import HoldfastError, ServiceLimited, is_fatal
from holdfast.integrations.trackers.memory import TrackerMemory
from holdfast.integrations.trackers.tracker import SeenPage, Tracker
from holdfast.ports import TaskFile

# How long the answer about an author's rights is believed.
RIGHTS_S = 3600.0
Progress = Callable[[str], None]


class TrackedNumber(msgspec.Struct, frozen=True):
    """An issue whose newest task is known here. `is_over`: nothing that happens there matters for that any more."""

    number: str
    is_over: bool


class SourceRound(msgspec.Struct, frozen=True, kw_only=True):
    """What one round found. `absent`: issues on no page, each with its etag; `unchanged`: those that are as before.

    `error`: why it ended early, and `not_before` until when; what was found before that counts.
    """

    source: str
    pages: list[IssuePage] = []
    absent: list[tuple[Issue, str]] = []
    unchanged: dict[str, str] = {}
    limit: RateLimit = RateLimit()
    at: float = 0.0
    not_before: float = 0.0
    error: str = ""

    @property
    def issues(self) -> list[Issue]:
        listed = [issue for page in self.pages for issue in page.issues or ()]
        return [*listed, *(issue for issue, _ in self.absent)]


def tracked(source: str, tasks: Mapping[str, Task], files: Mapping[str, TaskFile]) -> dict[str, TrackedNumber]:
    """The issues of a source that have tasks, by number; the task of the newest round decides."""
    found: dict[str, TrackedNumber] = {}
    # Rounds are added in their order.
    for name, task in tasks.items():
        origin = files[name].definition.origin if name.startswith(f"{source}-") and name in files else None
        if origin is not None and origin.source == source and is_task_of(name, origin):
            found[origin.number] = TrackedNumber(origin.number, task.state in OVER)
    return found


@dataclass
class _Found:
    """What a round has found so far: it may end at any request."""

    pages: list[IssuePage] = field(default_factory=list)
    absent: list[tuple[Issue, str]] = field(default_factory=list)
    unchanged: dict[str, str] = field(default_factory=dict)


class Fetcher:
    """Fetches for one source; keeps the answers about authors' rights between rounds."""

    def __init__(self, source: SourceSettings, tracker: Tracker) -> None:
        self.source, self.tracker = source, tracker
        self._rights: dict[str, tuple[bool, float]] = {}

    def fetch(
        self, memory: TrackerMemory, known: Mapping[str, TrackedNumber], progress: Progress = lambda line: None
    ) -> SourceRound:
        """Asks for everything, and returns what was found before a request failed."""
        found = _Found()
        error, not_before = "", memory.not_before
        if not_before > wall():
            error = memory.error or "its limit is reached"
        else:
            try:
                self._list(found, memory, known, progress)
                self._look_for_absent(found, memory, known, progress)
                not_before = 0.0
            except ServiceLimited as limited:
                error, not_before = str(limited), float(limited.facts["until"])
            except HoldfastError as failed:
                if is_fatal(failed):
                    raise
                error = str(failed)
        return SourceRound(
            source=self.source.name,
            pages=found.pages,
            absent=found.absent,
            unchanged=found.unchanged,
            limit=self.tracker.limit,
            at=wall(),
            not_before=not_before,
            error=error,
        )

    def _list(
        self, found: _Found, memory: TrackerMemory, known: Mapping[str, TrackedNumber], progress: Progress
    ) -> None:
        # A page whose issues have no tasks here, say because files were put back from a copy, is asked for anew.
        seen = {at: page for at, page in memory.pages.items() if known.keys() >= set(page.numbers)}
        for page in self.tracker.pages(seen):
            if page.issues is not None:
                issues = tuple(self._judged(each) for each in page.issues if NUMBER_PATTERN.fullmatch(each.number))
                page = msgspec.structs.replace(page, issues=issues)
            found.pages.append(page)
            count = sum(len(each.numbers) for each in found.pages)
            progress(f"{self.source.name}: page {len(found.pages)}, {plural(count, 'issue')}")

    def _look_for_absent(
        self, found: _Found, memory: TrackerMemory, known: Mapping[str, TrackedNumber], progress: Progress
    ) -> None:
        listed = {number for page in found.pages for number in page.numbers}
        for number, each in known.items():
            if each.is_over or number in listed:
                continue
            before = memory.absent.get(number, "")
            issue, etag = self.tracker.get(number, before)
            progress(f"{self.source.name}: issue {number}")
            if issue is None:
                found.unchanged[number] = before
            else:
                found.absent.append((self._judged(issue), etag))

    def _judged(self, issue: Issue) -> Issue:
        return msgspec.structs.replace(issue, is_trusted=self._is_trusted(issue.author)) if issue.is_open else issue

    def _is_trusted(self, author: str) -> bool:
        if not author:
            return False
        if author in self.source.trusted:
            return True
        found, asked_at = self._rights.get(author, (False, float("-inf")))
        if monotonic() - asked_at > RIGHTS_S:
            found = self.tracker.permission_of(author)
            self._rights[author] = (found, monotonic())
        return found


def remembered(memory: TrackerMemory, found: SourceRound, put_off: set[str]) -> TrackerMemory:
    """The memory behind a round. `put_off`: issues of which something could not be done yet, and is asked for again."""
    kept = [page for page in found.pages if page.etag and not put_off & set(page.numbers)]
    pages = {page.at: SeenPage(page.etag, page.next, page.numbers) for page in kept}
    absent = {issue.number: etag for issue, etag in found.absent if etag and issue.number not in put_off}
    is_whole = not found.error
    return msgspec.structs.replace(
        memory,
        pages=pages if is_whole else {**memory.pages, **pages},
        absent={**found.unchanged, **absent} if is_whole else {**memory.absent, **absent},
        limit=found.limit if found.limit.remaining is not None else memory.limit,
        synced_at=found.at if is_whole else memory.synced_at,
        not_before=found.not_before,
        error=found.error,
    )
