"""Answers a request for permission by the mode of the settings, as the Agent Client Protocol wants it.

`full` allows all, `edits` what changes or reads files, `own` nothing: then
the agent does what its own settings allow unasked.
"""

from __future__ import annotations

from typing import Any

from holdfast.agents.common import json_fields

EDITS = frozenset({"read", "edit", "move", "search", "think"})
_ALLOW, _REJECT = ("allow_once", "allow_always"), ("reject_once", "reject_always")


def chosen(mode: str, tool: dict[str, Any], options: list[dict[str, Any]]) -> dict[str, str]:
    """The outcome: one of the options that the agent offers; `cancelled` where none of them fits."""
    allows = mode == "full" or (mode == "edits" and json_fields.text(tool, "kind") in EDITS)
    return outcome(options, allows=allows)


def outcome(options: list[dict[str, Any]], *, allows: bool) -> dict[str, str]:
    by_kind = {json_fields.text(each, "kind"): json_fields.text(each, "optionId") for each in reversed(options)}
    for kind in _ALLOW if allows else _REJECT:
        if by_kind.get(kind):
            return {"outcome": "selected", "optionId": by_kind[kind]}
    return {"outcome": "cancelled"}
