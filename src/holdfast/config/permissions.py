"""The permissions of one start: what its task, its role and its agent say, with the rules of the settings."""

from __future__ import annotations

from typing import cast

from holdfast.config.settings import Config
from holdfast.domain.definition import Definition
from holdfast.questions.rules import Mode, PermissionPolicy, PermissionRule


def policy_of(config: Config, made: Definition, agent: str) -> PermissionPolicy:
    """The task's own mode counts before its role's, and that before its agent's. The rules of all count together.

    A task with rules of its own asks about everything else.
    """
    fitting = [each for each in config.permissions if each.role in (None, made.role) and each.agent in (None, agent)]
    rules = [PermissionRule(each.do, each.tool, each.input) for each in fitting if each.tool and _is_rule(each.do)]  # type: ignore[arg-type]
    modes: list[str] = [each.do for each in fitting if not each.tool]
    modes += [each.permissions for each in config.agents if each.name == agent]
    if isinstance(made.permissions, tuple):
        return PermissionPolicy("ask", (*rules, *made.permissions))
    mode = made.permissions or (modes[0] if modes else "skip")
    return PermissionPolicy(cast("Mode", "skip" if mode == "full" else mode), tuple(rules))


def _is_rule(do: str) -> bool:
    return do in ("allow", "deny", "ask")
