"""`plugins`: lists the installed plugins, and enables or disables one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.options import config_here, find_app, print_json, prints_json
from holdfast.domain.wording import plain
from holdfast.errors import InputError, NotInitialised, NotInRepository, PluginUnknown

if TYPE_CHECKING:
    from holdfast.views.plugins import PluginRow

ACTIONS = ("list", "show", "enable", "disable")
_COLUMNS = ("PLUGIN", "VERSION", "STATE", "HOOKS", "PROVIDES")


@click.command(
    epilog="""\b
Examples:
  holdfast plugins                      list them: used or not, and why not
  holdfast plugins show landings        one of them, with all that it implements and provides
  holdfast plugins enable landings      call its hooks again after it was set aside
  holdfast plugins disable landings     call its hooks no more
  holdfast plugins --json | jq '.plugins[].state'"""
)
@click.argument("action", type=click.Choice(ACTIONS), default="list")
@click.argument("name", default="")
@click.option("--reason", default="", metavar="WORDS", help="With `disable`: why, for the journal.")
@prints_json
def plugins(ctx: click.Context, action: str, name: str, reason: str, as_json: bool) -> None:
    """List the installed plugins, or enable or disable one.

    Plugins are Python packages that are installed beside Holdfast and run with your rights. `enable` and `disable` are
    journalled, and count for the hooks: a running `holdfast run` stops calling those of a disabled plugin at once, and
    the next one begins with those of an enabled plugin where they were. `plugins` in the settings says which are used
    at all.
    """
    if (action == "list") != (not name):
        raise InputError(detail=f"`holdfast plugins {action}` takes {'no name' if name else 'the name of a plugin'}")
    if action in ("enable", "disable"):
        _decide(ctx, action, name, reason, as_json=as_json)
        return
    rows = _rows(ctx)
    if action == "list":
        print_json({"plugins": rows}) if as_json else _print_list(rows)
        return
    found = next((row for row in rows if row.name == name), None)
    if found is None:
        raise PluginUnknown(plugin=repr(name), known=", ".join(row.name for row in rows) or "none")
    print_json(found) if as_json else _print_one(found)


def _rows(ctx: click.Context) -> list[PluginRow]:
    """Outside a repository there is no journal, so nothing is set aside."""
    from holdfast.views.plugins import plugin_rows

    try:
        app = find_app(ctx)
        app.expect_initialised()
        aside = app.read().state.connections.plugins_aside
    except (NotInRepository, NotInitialised):
        aside = {}
    return plugin_rows(config_here(ctx).plugins, aside)


def _decide(ctx: click.Context, action: str, name: str, reason: str, *, as_json: bool) -> None:
    from holdfast.short_runs import decide

    params = {"plugin": name, **({"reason": reason} if action == "disable" else {})}
    answer = decide(find_app(ctx), action, params, lambda line: click.echo(plain(line), err=True))
    if as_json:
        print_json(answer.facts)
    else:
        click.echo(plain(f"{name}: {answer.facts['note']}"))


def _print_list(rows: list[PluginRow]) -> None:
    from holdfast.cli.screen.table import print_table

    if not rows:
        click.echo("No plugins are installed. docs/plugins.md says how one is written.")
        return
    cells = [
        (
            row.name,
            row.version or "-",
            row.state,
            str(len(row.hooks)),
            ", ".join(each for names in row.provides.values() for each in names) or "-",
        )
        for row in rows
    ]
    print_table(_COLUMNS, [[plain(cell) for cell in line] for line in cells])
    for row in rows:
        if row.reason:
            click.echo(plain(f"{row.name} is {row.state}: {row.reason}"))


def _print_one(row: PluginRow) -> None:
    lines = [
        f"{row.name} {row.version}, of the package {row.package}, as {row.module}",
        f"{row.state}{f': {row.reason}' if row.reason else ''}",
        f"hooks: {', '.join(row.hooks) or 'none'}",
        *(f"{kind}: {', '.join(names)}" for kind, names in row.provides.items()),
    ]
    for line in lines:
        click.echo(plain(line))
