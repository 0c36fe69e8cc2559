"""A shell script that speaks as Claude Code does: its stream and its hook."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.agents.common import hook
from holdfast.domain.attempt_records import Launch


def prints(**record: Any) -> str:
    """Prints one line of its stream."""
    return "cat <<'END'\n" + msgspec.json.encode(record).decode() + "\nEND\n"


def hooked(call: str) -> str:
    """Calls the hook at the end of a tool, and waits for its answer."""
    given = {"tool_use_id": call, "tool_name": "Write", "tool_input": {}, "tool_response": "made"}
    return f"sh \"$HOLDFAST_FILES/{hook.SCRIPT_NAME}\" <<'END'\n{msgspec.json.encode(given).decode()}\nEND\n"


def began(*calls: str) -> str:
    blocks = [{"type": "tool_use", "id": call, "name": "Write", "input": {}} for call in calls]
    return prints(type="assistant", message={"content": blocks})


def result(call: str) -> str:
    return prints(type="user", message={"content": [{"type": "tool_result", "tool_use_id": call, "content": "made"}]})


BEGIN = prints(type="system", subtype="init", session_id="s", model="m")
END = prints(type="result", subtype="success", is_error=False, result="All is made.")


def claude(script: str, **more: Any) -> Launch:
    """An agent that speaks as Claude Code does."""
    files = {hook.SCRIPT_NAME: hook.SCRIPT}
    return Launch(("sh", "-c", script), stream="claude", files=files, has_hook=True, **more)
