"""The dashboard's files, as they are in the package: nothing is fetched from elsewhere, and nothing else may run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.server.access.host_check import Guard
from holdfast.server.problems import Problem

WEB = Path(__file__).parent / "web"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Only our own files: what an agent or a task says is never markup, and could not run if it were.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


async def page(request: Request) -> Response:
    return _file("index.html")


async def docs(request: Request) -> Response:
    return _file("docs.html")


async def file(request: Request) -> Response:
    return _file(request.path_params["name"])


def _file(name: str) -> Response:
    path = WEB / name
    if "/" in name or path.suffix not in TYPES or not path.is_file():
        raise Problem(404, "no_such_path", "There is no such file. The dashboard is at /.")
    return Response(path.read_bytes(), media_type=TYPES[path.suffix], headers=HEADERS)


def static_routes(guard: Guard) -> list[BaseRoute]:
    def guarded(function: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            guard.check_name(request)
            return await function(request)

        return endpoint

    return [Route(path, guarded(each)) for path, each in (("/", page), ("/docs", docs), ("/web/{name}", file))]
