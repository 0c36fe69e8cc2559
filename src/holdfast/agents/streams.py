"""Finds the reader of an agent's output. The runner must start fast, so it loads the one adapter that it needs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from holdfast.domain.attempt_records import Order

if TYPE_CHECKING:
    from holdfast.ports import Stream


def stream_of(order: Order) -> Stream:
    launch = order.launch
    if order.prices:
        from holdfast.agents.common import prices

        prices.override(order.prices)
    if order.agent == "scripted":
        from holdfast.agents.adapters.simple_streams import OwnEvents

        return OwnEvents(launch.stdin)
    if launch.protocol is not None:
        from holdfast.agents.adapters import acp

        return acp.stream(launch, order.worktree)
    if ":" in launch.stream:
        # Of a plugin's agent: the module and function that it names.
        module, _, name = launch.stream.partition(":")
        return cast("Stream", getattr(importlib.import_module(module), name)(launch))
    if launch.stream:
        # The module of a CLI in `registry.CLIS` bears its name.
        found: Stream = importlib.import_module(f"holdfast.agents.adapters.{launch.stream}").stream(launch)
        return found
    if launch.events:
        from holdfast.agents.adapters.declared_stream import Mapped

        return Mapped(launch.events, launch.model)
    from holdfast.agents.adapters.simple_streams import OneCall

    return OneCall(launch.argv)
