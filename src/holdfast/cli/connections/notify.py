"""`notify`: the rules by which people are told, and a try of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import find_app, print_json, prints_json
from holdfast.clock import wall
from holdfast.domain.wording import plain
from holdfast.errors import HoldfastError, NotifyRuleUnknown

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.config.notify import NotifyRule

NOT_SENT = 1


@click.command(epilog="Examples:  holdfast notify list  ·  holdfast notify test  ·  holdfast notify test phone --json")
@click.argument("action", type=click.Choice(["list", "test"]), default="list")
@click.argument("rule", required=False)
@prints_json
def notify(ctx: click.Context, action: str, rule: str | None, as_json: bool) -> None:
    """List the rules of the setting `notify`, or send a test notification now.

    `holdfast notify test` asks each service itself, at once, without the outbox and whatever the hour, and says what
    happened. No address is printed. The exit code is 1 where one was not sent.
    """
    app = find_app(ctx)
    rules = [each for each in app.config.notify if rule in (None, each.name)]
    if rule is not None and not rules:
        names = ", ".join(each.name for each in app.config.notify)
        raise NotifyRuleUnknown(rule=rule, known=f"known are {names}" if names else "there is none yet")
    rows = [_tried(app, each, ref) if action == "test" else _listed(each, ref) for each in rules for ref in each.to]
    if as_json:
        print_json(rows)
    else:
        _print(rows, action)
    ctx.exit(NOT_SENT if any(not row.get("sent", True) for row in rows) else 0)


def _print(rows: list[dict[str, Any]], action: str) -> None:
    if not rows:
        click.echo("There is no rule in the setting `notify`: nobody is notified. See docs/notifications.md.")
    for row in rows:
        if action == "test":
            told = f"sent by {row['service']}" if row["sent"] else f"not sent: {row['why']}"
        else:
            told = ", ".join(filter(None, (f"on {' '.join(row['on'])}", row["when"], f"repeat {row['repeat']}")))
        click.echo(plain(f"{row['rule']}  {row['to']}  {told}"))


def _listed(rule: NotifyRule, ref: str) -> dict[str, Any]:
    quiet = f"quiet {rule.quiet}" + (f" {rule.time_zone}" if rule.time_zone else "") if rule.quiet else ""
    digest = f"digest every {rule.digest_s:g} s" if rule.digest_s is not None else ""
    only = [f"label {each}" for each in rule.labels] + [f"role {each}" for each in rule.roles]
    when = ", ".join(filter(None, (quiet, digest, *only)))
    return {"rule": rule.name, "to": ref, "on": list(rule.on), "when": when, "repeat": rule.repeat}


def _tried(app: App, rule: NotifyRule, ref: str) -> dict[str, Any]:
    from holdfast.domain.messages.outbox_records import Outgoing
    from holdfast.integrations.notify.apprise_publisher import notification_publishers
    from holdfast.integrations.notify.rules import ONCE

    content = {
        "rule": rule.name,
        "kind": "test",
        "title": f"{app.repo.name}: a test of the rule {rule.name}",
        "body": "This is a test notification. Nothing has happened.",
        "place": "#/board",
        "to": ref,
    }
    message = Outgoing(key=f"notify:{rule.name}:test", channel=ONCE, content=content, queued_at=wall(), tries=1)
    try:
        done = notification_publishers(app.repo, app.layout, app.config.page_url)[ONCE].send(message)
    except HoldfastError as error:
        # Without the advice about the outbox, in which it is not.
        why = str(error.facts.get("reason", error))
        return {"rule": rule.name, "to": ref, "sent": False, "why": why}
    return {"rule": rule.name, "to": ref, "sent": True, "service": done["service"]}
