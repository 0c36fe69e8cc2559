"""`agents`: lists the agents, and whether each can work here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.options import config_here, print_json, prints_json
from holdfast.domain.wording import plain

if TYPE_CHECKING:
    from holdfast.agents.survey import Facts
    from holdfast.config.settings import Config

_COLUMNS = ("AGENT", "INSTALLED", "VERSION", "SIGNED IN", "RESUMES", "COST", "MCP", "PERMISSIONS")
_PRICE_COLUMNS = ("MODEL", "INPUT", "CACHED", "CACHE WRITTEN", "OUTPUT", "AS OF")
WAIT_S = 10.0


@click.command(
    epilog="Examples:  holdfast agents  ·  holdfast agents --prices  ·  holdfast agents --json | jq '.agents'"
)
@click.option("--prices", "show_prices", is_flag=True, help="What models cost, as estimates take it.")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(min=0, max=600), default=WAIT_S, metavar="SECONDS", show_default=True,
    help="How long a program may take to say its version; 0: none is asked.",
)  # fmt: skip
@prints_json
def agents(ctx: click.Context, show_prices: bool, wait_s: float, as_json: bool) -> None:
    """List the agents: installed or not, signed in or not, and what each can do.

    No model is asked, and nothing goes over the network: its files and variables show whether one is signed in.
    Those of the settings are listed, too; outside a repository there are none. A missing one is listed with the way to
    install it. PERMISSIONS is what it may do without asking: `permissions` in the settings' `agents`.
    """
    from holdfast.agents import registry
    from holdfast.agents.survey import survey
    from holdfast.processes import sandbox

    config = config_here(ctx)
    if show_prices:
        _show_prices(config, as_json)
        return
    declared = {each.name for each in config.agents if each.command or each.acp}
    found = survey(registry.agents(config), declared, wait_s=wait_s)
    if as_json:
        print_json({"agents": found})
    else:
        _print_agents(found, is_confined=sandbox.resolved(config.sandbox) != "none")


def _print_agents(found: list[Facts], *, is_confined: bool) -> None:
    from holdfast.cli.preflight import permission_sentence
    from holdfast.cli.screen.table import print_table

    print_table(_COLUMNS, [[plain(cell) for cell in _cells(each)] for each in found])
    for each in found:
        if not each.path:
            way = each.install or "install what the settings' `agents` name, or write where it is"
            click.echo(plain(f"{each.name} is not installed: {way}"))
        elif each.signed_in is False:
            click.echo(plain(f"{each.name} is not signed in: {each.sign_in}"))
        if each.tried:
            click.echo(plain(f"{each.name} is newer than {each.tried}, the newest that was tried with Holdfast."))
    for each in found:
        if each.path and each.permission is not None:
            click.echo(plain(permission_sentence(each.name, each.permission, is_confined=is_confined)))


def _cells(facts: Facts) -> tuple[str, ...]:
    signed_in = {True: "yes", False: "no", None: "unknown"}[facts.signed_in]
    return (
        facts.name + (" (settings)" if facts.declared else ""),
        facts.path or "no",
        facts.version or "-",
        signed_in if facts.path else "-",
        "yes" if facts.can.resume else "no",
        facts.can.cost or "-",
        "yes" if facts.can.mcp else "no",
        facts.permission.mode if facts.permission is not None else "-",
    )


# -- prices -----------------------------------------------------------------------------------------------------------


class _Row(msgspec.Struct, frozen=True):
    """Dollars for a million tokens."""

    model: str
    input: float
    cached: float
    cache_written: float
    output: float
    as_of: str


def _show_prices(config: Config, as_json: bool) -> None:
    from holdfast.agents.common.prices import AS_OF, PRICES
    from holdfast.cli.screen.table import print_table

    own = {name: price.per_million for name, price in config.prices.items()}
    table = {**PRICES, **own}
    rows = [_Row(name, *table[name], "settings" if name in own else AS_OF) for name in sorted(table)]
    if as_json:
        print_json({"as_of": AS_OF, "prices": rows})
        return
    cells = [
        [
            plain(row.model),
            *(f"{price:g}" for price in (row.input, row.cached, row.cache_written, row.output)),
            row.as_of,
        ]
        for row in rows
    ]
    print_table(_PRICE_COLUMNS, cells)
    click.echo(
        f"US dollars for a million tokens, as of {AS_OF}. A date or a version at the end of a model's name "
        "makes no difference; `prices` in the settings come first, by the beginning of the name."
    )
