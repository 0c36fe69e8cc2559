"""Which names the server answers to: a page that a foreign name leads here (DNS rebinding), or a form on a foreign page
(CSRF), is refused before anything is read."""

from __future__ import annotations

from collections.abc import Collection

from starlette.requests import Request

from holdfast.server.problems import Problem

LOOPBACK = ("127.0.0.1", "localhost", "::1")
# To listen on all addresses: nobody asks by these.
ANYWHERE = ("0.0.0.0", "::")


class Guard:
    """`names` are host names without a port."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = {*LOOPBACK, *(name.lower() for name in names)} - {*ANYWHERE}

    def check(self, request: Request) -> None:
        self.check_name(request)
        host = request.headers.get("host", "")
        origin = request.headers.get("origin")
        if origin is not None and origin != f"{request.url.scheme}://{host}":
            detail = "The request comes from a page of another origin. Nothing was changed."
            raise Problem(403, "origin_foreign", detail)
        if origin is None and request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Problem(403, "origin_foreign", "The request comes from a page of another site. Nothing was changed.")

    def check_name(self, request: Request) -> None:
        """Checks the host only: a link from anywhere may lead to a page."""
        host = request.headers.get("host", "").lower()
        # `[::1]:80` is `::1`, `localhost:80` is `localhost`.
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if name not in self._names:
            detail = "This server does not answer to the name in the Host header. Ask by 127.0.0.1, localhost or the "
            detail += "address that it listens on; other names belong into the setting `server.names`."
            raise Problem(421, "host_unknown", detail)
