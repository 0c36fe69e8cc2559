"""What is told once in a data root: that an agent works without asking, before it does so for the first time.

What was told is kept in runtime/told.json. Where that is lost, or the settings have changed since, it is told again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast.processes import sandbox
from holdfast.storage.files import disk

if TYPE_CHECKING:
    from holdfast.config.settings import Config
    from holdfast.domain.attempt_records import Permission
    from holdfast.layout import Layout
    from holdfast.ports import Agent

_DOES = {
    "full": "works without asking you ({flags})",
    "edits": "changes files without asking you ({flags}), and runs commands only as its own settings allow",
    "own": "does what its own settings allow, and is refused what it would have to ask you for",
}


def about_permissions(
    layout: Layout, config: Config, known: Mapping[str, Agent], names: Iterable[str]
) -> Iterator[str]:
    """A sentence for each of these agents that was not told yet; it counts as told once the next one is asked for."""
    told, kind = _read(layout), sandbox.resolved(config.sandbox)
    for name in names:
        agent = known.get(name)
        permission = agent.permission if agent is not None else None
        if permission is None:
            continue
        facts = f"{permission.mode} {' '.join(permission.flags)} {kind}"
        if told.get(name) == facts:
            continue
        yield sentence(name, permission, is_confined=kind != "none")
        told[name] = facts
        disk.replace(layout.told, msgspec.json.encode({"permissions": told}))


def sentence(name: str, permission: Permission, *, is_confined: bool) -> str:
    does = _DOES[permission.mode].format(flags=f"`{' '.join(permission.flags)}`")
    where = (
        "in a worktree and a sandbox of its own"
        if is_confined
        else "in a worktree of its own, and otherwise with your rights here: `sandbox: bwrap` confines it"
    )
    return f"{name} {does}, {where}. `permissions` in the settings' `agents` changes that: see docs/agents.md"


def _read(layout: Layout) -> dict[str, str]:
    try:
        return msgspec.json.decode(layout.told.read_bytes(), type=dict[str, dict[str, str]]).get("permissions", {})
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
