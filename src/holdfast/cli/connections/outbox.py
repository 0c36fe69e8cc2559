"""`outbox`: the messages that have not left yet, and decisions about them."""

from __future__ import annotations

import click

from holdfast.cli.options import find_app, print_json, prints_json
from holdfast.cli.tasks.decisions import decide_and_tell
from holdfast.clock import wall
from holdfast.domain.wording import moment, plain, plural


@click.command(
    epilog="Examples:  holdfast outbox  ·  holdfast outbox --retry pr:fix-login:open  ·  "
    "holdfast outbox --drop notify:landed:000001-a:17"
)
@click.option("--retry", metavar="KEY", help="Send this message again at once.")
@click.option("--sent", metavar="KEY", help="Say that it has left, and need not be sent.")
@click.option("--drop", metavar="KEY", help="Give it up.")
@prints_json
def outbox(ctx: click.Context, retry: str | None, sent: str | None, drop: str | None, as_json: bool) -> None:
    """List the messages that have not left: pushes, pull requests, comments, notifications.

    Each is sent by a run, again and again until it has left. One is parked where its receiver refuses it, or where
    nobody can know whether it left; then a person decides. A message is never sent blindly twice.
    """
    asked = [(how, key) for how, key in (("retry", retry), ("sent", sent), ("dropped", drop)) if key is not None]
    if len(asked) > 1:
        raise click.UsageError("Say one of --retry, --sent and --drop.")
    if asked:
        decide_and_tell(ctx, "outbox", as_json, key=asked[0][1], how=asked[0][0])
        return
    from holdfast.views.connections.outbox import message_rows

    rows = message_rows(find_app(ctx).read().state, wall())
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo("Nothing waits to be sent.")
    for row in rows:
        about = f", about {row.task}" if row.task else ""
        tries = f", {plural(row.tries, 'try', 'tries')}" if row.tries else ""
        click.echo(plain(f"{row.key}  {row.channel}{about}, {row.state} since {moment(row.queued_at)}{tries}"))
        for line in filter(None, (row.why, row.next_step)):
            click.echo(plain(f"    {line}"))
