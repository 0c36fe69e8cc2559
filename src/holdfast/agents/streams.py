"""How each agent's output is read. Loaded by the runner, which must start fast: each adapter only when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.domain.attempt_records import Launch, Order

if TYPE_CHECKING:
    from holdfast.ports import Stream


def _claude(launch: Launch) -> Stream:
    from holdfast.agents.adapters.claude import ClaudeStream

    return ClaudeStream()


def _codex(launch: Launch) -> Stream:
    from holdfast.agents.adapters.codex import CodexStream

    return CodexStream(launch.counted, launch.model)


def _gemini(launch: Launch) -> Stream:
    from holdfast.agents.adapters.gemini import GeminiStream

    argv = launch.argv
    return GeminiStream(launch.counted, launch.model, argv[argv.index("--resume") + 1] if "--resume" in argv else "")


def _opencode(launch: Launch) -> Stream:
    from holdfast.agents.adapters.opencode import OpencodeStream

    return OpencodeStream(launch.model)


def _aider(launch: Launch) -> Stream:
    from holdfast.agents.adapters.aider import AiderStream

    return AiderStream(launch.model)


def _mini(launch: Launch) -> Stream:
    from holdfast.agents.adapters.mini import MiniStream

    return MiniStream(launch.model)


_CLIS: dict[str, Callable[[Launch], Stream]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
    "aider": _aider,
    "mini": _mini,
}


def stream_of(order: Order) -> Stream:
    if order.prices:
        from holdfast.agents.common import prices

        prices.override(order.prices)
    if order.agent == "scripted":
        from holdfast.agents.adapters.simple_streams import OwnEvents

        return OwnEvents()
    if order.launch.stream:
        return _CLIS[order.launch.stream](order.launch)
    if order.launch.events:
        from holdfast.agents.adapters.declared_stream import Mapped

        return Mapped(order.launch.events, order.launch.model)
    from holdfast.agents.adapters.simple_streams import OneCall

    return OneCall(order.launch.argv)
