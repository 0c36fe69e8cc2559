"""`mcp`: the tools for a person's own agent session, over standard input and output."""

from __future__ import annotations

import gc
import os

import click

from holdfast.cli.options import find_app, print_json, prints_json


@click.command(
    epilog="""\b
Examples:
  claude mcp add holdfast -- holdfast mcp      give them to your Claude Code, in this repository
  codex mcp add holdfast -- holdfast mcp       and to your Codex
  holdfast mcp --print-config claude           what to write into .mcp.json instead"""
)
@click.option(
    "--print-config",
    "client",
    type=click.Choice(["claude", "codex"]),
    help="Print what to write into the settings of this client, and end.",
)
@prints_json
def mcp(ctx: click.Context, client: str | None, as_json: bool) -> None:
    """Serve Holdfast's tools to an agent session of your own, by the Model Context Protocol.

    It is started by the session, not by you: it speaks on standard input and output, about the repository that it is
    started in. With a run alive it asks that; otherwise it does what the commands do. Needs the extra `mcp`. The
    server of a run has the same tools at /mcp.
    """
    from holdfast.errors import ExtraMissing
    from holdfast.mcp import client_config
    from holdfast.mcp.extra import is_installed

    data_root = ctx.find_root().obj
    data_root = os.path.abspath(data_root) if data_root else None
    if client is not None:
        text = client_config.text(client, data_root)
        advice = client_config.advice(client, data_root)
        if as_json:
            print_json({"client": client, "text": text, "advice": advice})
        else:
            click.echo(text, nl=False)
            click.echo(advice, err=True)
        return
    if not is_installed():
        raise ExtraMissing(extra="mcp")
    # This one stays: what it has loaded so far is for good, and everything later is collected.
    gc.freeze()
    gc.enable()
    from holdfast.mcp.stdio import AgentSession, PersonSession, serve

    url, token = os.environ.get("HOLDFAST_URL", ""), os.environ.get("HOLDFAST_TOKEN", "")
    if url and token:
        serve(AgentSession(url, token), for_agent=True)
        return
    app = find_app(ctx)
    app.expect_initialised()
    cert = app.config.server.tls_cert or ""
    serve(PersonSession(app.layout, app.repo, data_root, cert), for_agent=False)
