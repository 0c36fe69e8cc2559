"""Work beside the loop that asks others: each job fetches in a thread of its own, and is applied in the loop's.

What a job fetches may take as long as the network does; nothing of ours is held meanwhile. What it found is given to
the loop, which alone decides. A job whose fetch fails is tried again at its next turn, and says so once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from holdfast.clock import monotonic
from holdfast.engine.context import Note, RunContext
from holdfast.errors import HoldfastError, is_fatal
from holdfast.integrations.outbox.sender import Sender
from holdfast.observers.journal_follower import JournalFollower, followed_by

T = TypeVar("T")
# Has a function called in the loop's thread; it returns the tasks that it changed.
Submit = Callable[[Callable[[], list[str]]], None]
CLOSE_S_MAX = 5.0


def _do_nothing() -> None:
    pass


@dataclass(kw_only=True)
class PeriodicJob(Generic[T]):
    """`fetch` is called every so many seconds, and at once when it is poked. `apply` gets what it returned, in the
    loop's thread, and returns the tasks that it changed. `comes_first`: a run does not end before its first round.
    `close` ends a fetch that waits for something."""

    name: str
    every_s: float
    fetch: Callable[[], T]
    apply: Callable[[T], list[str]]
    comes_first: bool = False
    close: Callable[[], None] = _do_nothing


@dataclass
class _Worker:
    job: PeriodicJob[Any]
    poked: threading.Event = field(default_factory=threading.Event)
    rounds: int = 0
    told: str = ""


class BackgroundJobs:
    """The jobs of one run, each in its own thread."""

    def __init__(self, jobs: Sequence[PeriodicJob[Any]], submit: Submit, note: Note) -> None:
        self._submit, self._note = submit, note
        self._workers = {job.name: _Worker(job) for job in jobs}
        self._is_ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._serve, args=(each,), name=f"job-{name}", daemon=True)
            for name, each in self._workers.items()
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """A fetch that takes longer is left: it can change nothing any more."""
        self._is_ending.set()
        for each in self._workers.values():
            each.poked.set()
            each.job.close()
        for thread in self._threads:
            thread.join(CLOSE_S_MAX / max(1, len(self._threads)))

    def poke(self, name: str) -> None:
        """Has a job begin its next round at once."""
        if name in self._workers:
            self._workers[name].poked.set()

    @property
    def is_busy(self) -> bool:
        return any(each.job.comes_first and not each.rounds for each in self._workers.values())

    def _serve(self, worker: _Worker) -> None:
        while not self._is_ending.is_set():
            worker.poked.clear()
            try:
                found = worker.job.fetch()
            except HoldfastError as error:
                self._submit(lambda error=error: self._failed(worker, error))  # type: ignore[misc]
            except Exception as error:  # noqa: BLE001 (raised again, in the loop's own thread)
                self._submit(lambda error=error: raise_again(error))  # type: ignore[misc]
                return
            else:
                self._submit(lambda found=found: self._apply(worker, found))  # type: ignore[misc]
            worker.poked.wait(worker.job.every_s)

    def _apply(self, worker: _Worker, found: Any) -> list[str]:
        if self._is_ending.is_set():
            return []
        try:
            return worker.job.apply(found)
        except HoldfastError as error:
            return self._failed(worker, error)
        finally:
            worker.rounds += 1

    def _failed(self, worker: _Worker, error: HoldfastError) -> list[str]:
        worker.rounds += 1
        if is_fatal(error):
            raise error
        if worker.told != str(error):
            worker.told = str(error)
            self._note("", f"{worker.job.name}: {error}")
        return []


class Connections:
    """What leaves to others and what is asked of them, while it is entered."""

    def __init__(self, context: RunContext, submit: Submit, wake: Callable[[], None]) -> None:
        self._ledger, self._followers = context.ledger, list[JournalFollower](context.followers)
        self._before_end, self._tells_until = context.before_end, 0.0
        # Whether the loop waits for nothing but its followers.
        self._is_awaited = False
        for each in self._followers:
            each.on_idle = lambda: wake() if self._is_awaited else None
        self.sender = Sender(context, lambda error: submit(lambda: raise_again(error)), wake)
        self.jobs = BackgroundJobs(context.jobs, submit, context.note)
        self._ending = contextlib.ExitStack()

    @property
    def is_busy(self) -> bool:
        """Whether something is to leave now or soon, or must be asked once: a run does not end before."""
        end = self._ledger.position
        # Set before it is looked for: one that comes to the end meanwhile wakes the loop.
        self._is_awaited = True
        self._is_awaited = any(each.is_alive and each.position != end for each in self._followers)
        return self._is_awaited or self.sender.is_busy or self.jobs.is_busy

    @property
    def is_telling(self) -> bool:
        """Whether a run that was stopped still waits, for a moment, until the message of its end has left."""
        return monotonic() < self._tells_until and self.sender.is_sending

    def tell_end(self) -> bool:
        """Queues what is to leave before the run ends; whether there was anything."""
        told = [tell() for tell in self._before_end]
        if any(told):
            self._tells_until = monotonic() + CLOSE_S_MAX
        return any(told)

    def __enter__(self) -> Connections:
        self._ending.callback(self.sender.close)
        self._ending.enter_context(followed_by(self._ledger, *self._followers))
        self.sender.start()
        self._ending.callback(self.jobs.close)
        self.jobs.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()


def raise_again(error: BaseException) -> list[str]:
    """Has the loop's thread raise what another thread met."""
    raise error
