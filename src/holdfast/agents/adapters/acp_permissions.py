"""Answers to a request for permission, as the Agent Client Protocol wants them."""

from __future__ import annotations

from typing import Any

from holdfast.agents.common import json_fields

# The kinds of tools that `permissions: edits` allows.
EDITS = frozenset({"read", "edit", "move", "search", "think"})
_ALLOW, _REJECT = ("allow_once", "allow_always"), ("reject_once", "reject_always")


def allowed(mode: str, tool: dict[str, Any]) -> bool:
    """Whether a call that no rule names is allowed where nobody is asked. `own`: the agent's own settings have not."""
    return mode == "edits" and json_fields.text(tool, "kind") in EDITS


def outcome(options: list[dict[str, Any]], *, allows: bool) -> dict[str, str]:
    """One of the options that the agent offers; `cancelled` where none of them fits."""
    by_kind = {json_fields.text(each, "kind"): json_fields.text(each, "optionId") for each in reversed(options)}
    for kind in _ALLOW if allows else _REJECT:
        if by_kind.get(kind):
            return {"outcome": "selected", "optionId": by_kind[kind]}
    return {"outcome": "cancelled"}
