"""`status`: the whole backlog on a few lines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import find_app, print_json, prints_json
from holdfast.cli.screen.table import echo_wrapped
from holdfast.clock import wall
from holdfast.domain.task import TaskState
from holdfast.domain.wording import moment, money, plain
from holdfast.errors import HoldfastError
from holdfast.preparation import disk_use
from holdfast.storage.records.at_work import AtWork, at_work, clock
from holdfast.views.connections.outbox import message_rows, outbox_words
from holdfast.views.host import host_row
from holdfast.views.rows import Row, print_problems, read_overview

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.engine.outages import OutageRow
    from holdfast.views.connections.sources import SourceRow

SHOWN_MAX = 10
_ASKS = {TaskState.FAILED, TaskState.PENDING_APPROVAL}


@click.command(epilog="Example:  holdfast status --json | jq .ready")
@prints_json
def status(ctx: click.Context, as_json: bool) -> None:
    """Tell how many tasks there are in each state, which agents are at work, what waits and why, and what runs.

    Takes no lock and changes nothing.
    """
    app = find_app(ctx)
    overview = read_overview(app)
    view, rows = overview.view, list(overview.rows.values())
    runs = overview.owner
    agents = [each for each in at_work(view.layout, view.state.tasks.values()) if not each.asks]
    outages: list[OutageRow] = []
    if view.state.outages:
        from holdfast.engine.outages import rows as outage_rows

        outages = outage_rows(view.state, app.config, wall())
    states = Counter(str(row.state) for row in rows)
    locks = _left_locks(app.repo)
    host = host_row(
        app.config, view.state.tasks.values(), wall(), runs.pid if runs else "self", folder=view.layout.root
    )
    disk = disk_use.measure(view.layout, app.config.disk_free_min)
    if as_json:
        facts: dict[str, Any] = {
            "states": dict(sorted(states.items())),
            "ready": [row.id for row in rows if row.is_ready],
            "parked": [row.id for row in rows if row.parked],
            "new": sum(row.new for row in rows),
            "owner": f"pid {runs.pid}, run {runs.run}" if runs else "",
            "runs": {"pid": runs.pid, "run": runs.run, "since": runs.since} if runs else None,
            "at_work": agents,
            "judging": [{"task": row.id, "what": row.judging} for row in rows if row.judging],
            "outages": outages,
            "host": host,
            "disk": disk,
            "waiting": [{"task": row.id, "why": row.waits, "next": row.next_step} for row in rows if row.waits],
            "lost": [{"task": row.id, "why": row.lost, "next": row.next_step} for row in rows if row.lost],
            "asking": sorted(view.state.asking),
            "outbox": message_rows(view.state, wall()),
            "sources": _sources(app),
            "locks": [str(lock) for lock in locks],
            "open_intents": len(view.found.pairing.open_intents()),
            "torn": len(view.found.torn),
            "problems": len(overview.problems),
        }
        print_json(facts)
        return
    print_problems(view.layout, overview.problems)
    for state, count in Counter(row.state for row in rows).most_common():
        click.echo(f"{state:21} {count:>6}")
    click.echo(f"{'ready':21} {sum(row.is_ready for row in rows):>6}")
    if asking := sum(row.is_asking for row in rows):
        click.echo(f"{'waiting for an answer':21} {asking:>6}")
    owner = f"pid {runs.pid}, run {plain(runs.run)}, since {moment(runs.since)}" if runs else "nobody: no run is alive"
    click.echo(f"{'owner':21} {owner}")
    click.echo(f"{'host':21} {host.words}")
    click.echo(f"{'disk':21} {disk.words}")
    if host.short and runs and any(row.is_ready for row in rows):
        echo_wrapped(f"{'held':21} ", plain(host.short))
    if told := outbox_words(message_rows(view.state, wall())):
        click.echo(f"{'outbox':21} {told}")
    for line in _source_lines(app):
        click.echo(plain(f"{'tracker':21} {line}"))
    for each in outages:
        click.echo(plain(f"{'outage':21} {each.text}"))
    _print_locks(locks)
    _print_agents(agents, runs is not None)
    _print_judging(rows, runs is not None)
    _print_waiting(rows)
    _print_asking(rows)


def _sources(app: App) -> list[SourceRow]:
    """The issue trackers; what reads them is loaded only where there are any."""
    if not app.config.sources:
        return []
    from holdfast.views.connections.sources import source_rows

    return source_rows(app.config, app.layout)


def _source_lines(app: App) -> list[str]:
    rows = _sources(app)
    if not rows:
        return []
    from holdfast.views.connections.sources import source_words

    return [source_words(row, wall()) for row in rows]


def _print_agents(agents: list[AtWork], is_run: bool) -> None:
    if not agents:
        return
    ended = [each for each in agents if each.ended]
    agents = [each for each in agents if not each.ended]
    if ended:
        click.echo("\nended" + ("" if is_run else "; the next `holdfast run` takes the results"))
    for each in ended[:SHOWN_MAX]:
        click.echo(plain(f"  {each.attempt}  {each.agent}")[:200])
    _print_more(len(ended), "holdfast list")
    if agents:
        alone = "; no run is alive: `holdfast run` goes on with them, `holdfast stop --agents` ends them"
        click.echo("\nat work" + ("" if is_run else alone))
    now = wall()
    for each in agents[:SHOWN_MAX]:
        spent, lasted = money(each.usd), clock(now - each.since)
        told = f"  {each.attempt}  {each.agent}  turn {each.turn}  {spent}  {lasted}  {each.tool}"
        if each.retrying:
            told += f"  does not reach its model, and tries again: {each.retrying}"
        click.echo(plain(told.rstrip())[:200])
    _print_more(len(agents), "holdfast attach")


def _print_judging(rows: list[Row], is_run: bool) -> None:
    judged = [row for row in rows if row.judging]
    if judged:
        click.echo(
            "\nbeing judged" + ("" if is_run else " when the run died; the next `holdfast run` judges them again")
        )
    for row in judged[:SHOWN_MAX]:
        click.echo(plain(f"  {row.id}  {row.judging}"))
    _print_more(len(judged), "holdfast list")


def _print_waiting(rows: list[Row]) -> None:
    waiting = [row for row in rows if row.waits and not row.parked]
    if waiting:
        click.echo("\nwaiting")
    for row in waiting[:SHOWN_MAX]:
        echo_wrapped("  ", plain(f"{row.id}: {'; '.join(row.waits)}"))
    _print_more(len(waiting), "holdfast list")


def _print_asking(rows: list[Row]) -> None:
    asking = [row for row in rows if row.parked or row.is_asking or row.landing_waits or row.lost or row.state in _ASKS]
    if asking:
        click.echo("\nfor you to decide")
    for row in asking[:SHOWN_MAX]:
        why = f" ({row.parked})" if row.parked else f" ({row.waits[-1]})" if row.landing_waits else ""
        why = f": {row.reason}" if row.reason else f", and {row.lost}" if row.lost else why
        how = "waits for you" if row.parked else "waits for your answer" if row.is_asking else f"is {row.state}"
        echo_wrapped("  ", plain(f"{row.id} {how}{why}"))
        echo_wrapped("    next: ", plain(row.next_step))
    _print_more(len(asking), "holdfast list")


def _print_more(count: int, command: str) -> None:
    if count > SHOWN_MAX:
        click.echo(f"  and {count - SHOWN_MAX} more: `{command}`")


def _left_locks(repo: Path) -> list[Path]:
    """Locks with which a run that died keeps the user's git from committing."""
    from holdfast.git import lock_files

    try:
        return lock_files.left_on_indexes(repo)
    except (HoldfastError, OSError):
        return []


def _print_locks(locks: list[Path]) -> None:
    if not locks:
        return
    from holdfast.landing.refresh import left_words

    for lock in locks:
        echo_wrapped(f"{'locked':21} ", plain(left_words(lock)))
        echo_wrapped("    next: ", "holdfast run")
