"""`hooks`: the commands that made a task's worktrees ready, how each came out, and what it printed."""

from __future__ import annotations

import click
import msgspec

from holdfast.cli.options import complete_task, find_app, print_json, prints_json
from holdfast.domain.wording import moment, plain, plain_lines
from holdfast.errors import BlobCorrupt, BlobMissing, NotABlobId, TaskUnknown
from holdfast.storage.records.blobs import Blobs
from holdfast.views.hook_runs import HookRow, rows
from holdfast.worktrees.attempt_commits import attempt_named

_WORDS = {"passed": "passed", "failed": "FAILED", "timed_out": "TIMED OUT"}


@click.command(epilog="Examples:  holdfast hooks fix-login  ·  holdfast hooks fix-login.1 --full | less")
@click.argument("task", metavar="TASK|ATTEMPT", shell_complete=complete_task)
@click.option("--full", is_flag=True, help="All that each command printed, in place of the last lines of a failed one.")
@prints_json
def hooks(ctx: click.Context, task: str, full: bool, as_json: bool) -> None:
    """Show the setup and the other hooks of a task's worktrees: result, time, and what they printed.

    They are set in the section `worktree` of config/settings.yaml. Takes no lock and changes nothing.
    """
    app = find_app(ctx)
    app.expect_initialised()
    view = app.read()
    known = attempt_named(view.state, task)
    if known is None:
        raise TaskUnknown.among(task, view.state.tasks)
    blobs = Blobs(view.layout.cas)
    found = rows(view.layout, blobs, known[0], "" if task in view.state.tasks else known[1])
    if as_json:
        shown = [msgspec.structs.replace(each, lines=_output(blobs, each)) if full else each for each in found]
        print_json({"task": known[0].id, "hooks": msgspec.to_builtins(shown)})
        return
    if not found:
        click.echo(plain(f"No hook has run for {task}."))
    for each in found:
        where = "gates' worktree" if each.is_gates else "worktree"
        how = f"{each.seconds:.1f} s" + (f", code {each.code}" if each.code else "")
        head = f"{moment(each.at)}  {each.attempt}  {each.hook}  {where}  {_WORDS[each.outcome]}  {how}  {each.command}"
        click.echo(plain(head))
        for line in _output(blobs, each) if full else each.lines:
            click.echo(f"      {plain_lines(line)}".rstrip())


def _output(blobs: Blobs, row: HookRow) -> list[str]:
    try:
        return blobs.get(row.output).decode(errors="replace").splitlines() if row.output else []
    except (BlobMissing, BlobCorrupt, NotABlobId) as error:
        return [f"({error})"]
