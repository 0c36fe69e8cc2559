"""The past, from the journal: attempts, their costs by agent and model, verdicts, runs.

It is kept in memory and follows the journal's files: the first question reads all of it, each later one only what was
written since. It judges nothing and nothing depends on it; what it says can always be read anew.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Literal

import msgspec

from holdfast.domain.entries import MOVES
from holdfast.domain.spend import Spend
from holdfast.domain.task import AT_WORK, TaskState
from holdfast.ports import LedgerReader
from holdfast.storage.journal.entry import Entry, Ref
from holdfast.views import story
from holdfast.views.story import plain_words

VERDICTS_MAX = 2_000
MARKS_MAX = 2_000
VERDICTS_OF_A_TASK_MAX = 20
SITTINGS_MAX = 20_000
RUNS_MAX = 2_000
_OVER = {TaskState.FAILED, TaskState.CLOSED, TaskState.CANCELLED}
# What a time line marks, apart from what was lost and recovered. That a task has reached its end is no mark: there are
# as many of those as there are tasks, and soon they would be all there is.
_STUMBLES = {"task_failed", "turn_undone", "attempt_forked", "task_approval_requested"}


class AttemptFacts(msgspec.Struct):
    """One attempt. `state` is where it has brought its task; `undone` are turns whose work was put back."""

    id: str
    task: str
    agent: str = ""
    model: str = ""
    why: str = ""
    base: str = ""
    began: float = 0.0
    ended: float | None = None
    state: TaskState = TaskState.CLAIMED
    turns: int = 0
    turn: int = 0
    spent: Spend = Spend()
    outcome: dict[str, Any] = {}
    session: str = ""
    undone: set[int] = set()


class Sitting(msgspec.Struct):
    """One start of an agent on an attempt."""

    attempt: str
    task: str
    agent: str
    start: int
    began: float
    ended: float | None = None
    session: str = ""
    turns: int = 0


class Judged(msgspec.Struct, frozen=True):
    """One verdict; `verdict` is the blob with all of it."""

    task: str
    attempt: str
    at: float
    passed: bool
    kind: str
    detail: str
    verdict: str


class RunFacts(msgspec.Struct):
    """`end` is unknown of the newest run, and of a run by an older Holdfast, which journalled no ends."""

    run: str
    began: float
    last: float
    ends_journalled: bool = False
    end: Literal["orderly", "killed", "unknown"] = "unknown"
    recovered: dict[str, int] = {}


class MarkRow(msgspec.Struct, frozen=True):
    """`plain` is what one would tell of it; `words` is all of it."""

    at: float
    kind: str
    task: str
    words: str
    plain: str


class Chronicle:
    """Ask inside a `with`: it takes in what is new, and keeps others from changing it meanwhile."""

    def __init__(self, journal: LedgerReader) -> None:
        self._journal = journal
        self._mutex = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._last: Ref | None = None
        self.attempts: dict[str, AttemptFacts] = {}
        self.of_task: dict[str, list[str]] = {}
        # Where each task was added: its story does not begin before.
        self.added: dict[str, tuple[str, int]] = {}
        self.by_agent: dict[str, Spend] = {}
        self.by_model: dict[str, Spend] = {}
        self.verdicts: deque[Judged] = deque(maxlen=VERDICTS_MAX)
        # However many others were judged since.
        self.judged: dict[str, deque[Judged]] = {}
        self.sittings: deque[Sitting] = deque(maxlen=SITTINGS_MAX)
        self.runs: deque[RunFacts] = deque(maxlen=RUNS_MAX)
        self.lost: deque[MarkRow] = deque(maxlen=MARKS_MAX)
        self.stumbles: deque[MarkRow] = deque(maxlen=MARKS_MAX)
        self._open: dict[str, Sitting] = {}

    def __enter__(self) -> Chronicle:
        self._mutex.acquire()
        try:
            run = entry = None
            for run, entry in self._journal.read(self._last):
                self._apply_entry(run, entry)
            if run is not None and entry is not None:
                self._last = Ref(run, entry.seq, entry.entry_hash)
        except BaseException:
            # What was taken in by half is not kept: the next question begins anew.
            self._clear()
            self._mutex.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._mutex.release()

    # -- one entry ----------------------------------------------------------------------------------------------------

    def _apply_entry(self, run: str, entry: Entry) -> None:
        kind, inputs = entry.decision_type, entry.inputs
        if kind == "turn_completed":
            self._turn(entry)
        elif kind in MOVES:
            self._move(entry)
        elif kind == "task_added":
            self.added[str(inputs.get("task", ""))] = (run, entry.seq)
        elif kind == "task_spawn_intent":
            self._start(entry)
        elif kind == "task_verify_confirmed":
            self._judge(entry)
        elif kind == "turn_undone":
            known = self._attempt(inputs)
            known.undone = known.undone | set(range(int(inputs.get("turn", 0)) + 1, known.turn + 1))
        elif kind == "run_started":
            if self.runs and self.runs[-1].end == "unknown" and self.runs[-1].ends_journalled:
                self.runs[-1].end = "killed"
            is_told = bool(inputs.get("ends_journalled"))
            self.runs.append(RunFacts(run, entry.timestamp, entry.timestamp, is_told))
        elif kind == "run_ended" and self.runs:
            self.runs[-1].end = "orderly" if inputs.get("how") == "orderly" else "killed"
        elif kind == "wal_replay_completed" and self.runs:
            self.runs[-1].recovered = {name: value for name, value in inputs.items() if isinstance(value, int)}
        if self.runs:
            self.runs[-1].last = entry.timestamp
        if kind in _STUMBLES:
            self.stumbles.append(_mark(entry))
        elif kind == "wal_replay_completed":
            # A start after which there was nothing to recover is like any other.
            if any(inputs.values()):
                self.lost.append(_mark(entry))
        elif kind == "task_orphaned" or kind.endswith(("_parked", "_abandoned")):
            self.lost.append(_mark(entry))

    def _attempt(self, inputs: dict[str, Any]) -> AttemptFacts:
        name, task = str(inputs.get("attempt", "")), str(inputs.get("task", ""))
        known = self.attempts.get(name)
        if known is None:
            known = AttemptFacts(name, task)
            if name:
                self.attempts[name] = known
                self.of_task.setdefault(task, []).append(name)
        return known

    def _turn(self, entry: Entry) -> None:
        inputs = entry.inputs
        known = self._attempt(inputs)
        known.turns, known.turn = known.turns + 1, max(known.turn, inputs.get("turn", 0))
        if (sitting := self._open.get(known.id)) is not None:
            sitting.turns += 1
        spent = Spend(inputs.get("usd", 0.0), inputs.get("tokens", 0), 1, inputs.get("seconds", 0.0))
        self._spend(known, spent)

    def _spend(self, known: AttemptFacts, spent: Spend) -> None:
        known.spent += spent
        agent, model = known.agent or "unknown", known.model or "unknown"
        self.by_agent[agent] = self.by_agent.get(agent, Spend()) + spent
        self.by_model[model] = self.by_model.get(model, Spend()) + spent

    def _move(self, entry: Entry) -> None:
        inputs, target = entry.inputs, MOVES[entry.decision_type]
        # What a person decides about a task is about its last attempt.
        names = self.of_task.get(str(inputs.get("task", "")))
        if inputs.get("attempt"):
            known = self._attempt(inputs)
        elif names:
            known = self.attempts[names[-1]]
        else:
            return
        if target is TaskState.CLAIMED:
            known.agent, known.model = str(inputs.get("agent", "")), str(inputs.get("model", ""))
            known.why, known.ended = str(inputs.get("why", "")), None
            known.began = known.began or entry.timestamp
        elif known.state in _OVER:
            # What is decided about the task from here on is not about this attempt any more.
            return
        known.state, known.session = target, str(inputs.get("session") or known.session)
        known.outcome = inputs.get("outcome") or known.outcome
        if rest := inputs.get("rest"):
            self._spend(known, msgspec.convert(rest, Spend))
        if target not in AT_WORK:
            known.ended = known.ended or entry.timestamp
            if (sitting := self._open.pop(known.id, None)) is not None:
                sitting.ended, sitting.session = entry.timestamp, known.session

    def _start(self, entry: Entry) -> None:
        known = self._attempt(entry.inputs)
        known.base = str(entry.inputs.get("base") or known.base)
        sitting = Sitting(known.id, known.task, known.agent, int(entry.inputs.get("start", 0)), entry.timestamp)
        self._open[known.id] = sitting
        self.sittings.append(sitting)

    def _judge(self, entry: Entry) -> None:
        result, inputs = entry.output, entry.inputs
        texts = (str(result.get(name, "")) for name in ("kind", "detail", "verdict"))
        task, attempt = str(inputs.get("task", "")), str(inputs.get("attempt", ""))
        judged = Judged(task, attempt, entry.timestamp, bool(result.get("passed")), *texts)
        self.verdicts.append(judged)
        self.judged.setdefault(task, deque(maxlen=VERDICTS_OF_A_TASK_MAX)).append(judged)

    # -- what is asked for --------------------------------------------------------------------------------------------

    def marks(self, limit: int) -> list[MarkRow]:
        """Oldest first. What was lost and recovered comes before what only failed, where there is no room for both."""
        lost = list(self.lost)[-limit:]
        room = limit - len(lost)
        stumbles = list(self.stumbles)[-room:] if room else []
        return sorted(lost + stumbles, key=lambda each: each.at)


def _mark(entry: Entry) -> MarkRow:
    return MarkRow(
        entry.timestamp, entry.decision_type, story.task_of(entry), story.full_words(entry), plain_words(entry)
    )
