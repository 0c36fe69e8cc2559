"""The publishers of messages to issues: a comment, labels, and the closing. Each can ask whether it was done before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.config.trackers import SourceSettings
from holdfast.domain.messages.outbox_records import Outgoing
from holdfast.errors import ExtraMissing, PublishFailed, PublishRefused, SecretMissing, within
from holdfast.integrations.http.client import as_published
from holdfast.integrations.trackers.registry import tracker_of
from holdfast.integrations.trackers.tracker import Tracker
from holdfast.integrations.trackers.write_back import CLOSE, COMMENT, LABELS, IssueMessage
from holdfast.ports import Publisher

# The clock of a tracker may be behind ours.
CLOCK_S_MAX = 3600.0
Act = Callable[[Tracker, IssueMessage, Outgoing], dict[str, Any] | None]


class IssuePublisher:
    """Sends by `act`, and asks by `look`, which returns None where it was not done."""

    can_be_asked = True

    def __init__(self, trackers: TrackersByName, act: Act, look: Act) -> None:
        self._trackers, self._act, self._look = trackers, act, look

    def find(self, message: Outgoing) -> dict[str, Any] | None:
        return self._call(self._look, message)

    def send(self, message: Outgoing) -> dict[str, Any]:
        return self._call(self._act, message) or {}

    def _call(self, act: Act, message: Outgoing) -> dict[str, Any] | None:
        about = msgspec.convert(message.content, IssueMessage)
        with as_published(message.key):
            try:
                return act(self._trackers.get(about.source, message.key), about, message)
            except (SecretMissing, ExtraMissing) as error:
                raise PublishFailed(key=message.key, reason=within(error)) from error


class TrackersByName:
    """The tracker of each source, made when it is first needed. Only the outbox's thread asks."""

    def __init__(self, sources: Sequence[SourceSettings], folder: Path | None) -> None:
        self._sources = {each.name: each for each in sources}
        self._folder = folder
        self._made: dict[str, Tracker] = {}

    def get(self, name: str, key: str) -> Tracker:
        if name not in self._sources:
            raise PublishRefused(key=key, reason=f"the settings have no source {name!r}")
        if name not in self._made:
            self._made[name] = tracker_of(self._sources[name], self._folder)
        return self._made[name]


def _comment(tracker: Tracker, about: IssueMessage, message: Outgoing) -> dict[str, Any]:
    return {"url": tracker.comment(about.number, about.text, message.key)}


def _find_comment(tracker: Tracker, about: IssueMessage, message: Outgoing) -> dict[str, Any] | None:
    found = tracker.find_comment(about.number, message.key, message.queued_at - CLOCK_S_MAX)
    return None if found is None else {"url": found}


def _labels(tracker: Tracker, about: IssueMessage, message: Outgoing) -> dict[str, Any]:
    tracker.labels(about.number, about.add, about.remove)
    return {}


def _find_labels(tracker: Tracker, about: IssueMessage, message: Outgoing) -> dict[str, Any] | None:
    issue, _ = tracker.get(about.number)
    there = {each.casefold() for each in issue.labels} if issue is not None else set[str]()
    has_all = all(each.casefold() in there for each in about.add)
    return {} if has_all and not any(each.casefold() in there for each in about.remove) else None


def _close(tracker: Tracker, about: IssueMessage, message: Outgoing) -> dict[str, Any]:
    tracker.close(about.number)
    return {}


def _find_closed(tracker: Tracker, about: IssueMessage, message: Outgoing) -> dict[str, Any] | None:
    issue, _ = tracker.get(about.number)
    return None if issue is not None and issue.is_open else {}


def issue_publishers(sources: Sequence[SourceSettings], folder: Path | None = None) -> dict[str, Publisher]:
    """Each under its channel. They are there also without a source: a message may wait for one."""
    trackers = TrackersByName(sources, folder)
    return {
        COMMENT: IssuePublisher(trackers, _comment, _find_comment),
        LABELS: IssuePublisher(trackers, _labels, _find_labels),
        CLOSE: IssuePublisher(trackers, _close, _find_closed),
    }
