"""`init` and `list`: they change no task."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence

import click

from holdfast.app import App
from holdfast.cli.options import find_app, print_json, prints_json
from holdfast.cli.screen.table import echo_wrapped, print_table
from holdfast.cli.tasks.add_checks import GATE_WAYS
from holdfast.domain.task import OVER, TaskState
from holdfast.domain.wording import plain
from holdfast.views.rows import Overview, Row, print_problems, read_overview, without_agent

_COLUMNS = ("ID", "STATE", "PRIO", "TRIES", "AGENT", "TITLE")
# What a narrow terminal does without, in this order.
_DROPPED = ("AGENT", "PRIO", "TRIES")
# A person decides what becomes of it.
_DECIDED = (TaskState.FAILED, TaskState.PENDING_APPROVAL)


@click.command(epilog="Example:  cd my-repository && holdfast init")
@prints_json
def init(ctx: click.Context, as_json: bool) -> None:
    """Make the data root of this repository.

    It holds the backlog, the settings and the journal. Repeating it changes nothing that is there.
    """
    app = find_app(ctx)
    is_new = not app.layout.format_file.exists()
    created = app.init()
    if as_json:
        print_json({"root": str(app.layout.root), "new": is_new, "created": [str(path) for path in created]})
        return
    click.echo(f"{'Made' if is_new else 'There is already'} the data root {app.layout.root}")
    for path in created:
        click.echo(f"  made {path.relative_to(app.layout.root)}")
    if not app.config.gates:
        click.echo(f"note: no gate is set, and what agents make lands unchecked. {GATE_WAYS}", err=True)
    click.echo('Next: `holdfast add "…" --verify "…"` adds a task, `holdfast list` shows all.')


def _states(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> list[TaskState]:
    """The states named by options such as `open,failed`."""
    found = []
    for word in (word.strip() for text in given for word in text.split(",")):
        try:
            found.append(TaskState(word.upper().replace("-", "_").replace(" ", "_")))
        except ValueError:
            known = ", ".join(state.lower() for state in TaskState)
            raise click.BadParameter(f"{word!r} is no state; known are {known}.", ctx, param) from None
    return found


@click.command(
    "list", epilog="Examples:  holdfast list --ready  ·  holdfast list --state open,failed --label api --json"
)
@click.option(
    "--state", "states", multiple=True, metavar="STATE,…", callback=_states,
    help="Only tasks in these states, such as open,failed.",
)  # fmt: skip
@click.option("--label", "labels", multiple=True, help="Only tasks with this label; may be given several times.")
@click.option("--ready", is_flag=True, help="Only what can be worked on now, in the order in which it is taken.")
@click.option("--all", "every", is_flag=True, help="Also those that are closed or cancelled.")
@prints_json
def list_tasks(
    ctx: click.Context, states: Sequence[TaskState], labels: Sequence[str], ready: bool, every: bool, as_json: bool
) -> None:
    """List the tasks with their states, by priority, and within one in the order of adding.

    Closed and cancelled tasks are listed with --all, with --state, and with --json. "(new)" marks a file that the
    journal does not know yet; the next run takes it in. "(asks)": its agent waits for your answer, also where it waits
    as a process. Files that cannot be used are named on standard error, and stop
    no other task.
    """
    app = find_app(ctx)
    overview = read_overview(app)
    held = _held(app, overview)
    rows = [
        row
        for row in overview.rows.values()
        if (not states or row.state in states)
        and (not labels or set(labels) & set(row.labels))
        and (not ready or row.is_ready)
    ]
    # They stand in the order in which they were added; files that are new come last.
    rows.sort(key=lambda row: row.priority)
    if as_json:
        print_json({"tasks": rows, "problems": overview.problems, "held": held})
    else:
        shown = rows if every or states else [row for row in rows if row.state not in OVER or row.lost]
        _print_rows(shown, len(rows) - len(shown), held, is_empty=not overview.rows)
        if len(shown) < len(rows):
            hidden = Counter(f"{row.state}" for row in rows if row.state in OVER and not row.lost)
            words = ", ".join(f"{count} {state}" for state, count in hidden.items())
            click.echo(f"{words}: `holdfast list --all` shows {'it' if hidden.total() == 1 else 'them'}.")
    print_problems(overview.view.layout, overview.problems)


def _held(app: App, overview: Overview) -> dict[str, str]:
    """The tasks that are ready, and that a run does not start now, each with the reason."""
    ready = [name for name, row in overview.rows.items() if row.is_ready]
    short = ""
    if overview.owner is not None and ready:
        from holdfast.views.host import host_row

        tasks = overview.view.state.tasks.values()
        short = host_row(app.config, tasks, app.clock(), overview.owner.pid, folder=app.layout.root).short
    return {**(dict.fromkeys(ready, short) if short else {}), **without_agent(app, overview)}


# -- a table ----------------------------------------------------------------------------------------------------------


def _print_rows(rows: Sequence[Row], hidden: int, held: Mapping[str, str], *, is_empty: bool) -> None:
    if rows:
        notes = [_note(row, held.get(row.id, "")) for row in rows]
        print_table(_COLUMNS, [_cells(row) for row in rows], notes=notes, drop=_DROPPED)
        if sys.stdout.isatty() and any(row.state in _DECIDED or row.parked for row in rows):
            echo_wrapped("", "`holdfast status` says what to type for those that wait for you.")
    elif is_empty:
        click.echo('There are no tasks yet; `holdfast add "…"` makes one.')
    elif not hidden:
        click.echo("No task fits.")


def _note(row: Row, why: str) -> str:
    """The reasons why it is not worked on. `why`: why one that is ready is not started."""
    asks = f"its result {row.asks}" if row.asks else ""
    lost = f"{row.lost}: {row.next_step}" if row.lost else ""
    last = f"its last try: {row.last_try}" if row.last_try else ""
    return plain("; ".join([*row.waits, *filter(None, (row.reason, asks, lost, last, why))]))


def _cells(row: Row) -> list[str]:
    state = f"{row.state} (new)" if row.new else f"{row.state} (asks)" if row.is_asking else f"{row.state}"
    cells = [row.id, state, str(row.priority), str(row.attempts), row.agent, row.title]
    # People and agents wrote some of these: no control character reaches the terminal.
    return [plain(cell) for cell in cells]
