"""The output of `run`: a live view on a terminal, lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import click
import msgspec

from holdfast.cli.screen.run_summary import summary
from holdfast.cli.screen.terminal import clock_now
from holdfast.clock import monotonic, wall
from holdfast.domain.wording import plain, plain_json
from holdfast.landing.gate_results import OUTPUT

if TYPE_CHECKING:
    from holdfast.orchestrator.loop import Loop

# How often programs are told of other states, at most.
STATES_S = 0.2


class LiveView(Protocol):
    def note(self, task: str, text: str) -> None: ...
    def show(self, loop: Loop) -> None: ...
    def end(self, loop: Loop, left: list[str]) -> None: ...


class PlainLines:
    """One line for each thing that happens."""

    def note(self, task: str, text: str) -> None:
        click.echo(f"{clock_now()}  {plain(f'{task}: {text}' if task else text)}")

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
        facts = {"states": states, "left": left, "lost": sorted(loop.context.lost)}
        self._line({"ts": wall(), "kind": "ended", "ended": True, **facts})

    def _print_states(self, loop: Loop) -> None:
        self._looked_at = monotonic()
        for task in list(loop.board.tasks.values()):
            if self._states.get(task.id) != task.state:
                self._states[task.id] = task.state
                facts = {"state": task.state, "attempt": task.attempt.id, "agent": task.claim.agent}
                self._line({"ts": wall(), "kind": "state", "task": task.id, **facts})

    def _line(self, value: object) -> None:
        click.echo(plain_json(msgspec.json.encode(value).decode()))


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
