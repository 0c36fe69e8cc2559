"""The loop: plan, perform, plan again; and sleep until something happens.

One thread does everything but verifying and landing, which has its own, one task at a time. Both write to the same
ledger. The loop ends when nothing is left to do, or when it is asked to; agents that work then go on working, and the
next loop follows them.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from holdfast.backlog.restore import put_back_config
from holdfast.clock import monotonic
from holdfast.decisions.cancel_chain import follow_cancel
from holdfast.decisions.context import Later
from holdfast.decisions.mailbox import Asked, Mailbox
from holdfast.decisions.questions import answer_overdue
from holdfast.decisions.remote_claims import lapse
from holdfast.decisions.stops import end_agents, leave
from holdfast.decisions.takeovers import return_abandoned
from holdfast.domain.attempt_records import Ending
from holdfast.domain.entries import STOPPED
from holdfast.domain.fsm import Reason
from holdfast.domain.task import AT_WORK, TaskEvent
from holdfast.domain.task_record import Task
from holdfast.engine import orphans
from holdfast.engine import plan as steps
from holdfast.engine.context import LandingThread, PreparingThreads, RunContext
from holdfast.engine.landing import judge_ahead, queue_view, see_to_lost, verify_and_land
from holdfast.engine.outcome import apply_exit
from holdfast.engine.plan import Command, is_at_work, plan
from holdfast.engine.recovery import note_adopted, remove_leftovers
from holdfast.engine.start import NotStarted, finish_prepared, start
from holdfast.engine.starting.worktree_hooks import remove_kept
from holdfast.engine.turn_follower import LOOK_S
from holdfast.errors import ClaimRefused, HoldfastError, is_fatal
from holdfast.landing.merge_queue import JudgeAhead, VerifyAndLand, Withdraw
from holdfast.orchestrator.background import Connections, raise_again
from holdfast.orchestrator.holds import TaskHolds, Waits, handle_failure, wait_out
from holdfast.orchestrator.wakeup import AGENTS, Signals
from holdfast.storage.records.attempt_folder import Liveness
from holdfast.worktrees import pins

BEAT_S = 10.0
# Something to be done in the loop's thread; returns the tasks that it was about. Raises Later to be asked again.
Work = Callable[["Loop"], list[str]]


class Loop:
    """`only`: the tasks to start, where not all of them are wanted. `show` is called after each round.

    `stays`: it ends only when it is asked to, not when nothing is left to do. `works`: it starts, verifies and lands;
    without that, it follows what others have begun, and carries out requests.
    """

    def __init__(
        self,
        context: RunContext,
        *,
        only: Collection[str] | None = None,
        show: Callable[[Loop], None] = lambda loop: None,
        stays: bool = False,
        works: bool = True,
    ) -> None:
        self.context = context
        self.only = only
        self.board = context.board
        self.signals = Signals(context.layout)
        self.stopping = self.full = ""
        self._landing_thread = context.landing_thread = LandingThread(self.wake)
        self._preparing = context.preparing = PreparingThreads(self.wake)
        context.judgings.wake = self.wake
        self.holds = TaskHolds(lambda task, text: context.note(task, text), context.clock)
        self.stays, self.works = stays, works
        self._show = show
        self._asked: queue.SimpleQueue[Work] = queue.SimpleQueue()
        # Signal handlers put here, too, and an Event's lock may be in the hands of the very thread they interrupt.
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._files_changed = False
        self._waits = Waits(BEAT_S)
        self._beat_at = self.ticked_at = 0.0
        self._lost: set[str] = set(context.lost)
        self.connections = Connections(context, lambda work: self.ask(lambda _: work()), self.wake)
        context.poke = self.connections.jobs.poke
        # Who is at work, as of the last round: for other threads, which must not look after runners themselves.
        self.seen_at_work: tuple[Task, ...] = ()

    # -- the outer circle ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Works until nothing is left to do, or until asked to stop."""
        self.board.keep_up()
        note_adopted(self.context, self.at_work)
        remove_kept(self.context)
        if self.works and self.context.lost:
            self._landing_thread.begin(next(iter(self.context.lost)), lambda: see_to_lost(self.context))
        with self._awake(), self.connections:
            while True:
                self._tick()
                if not self._is_over():
                    self._sleep()
                elif not self._finds_new_files():
                    break
            # Who asked just before the end is answered, too.
            self._do_asked()
        if self.at_work:
            leave(self.context, self.at_work)

    def wake(self) -> None:
        """Has the loop look again, from any thread."""
        self._wakes.put(None)

    def _sleep(self) -> None:
        """Sleeps until something wakes the loop, or is due by itself."""
        with contextlib.suppress(queue.Empty):
            self._wakes.get(timeout=self._patience())
            while True:
                self._wakes.get_nowait()

    def stop(self, how: str) -> None:
        """Ends the loop; `agents`: the agents at work are ended first."""
        self.stopping = how
        self.wake()

    def ask(self, work: Work) -> None:
        """Runs a function in the loop's thread. Called from any other thread."""
        self._asked.put(work)
        self.wake()

    def fail(self, error: BaseException) -> None:
        """Ends the run with an error that another thread met and that leaves nothing to continue with."""
        self.ask(lambda _: raise_again(error))

    @property
    def at_work(self) -> list[Task]:
        """The tasks of the agents that we have started. Only for the loop's own thread."""
        return [task for task in self._held() if not task.claim.remote]

    def _held(self) -> list[Task]:
        tasks = (self.board.task(name) for name in sorted(self.board.active))
        return [task for task in tasks if task.state in AT_WORK and self._is_at_work(task)]

    def _is_at_work(self, task: Task) -> bool:
        # One whose step could not be done is left to the next run: it is nobody's once its process is gone.
        is_left = not task.claim.remote and self.holds.is_left(task.id)
        # Looked for only where it counts.
        seen = self.context.spawn.liveness(task) if task.parked or is_left else None
        return is_at_work(task, seen) and (not is_left or seen is Liveness.ALIVE)

    @contextlib.contextmanager
    def _awake(self) -> Iterator[None]:
        """While here, the end of a child, a changed file and a request wake the loop."""

        def hand_on(asked: Asked) -> None:
            self.ask(lambda _: asked.answer(self.context, is_run=self.works, is_busy=bool(self.landing)))

        is_main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGCHLD, lambda *_: self.wake()) if is_main else None
        try:
            with Mailbox(self.context.layout, hand_on):
                if self.context.watch is not None:
                    self.context.watch.listen(self._notice)
                yield
        finally:
            if is_main:
                signal.signal(signal.SIGCHLD, before)

    def _look_again(self) -> None:
        self._files_changed = True
        self.wake()

    def _notice(self, paths: set[Path]) -> None:
        strange = [path for path in paths if not self.board.backlog.is_own(path)]
        self._files_changed = self._files_changed or any(path.parent != self.signals.folder for path in strange)
        if strange:
            self.wake()

    # -- one round ----------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        # Much is written in a round beside the journal: signals, files of tasks, answers.
        self.context.ledger.expect_owned()
        self.ticked_at = self.context.clock()
        self._beat()
        # Asked first and set then: a signal that comes while the file is looked for must not be overwritten.
        if asked := self.signals.asked_to_stop(self.context.ledger.run):
            self.stopping = self.stopping or asked
        self._collect_landings()
        self._preparing.is_stopping = bool(self.stopping)
        for task, held in finish_prepared(self.context):
            self._note_start(task, held)
        self.context.judgings.collect()
        self.holds.release()
        if self._files_changed:
            self._files_changed = False
            self._sync_backlog()
        self._do_asked()
        if self.context.watch is not None and self.context.watch.renew():
            self._look_again()
        self._beat_at = self._beat_at or monotonic()
        while self._round():
            pass
        remove_leftovers(self.context.layout)
        if not self.board.file_new():
            self._look_again()
        for error in self.board.project():
            self.context.note("", str(error))
        self._show(self)

    def _do_asked(self) -> None:
        later = []
        with contextlib.suppress(queue.Empty):
            while True:
                work = self._asked.get_nowait()
                try:
                    self.holds.drop(work(self))
                except Later:
                    later.append(work)
        for work in later:
            # Not woken for: what it waits for is a landing, and that wakes.
            self._asked.put(work)

    def _finds_new_files(self) -> bool:
        """Before a run ends by itself: the watch tells of a change only some moments after it was made."""
        if self.stopping:
            return False
        # A file that is sound again, or back, has no entry of its own.
        before = self.context.ledger.position, self.board.files, self.board.stopped
        self._sync_backlog()
        return (self.context.ledger.position, self.board.files, self.board.stopped) != before

    def _sync_backlog(self) -> None:
        put_back_config(self.context.layout, self.context.note)
        report = self.board.take_in()
        self.holds.drop(report.edited)
        pins.release(self.context.repo, self.context.layout, map(self.board.task, report.cancelled))
        self.context.note_intake(report)

    def _round(self) -> bool:
        """One plan, performed; False when there was nothing to do."""
        self.board.keep_up()
        # Asked until they have ended: a runner that still begins, or whose run died before it asked, has not heard it.
        end_agents(self.context, [task for task in self.at_work if self.stopping == AGENTS or task.parked == STOPPED])
        active = sorted(self.board.active)
        observed = {name: seen for name in active if (seen := self.context.observe(self.board.task(name))) is not None}
        # Before the board's lock: a thread that appends may hold the ledger, and ask for that lock next.
        lapsed = [claim.task for claim in self.context.ledger.expired()]
        queue = queue_view(self.context, active, self.landing)
        with self.board.lock:
            commands = plan(
                self.context.ledger.state,
                self.board.graph,
                active,
                observed,
                self.context.clock(),
                config=self.context.config,
                queue=queue,
                held=self.holds.keys(),
                failing={name for name in self.holds if self.holds.failures[name]},
                stopping=bool(self.stopping) or not self.works,
                only=self.only,
                lapsed=lapsed,
                overdue=self._waits.overdue(self.board.graph.subtask_timeouts()),
            )
        for command in commands:
            try:
                self._perform(command)
            except HoldfastError as error:
                handle_failure(self.context, self.holds, command.task, error, stays=self.stays)
        self.board.keep_up()
        self.seen_at_work = tuple(self._held())
        return bool(commands)

    def _perform(self, command: Command) -> None:
        """The one dispatch of commands. All is done in the loop's thread, but for verifying and landing."""
        context, task = self.context, self.board.task(command.task)
        match command:
            case steps.StartTask():
                self._start(task)
            case steps.Begin():
                context.move(task, TaskEvent.AGENT_STARTS_WORK, Reason.SCHEDULED, agent=task.claim.agent)
            case steps.ApplyExit(_, exit):
                apply_exit(context, task, exit)
                if exit.ending is Ending.ENVIRONMENT:
                    self.holds.pause(task.id, exit.detail, stays=self.stays)
                else:
                    del self.holds.failures[task.id]
            case VerifyAndLand():
                self._landing_thread.begin(task.id, lambda: verify_and_land(context, task))
            case JudgeAhead():
                context.judgings.begin(command, task.candidate, lambda: judge_ahead(context, task, command))
            case Withdraw(name):
                context.judgings.withdraw(name)
            case steps.Orphan(_, event):
                orphans.end_as_orphan(context, task, event)
                del self.holds.failures[task.id]
            case steps.Continue():
                orphans.continue_orphan(context, task)
            case steps.Retry():
                context.move(task, TaskEvent.RETRY, Reason.ATTEMPTS_LEFT, outcome=task.outcome)
            case steps.Follow(_, event):
                context.move(task, event, steps.REASONS[event])
            case steps.Cancel(_, reason, cause):
                follow_cancel(context, task, reason, cause)
            case steps.Overdue(_, question):
                answer_overdue(context, task, question)
            case steps.Lapse():
                lapse(context, task)

    def _start(self, task: Task) -> None:
        if self.full:
            self.holds.hold(task.id, self.full, soon=False)
            return
        free = max(1, self.context.config.max_agents - len(self.at_work))
        with self.board.lock:
            sharing = sum(1 for _ in itertools.islice(self.board.graph.ready(self.context.clock()), free))
        try:
            held = start(self.context, task, max(1, sharing))
        except ClaimRefused as error:
            held = NotStarted(str(error), soon=True)
        self._note_start(task, held)

    def _note_start(self, task: Task, held: NotStarted | None) -> None:
        # Where it was started: whether the machine is well again is seen when its runner has ended.
        if held is None:
            self.holds.note_room()
        else:
            self.full = held.reason if held.for_all and not held.soon else ""
            self.holds.hold_unstarted(task.id, held, stays=self.stays)

    # -- the other thread ---------------------------------------------------------------------------------------------

    @property
    def landing(self) -> str:
        """The task that is being verified or landed, or empty."""
        return self._landing_thread.task

    def _collect_landings(self) -> None:
        while (ended := self._landing_thread.next_ended()) is not None:
            if self._lost - self.context.lost.keys():
                # What builds on a landing that is there again waits no longer.
                self.holds.drop(list(self.holds))
            self._lost = set(self.context.lost)
            self.context.judgings.forget(ended.task)
            error = ended.error
            if error is not None and (not isinstance(error, HoldfastError) or is_fatal(error)):
                raise error
            # The caller gets the answer to its request.
            if error is None or ended.key:
                del self.holds.failures[ended.task]
            elif not wait_out(self.context, self.holds, ended.task, error, stays=self.stays):
                self.holds.hold(ended.task, str(error), soon=False)

    # -- upkeep -------------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        now = monotonic()
        if self._beat_at and now - self._beat_at >= BEAT_S:
            self.signals.beat()
            self.context.seal_daily()
            remove_kept(self.context)
            return_abandoned(self.context)
            self._beat_at = now

    def _is_over(self) -> bool:
        if self.landing or self.context.judgings.ahead or self._preparing.is_busy:
            return False
        if self.stopping:
            return self.stopping != AGENTS or not self.at_work
        if self.stays or self.connections.is_busy:
            return False
        waits = [hold for hold in self.holds.values() if hold.until is not None]
        with self.board.lock:
            return not self._held() and not waits and self.board.graph.next_moment() is None

    def _patience(self) -> float:
        """The seconds until something may become due by itself."""
        now = monotonic()
        waits = [BEAT_S, *(hold.due - now for hold in self.holds.values() if hold.until is not None)]
        with self.board.lock:
            if (moment := self.board.graph.next_moment()) is not None:
                waits.append(moment - self.context.clock())
        if self._held():
            waits.append(LOOK_S)
        return max(0.01, min(waits))
