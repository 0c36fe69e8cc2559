"""The journal as it stands, what it says of one task in words, and whether its chain holds."""

from __future__ import annotations

import threading
import time
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.checks.projections import read_journal
from holdfast.server.api_state import Api
from holdfast.server.event_feed import Event, event_of, parse_cursor
from holdfast.server.operations import Ask, Operation
from holdfast.server.problems import Problem
from holdfast.storage.journal.entry import Entry
from holdfast.storage.journal.pages import WantedPage
from holdfast.storage.journal.writer import epoch_of
from holdfast.views import story
from holdfast.views.story import plain_words

Limit = Annotated[int, Meta(ge=1, le=1000)]
Text = Annotated[str, Meta(max_length=200)]
_verifying = threading.Lock()


class Told(Event, frozen=True, omit_defaults=True):
    """An event, and what it says in words: all of it, and `plain`, as one would tell it, empty where one would not."""

    words: str = ""
    plain: str = ""


class History(msgspec.Struct, frozen=True):
    """`next` is what `after` is for the next page; empty on the last one."""

    events: list[Told]
    next: str = ""


class PageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: Text = ""
    limit: Limit = 200


class JournalEntry(Entry, frozen=True, kw_only=True):
    """A line of the journal, and the run that it is of."""

    run: str


class JournalPage(msgspec.Struct, frozen=True):
    """`next` is what `after` is for the next page; empty on the last one. A page may have less than was asked for."""

    entries: list[JournalEntry]
    next: str = ""


class JournalQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """With `newest` it goes backwards, from the cursor or the end."""

    after: Text = ""
    limit: Limit = 200
    task: Text = ""
    kind: tuple[Text, ...] = ()
    newest: bool = False


class Verified(msgspec.Struct, frozen=True):
    """`torn` counts what crashes left behind; `problem` says where the chain does not hold."""

    ok: bool
    runs: int
    entries: int
    torn: int
    problem: str
    seconds: float


def history(api: Api, ask: Ask) -> History:
    task, query = api.task(ask.task), ask.query
    after = parse_cursor(query.after) if query.after else None
    if after is None:
        with api.chronicle as told:
            run, seq = told.added.get(task.id, ("", 0))
        after = (epoch_of(run), seq - 1) if run else None
    page = api.context.ledger.page(WantedPage(task.id), after, query.limit, end=api.feed.end)
    events = [
        Told(**msgspec.structs.asdict(event_of(run, entry)), words=story.full_words(entry), plain=plain_words(entry))
        for run, entry in page.items
    ]
    return History(events, page.next)


def read(api: Api, ask: Ask) -> JournalPage:
    query: JournalQuery = ask.query
    cursor = parse_cursor(query.after) if query.after else None
    wanted = WantedPage(query.task, tuple(filter(None, query.kind)))
    page = api.context.ledger.page(wanted, cursor, query.limit, end=api.feed.end, is_backward=query.newest)
    entries = [JournalEntry(**msgspec.structs.asdict(entry), run=run) for run, entry in page.items]
    return JournalPage(entries, page.next)


def verify(api: Api, ask: Ask) -> Verified:
    """Reads all of it, so one at a time is enough."""
    if not _verifying.acquire(blocking=False):
        raise Problem(
            429, "verifying", "The journal is being verified already. Ask again in a moment.", Retry_After="2"
        )
    try:
        began = time.perf_counter()
        found = read_journal(api.layout, fold=False)
        seconds = time.perf_counter() - began
    finally:
        _verifying.release()
    problem = str(found.corrupt) if found.corrupt else ""
    return Verified(not problem, len(found.runs), found.entries, len(found.chain.torn), problem, seconds=seconds)


OPERATIONS = [
    Operation("GET", "/tasks/{task}/history", "task_history", "What the journal says of a task, in words.", history,
              answer=History, lane="aside", query=PageQuery, tag="tasks", problems=(404,), tool="person"),
    Operation("GET", "/journal", "read_journal", "Read the journal from a cursor on, or backwards.", read,
              answer=JournalPage, lane="aside", query=JournalQuery, tag="journal"),
    Operation("GET", "/journal/verify", "verify_journal", "Whether the chain of the journal holds.", verify,
              answer=Verified, lane="aside", tag="journal", problems=(429,)),
]  # fmt: skip
