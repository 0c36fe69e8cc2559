"""`turns`, `diff` and `snapshots`: what an attempt did, turn by turn. They look, and change no task."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.cli.options import complete_task, find_app, print_json, prints_json
from holdfast.cli.screen.table import print_table
from holdfast.domain.task_record import Task
from holdfast.domain.wording import money, plain, plural
from holdfast.errors import DecisionRefused, TaskUnknown

_NAME = click.argument("name", metavar="TASK|ATTEMPT", shell_complete=complete_task)
_COLUMNS = ("TURN", "TOOL", "FILES", "COST", "TOKENS", "SECONDS", "SNAPSHOT")
_SHORT = 12


class _Attempt(msgspec.Struct, frozen=True):
    app: Any
    task: Task
    id: str


@click.command(epilog="Examples:  holdfast turns fix-login  ·  holdfast turns fix-login.1 --json")
@_NAME
@prints_json
def turns(ctx: click.Context, name: str, as_json: bool) -> None:
    """List the turns of an attempt: what each did, and cost.

    Of a task, its last attempt is meant. A cost is reported by the agent, or estimated from its tokens. A turn's
    snapshot is a git commit in snapshots.git, under refs/attempts/.
    """
    from holdfast.engine.turn_follower import all_turns
    from holdfast.views.costs import cost_of_turns, spent_by

    attempt = _attempt(ctx, name)
    files = attempt.app.layout.attempt_files(attempt.id)
    lines, costs = all_turns(files), cost_of_turns(files)
    cost = [costs.get((line.start, line.turn), "") for line in lines]
    if as_json:
        facts = [{**msgspec.structs.asdict(line), "cost": word} for line, word in zip(lines, cost, strict=True)]
        print_json({"task": attempt.task.id, "attempt": attempt.id, "turns": facts})
        return
    rows = [
        (
            str(line.turn),
            line.tool,
            ", ".join(line.files) or "-",
            f"{money(line.usd)} ({word})" if line.usd and word else money(line.usd),
            f"{line.tokens:,}",
            f"{line.seconds:.1f}",
            line.snapshot[:_SHORT],
        )
        for line, word in zip(lines, cost, strict=True)
    ]
    if rows:
        # People and agents named the files: no control character reaches the terminal.
        print_table(_COLUMNS, [[plain(cell) for cell in row] for row in rows])
        usd, tokens = spent_by(files)
        if tokens > sum(line.tokens for line in lines):
            # A call of a tool ends a turn: what the agent says after the last one belongs to none.
            click.echo(f"In all {money(usd)} and {plural(tokens, 'token')}, with what came after the last turn.")
    else:
        click.echo(f"{attempt.id} has completed no turn yet.")


@click.command(
    epilog="Examples:  holdfast diff fix-login  ·  holdfast diff fix-login --turn 3  ·  "
    "holdfast diff fix-login --turn 1 --to 4 --stat  ·  holdfast diff fix-login --since-review  ·  "
    "holdfast diff fix-login --turn 3 | git apply -R"
)
@_NAME
@click.option("--turn", type=click.IntRange(min=1), metavar="N", help="Only what this turn changed.")
@click.option("--to", "to_turn", type=click.IntRange(min=1), metavar="M", help="From the end of turn N to that of M.")
@click.option("--since-review", is_flag=True, help="Only what has changed since your last review.")
@click.option("--stat", is_flag=True, help="Only which files, and how much.")
@prints_json
def diff(
    ctx: click.Context,
    name: str,
    turn: int | None,
    to_turn: int | None,
    since_review: bool,
    stat: bool,
    as_json: bool,
) -> None:
    """Show the whole change as it would land, what a turn changed, or what changed between two turns.

    The whole change is the attempt's candidate, or its last snapshot, merged with the newest target; files in which the
    two conflict are shown with the markers. Of a task that has landed, it is what landed. A turn is compared with the
    tree as it stood when the turn began. --since-review compares what you reviewed last with the newest result, both
    merged onto the same target. The output is a patch that `git apply` takes. In a terminal it has colours, and a long
    one goes to your $PAGER.
    """
    from holdfast.views.diffs import Diffs

    if turn is None and to_turn is not None:
        raise click.UsageError("--to goes with --turn: from the end of which turn?")
    if since_review and turn is not None:
        raise click.UsageError("Say one of --turn and --since-review.")
    attempt = _attempt(ctx, name)
    diffs = Diffs(attempt.app.repo, attempt.app.layout, attempt.task, attempt.id, attempt.app.reader())
    more: dict[str, Any] = {}
    if since_review:
        old, new = _since_review(attempt)
    elif turn is None:
        change = diffs.as_landed(attempt.app.config)
        old, new, conflicts = change.old, change.new, change.conflicts
        more = {"conflicts": conflicts, "landed": change.landed}
        if conflicts:
            told = f"It conflicts with the newest target in {', '.join(conflicts[:5])}: the markers are in the diff."
            click.echo(plain(told), err=True)
    else:
        new = diffs.after(turn if to_turn is None else to_turn)
        old = diffs.before(turn) if to_turn is None else diffs.after(turn)
    if as_json:
        patch = "" if stat else diffs.patch(old, new).decode(errors="backslashreplace")
        files = diffs.counts(old, new)
        facts = {"task": attempt.task.id, "attempt": attempt.id, "from": old, "to": new, "files": files, **more}
        print_json(facts if stat else {**facts, "patch": patch})
        return
    _print_raw(diffs.patch(old, new, *(["--stat"] if stat else [])))


@click.group(
    epilog="Examples:  holdfast snapshots list fix-login --json  ·  holdfast snapshots export fix-login --turn 3 then/"
)
def snapshots() -> None:
    """List or export the snapshots of an attempt.

    \b
    holdfast snapshots list TASK|ATTEMPT [--json]
    holdfast snapshots export TASK|ATTEMPT --turn N FOLDER [--json]

    They are `turn-<n>`, `start-<n>` and `end-<n>` of each start, `orphan-<n>` as found after a crash, `undo-<n>` as it
    was before an undo, and `taken-<n>` as it was when a person gave the task back. Each is a git commit under
    refs/attempts/ in snapshots.git of the data root, which git itself can show, too.
    """


@snapshots.command("list", epilog="Example:  holdfast snapshots list fix-login")
@_NAME
@prints_json
def list_snapshots(ctx: click.Context, name: str, as_json: bool) -> None:
    """List the snapshots of an attempt."""
    from holdfast.snapshots.snapshots import reference
    from holdfast.snapshots.store import Store
    from holdfast.worktrees.attempt_commits import snapshots_of

    attempt = _attempt(ctx, name)
    found = snapshots_of(Store.of(attempt.app.layout.snapshots, attempt.app.repo), attempt.id)
    rows = [{"name": each, "commit": commit, "ref": reference(attempt.id, each)} for each, commit in found.items()]
    if as_json:
        print_json({"task": attempt.task.id, "attempt": attempt.id, "snapshots": rows})
    elif rows:
        print_table(("NAME", "COMMIT", "REF"), [[row["name"], row["commit"][:_SHORT], row["ref"]] for row in rows])
    else:
        click.echo(f"{attempt.id} has no snapshot yet.")


@snapshots.command(epilog="Example:  holdfast snapshots export fix-login --turn 3 /tmp/then")
@_NAME
@click.option("--turn", type=click.IntRange(min=1), required=True, metavar="N", help="Which turn.")
@click.argument("folder", type=click.Path(path_type=Path))
@prints_json
def export(ctx: click.Context, name: str, turn: int, folder: Path, as_json: bool) -> None:
    """Write the tree as a turn left it into a folder.

    The folder must be new or empty. It appears whole or not at all.
    """
    from holdfast.snapshots.snapshots import WorktreeSnapshots
    from holdfast.worktrees.attempt_commits import snapshot_of

    attempt = _attempt(ctx, name)
    commit = snapshot_of(attempt.app.reader(), attempt.id, turn)
    # The task's own worktree may be gone: any of the repository will do.
    private = attempt.app.layout.inside("cache", "snapshots", ".export")
    WorktreeSnapshots(attempt.app.repo, private, attempt.app.layout.snapshots).export(commit, folder)
    if as_json:
        print_json({"attempt": attempt.id, "turn": turn, "commit": commit, "folder": str(folder.absolute())})
    else:
        click.echo(f"{attempt.id} as turn {turn} left it is in {folder}")


# -- which attempt, and what git says ---------------------------------------------------------------------------------


def _attempt(ctx: click.Context, name: str) -> _Attempt:
    from holdfast.worktrees.attempt_commits import attempt_named

    app = find_app(ctx)
    state = app.read().state
    found = attempt_named(state, name)
    if found is None:
        raise TaskUnknown.among(name, state.tasks)
    task, attempt = found
    if not attempt:
        hint = "`holdfast run` begins with it."
        raise DecisionRefused(task=task.id, verb="looked into", reason="nobody has worked on it yet", hint=hint)
    return _Attempt(app, task, attempt)


def _since_review(attempt: _Attempt) -> tuple[str, str]:
    from holdfast import identity
    from holdfast.views.reviews import Reviews

    app = attempt.app
    return Reviews(app.repo, app.layout, attempt.task, app.reader(), identity.user()).pair("since")


def _print_raw(text: bytes) -> None:
    """To a pipe the bytes as they are; to a terminal nothing that it would obey, in colours, by pages if it is long."""
    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(text)
        return
    if not text:
        return
    from holdfast.cli.screen.patch import coloured

    shown = coloured(text.decode(errors="backslashreplace").removesuffix("\n"))
    if shown.count("\n") < shutil.get_terminal_size().lines - 1:
        click.echo(shown)
        return
    # Without it, less would show the colours as letters.
    os.environ.setdefault("LESS", "FRX")
    click.echo_via_pager(f"{shown}\n", color=True)
