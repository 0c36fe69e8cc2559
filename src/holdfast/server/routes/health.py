"""The health of the server."""

from __future__ import annotations

import msgspec

from holdfast import __version__
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, Operation, Raw
from holdfast.server.problems import Problem


class Health(msgspec.Struct, frozen=True):
    ok: bool
    version: str


def live(api: Api, ask: Ask) -> Health:
    return Health(True, __version__)


def ready(api: Api, ask: Ask) -> Health:
    if api.loop.stopping:
        raise Problem(503, "stopping", "This server is ending.")
    if not api.prepared.done():
        raise Problem(503, "preparing", "This server reads the files of the tasks. Ask again in a moment.")
    return Health(True, __version__)


def metrics(api: Api, ask: Ask) -> Raw:
    return Raw(api.metrics.render(), "text/plain; version=0.0.4; charset=utf-8")


OPERATIONS = [
    Operation("GET", "/health/live", "live", "Whether the process answers.", live, answer=Health, right="public",
              tag="health"),
    Operation("GET", "/health/ready", "ready", "Whether it knows all tasks and takes changes.", ready, answer=Health,
              right="public", tag="health", problems=(503,)),
    Operation("GET", "/metrics", "metrics", "For Prometheus.", metrics, answer=str, right="read", lane="aside",
              tag="health", media_type="text/plain", early=True),
]  # fmt: skip
