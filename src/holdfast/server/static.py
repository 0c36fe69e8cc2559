"""The dashboard's files, as they are in the package: nothing is fetched from elsewhere, and nothing else may run."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.server.access.host_check import Guard
from holdfast.server.problems import Problem

WEB = Path(__file__).parent / "web"
PAGES = {"/": "index.html", "/docs": "docs.html"}
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


def static_routes(guard: Guard) -> list[BaseRoute]:
    async def file(request: Request) -> Response:
        guard.check_name(request)
        name = PAGES.get(request.url.path) or request.path_params["name"]
        path = WEB / name
        if "/" in name or path.suffix not in TYPES or not path.is_file():
            raise Problem(404, "no_such_path", "There is no such file. The dashboard is at /.")
        return Response(path.read_bytes(), media_type=TYPES[path.suffix], headers=HEADERS)

    return [Route(path, file) for path in (*PAGES, "/web/{name}")]
