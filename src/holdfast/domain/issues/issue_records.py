"""An issue as every tracker gives it, and `Origin`, the mark in the file of a task that came from one.

The id of a task is the name of its source, a dash, and the issue's number there (`gh-123`, `jira-OPS-7`). A source's
name has no dash, so two issues never have one id. An issue that was closed in its tracker and opened again there is
another task, with the number of its round behind: `gh-123.r2`.
"""

from __future__ import annotations

import re

import msgspec

SOURCE_PATTERN = r"^[a-z][a-z0-9]{0,30}\Z"
SOURCE_RULE = "1 to 31 small letters and digits, a letter first"
NUMBER_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
ROUNDS_MAX = 1000


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The issue that a task file was made from. Only the sync writes it.

    `etag` is a hash of all that the file has from the issue: it tells an edit there from an edit here. `fields` are the
    keys that the issue's front matter gave. `trusted`: its author has write rights to the repository.
    """

    source: str
    tracker: str
    number: str
    url: str
    etag: str
    author: str = ""
    trusted: bool = False
    fields: tuple[str, ...] = ()


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """`number` is what people call it there: 12, OPS-7. `closed_at` is the tracker's own word; empty while it is open.

    `is_trusted`: its author has write rights. `wanted`: it still has the label of its source, or fits its query.
    `is_gone`: the tracker does not have it any more, and all else is empty.
    """

    number: str
    url: str = ""
    title: str = ""
    body: str = ""
    labels: tuple[str, ...] = ()
    author: str = ""
    updated_at: str = ""
    closed_at: str = ""
    is_trusted: bool = False
    wanted: bool = True
    is_gone: bool = False

    @property
    def is_open(self) -> bool:
        return not self.closed_at and not self.is_gone


class IssuePage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a source's open issues. `at` names the page, `next` the one behind it; empty on the last.

    `issues` is None where the tracker said that the page is as its `etag` names it: then `numbers` are those it had.
    """

    at: str
    next: str = ""
    etag: str = ""
    numbers: tuple[str, ...] = ()
    issues: tuple[Issue, ...] | None = None


class RateLimit(msgspec.Struct, frozen=True):
    """What a tracker last said of its limit: requests left (None: it did not say), and when there are more."""

    remaining: int | None = None
    resets_at: float = 0.0


def task_id(source: str, number: str, round: int = 1) -> str:
    return f"{source}-{number}" if round == 1 else f"{source}-{number}.r{round}"


def is_task_of(task: str, origin: Origin) -> bool:
    """Whether the id fits the origin: a file that only says that it came from an issue did not."""
    name = task_id(origin.source, origin.number)
    return task == name or re.fullmatch(re.escape(name) + r"\.r[1-9][0-9]{0,3}", task, re.ASCII) is not None
