"""The operations of the API, a module for each kind of thing. `all_operations` lists them in the order of the docs.

Enters: a checked request. Leaves: a record for the answer, or a `Problem`. Read `tasks.py` first, then `work.py`, which
is for agents.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from holdfast.server.api_state import Api
from holdfast.server.openapi import document
from holdfast.server.operations import Ask, Operation, Raw
from holdfast.server.routes import (
    agents,
    attempts,
    auth,
    blobs,
    costs,
    decisions,
    events,
    health,
    journal,
    observability,
    outputs,
    quality,
    status,
    tasks,
    work,
)
from holdfast.server.routes.connections import outbox, plugins, sources, webhooks
from holdfast.server.routes.conversation import asks, reviews


def all_operations() -> list[Operation]:
    """Fixed paths stand before those with a name in them."""
    found = [
        *work.OPERATIONS,
        *status.OPERATIONS,
        *tasks.OPERATIONS,
        *journal.OPERATIONS,
        *decisions.OPERATIONS,
        *reviews.OPERATIONS,
        *asks.OPERATIONS,
        *attempts.OPERATIONS,
        *agents.OPERATIONS,
        *outputs.OPERATIONS,
        *outbox.OPERATIONS,
        *webhooks.OPERATIONS,
        *sources.OPERATIONS,
        *events.OPERATIONS,
        *blobs.OPERATIONS,
        *costs.OPERATIONS,
        *quality.OPERATIONS,
        *observability.OPERATIONS,
        *plugins.OPERATIONS,
        *auth.OPERATIONS,
        *health.OPERATIONS,
    ]
    found.append(_described(found))
    return found


def _described(others: list[Operation]) -> Operation:
    """The document describes itself, too. It is made when somebody first asks for it."""

    @functools.cache
    def content() -> bytes:
        return msgspec.json.encode(document([*others, operation]))

    def show(api: Api, ask: Ask) -> Raw:
        return Raw(content(), "application/json", {"cache-control": "no-cache"})

    operation = Operation("GET", "/openapi.json", "openapi", "This document.", show, answer=dict[str, Any],
                          right="public", lane="aside", tag="health")  # fmt: skip
    return operation
