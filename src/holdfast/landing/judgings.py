"""The judgings of this process: threads that judge candidates ahead of their turn, and what became of them.

Nothing here outlives the process. What counts is in the journal: the intent of each verdict with the commits that it is
about, and the verdict. After a crash the queue begins again from there.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator

import msgspec

from holdfast.errors import HoldfastError, is_fatal
from holdfast.landing.merge_queue import CandidateKind, JudgeAhead, JudgedMerge
from holdfast.landing.verify import GateVerdict


class JudgedAhead(msgspec.Struct, frozen=True):
    """The end of one judging ahead. `verdict`: None where it passed, or was not judged to its end."""

    asked: JudgeAhead
    candidate: str
    verdict: GateVerdict | None = None
    error: BaseException | None = None


class Judgings:
    """Written by the loop's thread, but for `announce` and `place`; read by all."""

    def __init__(self) -> None:
        self.ahead: dict[str, JudgeAhead] = {}
        self.merged: dict[str, JudgedMerge] = {}
        self.withdrawn: set[str] = set()
        # Judged and not passed, or not judged to the end: not tried again on the same commit.
        self.refused: dict[str, JudgedAhead] = {}
        self.kinds: dict[tuple[str, str], CandidateKind] = {}
        self.wake: Callable[[], None] = lambda: None
        self._ended: queue.SimpleQueue[JudgedAhead] = queue.SimpleQueue()
        self._places: set[int] = set()
        self._lock = threading.Lock()

    def begin(self, asked: JudgeAhead, candidate: str, judge: Callable[[], GateVerdict | None]) -> None:
        def carry_out() -> None:
            try:
                self._ended.put(JudgedAhead(asked, candidate, judge()))
            except BaseException as error:  # noqa: BLE001 (raised again, in the loop's own thread)
                self._ended.put(JudgedAhead(asked, candidate, error=error))
            self.wake()

        self.ahead[asked.task] = asked
        threading.Thread(target=carry_out, name=f"judging-{asked.task}", daemon=True).start()

    def collect(self) -> None:
        """Takes what has ended. Raises what ends a run; any other error comes again in the candidate's turn."""
        with contextlib.suppress(queue.Empty):
            while True:
                ended = self._ended.get_nowait()
                name, error = ended.asked.task, ended.error
                del self.ahead[name]
                self.merged.pop(name, None)
                if error is not None and (not isinstance(error, HoldfastError) or is_fatal(error)):
                    raise error
                if name not in self.withdrawn and (ended.verdict is not None or error is not None):
                    self.refused[name] = ended
                self.withdrawn.discard(name)

    def forget(self, task: str) -> None:
        """The landing thread is through with the task."""
        if task not in self.ahead:
            self.merged.pop(task, None)
            self.refused.pop(task, None)

    def withdraw(self, task: str) -> None:
        if task in self.ahead:
            self.withdrawn.add(task)

    def is_wanted(self, task: str) -> bool:
        return task not in self.withdrawn

    def verdict_on(self, task: str, candidate: str, target: str) -> GateVerdict | None:
        """The verdict on a candidate that was judged ahead and did not pass, where it is about exactly this target."""
        found = self.refused.get(task)
        is_about_it = found is not None and (found.candidate, found.asked.on) == (candidate, target)
        return found.verdict if found is not None and is_about_it else None

    def announce(self, task: str, target: str, commit: str) -> None:
        """The candidate is merged: others can be judged on top of it."""
        self.merged[task] = JudgedMerge(target, commit)
        self.wake()

    @contextlib.contextmanager
    def place(self) -> Iterator[int]:
        """The number of a worktree for gates that nobody uses: the lowest, so that few are kept warm."""
        with self._lock:
            number = next(n for n in range(len(self._places) + 1) if n not in self._places)
            self._places.add(number)
        try:
            yield number
        finally:
            with self._lock:
                self._places.discard(number)
