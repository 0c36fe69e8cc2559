"""What can be asked, a module for each kind of thing. `all_operations` is the whole list, in the order of the docs."""

from __future__ import annotations

from holdfast.server.context import Api
from holdfast.server.operations import Operation
from holdfast.server.routes import decisions, events, health, tasks, work


def all_operations(api: Api) -> list[Operation]:
    """Fixed paths stand before those with a name in them."""
    return [
        *work.operations(api),
        *tasks.OPERATIONS,
        *decisions.operations(api),
        *events.OPERATIONS,
        *health.OPERATIONS,
    ]
