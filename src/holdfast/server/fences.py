"""Subtasks that an agent asks for: fenced in like its own task, or a way out of every limit would be a subtask.

They are worked on by the very agent and model that asks, share what is left of its budget, and are judged as it is. How
deep such a tree grows, and how many tasks it has, is limited: each of them may ask for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.domain.definition import Definition
from holdfast.domain.state import Task
from holdfast.engine import budget
from holdfast.engine.decisions import Desk
from holdfast.server.problems import Problem

# Below the task that has no parent itself.
DEPTH_MAX = 4
DESCENDANTS_MAX = 1000
# `command`: what a task is worked on with, where that is no agent known by name.
_SAME = ("command", "sandbox", "verify", "approve", "timeout_s", "max_attempts", "max_resumes")
_NOT_BY_AGENTS = (*_SAME, "agent", "model", "budget_usd", "script", "forked_from", "parent")


def fenced_in(desk: Desk, task: Task, own: Definition, new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """`own` is the definition of the task that is being split, `new` are the values that its agent sends."""
    for values in new:
        if named := [name for name in _NOT_BY_AGENTS if name in values]:
            detail = f"An agent cannot say {', '.join(named)} for a subtask: that is as for its own task."
            raise Problem(403, "not_an_agents_to_say", f"{detail} Nothing was changed.")
    _expect_room(desk, task, len(new))
    # Not what its file names: a route chooses by role and label, which are the agent's to say.
    fixed: dict[str, Any] = {"agent": task.worked_by or task.agent, "model": task.model}
    fixed |= {name: value for name, value in msgspec.structs.asdict(own).items() if name in _SAME}
    if (share := _share(desk, task, own, len(new))) is not None:
        fixed["budget_usd"] = share
    return [
        {**values, **{name: value for name, value in fixed.items() if value not in (None, "", ())}} for values in new
    ]


def _share(desk: Desk, task: Task, own: Definition, count: int) -> float | None:
    """What each may spend: an equal part of what is left of the task's, and of what earlier subtasks were not given."""
    most = budget.caps(desk.config, "task", own).usd
    if most is None:
        return None
    assert desk.shop is not None
    board = desk.shop.board
    with board.lock:
        earlier = board.graph.subtasks(task.id)
    given = sum((made.budget_usd or 0.0) for name in earlier if (made := board.definition(name)) is not None)
    # Rounded down: all of them together are never more than there is.
    return int(max(0.0, most - task.usd - given) / count * 1e6) / 1e6


def _expect_room(desk: Desk, task: Task, count: int) -> None:
    assert desk.shop is not None
    board = desk.shop.board
    depth, top = 1, task.id
    seen = {top}
    while (made := board.definition(top)) is not None and made.parent and made.parent not in seen:
        depth, top = depth + 1, made.parent
        seen.add(top)
    if depth > DEPTH_MAX:
        detail = f"{task.id} is {depth - 1} deep below {top}, and an agent's subtasks go {DEPTH_MAX} deep."
        raise Problem(403, "split_too_deep", f"{detail} Nothing was changed; do the work here, or ask a person.")
    with board.lock:
        below, waiting = 0, [top]
        while waiting:
            children = board.graph.subtasks(waiting.pop())
            below += len(children)
            waiting += children
    if below + count > DESCENDANTS_MAX:
        detail = f"{top} has {below} tasks below it, and may have {DESCENDANTS_MAX:,} where agents make them."
        raise Problem(403, "split_too_wide", f"{detail} Nothing was changed; do the work here, or ask a person.")
