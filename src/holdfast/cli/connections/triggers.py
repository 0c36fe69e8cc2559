"""`triggers`: the rules for what arrives from elsewhere, what has arrived, and what would follow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import find_app, print_json, prints_json
from holdfast.cli.tasks.decisions import decide_and_tell
from holdfast.domain.wording import moment, plain, plural

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.integrations.triggers.event import TriggerEvent
    from holdfast.integrations.triggers.trigger_file import TriggerConfig

ACTIONS = ("list", "test", "history", "replay", "enable")
_NEEDS = {"test": "a file with a payload", "replay": "a delivery", "enable": "a rule"}
PAYLOAD_BYTES_MAX = 25 << 20


@click.command(
    epilog="Examples:  holdfast triggers list  ·  holdfast triggers test payload.json --event issues  ·  "
    "holdfast triggers history  ·  holdfast triggers replay github:72d3162e-cc78-11e3-81ab-4c9367dc0958  ·  "
    "holdfast triggers enable fix-issues"
)
@click.argument("action", type=click.Choice(ACTIONS), default="list")
@click.argument("what", default="")
@click.option("--source", metavar="NAME", help="Of `test`: the source that the payload is from.")
@click.option("--event", metavar="NAME", help="Of `test`: the event that the service names in a header.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, help="Of `history`: how many deliveries.")
@prints_json
def triggers(
    ctx: click.Context, action: str, what: str, source: str | None, event: str | None, limit: int, as_json: bool
) -> None:
    """Rules for what arrives from elsewhere: `list` them; `test` one payload, which changes nothing and says why each
    other rule would not fire; the `history` of deliveries; `replay` one, which asks the rules of now; `enable` a rule
    that was set aside.

    The rules are in config/triggers.yaml of the data root; see docs/triggers.md.
    """
    if action in _NEEDS and not what:
        raise click.UsageError(f"`holdfast triggers {action}` needs {_NEEDS[action]}.")
    match action:
        case "list":
            _list(find_app(ctx), as_json)
        case "test":
            _test(find_app(ctx), Path(what), source or "", event or "", as_json=as_json)
        case "history":
            _history(find_app(ctx), limit, as_json)
        case "replay":
            answer = decide_and_tell(ctx, "replay", as_json, delivery=what)
            if not as_json and not answer.tasks:
                click.echo(plain(f"{what}: no task. {_why(answer.facts)}"))
        case "enable":
            decide_and_tell(ctx, "rearm", as_json, rule=what)
            if not as_json:
                click.echo(plain(f"{what} fires again."))


def _why(facts: dict[str, object]) -> str:
    outcomes = facts.get("outcomes")
    listed = outcomes if isinstance(outcomes, list) else []
    said = [f"{each['rule']}: {each['reason']}" for each in listed if each.get("reason")]
    return "; ".join(said) or str(facts.get("own") or "") or "No rule asks for one."


def _list(app: App, as_json: bool) -> None:
    from holdfast.integrations.triggers.trigger_file import read
    from holdfast.views.connections.triggers import rule_rows, source_rows

    view, config = app.read(), read(app.layout.triggers)
    sources, rules = source_rows(config), rule_rows(config, view.state.connections.triggers, app.clock())
    if as_json:
        print_json({"sources": sources, "rules": rules, "unjudged": list(view.state.connections.triggers.unjudged)})
        return
    if not sources:
        click.echo(plain(f"No triggers: {app.layout.triggers} has no sources. docs/triggers.md shows how to begin."))
    for source in sources:
        click.echo(plain(f"source {source.name}  {source.type}" + (f", POST {source.path}" if source.path else "")))
    for rule in rules:
        fired = f"fired {plural(rule.fired, 'time')} within an hour" + (
            f", last {moment(rule.last)}" if rule.last else ""
        )
        click.echo(plain(f"rule {rule.name}  on {rule.source} {' '.join(rule.kinds)}, {fired}"))
        if rule.held:
            click.echo(plain(f"    {rule.held}"))


def _test(app: App, path: Path, source: str, event: str, *, as_json: bool) -> None:
    from holdfast.integrations.triggers.trigger_file import read
    from holdfast.views.connections.triggers import verdicts

    config = read(app.layout.triggers, app.config.pull_requests.branch_prefix)
    found = _event(config, path, source, event)
    told = verdicts(config, found, app.read().state.connections.triggers, app.clock())
    if as_json:
        shown = {name: getattr(found, name) for name in found.__struct_fields__ if name not in ("payload", "marks")}
        print_json({"event": shown, "rules": told})
        return
    click.echo(plain(f"{found.source} {found.kind} by {found.actor or 'nobody'}: {found.title}"))
    for each in told:
        if not each.fires:
            click.echo(plain(f"  {each.rule}: no, {each.reason}"))
            continue
        click.echo(plain(f"  {each.rule}: yes, under the key {each.key}, this task:"))
        for name, value in each.task.items():
            lines = str(value).rstrip("\n").split("\n")
            click.echo(plain(f"      {name}: {lines[0]}"))
            for line in lines[1:]:
                click.echo(plain(f"        {line}"))


def _event(config: TriggerConfig, path: Path, source: str, event: str) -> TriggerEvent:
    import hashlib

    from holdfast.errors import InputError
    from holdfast.integrations.triggers.event import Delivery

    try:
        with path.open("rb") as file:
            body = file.read(PAYLOAD_BYTES_MAX)
    except OSError as error:
        raise InputError(detail=f"{path} cannot be read: {error.strerror}") from None
    heard = [name for name, each in config.sources.items() if each.hears]
    if not source and len(heard) != 1:
        raise InputError(detail=f"say with --source which source it is from: {', '.join(heard) or 'there is none'}")
    name = source or heard[0]
    if name not in config.sources:
        raise InputError(detail=f"there is no source {name!r} in {config.path}")
    headers = {header: event for header in ("x-github-event", "x-event") if event}
    return config.sources[name].normalise(Delivery(headers, body, hashlib.sha256(body).hexdigest()))


def _history(app: App, limit: int, as_json: bool) -> None:
    from holdfast.views.connections.triggers import delivery_rows

    app.expect_initialised()
    rows = delivery_rows(app.reader(), (1 << 60, 1 << 60), limit)
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo("Nothing has arrived.")
    for row in rows:
        click.echo(plain(f"{moment(row.at)}  {row.delivery}  {row.kind} by {row.actor or 'nobody'}: {row.title[:60]}"))
        said = [f"{each.rule}: {each.task or 'no task'}" + (f", {each.reason}" if each.reason else "")
                for each in row.outcomes]  # fmt: skip
        if not row.judged:
            said.append("not judged yet: the next run does it")
        elif row.own:
            said.append(f"fired nothing: {row.own}")
        for line in said or ["no rule matched"]:
            click.echo(plain(f"    {line}"))
