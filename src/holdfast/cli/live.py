"""What `run` shows: a live view on a terminal, lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import click
import msgspec

from holdfast.cli.terminal import plain

if TYPE_CHECKING:
    from holdfast.engine.loop import Loop


class View(Protocol):
    def note(self, task: str, text: str) -> None: ...
    def show(self, loop: Loop) -> None: ...
    def end(self, loop: Loop, left: list[str]) -> None: ...


class Lines:
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
    def note(self, task: str, text: str) -> None:
        self._line({"ts": time.time(), "task": task, "note": text})

    def show(self, loop: Loop) -> None:
        sys.stdout.flush()

    def end(self, loop: Loop, left: list[str]) -> None:
        states = Counter(str(task.state) for task in loop.board.tasks.values())
        self._line({"ts": time.time(), "ended": True, "states": states, "left": left})

    def _line(self, value: object) -> None:
        click.echo(msgspec.json.encode(value).decode())


def summary(loop: Loop, left: list[str]) -> Iterator[str]:
    states = Counter(str(task.state).lower().replace("_", " ") for task in loop.board.tasks.values())
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "no tasks"
    run = loop.shop.ledger.state.run
    yield f"{counts}; {run.turns} turns, ${run.usd:.2f}"
    now = time.time()
    for name in left[:20]:
        task = loop.board.task(name)
        hold = loop.holds.get(name)
        reasons = [hold.reason] if hold else loop.board.graph.reasons_to_wait(name, now)
        detail = str(task.outcome.get("detail", ""))
        yield f"  {name} is {task.state}: {'; '.join(reasons) or detail}"


@contextlib.contextmanager
def view(as_json: bool, is_plain: bool) -> Iterator[View]:
    if as_json:
        yield Json()
    elif is_plain or not sys.stdout.isatty():
        yield Lines()
    else:
        with _screen() as screen:
            yield screen


@contextlib.contextmanager
def _screen() -> Iterator[View]:
    yield Lines()


Recent = deque[str]
