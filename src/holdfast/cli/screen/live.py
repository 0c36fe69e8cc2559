"""The output of `run`: a live view on a terminal, lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import click
import msgspec

from holdfast.clock import monotonic, wall
from holdfast.domain.task import AT_WORK, TaskState
from holdfast.domain.wording import money, plain, plain_json, plural
from holdfast.landing import lost_landings
from holdfast.landing.gate_results import OUTPUT, output_of_task
from holdfast.views.next_step import next_step_of, stuck_behind

if TYPE_CHECKING:
    from holdfast.orchestrator.loop import Loop

LEFT_TOLD_MAX = 20
# How often programs are told of other states, at most.
STATES_S = 0.2


class LiveView(Protocol):
    def note(self, task: str, text: str) -> None: ...
    def show(self, loop: Loop) -> None: ...
    def end(self, loop: Loop, left: list[str]) -> None: ...


class PlainLines:
    """One line for each thing that happens."""

    def note(self, task: str, text: str) -> None:
        clock = time.strftime("%H:%M:%S")
        click.echo(f"{clock}  {plain(f'{task}: {text}' if task else text)}")

    def show(self, loop: Loop) -> None:
        sys.stdout.flush()

    def end(self, loop: Loop, left: list[str]) -> None:
        for line in summary(loop, left):
            click.echo(plain(line))


class Json:
    """Each object has a `kind`: `note` (a sentence), `output` (a line that a gate printed), `state` (a task is in
    another state than before) and `ended`, the last one."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._looked_at = 0.0

    def note(self, task: str, text: str) -> None:
        is_output = text.startswith(OUTPUT)
        kind, said = ("output", text.removeprefix(OUTPUT)) if is_output else ("note", text)
        self._line({"ts": wall(), "kind": kind, "task": task, "note": said})

    def show(self, loop: Loop) -> None:
        if monotonic() - self._looked_at >= STATES_S:
            self._print_states(loop)
        sys.stdout.flush()

    def end(self, loop: Loop, left: list[str]) -> None:
        self._print_states(loop)
        states = Counter(str(task.state) for task in list(loop.board.tasks.values()))
        self._line(
            {
                "ts": wall(),
                "kind": "ended",
                "ended": True,
                "states": states,
                "left": left,
                "lost": sorted(loop.context.lost),
            }
        )

    def _print_states(self, loop: Loop) -> None:
        self._looked_at = monotonic()
        for task in list(loop.board.tasks.values()):
            if self._states.get(task.id) != task.state:
                self._states[task.id] = task.state
                facts = {"state": task.state, "attempt": task.attempt, "agent": task.agent}
                self._line({"ts": wall(), "kind": "state", "task": task.id, **facts})

    def _line(self, value: object) -> None:
        click.echo(plain_json(msgspec.json.encode(value).decode()))


def counted(states: Counter[str]) -> str:
    """`2 open, 3 closed`; those that have ended come last, because a narrow screen cuts the end."""
    words = (f"{states[state]} {state}" for state in TaskState if states[state])
    return ", ".join(words) or "no tasks"


def summary(loop: Loop, left: list[str]) -> Iterator[str]:
    """The run's end, and for each task that is left why, and what to type."""
    run = loop.context.ledger.state.run
    states = Counter(str(task.state) for task in list(loop.board.tasks.values()))
    yield f"{counted(states)}; {plural(run.turns, 'turn')}, {money(run.usd)}"
    told = [name for name in left if name in loop.holds or not _is_merely_ready(loop, name)]
    for name in told[:LEFT_TOLD_MAX]:
        task, hold = loop.board.task(name), loop.holds.get(name)
        why = "; ".join([hold.reason] if hold else reasons_to_wait(loop, name)) or str(task.outcome.get("detail", ""))
        yield f"  {name} is {task.state}" + (f": {why}" if why else "")
        if task.state is TaskState.FAILED:
            yield from (f"      | {line}" for line in output_of_task(loop.context.layout, loop.context.blobs, task))
        stuck = stuck_behind(loop.board.graph, name) if name in loop.board.graph else []
        step = next_step_of(name, task.state, task, stuck=stuck, is_held=name in loop.holds)
        # This run ends here: the next one follows the agents that still work.
        yield f"    next: {'holdfast run' if task.state in AT_WORK else step}"
    if len(told) > LEFT_TOLD_MAX:
        yield f"  and {len(told) - LEFT_TOLD_MAX} more; `holdfast list` shows all"
    if ready := len(left) - len(told):
        yield f"  {ready} {'is' if ready == 1 else 'are'} ready"
        yield "    next: holdfast run"
    for name, sentence in loop.context.lost.items():
        yield f"  {name} is {loop.board.task(name).state}, and its landing is lost"
        yield f"    next: {lost_landings.next_step(name, sentence)}"
    if files := list(dict.fromkeys(f"{each.file}:{each.line}" for each in loop.board.problems)):
        more = f" and {len(files) - LEFT_TOLD_MAX} more" if len(files) > LEFT_TOLD_MAX else ""
        yield f"  {plural(len(files), 'file')} cannot be used: {', '.join(files[:LEFT_TOLD_MAX])}{more}"
        yield f"    next: mend {'it' if len(files) == 1 else 'them'} (`holdfast list` says why), then holdfast run"


def _is_merely_ready(loop: Loop, name: str) -> bool:
    task = loop.board.task(name)
    return task.state is TaskState.OPEN and not task.parked and not reasons_to_wait(loop, name)


def reasons_to_wait(loop: Loop, name: str) -> list[str]:
    """Without what the state says by itself."""
    if name not in loop.board.graph:
        return []
    return [why for why in loop.board.graph.reasons_to_wait(name, wall()) if not why.startswith("it is ")]


@contextlib.contextmanager
def view(as_json: bool, is_plain: bool) -> Iterator[LiveView]:
    if as_json:
        yield Json()
    elif is_plain or not sys.stdout.isatty():
        yield PlainLines()
    else:
        from holdfast.cli.screen.run_screen import Screen

        with Screen() as screen:
            yield screen
