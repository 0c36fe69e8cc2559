"""The parts that the steps of the work share: board, effects, agents, worktrees, and how a task is moved."""

from __future__ import annotations

import contextlib
import functools
import queue
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast.backlog.sync import NOTHING_NEW, SyncReport
from holdfast.config.settings import Config
from holdfast.domain.definition import Definition
from holdfast.domain.entries import MOVE_TO, ReplayCompleted
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TASK, TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.engine.board import Board
from holdfast.engine.effects import Closed
from holdfast.engine.plan import Observation
from holdfast.engine.spawn import Spawn
from holdfast.engine.turn_follower import Follower, Silence
from holdfast.errors import DefinitionLost, ResultLost
from holdfast.integrations.triggers.holder import TriggersHolder
from holdfast.landing.gates import Gate
from holdfast.landing.judgings import Judgings
from holdfast.layout import Layout
from holdfast.ports import Agent, BacklogFolder, Effects, Ledger
from holdfast.preparation.preparation import Confinement, Preparation, confinement_of
from holdfast.storage.audit.from_journal import Auditor
from holdfast.storage.audit.notes import note_log
from holdfast.storage.journal.entry import Record
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.attempt_folder import Liveness
from holdfast.storage.records.blobs import Blobs
from holdfast.worktrees import merges
from holdfast.worktrees.worktrees import Worktrees

Note = Callable[[str, str], None]

# With less room on the disk nothing is journalled that can be done without.
ROOM_MIN = 1 << 18


def _say_nothing(task: str, text: str) -> None:
    pass


class FileWatch(Protocol):
    """Watches the files of the backlog from before they are first read, and keeps what changes until `listen`."""

    def await_open(self) -> None: ...
    def listen(self, changed: Callable[[set[Path]], None]) -> None: ...
    def renew(self) -> bool: ...


class PullLanding(Protocol):
    """Landing by pull request: `integrations/pull_requests/landing.py`."""

    def is_for(self, context: RunContext, task: Task) -> bool: ...
    def target(self, context: RunContext, task: Task) -> str:
        """The newest commit of the base; empty where that is not known."""

    def begin_ref(self, context: RunContext, task: Task) -> str:
        """The ref with which its next attempt begins, where that is not the target branch."""

    def take_merged(self, context: RunContext, task: Task, land: Callable[..., list[str]]) -> list[str] | None:
        """Journals the landing of one that was merged. `land` moves the branch here, where it can follow."""

    def publish(self, context: RunContext, task: Task) -> None:
        """Hands the verified commit over, and lets the task wait."""

    def wait(self, context: RunContext, task: Task) -> None:
        """Lets the task wait for the pull request that it has."""


class Ended(msgspec.Struct, frozen=True):
    """The result of one piece of work. `key` is that of the request that asked for it, empty for the loop's own; of a
    worktree that was prepared it is the start that it is for."""

    task: str
    key: Any
    result: Any = None
    error: BaseException | None = None


class LandingThread:
    """Verifies and lands, one task at a time: the loop hands it what is done, and continues meanwhile.

    `task` is the one that is being verified or landed, and `key` that of the request which asked for it. Everything
    here but the work itself is done in the loop's thread.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.task = self.key = ""
        self._wake = wake
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self._asked_for: dict[str, Ended] = {}

    def begin(self, task: str, work: Callable[[], Any], key: str = "") -> None:
        """Only where nothing is under way."""
        self.task, self.key = task, key
        threading.Thread(target=self._carry_out, args=(task, work, key), name="landing", daemon=True).start()

    def next_ended(self) -> Ended | None:
        """Returns each result once; None while there is none."""
        try:
            ended = self._ended.get_nowait()
        except queue.Empty:
            return None
        self.task = self.key = ""
        if ended.key:
            self._asked_for[ended.key] = ended
        return ended

    def answer(self, key: str) -> Ended | None:
        """Returns the result of the work that was begun under this key, once."""
        return self._asked_for.pop(key, None)

    def _carry_out(self, task: str, work: Callable[[], Any], key: str) -> None:
        try:
            self._ended.put(Ended(task, key, work()))
        except BaseException as error:  # noqa: BLE001 (raised again, in the loop's own thread)
            self._ended.put(Ended(task, key, error=error))
        self._wake()


class PreparingThreads:
    """Prepares worktrees beside the loop, as many at once as agents may work. Everything but the work itself is done
    in the loop's thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self._begun: list[threading.Thread] = []
        # Asked by what runs in the threads: then it ends as soon as it can.
        self.is_stopping = False

    def begin(self, key: Any, work: Callable[[], Any]) -> None:
        """`next_ended` returns the result under this key; that of a key None is dropped."""
        thread = threading.Thread(target=self._carry_out, args=(key, work), name="preparing", daemon=True)
        self._begun = [each for each in self._begun if each.is_alive()] + [thread]
        thread.start()

    def next_ended(self) -> Ended | None:
        """Returns each result once; None while there is none."""
        try:
            return self._ended.get_nowait()
        except queue.Empty:
            return None

    @property
    def is_busy(self) -> bool:
        return any(each.is_alive() for each in self._begun) or not self._ended.empty()

    def _carry_out(self, key: Any, work: Callable[[], Any]) -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 (raised again, in the loop's own thread)
            failure = error
        if key is not None:
            self._ended.put(Ended("", key, result, failure))
        self._wake()


@dataclass(kw_only=True)
class RunContext:
    """`note` reports events to observers, as a task and a sentence; nothing depends on it."""

    repo: Path
    layout: Layout
    config: Config
    board: Board
    blobs: Blobs
    agents: Mapping[str, Agent]
    effects: Effects
    spawn: Spawn
    worktrees: Worktrees
    preparation: Preparation
    turns: Follower
    missing_sandbox: Callable[[str], str]
    # What `sandbox: auto` is on this machine; other words stand for themselves.
    resolve_sandbox: Callable[[str], str]
    clock: Callable[[], float]
    auditor: Auditor
    # The rules for what arrives from elsewhere.
    triggers: TriggersHolder
    note: Note = field(default=_say_nothing)
    # What was said before the run began, and need not be said again.
    remarked: set[str] = field(default_factory=set)
    # Tasks whose landing is not on its branch any more, each with what to type.
    lost: Mapping[str, str] = field(default_factory=dict)
    # What was taken in of the backlog's files when this began.
    intake: SyncReport = field(default=NOTHING_NEW)
    # What became of the intents that a crash had left open.
    closed: Sequence[Closed] = ()
    # What recovery did before this began, and how long that took.
    recovered: ReplayCompleted = field(default=ReplayCompleted())
    recovery_s: float = 0.0
    # Where there is no sandbox and nobody has said so: what people must know.
    unconfined: str = ""

    # Whether agents that take MCP servers get our own: a server offers it, and the settings do not refuse it.
    has_tools: bool = False
    # Makes that server ready beside us, before an agent that was started asks it.
    ready_tools: Callable[[], None] = field(default=lambda: None)
    # Whether a server answers beside this run.
    serves: bool = False

    # The newest landing of this run, from which the branch must lead on.
    last_landed: str = ""
    # Of a run that starts agents: what changes below the backlog while it lives.
    watch: FileWatch | None = None
    # Verifies and lands beside the loop, where there is one.
    landing_thread: LandingThread | None = None
    # Prepares worktrees beside the loop, where there is one.
    preparing: PreparingThreads | None = None
    # What is asked of others beside the loop, while it lives (`orchestrator/background.py:PeriodicJob`), and what
    # makes messages of entries (`observers/journal_follower.py:JournalFollower`).
    jobs: list[Any] = field(default_factory=list)
    # Has a job of that name begin at once; None where no loop follows.
    poke: Callable[[str], None] | None = None
    followers: list[Any] = field(default_factory=list)
    # Asked when the run has nothing left to do: whether they have queued something that is to leave before its end.
    before_end: list[Callable[[], bool]] = field(default_factory=list)
    # How results land that do so by pull request.
    pulls: PullLanding | None = None
    # What looks at open pull requests (`integrations/pull_requests/poll.py:PullRequestPoll`).
    pull_requests: Any = None
    # Candidates that are judged at this moment, here and ahead of their turn.
    judgings: Judgings = field(default_factory=Judgings)

    # Gates of which this run has looked whether they test another checkout.
    warned: set[tuple[str, str | tuple[str, ...]]] = field(default_factory=set)
    _warning: threading.Lock = field(default_factory=threading.Lock)
    # What was told of the backlog's files: a problem is found again at every look, and told once.
    heard: set[str] = field(default_factory=set)

    def note_intake(self, report: SyncReport) -> None:
        """Notes for a person what a sync did or could not use, each sentence once in a run."""
        for task, words in report.messages():
            if (told := f"{task}: {words}") not in self.heard:
                self.heard.add(told)
                self.note(task, words)

    def remark(self, sentence: str) -> None:
        """Notes what is said before the run begins, and not again."""
        self.remarked.add(sentence)
        self.note("", sentence)

    def unwarned(self, gates: Sequence[Gate]) -> list[Gate]:
        """Those of the gates of which this run has not looked yet whether they test another checkout."""
        with self._warning:
            new = [gate for gate in gates if (gate.name, gate.command) not in self.warned]
            self.warned.update((gate.name, gate.command) for gate in new)
        return new

    @functools.cached_property
    def branch(self) -> str:
        """The target branch, fixed for the whole run: checking out another branch meanwhile does not change it."""
        return merges.target_branch(self.repo, self.config)

    def branch_for(self, task: Task) -> str:
        """The ref whose newest commit its next attempt begins with."""
        return (self.pulls.begin_ref(self, task) if self.pulls is not None else "") or self.branch

    @functools.cached_property
    def silence(self) -> Silence:
        """Measures how long each runner has given no sign of life."""
        return Silence(self.config.heartbeat_timeout_s)

    @property
    def ledger(self) -> Ledger:
        return self.board.ledger

    @property
    def backlog(self) -> BacklogFolder:
        return self.board.backlog

    def seal_daily(self) -> None:
        """Seals the audit log where that was not done for a day, and has the journal note it."""
        if self.auditor.seal_daily():
            note_log(self.layout, self.ledger)

    def sandbox_of(self, made: Definition) -> str:
        return self.resolve_sandbox(made.sandbox or self.config.sandbox)

    def confinement(self, made: Definition) -> Confinement:
        """The sandbox of its gates, the paths that are open there for writing, and the network."""
        return confinement_of(self.config, self.sandbox_of(made))

    def observe(self, task: Task) -> Observation | None:
        """Journals the turns so far of a task in progress, and observes its attempt."""
        if task.state is not TaskState.IN_PROGRESS or task.claim.remote:
            return None
        files = self.layout.attempt_files(task.attempt.id)
        seen = self.spawn.liveness(task)
        self.turns.follow(task)
        self.spawn.deliver(task)
        if seen is not Liveness.ALIVE:
            self.silence.forget(task.attempt.id)
        if seen is Liveness.ENDED:
            return Observation(seen, attempt_folder.read_exit(files, task.start.number, task.start.intent))
        if seen is not Liveness.ALIVE:
            return Observation(seen)
        sign = attempt_folder.last_sign(files, task.start.number)
        return Observation(seen, silent_s=self.silence.update(task.attempt.id, task.start.number, sign))

    def move(self, task: Task, event: TaskEvent, reason: str, **more: Any) -> None:
        """Journals one move of the task's state machine."""
        self.append(self.moved(task, event, reason, **more))

    def moved(self, task: Task, event: TaskEvent, reason: str, **more: Any) -> Record:
        inputs = {"task": task.id, "event": event, "reason": reason, "attempt": task.attempt.id, **more}
        return Record(MOVE_TO[TASK.next(task.state, event)], inputs, actor="loop")

    def flagged(self, task: Task, actor: str = "loop", **flags: Any) -> Record:
        """The flags of a task, as `TaskFlagged` names them: one that is not given is taken off."""
        return Record("task_flagged", {"task": task.id, **flags}, actor=actor)

    def pause(self, task: Task, event: TaskEvent, reason: str, cause: str, not_before: float, **more: Any) -> None:
        """Gives the task back, to continue in the same attempt at that time; 0: at once. Costs no attempt.

        `cause` is a sentence that is shown while the task is paused. The pause is on disk before the task is open.
        """
        flag = self.flagged(task, parked=task.parked, not_before=not_before, cause=cause)
        self.append(*([flag] if not_before else []), self.moved(task, event, reason, **more))

    def held_up(self, task: Task, cause: str) -> Record:
        """A fault of the machine, shown until the task moves on, also when the run is over."""
        return self.flagged(task, parked=task.parked, cause=cause)

    def note_fault(self, task: Task, cause: str) -> None:
        """Journals what holds the task up, once, and not where an append might fail: that would end the run."""
        if task.cause != cause and not task.not_before and shutil.disk_usage(self.layout.root).free >= ROOM_MIN:
            self.append(self.held_up(task, cause))

    def append(self, *records: Record) -> None:
        self.ledger.append(self.ledger.epoch, records)

    def expect_result(self, task: Task, *commits: str) -> None:
        """Raises ResultLost where a commit of the attempt is not whole. Called before it is taken, judged or landed."""
        store = self.worktrees.store
        for commit, reason in store.incomplete({commit for commit in commits if commit}).items():
            raise ResultLost(task=task.id, attempt=task.attempt.id, commit=commit, store=store.path, reason=reason)

    def park(self, task: Task, reason: str) -> None:
        """Leaves a task to a person; one that was claimed and not started is nobody's again."""
        if task.parked:
            return
        is_unstarted = task.state is TaskState.CLAIMED and not task.claim.started
        back = [self.moved(task, TaskEvent.UNCLAIM, Reason.PARKED)] if is_unstarted else []
        self.append(*back, self.flagged(task, parked=reason, not_before=task.not_before))
        self.note(task.id, reason)

    def fail(
        self, task: Task, event: TaskEvent, reason: str, kind: str, detail: str, feedback: str = "", **more: Any
    ) -> None:
        """A failure with a name. Another attempt follows by itself while there are any left."""
        most = self.config.max_attempts
        with contextlib.suppress(DefinitionLost):
            most = self.board.worked_on(task).max_attempts or most
        again = task.attempts < most
        told = self.blobs.put(feedback.encode(), content_type="text/plain") if feedback else ""
        outcome = {"kind": kind, "detail": detail, "attempt": task.attempt.id}
        self.move(task, event, reason, outcome=outcome, feedback=told, again=again, **more)
        left = f"; attempt {task.attempts + 1} of {most} follows" if again else ""
        self.note(task.id, detail.removesuffix(".") + left if left else detail)
