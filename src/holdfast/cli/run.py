"""`run` and `stop`: the loop in the foreground or in the background, and how it is ended."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.backlog.restore import put_back_config
from holdfast.cli.options import complete_task, find_app, linked_branch, print_json, prints_json
from holdfast.cli.tasks.add_edit import add_goal
from holdfast.clock import monotonic
from holdfast.domain.task import OVER, TaskState
from holdfast.domain.wording import plain
from holdfast.errors import (
    AgentsAlone,
    AgentsNotStopped,
    DetachFailed,
    GoalKept,
    ListenFailed,
    Locked,
    NoAgent,
    NobodyRuns,
    NotStopped,
    RunsAlready,
    RunStopped,
    TaskUnknown,
)
from holdfast.identity import is_stopped
from holdfast.orchestrator.wakeup import AGENTS, LEAVE, Signals
from holdfast.storage.journal.lock import Holder, in_words, live_owner, read_holder
from holdfast.storage.records.at_work import at_work

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.engine.context import Note, RunContext
    from holdfast.orchestrator.loop import Loop

TASKS_LEFT = 20
INTERRUPTED = 130


@click.command(
    epilog="""\b
Examples:
  holdfast run                          work until nothing is left to do
  holdfast run "fix the login page"     add one task and work on it
  holdfast run --stay                   and wait for more; `holdfast dashboard` shows it
  holdfast run --detach                 in the background; look with `holdfast status`"""
)
@click.argument("goal", required=False)
@click.option("--detach", is_flag=True, help="Run in the background.")
@click.option("--take-over", is_flag=True, help="End the run that has the data root now, and go on in its place.")
@click.option(
    "--only", multiple=True, metavar="TASK", shell_complete=complete_task,
    help="Start this task and no other; may be given again.",
)  # fmt: skip
@click.option("--max-agents", type=click.IntRange(1, 1000), help="Agents that work at the same time.")
@click.option("--stay", is_flag=True, help="Stay when nothing is left to do, and wait for more.")
@click.option("--plain", "is_plain", is_flag=True, help="Print lines, also on a terminal.")
@prints_json
def run(
    ctx: click.Context,
    goal: str | None,
    detach: bool,
    take_over: bool,
    only: tuple[str, ...],
    max_agents: int | None,
    stay: bool,
    is_plain: bool,
    as_json: bool,
) -> None:
    """Work on the tasks until nothing is left to do.

    Agents outlive this command: end it, kill it, start it again, and it goes on with those that still work;
    `holdfast stop --agents` ends them. Exit code 0 says that every task is closed, 20 that some are left
    or a landing is lost, and 130 that
    Ctrl-C ended it.
    """
    app = find_app(ctx, max_agents=max_agents)
    for path in put_back_config(app.layout):
        click.echo(f"{path} was gone with its folder, and is put back", err=True)
        app = find_app(ctx, max_agents=max_agents)
    from holdfast.cli.preflight import preflight

    try:
        remarks = preflight(app, with_goal=goal is not None)
    except NoAgent as error:
        if goal is None:
            raise
        raise GoalKept(task=add_goal(app, goal), missing=error.facts["missing"]) from error
    wanted = [*only, *([add_goal(app, goal)] if goal else [])]
    if goal and not take_over and (holder := live_owner(app.layout.lock)) is not None:
        click.echo(f"{wanted[-1]} is added; the run with pid {holder.pid} takes it in.")
        return
    if detach:
        if not take_over and (holder := live_owner(app.layout.lock)) is not None:
            raise RunsAlready(holder=in_words(app.layout.lock, holder))
        _detach(app, ctx, wanted)
        return
    from holdfast.cli.screen.live import view
    from holdfast.landing.lost_landings import settle_rewritten
    from holdfast.orchestrator.loop import Loop
    from holdfast.wiring import run_context

    # This one stays: what it has loaded so far is for good, and everything later is collected.
    gc.freeze()
    gc.enable()
    with view(as_json, is_plain) as shown, alone(app), run_context(app, shown.note, take_over=take_over) as context:
        if branch := linked_branch(Path.cwd()):
            shown.note(
                "", f"work lands on {context.branch.removeprefix('refs/heads/')}; you are in a worktree of {branch}"
            )
        for remark in remarks:
            context.remark(remark)
        for name in wanted:
            if name not in context.board.tasks:
                raise TaskUnknown.among(name, context.board.tasks)
        _note_permissions(app, context, shown.note, wanted)
        loop = Loop(context, only=wanted or None, show=shown.show, stays=stay)
        serves = server(context, loop, shown.note) if app.config.server.enabled else contextlib.nullcontext()
        with serves, stopping(loop) as asked:
            loop.run()
        asked_for = wanted or list(loop.board.tasks)
        left = [name for name in asked_for if loop.board.task(name).state not in OVER]
        if context.lost:
            # A person may have said meanwhile what has become of one.
            context.lost = settle_rewritten(app.repo, context.ledger, context.layout, shown.note)
        shown.end(loop, left)
        is_all = not left and not loop.board.problems and not context.lost
    ctx.exit(INTERRUPTED if asked.interrupted else 0 if is_all else TASKS_LEFT)


def _note_permissions(app: App, context: RunContext, note: Note, only: list[str]) -> None:
    """Prints, before an agent first works here, its name and what it may do without asking."""
    from holdfast.cli.preflight import about_permissions
    from holdfast.domain.routing import choose

    tasks = [
        task for name, task in context.board.tasks.items() if task.state is TaskState.OPEN and name in (only or [name])
    ]
    made = (context.board.files[task.id].definition for task in tasks if task.id in context.board.files)
    names = dict.fromkeys(choose(each, app.config).agent for each in made)
    for told in about_permissions(context.layout, app.config, context.agents, names):
        note("", told)


@contextlib.contextmanager
def server(
    context: RunContext, loop: Loop, note: Note, prepare: Callable[[RunContext], None] | None = None
) -> Iterator[None]:
    """Serves while the run lasts. A run that cannot serve works all the same, and says so; one that only serves, which
    has to `prepare` meanwhile, cannot do without."""
    from holdfast.mcp import endpoint
    from holdfast.mcp.extra import is_installed
    from holdfast.server.observability.tracing import missing
    from holdfast.server.serving import serving

    with contextlib.ExitStack() as stack:
        try:
            api = stack.enter_context(serving(context, loop, prepare=prepare, more=endpoint.routes))
            context.has_tools = context.config.mcp_tools and is_installed()
            context.ready_tools = endpoint.load
            note("", f"serving {api.url}; look with `holdfast dashboard`")
            if words := missing():
                note("", words)
        except ListenFailed as error:
            if prepare is not None:
                raise
            note("", str(error))
        yield


@contextlib.contextmanager
def alone(app: App) -> Iterator[None]:
    """Raises RunsAlready, which says what to type, where another process owns the data root."""
    try:
        yield
    except Locked as held:
        if type(held) is not Locked or held.path != app.layout.lock:
            raise
        raise RunsAlready(holder=held.holder) from held


class stopping:
    """While here, the first interrupt asks the loop to stop and leaves the agents at work; the second ends at once."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.interrupted = False

    def _asked(self, number: int, frame: Any) -> None:
        self.interrupted = self.interrupted or number == signal.SIGINT
        if self._loop.stopping:
            raise KeyboardInterrupt
        # Nothing is printed here: the signal may have come in the middle of a line.
        self._loop.stop(LEAVE)

    def __enter__(self) -> stopping:
        self._before = {each: signal.signal(each, self._asked) for each in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)


# -- in the background ------------------------------------------------------------------------------------------------


def _detach(app: App, ctx: click.Context, only: list[str]) -> None:
    from holdfast.storage.files import disk

    app.expect_initialised()
    log_path = app.layout.logs / "run.log"
    log = disk.open_log(log_path)
    root = ctx.find_root().obj
    argv = [sys.executable, "-m", "holdfast", *(["--data-root", root] if root else []), "run", "--plain"]
    argv += [word for name in only for word in ("--only", name)]
    argv += ["--stay"] if ctx.params["stay"] else []
    argv += ["--take-over"] if ctx.params["take_over"] else []
    argv += ["--max-agents", str(ctx.params["max_agents"])] if ctx.params["max_agents"] else []
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    os.close(log)
    while child.poll() is None:
        holder = read_holder(app.layout.lock)
        if holder is not None and holder.pid == child.pid:
            click.echo(f"Running in the background as pid {child.pid}; what it says is in {log_path}.")
            click.echo("Look with `holdfast watch`, follow an agent with `holdfast attach`, end with `holdfast stop`.")
            return
        time.sleep(0.02)
    said = log_path.read_text(errors="replace").strip().splitlines()[-1:]
    raise DetachFailed(path=log_path, code=child.returncode, said=said[0] if said else "nothing")


# -- stopping ---------------------------------------------------------------------------------------------------------


@click.command(epilog="Examples:  holdfast stop  ·  holdfast stop --agents  ·  holdfast stop fix-login")
@click.argument("tasks", nargs=-1, metavar="[TASK]...", shell_complete=complete_task)
@click.option("--agents", "agents_too", is_flag=True, help="End the agents that work, too; they can be continued.")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(0, 86400), default=60.0, show_default=True, metavar="SECONDS",
    help="How long to wait for the end.",
)  # fmt: skip
@prints_json
def stop(ctx: click.Context, tasks: tuple[str, ...], agents_too: bool, wait_s: float, as_json: bool) -> None:
    """End the run that works here, its agents, or the agents of some tasks.

    Without TASK the run ends, and its agents go on working unless you say --agents. Where no run is alive, --agents
    ends the agents that an earlier run left at work. The next run continues them.

    With TASK only the agents of these tasks end, and a run goes on with the rest. Such a task waits for
    `holdfast resume`.
    """
    app = find_app(ctx)
    app.expect_initialised()
    if tasks:
        from holdfast.cli.tasks.decisions import decide_and_tell

        decide_and_tell(ctx, "stop", as_json, tasks=list(tasks))
        return
    holder = live_owner(app.layout.lock)
    if holder is not None:
        _stop_run(app, holder, AGENTS if agents_too else LEAVE, wait_s)
        ended: dict[str, Any] = {"stopped": {"pid": holder.pid, "run": holder.run}}
        told = [f"Run {plain(holder.run)} (pid {holder.pid}) has ended."]
        if left := _left_at_work(app):
            ways = "`holdfast run` goes on with them, `holdfast stop --agents` ends them"
            told.append(f"Still at work: {', '.join(left)}. {ways}.")
    else:
        left = _left_at_work(app)
        if not left:
            raise NobodyRuns(path=app.layout.root)
        if not agents_too:
            raise AgentsAlone(path=app.layout.root, attempts=", ".join(left[:5]))
        ended, told = {"stopped": None, "agents": left}, _stop_agents(app, wait_s)
    if as_json:
        print_json(ended)
    else:
        click.echo("\n".join(map(plain, told)))


def _left_at_work(app: App) -> list[str]:
    return [each.attempt for each in at_work(app.layout, app.read().state.tasks.values()) if not each.ended]


def _stop_run(app: App, holder: Holder, how: str, wait_s: float) -> None:
    Signals(app.layout).ask_to_stop(holder.run, how)
    deadline = monotonic() + wait_s
    while holder.is_alive():
        if is_stopped(holder.pid):
            raise RunStopped(pid=holder.pid)
        if monotonic() >= deadline:
            raise NotStopped(pid=holder.pid, seconds=wait_s)
        time.sleep(0.02)


def _stop_agents(app: App, wait_s: float) -> list[str]:
    """Owns the data root until the agents that an earlier run left have ended, and journals what they said."""
    from holdfast.orchestrator.loop import Loop
    from holdfast.wiring import run_context

    told: list[str] = []
    note = lambda task, text: told.append(plain(f"{task}: {text}" if task else text))  # noqa: E731
    with alone(app), run_context(app, note) as context:
        loop = Loop(context, works=False)
        loop.stop(AGENTS)
        # Agents that do not end in time are left to the next run.
        timer = threading.Timer(wait_s, loop.stop, [LEAVE])
        timer.start()
        try:
            with stopping(loop):
                loop.run()
        finally:
            timer.cancel()
        if loop.at_work:
            raise AgentsNotStopped(attempts=", ".join(task.attempt.id for task in loop.at_work), seconds=wait_s)
    return [*told, "The agents have ended; `holdfast run` continues them."]
