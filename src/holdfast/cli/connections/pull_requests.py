"""`pr`: the pull requests of tasks, and decisions about them."""

from __future__ import annotations

import click

from holdfast.cli.options import complete_task, find_app, print_json, prints_json
from holdfast.cli.tasks.decisions import decide_and_tell
from holdfast.domain.wording import plain, plural
from holdfast.errors import InputError


@click.command(
    epilog="Examples:  holdfast pr  ·  holdfast pr fix-login  ·  holdfast pr fix-login --refresh  ·  "
    "holdfast pr fix-login --rounds 8"
)
@click.argument("task", default="", shell_complete=complete_task)
@click.option("--refresh", "how", flag_value="refresh", help="Look at it now: a run does, or this command.")
@click.option("--close", "how", flag_value="close", help="Close it there, without a merge.")
@click.option("--merge", "how", flag_value="merge", help="Merge it there, where pull_requests.merge allows that.")
@click.option("--open", "how", flag_value="open", help="Open another for one that was closed.")
@click.option(
    "--rounds", type=click.IntRange(min=0, max=1000), metavar="N", help="Allow so many rounds of changes in all."
)
@prints_json
def pr(ctx: click.Context, task: str, how: str | None, rounds: int | None, as_json: bool) -> None:
    """Show the pull requests of tasks, and steer them.

    With `land: pull_request` the result of a task is pushed to a branch of its own, and a pull request is opened for
    it. Comments of people who may write to the repository, and failed checks, go back to its agent; once it is merged,
    the task is closed. Whatever is asked here is sent by a run.
    """
    if how and rounds is not None:
        raise click.UsageError("Say one of --refresh, --close, --merge, --open and --rounds.")
    if (how or rounds is not None) and not task:
        raise click.UsageError("Name the task whose pull request it is.")
    if how or rounds is not None:
        decide_and_tell(ctx, "pr", as_json, task=task, how=how or "rounds", rounds=rounds or 0)
        return
    from holdfast.views.connections.pull_requests import pull_rows

    app = find_app(ctx)
    state = app.read().state
    if task and task not in state.tasks:
        raise InputError(detail=f"there is no task {task!r}; `holdfast list` shows them")
    rows = pull_rows(state, app.config.pull_requests.rounds_max, only=task)
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo(f"{task} has no pull request." if task else "No task waits for a pull request.")
    for row in rows:
        name = f"#{row.number}" if row.number else "not opened yet"
        checks = f", checks {row.checks}" if row.checks else ""
        told = f"{row.task}  {name}, {row.state or 'new'}{checks}  {row.branch} → {row.base}  {row.url}".rstrip()
        click.echo(plain(told))
        taken = f"{plural(row.rounds, 'round')} of {row.rounds_max}, {plural(row.comments, 'comment')} taken up"
        merged = f"merged as {row.merged[:12]}" if row.merged else ""
        for line in filter(None, (taken, merged, row.waits and f"waits: {row.waits}", row.next_step)):
            click.echo(plain(f"    {line}"))
