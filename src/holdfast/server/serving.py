"""The server beside the loop: a thread with its own event loop, from the first request to the last answer."""

from __future__ import annotations

import asyncio
import contextlib
import html
import logging
import socket
import ssl
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from starlette.routing import BaseRoute

from holdfast import __version__
from holdfast import identity as process
from holdfast.engine.context import RunContext
from holdfast.errors import CertificateUnusable, ListenFailed, ListenRefused
from holdfast.layout import Layout
from holdfast.orchestrator.loop import Loop
from holdfast.ports import Observer
from holdfast.server import app as asgi
from holdfast.server.access.host_check import ANYWHERE, LOOPBACK
from holdfast.server.api_state import Api
from holdfast.server.connections import connection_type, most_connections
from holdfast.server.observability.logs import Level
from holdfast.server.observability.tracing import tracer
from holdfast.server.routes import all_operations
from holdfast.server.static import static_routes
from holdfast.storage.files import disk
from holdfast.storage.files.json_file import read_json

if TYPE_CHECKING:
    from holdfast.config.sections import Server

DRAIN_S = 5.0
SWITCH_S = 0.0005
BACKLOG = 1024


class Address(msgspec.Struct, frozen=True):
    """`runtime/secret/server.json`: where the server is, and the tokens that its own user may use."""

    url: str
    token: str
    reader_token: str
    process: process.Identity


def read_address(layout: Layout) -> Address | None:
    """The address of this data root's server; None where none is alive."""
    found = read_json(layout.server, Address)
    return found if found is not None and found.process.is_alive() else None


def make_page(layout: Layout, address: Address) -> Path:
    """A page for this user alone that leads on to the dashboard with its token in it: other users of the machine see
    with which arguments a browser is started. It is there as long as the token."""
    url = html.escape(f"{address.url}/#token={address.token}")
    content = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={url}">\n'
    content += f'<title>Holdfast</title><a href="{url}">To the dashboard</a>\n'
    disk.replace(layout.server_page, content.encode(), 0o600)
    return layout.server_page


@contextlib.contextmanager
def serving(
    context: RunContext,
    loop: Loop,
    *,
    prepare: Callable[[RunContext], None] | None = None,
    more: Callable[[Api], list[BaseRoute]] = lambda api: [],
) -> Iterator[Api]:
    """Serves while here. On the way out what was asked is answered, and followers are let go.

    `prepare`: takes in files and recovers while it serves already; what cannot be answered before that waits.
    `more`: routes beside those of the API and the dashboard.
    """
    settings = context.config.server
    # Agents and open pages know the port that there was.
    last_port = read_json(context.layout.server_port, int) or 0
    listening = listen(settings, last_port if 0 < last_port < 65536 else 0)
    api = Api(context, loop)
    traces = tracer(context.layout, context.ledger, api.logs)
    position = context.ledger.position
    api.feed.begin(position.run, position.seq)
    observers: list[Observer] = [api.metrics, api.feed, *([traces] if traces is not None else [])]
    for observer in observers:
        context.ledger.observe(observer)
    context.ledger.on_append = api.metrics.appended
    port = listening.getsockname()[1]
    url = _url(settings, port)
    api.url = url
    context.serves = True
    context.spawn.agent_variables = lambda attempt: _agent_variables(api, url, attempt)
    server = ServerThread(api, listening, settings, more(api))
    # From the last to the first, whatever fails on the way: a thread that still serves would outlive its interpreter.
    with contextlib.ExitStack() as ending:
        ending.callback(api.logs.close)
        ending.callback(api.logs.write, "server_stopped", run=context.ledger.run)
        if traces is not None:
            ending.callback(traces.close)
        for observer in observers:
            ending.callback(context.ledger.stop_observing, observer)
        # Once nobody asks any more, in the loop's thread: it takes no work now.
        ending.callback(api.denied.end, context.auditor.record)
        ending.callback(server.stop)
        ending.callback(api.feed.close)
        ending.callback(api.end)
        server.start()
        _announce(api, url, port)
        for path in (context.layout.server, context.layout.server_page):
            ending.callback(disk.unlink, path, missing_ok=True)
        if prepare is not None:
            prepare(context)
        api.prepared.set_result(True)
        api.metrics.count_recovery()
        yield api


def _announce(api: Api, url: str, port: int) -> None:
    context, settings = api.context, api.config.server
    address = Address(url, api.tokens.of_role("operator"), api.tokens.of_role("reader"), process.current())
    disk.replace(context.layout.server_port, msgspec.json.encode(port))
    disk.replace(context.layout.server, msgspec.json.encode(address), 0o600)
    if settings.host in ANYWHERE and not settings.names:
        context.note("", "it answers to 127.0.0.1 and localhost; name what others ask by in `server.names`")
    api.put_on_record("server_started", {"url": url})
    api.logs.write("server_started", url=url, run=context.ledger.run, version=__version__)


def _url(settings: Server, port: int) -> str:
    """The URL for this machine; where the server listens on all addresses, with its given name, or loopback's."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    if name != settings.host and settings.tls_cert and settings.names:
        name = settings.names[0]
    return f"{'https' if settings.tls_cert else 'http'}://{f'[{name}]' if ':' in name else name}:{port}"


def _agent_variables(api: Api, url: str, attempt: str) -> dict[str, str]:
    """The variables by which an agent reaches us: the URL, and a token for its own task only."""
    task = api.tasks[attempt.rpartition(".")[0]]
    # We are in the loop's thread: it is on record before anybody has it.
    api.context.auditor.record("token_issued", {"role": "agent", "task": task.id, "attempt": attempt})
    return {"HOLDFAST_URL": url, "HOLDFAST_TOKEN": api.tokens.of_agent(attempt, task.claim.number)}


def listen(settings: Server, last_port: int) -> socket.socket:
    """A socket that listens where the settings say. Beyond loopback only with TLS, or with `plain_beyond_loopback`."""
    if settings.host not in LOOPBACK and not settings.tls_cert and not settings.plain_beyond_loopback:
        raise ListenRefused(host=settings.host)
    if settings.tls_cert:
        cert, key = settings.tls_cert, settings.tls_key
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            raise CertificateUnusable(cert=cert, key=key, reason=error.strerror or str(error)) from error
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    ports = [settings.port] if settings.port else [last_port, 0]
    for number, port in enumerate(ports):
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((settings.host, port))
            made.listen(BACKLOG)
            return made
        except OSError as error:
            made.close()
            if number == len(ports) - 1:
                raise ListenFailed(host=settings.host, port=port, reason=error.strerror or str(error)) from error
    raise AssertionError("unreachable")


class _Words(logging.Handler):
    """Writes what the libraries under the API report to the log, not to the terminal of `run`."""

    def __init__(self, api: Api) -> None:
        super().__init__(logging.WARNING)
        self._api = api

    def emit(self, record: logging.LogRecord) -> None:
        level: Level = "error" if record.levelno >= logging.ERROR else "warning"
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        self._api.logs.write("library", level, name=record.name, words=record.getMessage(), trace=trace[-900:])


def _run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Runs on uvloop where the extra `speed` brought it: faster, and 14 MB to install."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


class ServerThread:
    def __init__(self, api: Api, listening: socket.socket, settings: Server, more: list[BaseRoute]) -> None:
        self._api = api
        self._socket = listening
        app = asgi.build(api, all_operations(), [*static_routes(api.guard), *more])
        config = uvicorn.Config(
            app,
            loop="none",
            http=connection_type(most_connections(settings.followers_max)),
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=int(DRAIN_S),
            timeout_keep_alive=30,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            ssl_version=ssl.PROTOCOL_TLS_SERVER,
        )
        for name in ("uvicorn", "asyncio", "mcp"):
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [_Words(api)], False
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)
        self._ready = threading.Event()

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(DRAIN_S + 2)

    def _run(self) -> None:
        # Three threads share the interpreter, and each sync lets it go: at the usual 5 ms, a thread that comes back
        # from the disk would wait longer for its turn than for the disk.
        sys.setswitchinterval(SWITCH_S)

        async def main() -> None:
            self._api.feed.bind(asyncio.get_running_loop())
            asyncio.get_running_loop().call_soon(self._ready.set)
            await self._server.serve(sockets=[self._socket])

        _run_loop(main())
