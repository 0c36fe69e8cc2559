"""The recorded streams of the real CLIs, read as a runner reads them.

The streams in agents/fixtures/CLI-VERSION were recorded by `HOLDFAST_RECORD=folder make test-agents`; each has the name
of the test that it is from, and of the attempt.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.agents.streams import stream_of
from holdfast.domain.agent_events import AgentEvent
from holdfast.domain.attempt_records import Launch, Order, ProtocolCall
from holdfast.ports import Stream
from kit import TESTS

# Agents by protocol are acp_NAME, and Codex by its app-server is codex_server.
PROTOCOL = "acp_"
FIXTURES = TESTS / "real_agents" / "fixtures"
RECORDED = sorted(FIXTURES.glob("*/*.jsonl"))
STREAMS = sorted({path.parent.name.partition("-")[0] for path in RECORDED})
CLIS = [name for name in STREAMS if not name.startswith(PROTOCOL) and name != "codex_server"]


def stream(cli: str, model: str = "", program: str = "") -> Stream:
    """`program`: of an agent by protocol whose own ways Holdfast knows."""
    is_protocol = cli.startswith(PROTOCOL)
    call = ProtocolCall(title=cli, program=program, sets_model=bool(model)) if is_protocol else None
    launch = Launch((cli,), stream="" if is_protocol else cli, model=model, protocol=call)
    return stream_of(
        Order(task="task", attempt="task.1", start=1, agent=cli, launch=launch, worktree="", base="", private="")
    )


def heard(reader: Stream, text: bytes, code: int = 0) -> list[AgentEvent]:
    """What one start's output amounts to; a later start of the same attempt begins a stream of its own."""
    return [event for line in text.split(b"\n") for event in reader.read(line)] + list(reader.end(code))


def recorded(cli: str, name: str, model: str = "", program: str = "") -> list[AgentEvent]:
    (path,) = FIXTURES.glob(f"{cli}-*/{name}.jsonl")
    return heard(stream(cli, model, program), path.read_bytes())


def kinds(events: list[AgentEvent], *wanted: type) -> list[Any]:
    return [event for event in events if isinstance(event, wanted)]


def line(**record: Any) -> bytes:
    """A line of a CLI that speaks JSON."""
    return msgspec.json.encode(record)
