"""`attach`: an agent's output as it comes, from any terminal. It reads the attempt's folder and touches nothing."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.options import complete_task, find_app, print_json, prints_json
from holdfast.cli.screen.agent_output import AGENT_COLUMNS, Records, agent_cells, lines
from holdfast.cli.screen.table import print_table
from holdfast.cli.screen.terminal import Printer, printing, wait_for_reader
from holdfast.domain.task import AT_WORK, TaskState
from holdfast.domain.task_record import Task
from holdfast.domain.wording import plain
from holdfast.errors import NeverAttempted, TaskUnknown
from holdfast.storage.journal.lock import live_owner
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.at_work import at_work
from holdfast.storage.records.attempt_folder import Liveness

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.layout import Attempt

POLL_S = 0.1
# The journal is read so many polls apart: only it can tell that an attempt is over.
LOOK_EVERY = 5
# From these an attempt may still be continued, while a run is alive.
_GOES_ON = AT_WORK | {TaskState.ORPHANED}

New = Callable[[], Iterator[Any]]
Tell = Callable[[Any], None]


@click.command(
    epilog="""\b
Examples:
  holdfast attach                    who is at work
  holdfast attach fix-login          follow that task's agent; Ctrl-C leaves, and it goes on working
  holdfast attach fix-login --raw    its output as it was written"""
)
@click.argument("task", required=False, shell_complete=complete_task)
@click.option("--raw", is_flag=True, help="The bytes of its output, in printable characters.")
@click.option("--tail", "tail_max", type=click.IntRange(0), metavar="N", help="Begin with the last N events or lines.")
@prints_json
def attach(ctx: click.Context, task: str | None, raw: bool, tail_max: int | None, as_json: bool) -> None:
    """Follow an agent: what it says, the tools it calls, and its turns, as they come.

    TASK is a task, or one of its attempts. It ends when the attempt does, and follows it over restarts of its runner.
    Leaving it with Ctrl-C stops nothing. It works with and without a run.
    """
    app = find_app(ctx)
    if task is None:
        _list(app, as_json)
        return
    found, attempt = _find(app, task)
    files = app.layout.attempt_files(attempt)
    with printing() as printer:
        new, tell = _reading(printer, files, raw, as_json)
        try:
            _follow(app, found, attempt, files, _Follower(printer, new, tell, tail_max))
        except KeyboardInterrupt:
            printer.flush()
            click.echo(f"\nLeft {plain(attempt)}; what works there goes on working.", err=True)


def _list(app: App, as_json: bool) -> None:
    view = app.read()
    found = at_work(view.layout, view.state.tasks.values())
    if as_json:
        print_json({"at_work": found})
        return
    if not found:
        click.echo("No agent is at work. `holdfast run` starts them; `holdfast status` tells how the tasks stand.")
        return
    rows = [(plain(each.task), *agent_cells(each, app.clock())) for each in found]
    print_table(("TASK", *AGENT_COLUMNS), rows)
    click.echo("Follow one with `holdfast attach TASK`.")


def _find(app: App, name: str) -> tuple[str, str]:
    """The task and the attempt that are meant."""
    tasks = app.read().state.tasks
    if name in tasks:
        attempt = tasks[name].attempt.id
        if not attempt:
            raise NeverAttempted(task=name, state=tasks[name].state)
        return name, attempt
    task = name.rpartition(".")[0]
    if task in tasks and app.layout.attempt(name).is_dir():
        return task, name
    raise TaskUnknown.among(name, tasks)


# -- following --------------------------------------------------------------------------------------------------------


class _Follower:
    """Tells what is new in an attempt's folder each time it is asked."""

    def __init__(self, printer: Printer, new: New, tell: Tell, tail_max: int | None) -> None:
        self._printer, self._new, self._print_record, self._tail_max = printer, new, tell, tail_max

    def step(self) -> None:
        new = list(self._new())
        if self._tail_max is not None:
            new, self._tail_max = new[len(new) - min(self._tail_max, len(new)) :], None
        for each in new:
            self._print_record(each)
        self._printer.flush()

    def say(self, text: str) -> None:
        """On standard error: it is not the agent's."""
        self._printer.flush()
        click.echo(plain(text), err=True)


def _reading(printer: Printer, files: Attempt, raw: bool, as_json: bool) -> tuple[New, Tell]:
    """Chooses what to follow, and in which form to print it."""
    if raw:
        return _Lines(files.output).new, lambda line: printer.text(line.removesuffix("\r"), "")
    new = Records(files).new
    if as_json:
        return new, lambda record: printer.line(msgspec.json.encode(record))
    return new, lambda record: _print_record(printer, record)


def _print_record(printer: Printer, record: dict[str, Any]) -> None:
    for line in lines(record):
        printer.text(line, "")


class _Lines:
    """The lines of the agent's output, as it wrote them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = 0
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode
        self._rest = ""

    def new(self) -> Iterator[str]:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._end)
                data = file.read()
        except FileNotFoundError:
            return
        self._end += len(data)
        *lines, self._rest = (self._rest + self._decode(data)).split("\n")
        yield from lines


def _follow(app: App, name: str, attempt: str, files: Attempt, follower: _Follower) -> None:
    """Follows until the attempt is over: its runner has ended, and no run continues it."""
    polls, start = 0, 0
    while True:
        ended = _over(app, name, attempt) if polls % LOOK_EVERY == 0 else None
        newest = attempt_folder.last_start(files)
        if start and newest > start:
            follower.say(f"{attempt} goes on, start {newest}")
        start = newest
        follower.step()
        if ended is not None:
            follower.say(ended)
        if ended is not None or not wait_for_reader(POLL_S):
            return
        polls += 1


def _over(app: App, name: str, attempt: str) -> str | None:
    """The reason why no more output comes; None while some may. Asked before the last read: so nothing is missed."""
    task: Task = app.read().state.tasks[name]
    if task.attempt.id != attempt:
        return f"{attempt} is over; the task goes on with {task.attempt.id}: `holdfast attach {name}`"
    files = app.layout.attempt_files(attempt)
    start = max(task.start.number, attempt_folder.last_start(files))
    intent = task.start.intent if start == task.start.number else ""
    seen = attempt_folder.liveness(files, start, intent)
    if seen in (Liveness.ALIVE, Liveness.HEADLESS):
        return None
    is_run = live_owner(app.layout.lock) is not None
    goes_on = task.state in _GOES_ON or (task.state is TaskState.OPEN and task.continues)
    if is_run and goes_on:
        return None
    ended = attempt_folder.read_exit(files, start, intent)
    how = f"{ended.ending}: {ended.detail}" if ended is not None else "nobody said how"
    told = f"{attempt} has ended ({how}); the task is {task.state}"
    return f"{told}, and nobody runs: `holdfast run` goes on with it" if goes_on and not is_run else told
