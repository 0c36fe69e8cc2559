"""`status`: the whole backlog on a few lines."""

from __future__ import annotations

from collections import Counter

import click

from holdfast.cli.overview import look, tell_problems
from holdfast.cli.shared import as_json, find_app, print_json
from holdfast.durable.lock import read_holder


@click.command(epilog="Example:  holdfast status --json | jq .ready")
@as_json
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Tell how many tasks there are in each state, what is ready, what waits for you, and who runs.

    Takes no lock and changes nothing.
    """
    overview = look(find_app(ctx))
    view, rows = overview.view, overview.rows.values()
    holder = read_holder(view.layout.lock)
    owner = f"pid {holder.pid}, run {holder.run}" if holder is not None and holder.is_alive() else ""
    parked = [row.id for row in rows if row.parked]
    facts = {
        "states": dict(sorted(Counter(str(row.state) for row in rows).items())),
        "ready": [row.id for row in rows if row.is_ready],
        "parked": parked,
        "new": sum(row.new for row in rows),
        "owner": owner,
        "open_intents": len(view.found.pairing.open_intents()),
        "torn": len(view.found.torn),
        "problems": len(overview.problems),
    }
    if as_json:
        print_json(facts)
        return
    tell_problems(view.layout, overview.problems)
    for state, count in Counter(str(row.state) for row in rows).most_common():
        click.echo(f"{state:21} {count:>6}")
    click.echo(f"{'ready':21} {sum(row.is_ready for row in rows):>6}")
    click.echo(f"{'owner':21} {owner or 'nobody: no run is alive'}")
    for name in parked:
        click.echo(f"{name} waits for you: `holdfast show {name}`, then `holdfast resolve {name} …`")
