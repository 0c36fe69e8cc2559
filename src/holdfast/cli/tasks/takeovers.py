"""`take` and `give-back`: a person talks to a task's agent in this terminal, in the agent's worktree."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import complete_task, find_app, prints_json
from holdfast.cli.tasks.decisions import decide_and_tell
from holdfast.domain.wording import plain

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.domain.attempt_records import Order

# How long the processes that the session left behind may take to end.
GRACE_S = 5.0
LOCK_WAIT_S = 10.0


@click.command(epilog="Examples:  holdfast take fix-login  ·  holdfast take fix-login --shell --park")
@click.argument("task", shell_complete=complete_task)
@click.option("--shell", is_flag=True, help="Open a shell in the worktree, and not the agent's own program.")
@click.option("--park", is_flag=True, help="When you leave, the task waits for `holdfast resume`.")
@prints_json
def take(ctx: click.Context, task: str, shell: bool, park: bool, as_json: bool) -> None:
    """Talk to a task's agent yourself: its own conversation, in its worktree, in this terminal.

    An agent at work is ended first, as `holdfast stop` does. Until you leave no run starts or lands the task. Then the
    worktree is saved as you left it, and the attempt goes on from there, in the same conversation. An agent whose
    program has no such mode, or no conversation, gives you a shell. It is confined as the agent is. If this terminal
    dies, the next run gives the task back, nothing is lost, and it waits for `holdfast resume`.
    """
    from holdfast import identity

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("It needs a terminal. `holdfast tell` gives a message to the agent from anywhere.")
    app, me = find_app(ctx), identity.current()
    process = {"pid": me.pid, "start_ticks": me.start_ticks, "boot_id": me.boot_id, "host": me.host}
    answer = decide_and_tell(ctx, "take", as_json, task=task, shell=shell, park=park, **process)
    try:
        order = _order(app, str(answer.facts["order"]))
        click.echo(plain(f"{order.attempt}: {' '.join(order.launch.argv)}, in {order.worktree}"), err=True)
        _session(app, order)
    finally:
        decide_and_tell(ctx, "give_back", as_json, task=task, park=park, pid=me.pid)


def _order(app: App, digest: str) -> Order:
    import msgspec

    from holdfast.domain.attempt_records import Order
    from holdfast.storage.records.blobs import Blobs

    return msgspec.json.decode(Blobs(app.layout.cas).get(digest), type=Order)


def _session(app: App, order: Order) -> None:
    """Runs the agent's program as its runner would: with the lock, the variables and the sandbox of a start."""
    from holdfast.agents.common import environment
    from holdfast.agents.runner.private_files import prepare, remove_secrets
    from holdfast.cli.screen.own_terminal import run_in_own_terminal
    from holdfast.errors import HoldfastError, SpawnFailed
    from holdfast.processes import sandbox, starts
    from holdfast.storage.files import disk
    from holdfast.storage.records import attempt_folder

    files = app.layout.attempt_files(order.attempt)
    environ = {**os.environ, **environment.handed(app.config.agents, os.environ)}
    os.environ.update(environ)
    starts.inherit_descendants()
    lock = attempt_folder.lock_alive(files, order.start, LOCK_WAIT_S)
    if lock is None:
        raise SpawnFailed(attempt=order.attempt, reason=f"something still holds {files.alive}")

    def end(pid: int) -> None:
        starts.end_processes(files, order.attempt, None, GRACE_S, descendants=True)

    try:
        argv = sandbox.wrapped(order, prepare(app.layout, files, order.launch), files)
        env = {**environment.of_agent(order, files, environ), **_terminal()}
        run_in_own_terminal(argv, order.worktree, env, [lock], end)
        end(0)
    except OSError as error:
        raise SpawnFailed(attempt=order.attempt, reason=error.strerror or str(error)) from error
    finally:
        try:
            remove_secrets(app.layout, files, order.launch)
        except HoldfastError as error:
            click.echo(plain(str(error)), err=True)
        disk.close_lock_file(lock, files.alive)


def _terminal() -> dict[str, str]:
    return {name: os.environ[name] for name in ("COLORTERM", "TERM_PROGRAM") if name in os.environ}


@click.command("give-back", epilog="Example:  holdfast give-back fix-login")
@click.argument("task", shell_complete=complete_task)
@click.option("--park", is_flag=True, help="The task waits for `holdfast resume`.")
@prints_json
def give_back(ctx: click.Context, task: str, park: bool, as_json: bool) -> None:
    """Give a task back that somebody has taken, with the worktree as it is.

    `holdfast take` does that by itself when the person leaves. When that process is gone, the next run does it, and the
    task waits for `holdfast resume`. This is for a task that was taken on another machine, or through the API. One that
    was taken with --park waits for `holdfast resume` in any case.
    """
    decide_and_tell(ctx, "give_back", as_json, task=task, park=park)
