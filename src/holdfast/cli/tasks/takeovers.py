"""`take` and `give-back`: a person talks to a task's agent in this terminal, in the agent's worktree."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
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
# A shell ends with the code of its last command. With these it was ended from outside, and nobody has left it.
_ENDED = {128 + number for number in (signal.SIGHUP, signal.SIGKILL, signal.SIGTERM)}


@click.command(epilog="Examples:  holdfast take fix-login  ·  holdfast take fix-login --shell --done")
@click.argument("task", shell_complete=complete_task)
@click.option("--shell", is_flag=True, help="Open a shell in the worktree, and not the agent's own program.")
@click.option("--park", is_flag=True, help="When you leave, the task waits for `holdfast resume`.")
@click.option("--done", is_flag=True, help="When you leave, the work is finished: it is verified, and lands.")
@prints_json
def take(ctx: click.Context, task: str, shell: bool, park: bool, done: bool, as_json: bool) -> None:
    """Talk to a task's agent yourself: its own conversation, in its worktree, in this terminal.

    An agent at work is ended first, as `holdfast stop` does. Until you leave no run starts or lands the task. Then the
    worktree is saved as you left it, and the attempt goes on from there, in the same conversation. An agent whose
    program has no such mode, or no conversation, gives you a shell: $SHELL, or else /bin/sh. It is confined as the
    agent is, and has the variables and ports of the worktree, which nobody else gets meanwhile. If this terminal dies,
    also with --done, the next run gives the task back, nothing is lost, and it waits for `holdfast resume`.
    """
    from holdfast import identity

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("It needs a terminal. `holdfast tell` gives a message to the agent from anywhere.")
    if park and done:
        raise click.UsageError("--park and --done say two things: choose one.")
    app, me = find_app(ctx), identity.current()
    process = {"pid": me.pid, "start_ticks": me.start_ticks, "boot_id": me.boot_id, "host": me.host}
    answer = decide_and_tell(ctx, "take", as_json, task=task, shell=shell, park=park, **process)
    has_left = False
    try:
        has_left = _run_session(app, _order(app, str(answer.facts["order"])))
    finally:
        if done and not has_left:
            told = f"{task}: the session was cut short, so the work is not taken as finished"
            click.echo(plain(f"{told}; `holdfast give-back {task} --done` says that it is"), err=True)
        # Only a person who has left says that it is finished.
        how = {"park": park or (done and not has_left), "done": done and has_left}
        decide_and_tell(ctx, "give_back", as_json, task=task, pid=me.pid, **how)


def _order(app: App, digest: str) -> Order:
    import msgspec

    from holdfast.domain.attempt_records import Order
    from holdfast.engine.starting.orders import shell
    from holdfast.storage.records.blobs import Blobs

    order = msgspec.json.decode(Blobs(app.layout.cas).get(digest), type=Order)
    # A run that has decided has an environment of its own: the shell is that of this terminal.
    return order if order.launch.uses_model else msgspec.structs.replace(order, launch=shell())


def _run_session(app: App, order: Order) -> bool:
    """Holds the ports of the worktree during the session. Returns whether the person has left it by themselves."""
    from pathlib import Path

    import msgspec

    from holdfast.preparation.preparation import leased

    with leased(app.config.worktree, Path(order.worktree)) as prepared:
        click.echo(plain(f"{order.attempt}: {' '.join(order.launch.argv)}, in {order.worktree}"), err=True)
        order = msgspec.structs.replace(order, variables=prepared.variables)
        code = _session(app, order, prepared.descriptors)
    return code >= 0 and (code not in _ENDED if not order.launch.uses_model else code == 0)


def _session(app: App, order: Order, leases: Sequence[int]) -> int:
    """Runs the agent's program as its runner would: with the lock, the variables and the sandbox of a start. Returns
    its exit code; -1 where it was ended because this process was asked to end."""
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

    asked: list[int] = []

    def end(pid: int) -> None:
        asked.append(pid)
        starts.end_processes(files, order.attempt, None, GRACE_S, descendants=True)

    try:
        argv = sandbox.wrapped(order, prepare(app.layout, files, order.launch), files)
        env = {**environment.of_agent(order, files, environ), **_terminal()}
        code = run_in_own_terminal(argv, order.worktree, env, [lock, *leases], end)
        has_ended_itself = not asked
        end(0)
        return code if has_ended_itself else -1
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


@click.command("give-back", epilog="Examples:  holdfast give-back fix-login  ·  holdfast give-back fix-login --done")
@click.argument("task", shell_complete=complete_task)
@click.option("--park", is_flag=True, help="The task waits for `holdfast resume`.")
@click.option("--done", is_flag=True, help="The work is finished: it is verified, and lands.")
@prints_json
def give_back(ctx: click.Context, task: str, park: bool, done: bool, as_json: bool) -> None:
    """Give a task back that somebody has taken, with the worktree as it is.

    `holdfast take` does that by itself when the person leaves. When that process is gone, the next run does it, and the
    task waits for `holdfast resume`. This is for a task that was taken on another machine, or through the API. One that
    was taken with --park waits for `holdfast resume` in any case.

    With --done the worktree as it is becomes what the attempt has made, and goes to the gates as if the agent had said
    that it is done; also of a task that was given back before and waits for `holdfast resume`. What cannot land, such
    as a repository inside, is refused, and the task waits.
    """
    if park and done:
        raise click.UsageError("--park and --done say two things: choose one.")
    decide_and_tell(ctx, "give_back", as_json, task=task, park=park, done=done)
