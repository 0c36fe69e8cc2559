"""The runner: one process that runs one agent on one attempt, and makes each of its turns durable.

    python -m holdfast.agents.runner.runner DATA_ROOT ATTEMPT START ORDER [INTENT]

ORDER is the digest of the blob with the `Order`. INTENT names the journal entry that the start was intended with, and
is in every file about its result. The starter gives it a process group of its own, /dev/null as input, and a log for
its own messages; its results are in the attempt's folder alone.

- It takes `alive.lock`, then `start-<n>`. If another process was first, it does nothing.
- A turn: the agent's group is stopped, the snapshot is taken, the ledgers are synced, and last the line in turns.jsonl;
  then the group continues. A turn without its line is not counted; `engine/outcome.py` decides about its tree.
- exit.json is written when no process of the start is left and the last snapshot is on disk.
- SIGTERM, or a file `stop` in the attempt's folder, ends the agent.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from holdfast.agents.common import environment
from holdfast.agents.runner import start_outcome
from holdfast.agents.runner.attempt_writer import RUNNER_POINTS as RUNNER_POINTS
from holdfast.agents.runner.attempt_writer import AttemptWriter, exit_of, step, wake, write_exit
from holdfast.agents.runner.child import Child, OutputLines
from holdfast.agents.runner.conversation import Conversation, as_record, checked, is_progress
from holdfast.agents.runner.dialogue import Dialogue, Inbox
from holdfast.agents.runner.limits import LimitWatch, Stop
from holdfast.agents.runner.private_files import prepare, remove_secrets
from holdfast.agents.streams import stream_of
from holdfast.clock import wall
from holdfast.domain.agent_events import AgentEvent, Finished, PersonAsked, Retrying, Spent, ToolStarted
from holdfast.domain.attempt_records import Ending, Exit, Order, TurnEvent, TurnState
from holdfast.domain.spend import Spend
from holdfast.errors import HoldfastError, SandboxFailed, SnapshotTooLarge
from holdfast.git import command as git
from holdfast.layout import Attempt, Layout
from holdfast.processes import sandbox, starts
from holdfast.processes.quick_exit import leave
from holdfast.processes.resources import AttemptResources
from holdfast.storage.files import disk
from holdfast.storage.records import attempt_folder, blobs

LOCK_WAIT_S_MAX, TICK_S_MAX = 10.0, 1.0
FLUSH_S = 1.0  # Events are for observers: a turn's are durable with it, the others as often as this.
READ_BYTES, READS_BEFORE_A_HOOK_MAX = 1 << 16, 1000
# This process has done nothing: another one has this start, or the start before still holds the lock.
EXIT_NOT_OURS, EXIT_LOCKED = 3, 4


class Runner:
    def __init__(self, layout: Layout, files: Attempt, order: Order, lock: int) -> None:
        self._layout, self._files, self._order, self._lock = layout, files, order, lock
        self._talk = Conversation(order.turn)
        self._verdict: Stop | None = None
        self._writer: AttemptWriter | None = None
        self._child: Child | None = None
        self._code: int | None = None
        self._lines = OutputLines(order.limits.resources.line_bytes_max)
        self._resources = AttemptResources(files, order.attempt, order.start, order.limits.resources)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    # -- the whole start ----------------------------------------------------------------------------------------------

    def run(self) -> Exit:
        signal.signal(signal.SIGTERM, self._on_term)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        try:
            self._begin()
            self._watch_child()
        except (HoldfastError, OSError, subprocess.SubprocessError) as failure:
            self._fail(failure)
        finally:
            # Also where the runner itself has a bug: an agent is never left without a runner.
            self._end_processes()
        return self._finish()

    def _begin(self) -> None:
        order = self._order
        if told := sandbox.missing(order.sandbox):
            self._verdict = Stop(Ending.NOT_STARTED, told)
            return
        self._resources.open()
        git.run_before_exec(self._resources.join_as_git)
        self._writer = AttemptWriter(self._files, order)
        self._writer.begin()
        self._writer.give(self._talk, order.told)
        self._inbox = Inbox(self._files, order, self._writer)
        argv = prepare(self._layout, self._files, order.launch)
        env = environment.of_agent(order, self._files, os.environ)
        self._stream = stream_of(order)
        self._dialogue = Dialogue(self._files, order, self._stream)
        wrapped = sandbox.wrapped(order, argv, self._files)
        leases = starts.leases(os.environ)
        self._child = Child(self._files, order, wrapped, env, self._lock, resources=self._resources, leases=leases)
        self._watch = LimitWatch(order.limits, TICK_S_MAX, idle_turns=order.idle_turns)
        self._turn_began = self._watch.now()
        self._next_beat = self._next_flush = 0.0

    def _fail(self, failure: Exception) -> None:
        reached = self._resources.found or self._resources.reached()
        self._verdict = start_outcome.failed(self._order, failure, reached, has_begun=self._child is not None)

    _is_asked_to_stop = _is_watching = False

    def _on_term(self, number: int, frame: object) -> None:
        self._is_asked_to_stop = True

    # -- while the agent works ----------------------------------------------------------------------------------------

    def _watch_child(self) -> None:
        if (child := self._child) is None:
            return
        self._is_watching = True
        with selectors.DefaultSelector() as selector:
            for fd in (child.stdout, child.stderr, child.pidfd, self._wake_read):
                selector.register(fd, selectors.EVENT_READ)
            while self._verdict is None and not self._is_enough():
                self._dialogue.pump(child)
                ready = {key.fd for key, _ in selector.select(self._pause_s())}
                for fd in ready & {child.stdout, child.stderr}:
                    if not self._read(fd):
                        selector.unregister(fd)
                if self._wake_read in ready:
                    os.read(self._wake_read, READ_BYTES)
                if child.pidfd in ready:
                    return
                self._answer_hooks(child)

    def _pause_s(self) -> float:
        """Seconds to wait for output: until something may be overdue, but the file `stop` is looked for regularly."""
        assert self._child is not None
        near_s = self._dialogue.pause_s(self._child, self._talk.state is TurnState.TOOL_USE)
        return min(TICK_S_MAX, near_s, self._watch.next_s(self._watch.now()))

    def _is_enough(self) -> bool:
        """Shows a heartbeat, and decides whether the agent may continue."""
        now = self._watch.now()
        assert self._writer is not None
        if self._dialogue.desk.is_open:
            self._watch.waits_for_person(now)
        if now >= self._next_beat:
            self._next_beat = now + self._order.limits.heartbeat_s
            attempt_folder.beat(self._files)
            assert self._child is not None
            starts.reap_inherited(self._child.pid)
        if now >= self._next_flush:
            self._next_flush = now + FLUSH_S
            self._writer.flush()
            self._check_resources()
        if self._is_asked_to_stop or self._files.stop.exists():
            self._verdict = Stop(Ending.STOPPED, "The agent was ended because the runner was told to stop.")
        else:
            self._verdict = self._verdict or self._watch.overdue(now)
        return self._verdict is not None

    def _check_resources(self) -> None:
        """Reports a resource limit that the agent has reached, and ends the agent where it must."""
        if (found := self._resources.newly_reached()) is not None:
            self._note_refusal(f"Over a limit: {found.told}.")
            if found.is_over:
                self._verdict = self._verdict or start_outcome.over("The agent was ended", found, self._order.task)

    def _note_refusal(self, detail: str) -> None:
        """Adds to the events what was refused, and why."""
        assert self._writer is not None
        self._writer.note({"turn": self._talk.turn + 1, "type": "refused", "detail": detail})

    def _read(self, fd: int) -> bool:
        """Reads one piece of the agent's output; False at its end, or where there is nothing now."""
        assert self._writer is not None
        assert self._child is not None
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._watch.heard(self._watch.now())
            self._child.heard(fd, data)
            self._writer.write_output(data, fd)
            if fd == self._child.stdout or self._order.launch.reads_errors:
                self._read_lines(fd, data)
        return bool(data)

    def _answer_hooks(self, child: Child) -> None:
        """Reads all output before each waiting hook, then answers it when its turn is saved; not after a verdict."""
        for asked in self._dialogue.file_questions():
            self._apply(asked)
        for call in self._dialogue.waiting_hooks():
            for _ in range(READS_BEFORE_A_HOOK_MAX):
                if not self._read(child.stdout):
                    break
            self._watch.heard(self._watch.now())
            events, turn = self._dialogue.events_of(call), self._talk.turn
            for event in events or ():
                self._apply(event, is_waiting=True)
            if self._verdict is not None:
                return
            if events is not None:
                self._dialogue.answer_hook(call, self._inbox, self._talk, has_turned=self._talk.turn > turn)

    def _read_lines(self, fd: int, data: bytes) -> None:
        for line in self._lines.feed(fd, data):
            if line is None:
                self._note_refusal(f"A line of over {self._lines.most} bytes (limits.line_bytes_max) was not read.")
                continue
            for event in self._stream.read(line):
                self._apply(event)

    def _apply(self, event: AgentEvent, *, is_waiting: bool = False) -> None:
        """`is_waiting`: the agent does nothing until it is answered."""
        assert self._writer is not None
        now = self._watch.now()
        event, refused = checked(event, wall())
        if refused:
            self._note_refusal(refused)
        has_turned = self._talk.apply(event)
        self._writer.note({"turn": self._talk.turn + 1, "state": self._talk.state, **as_record(event)})
        found: Stop | None = None
        if isinstance(event, Retrying):
            self._watch.retrying(now, event.detail)
        elif is_progress(event):
            self._watch.reached()
        if isinstance(event, ToolStarted):
            found = self._watch.call((event.name, event.input))
        elif isinstance(event, Finished):
            self._watch.finished(now)
            found = start_outcome.cannot(event)
            if self._order.launch.talks and self._child is not None:
                self._child.hang_up()
        elif isinstance(event, PersonAsked):
            if not self._dialogue.ask(event, self._talk.turn):
                wake(self._layout)
        elif self._talk.rate_limited is not None:
            found = start_outcome.rate_limited(self._talk)
        elif isinstance(event, Spent):
            found = self._watch.spent(self._talk, now)
        if has_turned:
            found = self._end_turn(is_waiting) or found
        # What the agent did before it ended by itself is judged by how it ended.
        if self._is_watching:
            self._verdict = self._verdict or found

    def _end_turn(self, is_waiting: bool) -> Stop | None:
        assert self._writer is not None
        assert self._child is not None
        if stops := not is_waiting or self._order.sandbox != "none":  # A confined agent may only claim to wait.
            self._child.stop()
        attempt_folder.beat(self._files)
        line = self._writer.turn(self._talk, self._watch.now() - self._turn_began)
        self._talk.next_turn()
        # If the turn could not be saved, the agent does not continue: it is ended as it is.
        ends = self._inbox.interruption() or self._watch.session(self._talk)
        if stops and ends is None:
            self._child.resume()
        wake(self._layout)
        self._turn_began = self._watch.now()
        self._watch.heard(self._turn_began)
        return self._watch.spent(self._talk, self._turn_began) or self._watch.turn(line.changed) or ends

    # -- the end ------------------------------------------------------------------------------------------------------

    def _end_processes(self) -> None:
        self._is_watching = False
        if self._child is None:
            return
        with step("end_processes"):
            self._dialogue.cancel(self._child, self._read, self._verdict)
            # The agent is a zombie until it is reaped, so its group number is not reused meanwhile.
            order = self._order
            self._check_resources()
            starts.end_processes(self._files, order.attempt, order.start, order.limits.grace_s, descendants=True)
            # The control group is gone with them, and the last snapshot's git needs one.
            self._resources.open()
            self._code = self._reap()

    def _reap(self) -> int:
        assert self._child is not None
        if self._writer is not None:
            try:
                while self._read(self._child.stdout) or self._read(self._child.stderr):
                    pass
                # The last line may have no end.
                for fd in self._lines.unended():
                    self._read_lines(fd, b"\n")
            except HoldfastError as failure:
                self._fail(failure)
        code = self._child.reap()
        if self._verdict is None and (why := self._child.not_confined(code)):
            self._verdict = Stop(Ending.ENVIRONMENT, str(SandboxFailed(reason=why)))
        return code

    def _finish(self) -> Exit:
        snapshot = ""
        try:
            if self._writer is not None:
                if self._child is not None:
                    self._read_end()
                snapshot = self._last_snapshot()
        except HoldfastError as failure:
            self._fail(failure)
        finally:
            self._resources.close()
            if self._writer is not None:
                self._writer.close()
            with contextlib.suppress(HoldfastError):
                remove_secrets(self._layout, self._files, self._order.launch)
        if self._child is not None and (lost := start_outcome.lost(self._order, self._files)):
            self._verdict = Stop(Ending.WORKTREE_LOST, lost)
        exit = self._exit(snapshot)
        # If the folder was deleted, the start is claimed again, unless recovery was first.
        is_ours = self._files.start(self._order.start).exists()
        if not is_ours and not _claim(self._files, self._order):
            return exit
        write_exit(self._files, exit)
        if exit.ending is Ending.STOPPED:
            disk.unlink(self._files.stop, missing_ok=True)
        wake(self._layout)
        return exit

    def _last_snapshot(self) -> str:
        """Leaves out what is too large: then that is how the start has ended."""
        assert self._writer is not None
        try:
            return self._writer.last_snapshot("refuse" if self._verdict is None else "leave_out")
        except SnapshotTooLarge as failure:
            self._fail(failure)
            return self._writer.last_snapshot("leave_out")

    def _read_end(self) -> None:
        assert self._writer is not None
        if self._verdict is None:
            try:
                for event in self._stream.end(start_outcome.as_shell(self._code or 0)):
                    self._apply(event)
            except SnapshotTooLarge as failure:
                self._fail(failure)
        is_done = self._judge().ending is Ending.DONE
        self._talk.close(TurnEvent.VERIFY_REQUESTED if is_done else TurnEvent.TASK_FAILED)
        self._writer.note({"turn": self._talk.turn + 1, "state": self._talk.state, "type": "ended"})
        self._writer.rest(self._talk)

    def _judge(self) -> Stop:
        found = start_outcome.judge(self._verdict, self._talk, self._code, is_wrapped=self._order.sandbox != "none")
        if self._child is not None and self._dialogue.desk.is_deferred and found.ending is Ending.DONE:
            return Stop(Ending.ASKING, "The agent asks a person, and is resumed with the answer.")
        return start_outcome.explained(found, self._resources.found, self._order.task)

    def _exit(self, snapshot: str) -> Exit:
        verdict, now, talk = self._judge(), wall(), self._talk
        seconds = self._watch.seconds(self._watch.now()) if self._child is not None else 0.0
        if not talk.spent.turns:
            before = attempt_folder.last_exit(self._files)
            verdict = start_outcome.not_so_soon(verdict, before, self._order.start, now, worked_s=seconds)
        order, spent = self._order, talk.spent + Spend(seconds=seconds)
        return exit_of(order, verdict, self._code, now, talk, snapshot=snapshot, spent=spent)


# -- the process ------------------------------------------------------------------------------------------------------


def _claim(files: Attempt, order: Order) -> bool:
    return attempt_folder.claim_start(files, order.start, attempt_folder.RUNNER, order.intent)


def main(arguments: list[str]) -> int:
    root, attempt, number, digest, *intent = arguments
    starts.inherit_descendants()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    layout, start = Layout(Path(root)), int(number)
    files = layout.attempt_files(attempt)
    order = msgspec.json.decode(blobs.Blobs(layout.cas).get(digest), type=Order)
    order = msgspec.structs.replace(order, intent=intent[0] if intent else "")
    os.nice(order.limits.resources.nice)
    with step("lock"):
        lock = attempt_folder.lock_alive(files, start, LOCK_WAIT_S_MAX)
    if lock is None and not files.start(start).exists():
        sys.stderr.write(f"{files.alive} is held, and no start {start} was made. End what holds it, then start anew.\n")
        return EXIT_LOCKED
    if lock is None:
        return EXIT_NOT_OURS
    with step("start"):
        is_ours = _claim(files, order)
    if not is_ours:
        return EXIT_NOT_OURS
    attempt_folder.sign(files, start, lock)
    Runner(layout, files, order, lock).run()
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
