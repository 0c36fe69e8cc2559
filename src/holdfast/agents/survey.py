"""Facts about every agent that need no model call: is it installed, which version, is it signed in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from holdfast.agents.tried_versions import newer_than
from holdfast.domain.attempt_records import Can, Permission
from holdfast.ports import Agent


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is empty where the program is not installed, `version` where it does not say.

    `signed_in`: None where it is unknown. `install` and `sign_in` are instructions. `declared`: by the settings.
    """

    name: str
    path: str
    version: str
    signed_in: bool | None
    can: Can
    install: str
    sign_in: str
    declared: bool
    # The newest version that was tried, where the one here is newer; else empty.
    tried: str = ""
    # What it may do without asking; None for a command, which has no such modes.
    permission: Permission | None = None


def survey(known: Mapping[str, Agent], declared: Collection[str] = (), *, wait_s: float = 0.0) -> list[Facts]:
    """Asks all at the same time. `wait_s`: how long a program may take to print its version; 0: do not ask."""
    if not known:
        return []
    with ThreadPoolExecutor(len(known)) as pool:
        return list(pool.map(lambda name: _facts(known[name], name in declared, wait_s), known))


def _facts(agent: Agent, declared: bool, wait_s: float) -> Facts:
    path = agent.find() or ""
    version = agent.version(wait_s) if path and wait_s else ""
    return Facts(
        name=agent.name,
        path=path,
        version=version,
        signed_in=_signed_in(agent),
        can=agent.can,
        install=agent.install,
        sign_in=agent.sign_in,
        declared=declared,
        tried=newer_than(Path(path).name, version),
        permission=agent.permission,
    )


def _signed_in(agent: Agent) -> bool | None:
    try:
        return agent.is_signed_in()
    except (OSError, RuntimeError):
        # There is no home folder, or we may not read it.
        return None
