"""How each agent's output is read. Loaded by the runner, which must start fast: each adapter only when it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.domain.attempt import Order

if TYPE_CHECKING:
    from holdfast.ports import Stream


def stream_of(order: Order) -> Stream:
    if order.agent == "scripted":
        from holdfast.agents.plain import OwnEvents

        return OwnEvents()
    if order.launch.events:
        from holdfast.agents.mapped import Mapped

        return Mapped(order.launch.events)
    from holdfast.agents.plain import OneCall

    return OneCall(order.launch.argv)
