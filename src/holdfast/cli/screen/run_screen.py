"""The live view of `run` on a terminal. Loaded only there.

The loop's thread hands over what is to be seen; the painter's thread draws it a few times a second, with clocks that go
on meanwhile. It paints in place at the end of the scrollback, never on an alternate screen, and leaves the cursor
visible: a run that is killed leaves a terminal that works, with its last picture on it.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from holdfast.cli.screen.agent_output import AGENT_COLUMNS, agent_cells
from holdfast.cli.screen.run_summary import counted, reasons_to_wait, summary
from holdfast.cli.screen.table import aligned, column_widths, echo_wrapped
from holdfast.cli.screen.terminal import clock_now
from holdfast.clock import monotonic, wall
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task, open_questions
from holdfast.domain.wording import money, plain, plural
from holdfast.storage.records.at_work import AtWork, agent_at_work, clock

if TYPE_CHECKING:
    from holdfast.orchestrator.loop import Loop

PAINTS_PER_S = 4
NOTES_SHOWN = 8
WAITS_SHOWN = 5
# In a large backlog not every task is asked why it waits, twice a second.
WAITS_LOOKED_AT = 200
# Agents' folders are looked at so often, and tasks counted.
LOOK_S = 0.5
_WAITING = {TaskState.OPEN, TaskState.BLOCKED, TaskState.WAITING_FOR_SUBTASKS, TaskState.PENDING_APPROVAL}


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """The facts on the screen, as of one moment."""

    states: Counter[str] = Counter()
    turns: int = 0
    usd: float = 0.0
    at_work: tuple[Task, ...] = ()
    landing: str = ""
    stopping: str = ""
    waits: tuple[tuple[str, str], ...] = ()
    judged_ahead: tuple[str, ...] = ()
    waits_more: int = 0


class Screen:
    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=False)
        self._began = wall()
        self._notes: deque[str] = deque(maxlen=NOTES_SHOWN)
        self._frame = Frame()
        self._framed_at = 0.0
        self._agents: list[AtWork] = []
        self._looked_at = 0.0
        self._files_of: Loop | None = None
        self._live = Live(self, console=self._console, refresh_per_second=PAINTS_PER_S, vertical_overflow="crop")

    def __enter__(self) -> Screen:
        self._live.start()
        self._console.show_cursor(True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()

    # -- told by the loop ---------------------------------------------------------------------------------------------

    def note(self, task: str, text: str) -> None:
        """From any thread, and from a signal's handler: it must wait for nothing."""
        self._notes.append(f"{clock_now()} {f'{task}: {text}' if task else text}")

    def show(self, loop: Loop) -> None:
        now = monotonic()
        is_fresh = now - self._framed_at < LOOK_S
        at_work = tuple(msgspec.structs.replace(task) for task in loop.at_work)
        working = [task.id for task in at_work if not open_questions(task)]
        changed = working != [task.id for task in self._frame.at_work]
        if is_fresh and not changed and _is_judged_alike(loop, self._frame) and not loop.stopping:
            return
        self._framed_at = now
        self._files_of = loop
        self._frame = _frame(loop, at_work)

    def end(self, loop: Loop, left: list[str]) -> None:
        """The last picture stays, and under it what was done and what is left to type."""
        self._frame = _frame(loop, tuple(msgspec.structs.replace(task) for task in loop.at_work))
        self._looked_at = 0.0
        self._live.stop()
        for line in summary(loop, left):
            indent = len(line) - len(line.lstrip())
            echo_wrapped(" " * indent, plain(line.lstrip()))

    # -- painting -----------------------------------------------------------------------------------------------------

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(10, options.max_width - 1)
        for line in self._lines(width, max(4, console.size.height - 1)):
            line.truncate(width, overflow="ellipsis")
            yield from line.render(console)
            yield Segment.line()

    def _lines(self, width: int, height: int) -> list[Text]:
        """The lines for which the terminal has room: first the agents at work, then what happened, then what waits."""
        frame, agents = self._frame, self._read_agents()
        # What is cut on a narrow terminal comes last.
        parts = [clock(wall() - self._began), plural(frame.turns, "turn"), money(frame.usd), counted(frame.states)]
        head = [Text.assemble(("holdfast ", "bold"), "  ".join(parts))]
        if frame.landing:
            head.append(Text.assemble(("verifying and landing: ", "cyan"), plain(frame.landing)))
        if frame.judged_ahead:
            head.append(Text.assemble(("judged ahead of its turn: ", "cyan"), plain("; ".join(frame.judged_ahead))))
        if frame.stopping:
            head.append(Text("stopping", "yellow"))
        room = height - len(head)
        notes = list(self._notes)
        rows = _table(agents, width, max(2, room - min(3, len(notes))))
        room -= len(rows)
        notes = notes[max(0, len(notes) - max(0, room - min(2, len(frame.waits)))) :]
        room -= len(notes)
        waits = [Text.assemble(("waits  ", "yellow"), plain(f"{name}: {why}")) for name, why in frame.waits]
        if frame.waits_more:
            waits.append(Text(f"       and {frame.waits_more} more"))
        return [*head, *rows, *waits[: max(0, room)], *(Text(plain(note), "dim") for note in notes)]

    def _read_agents(self) -> list[AtWork]:
        loop, now = self._files_of, monotonic()
        if loop is not None and now - self._looked_at >= LOOK_S:
            self._looked_at = now
            layout = loop.context.layout
            self._agents = [agent_at_work(layout.attempt_files(task.attempt.id), task) for task in self._frame.at_work]
        return self._agents


def _is_judged_alike(loop: Loop, frame: Frame) -> bool:
    return (loop.landing, _judged_ahead(loop)) == (frame.landing, frame.judged_ahead)


def _judged_ahead(loop: Loop) -> tuple[str, ...]:
    asked = loop.context.judgings.ahead.copy().values()
    return tuple(f"{each.task} on top of {each.behind}" if each.behind else each.task for each in asked)


def _frame(loop: Loop, at_work: tuple[Task, ...]) -> Frame:
    # Copied in one step: requests of the API add tasks meanwhile.
    tasks, run = loop.board.tasks.copy(), loop.context.ledger.state.run
    waits: list[tuple[str, str]] = [(name or "all", hold.reason) for name, hold in list(loop.holds.items())]
    asking = {task.id for task in at_work if open_questions(task)}
    waiting = (
        name for name, task in tasks.items() if (task.state in _WAITING or name in asking) and name not in loop.holds
    )
    looked_at = ((name, reasons_to_wait(loop, name)) for name in itertools.islice(waiting, WAITS_LOOKED_AT))
    waits += [(name, "; ".join(why)) for name, why in looked_at if why]
    return Frame(
        states=Counter(str(task.state) for task in tasks.values()),
        turns=run.turns,
        usd=run.usd,
        at_work=tuple(task for task in at_work if task.id not in asking),
        landing=loop.landing,
        judged_ahead=_judged_ahead(loop),
        stopping=loop.stopping,
        waits=tuple(waits[:WAITS_SHOWN]),
        waits_more=max(0, len(waits) - WAITS_SHOWN),
    )


def _table(agents: list[AtWork], width: int, room: int) -> list[Text]:
    """One row for each agent, in columns as wide as they need; a narrow terminal gets fewer of them."""
    if not agents:
        return []
    shown = agents if len(agents) < room else agents[: max(1, room - 2)]
    rows = [AGENT_COLUMNS, *(agent_cells(each, wall()) for each in shown)]
    if width < 60:
        rows = [(attempt, turn, spent, time, tool) for attempt, _, turn, spent, time, tool in rows]
    widths = column_widths(rows)
    lines = [Text(aligned(row, widths), "bold" if number == 0 else "") for number, row in enumerate(rows)]
    if len(shown) < len(agents):
        lines.append(Text(f"and {len(agents) - len(shown)} more at work"))
    return lines
