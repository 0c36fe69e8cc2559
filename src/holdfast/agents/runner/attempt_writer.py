"""Writes an attempt's folder for its runner: each turn is on disk before the agent continues."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec

from holdfast.agents.runner.conversation import Conversation, summed
from holdfast.agents.runner.limits import Stop
from holdfast.clock import wall
from holdfast.crashpoints import point
from holdfast.domain.attempt_records import Ending, Exit, Order, TurnLine
from holdfast.domain.conversations.conversation_records import Message
from holdfast.domain.spend import Spend
from holdfast.errors import DiskError, HoldfastError
from holdfast.git import command as git
from holdfast.layout import Attempt, Layout
from holdfast.processes import bwrap, sandbox
from holdfast.snapshots.shadow import Large
from holdfast.snapshots.size_limits import Bounds
from holdfast.snapshots.snapshots import Snapshot, WorktreeSnapshots
from holdfast.storage.files import disk
from holdfast.storage.records import redact
from holdfast.storage.records.attempt_folder import PRIVATE
from holdfast.storage.records.ledger import LineLedger

STEPS = (
    "lock", "start", "begin", "told", "process", "turn_snapshot", "turn_output", "turn_traces", "turn_spend",
    "turn_provenance", "turn_events", "turn_line", "question", "wake", "end_processes", "end_ledgers", "end_snapshot",
    "exit",
)  # fmt: skip
RUNNER_POINTS = tuple(f"runner.{name}.{side}" for name in STEPS for side in ("before", "after"))

# Every follower reads a line of turns.jsonl, so it is kept short; provenance.jsonl has all files.
FILES_IN_A_LINE_MAX = 1000
# The most events that wait to be written: each may hold long texts.
PENDING_MAX = 256


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """One durable step, with a crash point on either side of it."""
    point(f"runner.{name}.before")
    yield
    point(f"runner.{name}.after")


class _Bounded:
    """A ledger with a size limit: the append that passes it is the last. Calls `on_full` then, once."""

    def __init__(self, ledger: LineLedger, most: int, on_full: Callable[[str], None]) -> None:
        self._ledger, self._most, self._on_full = ledger, most, on_full
        self._size: int | None = None

    def append(self, records: Iterable[dict[str, Any]]) -> int:
        """The cursor behind the records, or behind the last one that was kept."""
        size = self._ledger.end() if self._size is None else self._size
        self._size = size if size > self._most else self._ledger.append_many(records)
        if size <= self._most < self._size:
            name = self._ledger.path.name
            self._on_full(f"{name} has reached output_bytes_max, {self._most} bytes: what follows is not kept there.")
        return self._size


class AttemptWriter:
    """All that a runner writes into `attempts/<id>/`. When `turn` returns, the turn is durable, and never before."""

    def __init__(self, files: Attempt, order: Order) -> None:
        self._files, self._order = files, order
        worktree, private, index = Path(order.worktree), Path(order.private), sandbox.own_index(order)
        layout, confine = Layout(files.root.parent.parent), None
        if order.sandbox != "none":
            shown, opened = [layout.snapshots], [private]
            confine = bwrap.confine_git(git.discover(worktree), layout.root, order.audit_key, shown, opened)
        self._snapshots = WorktreeSnapshots(
            worktree,
            private,
            layout.snapshots,
            order.exclude,
            index=index,
            base=order.base,
            confine=confine,
            bounds=Bounds.of(order.limits.resources),
        )
        with contextlib.ExitStack() as undo:
            self._turns, traces, self._spend, provenance, self._event_ledger = (
                undo.enter_context(LineLedger(path, mode=PRIVATE))
                for path in (files.turns, files.traces, files.spend, files.provenance, files.events)
            )
            most = order.limits.output_bytes_max
            self._traces, self._provenance = (_Bounded(each, most, self._note_refusal) for each in (traces, provenance))
            self._events = _Bounded(self._event_ledger, most, self._note_last_refusal)
            self._output = disk.open_append(files.output, mode=PRIVATE)
            undo.callback(self._output.close)
            self._close = undo.pop_all()
        self._pending: list[dict[str, Any]] = []
        self._last = ""
        self._turn = order.turn + 1
        self._is_spend_long: bool | None = None
        self._flows: dict[int, redact.Flow] = {}

    def begin(self) -> None:
        """Takes the tree as this start found it, to compare its first turn with."""
        with step("begin"):
            # We put these files there; those of the first start may have any size from then on.
            large: Large = "take" if self._order.start == 1 else "leave_out"
            self._last = self._snapshot(f"start-{self._order.start}", large).commit

    def write_output(self, data: bytes, source: int = 0) -> None:
        """Durable with the next turn, and without secrets: whole lines of each source are written. At the size limit,
        the log says so once, and grows no more."""
        if self._output.size <= self._order.limits.output_bytes_max:
            self._keep_output(self._flows.setdefault(source, redact.Flow(redact.usual())).feed(data))

    def _keep_output(self, data: bytes) -> None:
        most = self._order.limits.output_bytes_max
        if self._output.size > most:
            return
        left = most - self._output.size
        if len(data) > left:
            data = (
                data[:left]
                + f"\n[holdfast: output_bytes_max, {most} bytes, is reached: the rest was not kept]\n".encode()
            )
        self._output.append(data)

    def note(self, event: dict[str, Any]) -> None:
        """Durable with the next turn, or the next `flush`."""
        self._pending.append({"ts": wall(), "start": self._order.start, **event})
        if len(self._pending) >= PENDING_MAX:
            self.flush()

    def flush(self) -> None:
        if self._pending:
            pending, self._pending = self._pending, []
            self._events.append(pending)

    def _note_refusal(self, detail: str) -> None:
        self.note({"turn": self._turn, "type": "refused", "detail": detail})

    def _note_last_refusal(self, detail: str) -> None:
        """Writes the last line of the events."""
        record = {"ts": wall(), "start": self._order.start, "turn": self._turn, "type": "refused"}
        self._event_ledger.append({**record, "detail": f"{detail} Turns are saved, and what is spent counts, as ever."})

    def give(self, talk: Conversation, messages: Iterable[Message]) -> None:
        """Records that the agent is given these messages, before it is: after a kill it may have seen them."""
        number = talk.turn + 1
        for message in messages:
            with step("told"), LineLedger(self._files.told, mode=PRIVATE) as ledger:
                ledger.append({"start": self._order.start, "turn": number, "ts": wall(), "id": message.id})
            self.note({"turn": number, "type": "told", "id": message.id, "by": message.by, "text": message.text})
            talk.give(message)
        self.flush()

    def turn(self, talk: Conversation, seconds: float) -> TurnLine:
        """Saves the turn: its snapshot, then its output and spending, and last the line that marks it complete."""
        number = self._turn = talk.turn + 1
        with step("turn_snapshot"):
            taken = self._snapshot(f"turn-{number}")
        files = self._files_of(taken)
        with step("turn_output"):
            self._output.sync()
        with step("turn_traces"):
            traces = self._traces.append(self._of(number, talk.traces))
        with step("turn_spend"):
            spend = self._append_spend(number, talk)
        with step("turn_provenance"):
            tool = ", ".join(dict.fromkeys(talk.tools))
            made = ({"file": file, "tool": tool, "snapshot": taken.commit} for file in files)
            provenance = self._provenance.append(self._of(number, made))
        with step("turn_events"):
            self.flush()
        used = talk.pending
        line = TurnLine(
            ts=wall(),
            turn=number,
            start=self._order.start,
            tool=tool,
            snapshot=taken.commit,
            changed=bool(files),
            files=files[:FILES_IN_A_LINE_MAX],
            usd=used.usd,
            tokens=used.tokens,
            seconds=seconds,
            session=talk.session,
            traces=traces,
            spend=spend,
            provenance=provenance,
            output=self._output.size,
            intent=self._order.intent,
            told=talk.told,
        )
        with step("turn_line"):
            self._turns.append(msgspec.to_builtins(line))
        return line

    def rest(self, talk: Conversation) -> None:
        """Saves what came after the last turn."""
        with step("end_ledgers"):
            for flow in self._flows.values():
                self._keep_output(flow.rest())
            self._output.sync()
            self._traces.append(self._of(talk.turn + 1, talk.traces))
            self._append_spend(talk.turn + 1, talk)
            self.flush()

    def last_snapshot(self, large: Large) -> str:
        with step("end_snapshot"):
            return self._snapshot(f"end-{self._order.start}", large).commit

    def close(self) -> None:
        # After a failed sync a ledger may refuse even this, and that failure is reported already.
        with contextlib.suppress(DiskError):
            self._close.close()

    def _snapshot(self, name: str, large: Large = "refuse") -> Snapshot:
        return self._snapshots.take(self._order.attempt, name, large=large)

    def _files_of(self, taken: Snapshot) -> list[str]:
        before, self._last = self._last, taken.commit
        if before == taken.commit:
            return []
        return self._snapshots.changed(before, taken.commit)

    def _append_spend(self, turn: int, talk: Conversation) -> int:
        """Appends all spending, as it is counted from here; once the ledger is long, as one line for each turn.

        Each with its conversation: one that is resumed elsewhere may continue its count from there.
        """
        if self._is_spend_long is None:
            self._is_spend_long = self._spend.end() > self._order.limits.output_bytes_max
        spends = [reduce(summed, talk.spends)] if self._is_spend_long and talk.spends else talk.spends
        lines = (msgspec.to_builtins(each) | {"session": talk.session} for each in spends)
        end = self._spend.append_many(self._of(turn, lines))
        self._is_spend_long = end > self._order.limits.output_bytes_max
        return end

    def _of(self, turn: int, records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        return ({"start": self._order.start, "turn": turn, **each} for each in records)


def exit_of(
    order: Order, verdict: Stop, code: int | None, now: float, talk: Conversation, *, snapshot: str, spent: Spend
) -> Exit:
    # An agent that ended well has read its prompt, whatever it said of it.
    told = [*talk.told, *(talk.given if verdict.ending is Ending.DONE else ())]
    return Exit(
        attempt=order.attempt,
        start=order.start,
        ending=verdict.ending,
        detail=verdict.detail,
        at=now,
        code=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        limit=verdict.limit,
        until=verdict.until,
        session=talk.session,
        snapshot=snapshot,
        turn=talk.turn,
        spent=spent,
        intent=order.intent,
        told=told,
    )


def write_exit(files: Attempt, exit: Exit) -> None:
    exit = msgspec.structs.replace(exit, detail=redact.without_secrets(exit.detail))
    with step("exit"):
        disk.replace(files.exit, msgspec.json.encode(exit) + b"\n", PRIVATE)


def wake(layout: Layout) -> None:
    """Signals the orchestrator, if there is one, that there is something to read."""
    with step("wake"), contextlib.suppress(HoldfastError):
        disk.touch(layout.signals / "WAKEUP")
