"""Starting an attempt: the order that its runner gets, and the effect that begins it.

Whether a start took place is decided by one file, `attempts/<id>/start-<n>`, which the runner and recovery race to
create. Once recovery has it, a runner that was slow does nothing, however late it comes.

That file and all others of the start name the intent. Files of an intent that this journal does not have are left by a
journal that is gone: they are set aside before the start, never taken for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.domain.attempt_records import InboxFile
from holdfast.domain.task_record import Task
from holdfast.engine.earlier_starts import set_strangers_aside
from holdfast.errors import SpawnFailed
from holdfast.layout import Layout
from holdfast.ports import DidNotHappen, Happened, InDoubt, Reconciled
from holdfast.processes import starts
from holdfast.storage.files import disk
from holdfast.storage.journal.intents import OpenIntent
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.attempt_folder import Liveness


class Spawn:
    """`runner` is the command that begins one. Its processes outlive this one."""

    def __init__(self, layout: Layout, runner: Sequence[str], environ: Mapping[str, str] = os.environ) -> None:
        self._layout = layout
        self._runner = runner
        self._environ = environ
        # Variables with the way back to us, by attempt.
        self.agent_variables: Callable[[str], Mapping[str, str]] = lambda attempt: {}
        # Descriptors that a runner inherits, by attempt: the leases of its worktree's ports.
        self.leases: dict[str, tuple[int, ...]] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def perform(self, intent: OpenIntent) -> dict[str, Any]:
        attempt, start = intent.entry.inputs["attempt"], intent.entry.inputs["start"]
        name = _name(intent)
        self._clear(attempt, start, name)
        attempt_folder.make_folder(self._layout.attempt_files(attempt))
        argv = [*self._runner, str(self._layout.root), attempt, str(start), intent.entry.inputs["order"], name]
        log, leases = disk.open_log(self._layout.logs / f"{attempt}.log"), self.leases.get(attempt, ())
        try:
            # A process group of its own, but our session: agents that use all cores from another session slow the
            # journal's sync (14 times, measured), whatever their nice value.
            self._children[attempt] = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self._environ, **self.agent_variables(attempt), starts.LEASES: ",".join(map(str, leases))},
                cwd=self._layout.root,
                pass_fds=leases,
                process_group=0,
            )
        except OSError as error:
            raise SpawnFailed(attempt=attempt, reason=error.strerror or str(error)) from error
        finally:
            os.close(log)
        return {"attempt": attempt, "start": start}

    def reconcile(self, intent: OpenIntent) -> Reconciled:
        attempt, start = intent.entry.inputs.get("attempt", ""), intent.entry.inputs.get("start", 0)
        if not attempt or not start:
            return InDoubt("its intent does not say which start it was")
        if not self.has_begun(attempt, start, _name(intent)):
            return DidNotHappen()
        return Happened({"attempt": attempt, "start": start})

    def has_begun(self, attempt: str, start: int, intent: str) -> bool:
        """Whether a runner took the start. If none has, this takes it, so that none ever will."""
        files = self._layout.attempt_files(attempt)
        self._clear(attempt, start, intent)
        attempt_folder.make_folder(files)
        if attempt_folder.claim_start(files, start, attempt_folder.RECOVERY, intent):
            return False
        owner = attempt_folder.read_start(files, start)
        return owner is not None and owner.who == attempt_folder.RUNNER

    def _clear(self, attempt: str, start: int, intent: str) -> None:
        """Sets aside what is in the way of the start and is not of it."""
        if intent and attempt_folder.strangers(self._layout.attempt_files(attempt), start, intent):
            reason = f"it is not of the start that this journal intended ({intent})"
            set_strangers_aside(self._layout, attempt, start, intent, reason)

    def ask_to_stop(self, task: Task) -> None:
        """Asks the runner to end its agent and then itself; it says so in exit.json."""
        owner = attempt_folder.read_start(self._layout.attempt_files(task.attempt.id), task.start.number)
        if owner is None or owner.who != attempt_folder.RUNNER or not attempt_folder.is_of(owner, task.start.intent):
            return
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(owner.pid)
            try:
                # Only now the descriptor means one process for good.
                if owner.is_alive():
                    signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            finally:
                os.close(pidfd)

    def deliver(self, task: Task) -> None:
        """Puts what a person tells the agent at work where its runner looks after each turn."""
        files, inbox = self._layout.attempt_files(task.attempt.id), InboxFile(task.start.number, task.told)
        if task.told and files.root.is_dir() and attempt_folder.read_inbox(files) != inbox:
            attempt_folder.write_inbox(files, inbox)

    def is_beginning(self, task: Task) -> bool:
        """Whether a runner of ours lives and has not taken its start yet."""
        child = self._children.get(task.attempt.id)
        has_start = self._layout.attempt_files(task.attempt.id).start(task.start.number).exists()
        return not has_start and child is not None and child.poll() is None

    def liveness(self, task: Task) -> Liveness:
        """The liveness of a confirmed start. One of ours that has no files yet counts as alive."""
        attempt, start, intent = task.attempt.id, task.start.number, task.start.intent
        files = self._layout.attempt_files(attempt)
        seen = attempt_folder.liveness(files, start, intent)
        child = self._children.get(attempt)
        if seen is Liveness.ABSENT:
            if child is not None and child.poll() is None:
                return Liveness.ALIVE
            return (
                attempt_folder.liveness(files, start, intent)
                if self.has_begun(attempt, start, intent)
                else Liveness.DEAD
            )
        if child is not None and seen is not Liveness.ALIVE and child.poll() is not None:
            del self._children[attempt]
        return seen


def _name(intent: OpenIntent) -> str:
    """The intent's name, as the start's files carry it; empty for intents of older versions."""
    return intent.ref.name if intent.entry.inputs.get("names_files") else ""
