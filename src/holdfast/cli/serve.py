"""`serve`: the API and the dashboard, without working on tasks; `dashboard`: where to look at them."""

from __future__ import annotations

import gc
from typing import Any

import click

from holdfast.cli.options import find_app, print_json, prints_json
from holdfast.errors import NobodyServes


@click.command(epilog="Example:  holdfast serve --port 8080")
@click.option("--host", help="Address to listen on; beyond loopback only with TLS.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0: the last one, or any.")
@click.option("--tls-cert", metavar="FILE", help="The certificate to serve with.")
@click.option("--tls-key", metavar="FILE", help="Its key.")
@click.option("--plain-beyond-loopback", is_flag=True, default=None, help="Listen beyond loopback without TLS.")
@click.option("--take-over", is_flag=True, help="End the run that has the data root now, and serve in its place.")
@prints_json
def serve(ctx: click.Context, /, take_over: bool, as_json: bool, **given: Any) -> None:
    """Serve the API and the dashboard, and start no agents.

    Agents that work already are followed, and what people decide is carried out; `holdfast run` serves, too, and works.
    """
    app = find_app(ctx, **{f"server.{name}": value for name, value in given.items()})
    from holdfast.cli.run import alone, server, stopping
    from holdfast.cli.screen.live import view
    from holdfast.orchestrator.loop import Loop
    from holdfast.wiring import prepare, run_context

    gc.freeze()
    gc.enable()
    with (
        view(as_json, is_plain=True) as shown,
        alone(app),
        run_context(app, shown.note, take_over=take_over, later=True) as context,
    ):
        loop = Loop(context, show=shown.show, stays=True, works=False)
        with server(context, loop, shown.note, prepare), stopping(loop):
            loop.run()


@click.command(epilog="Example:  holdfast dashboard --open")
@click.option("--open", "opens", is_flag=True, help="Open it in your browser.")
@prints_json
def dashboard(ctx: click.Context, opens: bool, as_json: bool) -> None:
    """Print the address of the dashboard, with the token that lets you in."""
    app = find_app(ctx)
    app.expect_initialised()
    from holdfast.server.serving import make_page, read_address

    address = read_address(app.layout)
    if address is None:
        raise NobodyServes(path=app.layout.root)
    url = f"{address.url}/#token={address.token}"
    if as_json:
        print_json({"url": address.url, "token": address.token, "reader_token": address.reader_token})
    else:
        click.echo(url)
    if opens:
        import webbrowser

        page = make_page(app.layout, address).as_uri()
        if click.launch(page) != 0 and not webbrowser.open(page):
            click.echo("holdfast: no browser could be started here; open the address yourself", err=True)
