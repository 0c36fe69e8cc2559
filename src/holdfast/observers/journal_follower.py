"""Follows the journal in a thread of its own, with a cursor that lasts: each entry at least once, in order.

`observe` only queues: the ledger calls it under its mutex. The thread calls `handle` for each durable entry and then
notes in `runtime/cursors/<name>.json` how far it has come. A kill between the two makes the next run call `handle`
again for the entries behind the cursor, from the journal. `handle` may take its time, and may append to the ledger.

The queue is bounded. When it is full, it is dropped, and the thread reads from the journal what it has missed.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from holdfast.clock import monotonic
from holdfast.errors import HoldfastError
from holdfast.layout import Layout
from holdfast.ports import Ledger
from holdfast.storage.files import disk
from holdfast.storage.files.json_file import decode_json
from holdfast.storage.files.quarantine import set_aside
from holdfast.storage.journal.entry import Entry, Ref
from holdfast.storage.journal.writer import epoch_of, is_run_id

QUEUE_MAX = 1000
# The cursor is saved when all is handled, and after so many entries where that takes longer.
SAVE_EVERY = 100
PATIENCE_S = 5.0

Handle = Callable[[str, Entry], None]
Say = Callable[[str], None]


class CursorStore(Protocol):
    """Where a follower keeps how far it has come."""

    def load(self) -> Ref | None:
        """The last entry that was handled; None: begin with the journal's first."""

    def save(self, ref: Ref) -> None: ...


class CursorFile:
    """`runtime/cursors/<name>.json`: the last entry that was handled, as `run`, `seq` and `entry_hash`."""

    def __init__(self, layout: Layout, ledger: Ledger, name: str, say: Say, *, from_beginning: bool = False) -> None:
        self._path = layout.cursor(name)
        self._quarantine = layout.quarantine
        self._ledger, self._name, self._say = ledger, name, say
        self._from_beginning = from_beginning

    def load(self) -> Ref | None:
        """Where there is no cursor: the journal's present end, unless the follower begins with the first entry."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return self._first()
        found = decode_json(content, Ref)
        if found is not None and is_run_id(found.run) and self._ledger.has(found):
            return found
        aside = set_aside(self._quarantine, self._path, "it names no entry of the journal", f"cursor-{self._name}")
        where = "the first entry" if self._from_beginning else "the journal's end"
        self._say(f"the cursor of {self._name} was damaged and is kept as {aside}; it goes on from {where}")
        return self._first()

    def save(self, ref: Ref) -> None:
        disk.mkdir(self._path.parent)
        disk.replace(self._path, msgspec.json.encode(ref) + b"\n")

    def _first(self) -> Ref | None:
        if self._from_beginning:
            return None
        # Saved at once: a run that is killed before anything was handled begins here again.
        end = self._ledger.position
        self.save(end)
        return end


class JournalFollower:
    """An observer with a thread. `handle` gets each durable entry, at least once, in order.

    Where `handle` raises a HoldfastError or an OSError, `say` gets the reason and the follower stops for this run; the
    next one begins with the same entry. What is to be retried or passed over, `handle` retries and passes over itself.
    `begin` is called first, in the same thread, with the stored cursor, and returns the one that counts.
    """

    # Its thread reads what is behind its cursor, so the ledger gives it only what is new.
    cursor = None

    def __init__(
        self,
        name: str,
        handle: Handle,
        *,
        ledger: Ledger,
        store: CursorStore,
        say: Say,
        begin: Callable[[Ref | None], Ref | None] = lambda stored: stored,
        queue_max: int = QUEUE_MAX,
        save_every: int = SAVE_EVERY,
    ) -> None:
        self.name = name
        self._handle, self._ledger, self._store, self._say = handle, ledger, store, say
        self._begin = begin
        self._queue: deque[tuple[str, Entry]] = deque()
        self._queue_max, self._save_every = queue_max, save_every
        self._last: Ref | None = None
        self._unsaved = 0
        self._news = threading.Event()
        self._is_closing = False
        self._is_given_up = False
        # Held while the cursor is saved: once `close` has returned, another process may own the file.
        self._saving = threading.Lock()
        self._thread = threading.Thread(target=self._follow, name=name, daemon=True)

    @classmethod
    def on_file(
        cls, name: str, handle: Handle, *, layout: Layout, ledger: Ledger, say: Say, from_beginning: bool = False
    ) -> JournalFollower:
        """The usual follower, whose cursor is a file of its name."""
        store = CursorFile(layout, ledger, name, say, from_beginning=from_beginning)
        return cls(name, handle, ledger=ledger, store=store, say=say)

    @property
    def position(self) -> Ref | None:
        """The last entry that was handled, or passed over because the follower began behind it."""
        return self._last

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Finds its place and begins, with what the journal has behind that. Raises where the cursor is unreadable."""
        self._last = self._store.load()
        self._thread.start()

    def observe(self, run: str, entry: Entry) -> None:
        if len(self._queue) >= self._queue_max:
            self._queue.clear()
        # Of a queue that was dropped this one is left; it does not follow the last, so the thread reads the journal.
        self._queue.append((run, entry))
        self._news.set()

    def ask_to_close(self) -> None:
        """Lets it handle what there is, and end. Several are asked first and awaited then."""
        self._is_closing = True
        self._news.set()

    def close(self, patience_s: float = PATIENCE_S) -> bool:
        """Waits so long until all is handled; False where it is not, which is then for the next run."""
        self.ask_to_close()
        if self._thread.is_alive():
            self._thread.join(max(0.0, patience_s))
        with self._saving:
            self._is_given_up = True
        return not self._thread.is_alive()

    def _follow(self) -> None:
        try:
            self._last = self._begin(self._last)
            self._catch_up()
            while not self._is_given_up:
                # Read first: what was queued before we were asked to close is still handled.
                is_last = self._is_closing
                self._drain()
                if is_last:
                    return
                self._news.wait()
                self._news.clear()
        except (HoldfastError, OSError) as error:
            if not self._is_given_up:
                self._say(f"{self.name} does not follow the journal any more in this run: {error}")

    def _drain(self) -> None:
        while self._queue and not self._is_given_up:
            try:
                run, entry = self._queue.popleft()
            except IndexError:
                continue  # Dropped in this moment; the entry that dropped it comes.
            if self._is_behind(run, entry):
                self._catch_up()
            elif self._is_next(run, entry):
                self._take(run, entry)
        self._save()

    def _is_next(self, run: str, entry: Entry) -> bool:
        return self._last is None or (epoch_of(run), entry.seq) > (epoch_of(self._last.run), self._last.seq)

    def _is_behind(self, run: str, entry: Entry) -> bool:
        """Whether entries between the last one and this one are missing."""
        return self._is_next(run, entry) and (self._last is None or entry.prev_hash != self._last.entry_hash)

    def _catch_up(self) -> None:
        """Handles what the journal has behind the last entry. What is in its file but not yet durable comes later."""
        end = self._ledger.position
        if self._last != end:
            for run, entry in self._ledger.read(self._last):
                if self._is_given_up:
                    return
                self._take(run, entry)
                if self._last == end:
                    break
        self._save()

    def _take(self, run: str, entry: Entry) -> None:
        self._handle(run, entry)
        self._last = Ref(run, entry.seq, entry.entry_hash)
        self._unsaved += 1
        if self._unsaved >= self._save_every:
            self._save()

    def _save(self) -> None:
        with self._saving:
            if self._last is None or not self._unsaved or self._is_given_up:
                return
            self._ledger.expect_owned()
            self._store.save(self._last)
            self._unsaved = 0


@contextlib.contextmanager
def followed_by(ledger: Ledger, *followers: JournalFollower, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Lets followers follow the journal while here. At the end they have so long, together, to handle the rest."""
    with contextlib.ExitStack() as ending:
        for follower in followers:
            ledger.observe(follower)
            ending.callback(ledger.stop_observing, follower)
        try:
            for follower in followers:
                follower.start()
            yield
        finally:
            deadline = monotonic() + patience_s
            for follower in followers:
                follower.ask_to_close()
            for follower in followers:
                follower.close(deadline - monotonic())
