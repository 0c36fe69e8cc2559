"""Subtasks that an agent asks for: fenced in like its own task, or a way out of every limit would be a subtask.

They are worked on by the very agent and model that asks, share what is left of its budget, and are judged as it is. How
deep such a tree grows, and how many tasks it has, is limited: each of them may ask for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.decisions.context import DecisionContext
from holdfast.domain.definition import Definition
from holdfast.domain.path_rules import is_narrower
from holdfast.domain.spend import Caps
from holdfast.domain.task_record import Task
from holdfast.domain.wording import plural
from holdfast.engine import budget
from holdfast.server.problems import Problem

# Below the task that has no parent itself.
DEPTH_MAX = 4
DESCENDANTS_MAX = 1000
# `command`: what a task is worked on with, where that is no agent known by name.
_SAME = ("command", "sandbox", "permissions", "verify", "approve", "timeout_s", "max_attempts", "max_resumes")
_BUDGETS = tuple(f"budget_{name}" for name in Caps.__struct_fields__)
_NOT_BY_AGENTS = (*_SAME, *_BUDGETS, "agent", "model", "script", "forked_from", "parent")


def fenced_in(
    decision: DecisionContext, task: Task, own: Definition, new: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """`own` is the definition of the task that is being split, `new` are the values that its agent sends."""
    for values in new:
        if named := [name for name in _NOT_BY_AGENTS if name in values]:
            detail = f"An agent cannot say {', '.join(named)} for a subtask: that is as for its own task."
            raise Problem(403, "not_an_agents_to_say", f"{detail} Nothing was changed.")
        if own.paths and (wide := [rule for rule in values.get("paths", ()) if not is_narrower(rule, own.paths)]):
            detail = f"{task.id} may change {', '.join(own.paths)}, and {', '.join(wide)} is not surely within that."
            raise Problem(403, "paths_too_wide", f"{detail} Nothing was changed; name paths below those, or none.")
    _expect_room(decision, task, len(new))
    # Not what its file names: a route chooses by role and label, which are the agent's to say.
    fixed: dict[str, Any] = {"agent": task.claim.worked_by or task.claim.agent, "model": task.claim.model}
    fixed |= {name: value for name, value in msgspec.structs.asdict(own).items() if name in _SAME}
    fixed = {name: value for name, value in fixed.items() if value not in (None, "", ())}
    fixed |= _shares(decision, task, own, len(new))
    return [{**values, "paths": tuple(values.get("paths") or own.paths), **fixed} for values in new]


def _shares(decision: DecisionContext, task: Task, own: Definition, count: int) -> dict[str, float | int]:
    """The budget of each: an equal part of what is left of the task's, and of what earlier subtasks were not given."""
    board = decision.board
    with board.lock:
        names = board.graph.subtasks(task.id)
    earlier = [made for name in names if (made := board.definition(name)) is not None]
    shares: dict[str, float | int] = {}
    for name, most in msgspec.structs.asdict(budget.caps(decision.config, "task", own)).items():
        if most is None:
            continue
        given = sum(getattr(made, f"budget_{name}") or 0 for made in earlier)
        left = max(0, most - getattr(task.spent, name) - given)
        # Rounded down: all of them together are never more than there is.
        whole = isinstance(most, int)
        shares[f"budget_{name}"] = left // count if whole else int(left / count * 1e6) / 1e6
    return shares


def _expect_room(decision: DecisionContext, task: Task, count: int) -> None:
    board = decision.board
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
        detail = f"{top} has {plural(below, 'task')} below it, and may have {DESCENDANTS_MAX:,} where agents make them."
        raise Problem(403, "split_too_wide", f"{detail} Nothing was changed; do the work here, or ask a person.")
