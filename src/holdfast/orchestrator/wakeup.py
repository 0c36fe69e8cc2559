"""Wakes the loop: the signal files in `runtime/signals/`, and a watch on them and on the backlog.

- `WAKEUP`: touched by runners at the end of a turn, and by anybody who wants the loop to look again.
- `SHUTDOWN`: asks a run to end; its content is `leave` (agents go on working) or `agents` (they are ended, too), and
  the run's name: what another run was asked is nothing to this one.
- `HEARTBEAT`: touched by the loop while it lives.

They wake and ask, and nothing more: what is so, the journal and the attempts' folders say.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from holdfast.layout import Layout
from holdfast.storage.files import disk

SHUTDOWN, HEARTBEAT = "SHUTDOWN", "HEARTBEAT"
LEAVE, AGENTS = "leave", "agents"
WATCH_STEP_MS = 50
# How long the beginning of a run waits for the kernel to watch.
OPEN_S_MAX = 10.0


class Signals:
    def __init__(self, layout: Layout) -> None:
        self.folder = layout.signals

    def beat(self) -> None:
        disk.touch(self.folder / HEARTBEAT)

    def ask_to_stop(self, run: str, how: str) -> None:
        disk.replace(self.folder / SHUTDOWN, f"{how} {run}\n".encode())

    def asked_to_stop(self, run: str) -> str:
        """The way in which the run was asked to end; empty while it was not."""
        try:
            how, _, asked = (self.folder / SHUTDOWN).read_text().strip().partition(" ")
        except (FileNotFoundError, UnicodeDecodeError):
            return ""
        return how if asked == run and how in (LEAVE, AGENTS) else ""


class _StopEvent(threading.Event):
    """Asks a watch to end. The watch looks at it for the first time once the kernel watches: then `opened` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = threading.Event()

    def is_set(self) -> bool:
        self.opened.set()
        return super().is_set()


class SignalWatch:
    """Reports changes below some folders, from a thread of its own, while it is open.

    It is opened before the files are first read, so that one read at the start is enough. Changes from before `listen`
    are kept, and reported then.
    """

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders
        self._changed: Callable[[set[Path]], None] | None = None
        self._early: set[Path] = set()
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._seen = self._identities()
        self._stop = _StopEvent()
        self._thread = threading.Thread(target=self._watch, args=(self._stop,), name="watch", daemon=True)

    def _identities(self) -> list[tuple[int, int]]:
        """The kernel watches inodes: a folder that is removed and made again is another one. Empty: one is missing."""
        try:
            below = [each for folder in self._folders for each in (folder, *sorted(folder.iterdir())) if each.is_dir()]
            return [(found.st_dev, found.st_ino) for found in map(os.stat, below)]
        except OSError:
            return []

    def await_open(self) -> None:
        """Returns once nothing changes unnoticed. Where a folder is missing, `renew` says when it is there."""
        self._stop.opened.wait(OPEN_S_MAX)

    def listen(self, changed: Callable[[set[Path]], None]) -> None:
        """Reports changes to `changed`, first those that came before."""
        with self._lock:
            early, self._early, self._changed = self._early, set(), changed
        if early:
            changed(early)

    def renew(self) -> bool:
        """Watches anew where a folder was replaced. True: it did, and changes in between are not reported."""
        now = self._identities()
        if not now or now == self._seen:
            return False
        self.__exit__()
        self._begin()
        self._thread.start()
        self.await_open()
        return True

    def _watch(self, stop: _StopEvent) -> None:
        try:
            self._report_changes(stop)
        except FileNotFoundError:
            # A folder is gone, and may come back as the one it was: `renew` begins again as soon as it is there.
            self._seen = []
        finally:
            stop.opened.set()

    def _report_changes(self, stop: _StopEvent) -> None:
        from watchfiles import watch

        for changes in watch(
            *self._folders,
            watch_filter=None,
            debounce=WATCH_STEP_MS,
            step=WATCH_STEP_MS,
            rust_timeout=500,
            stop_event=stop,
            recursive=True,
            raise_interrupt=False,
        ):
            paths = {Path(path) for _, path in changes if not path.endswith((HEARTBEAT, ".tmp"))}
            with self._lock:
                changed = self._changed
                if changed is None:
                    self._early |= paths
            if paths and changed is not None:
                changed(paths)

    def __enter__(self) -> SignalWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
