"""What an agent is told: the task, how it will be judged, where it may work, and what became of it so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.domain.definition import Check, Definition, fork_source
from holdfast.domain.state import Task

if TYPE_CHECKING:
    from holdfast.engine.workshop import Workshop


def prompt(shop: Workshop, task: Task, made: Definition, conflicts: list[str]) -> str:
    parts = [made.title or "", made.goal or "", _context(made), _judged(shop, made), _rules(made)]
    if task.feedback:
        parts.append("An earlier attempt did not land:\n\n" + shop.blobs.get(task.feedback).decode(errors="replace"))
    elif (source := fork_source(made)) is not None:
        parts.append(f"The worktree begins with what turn {source[1]} of {source[0]} left. Go on from it.")
    if conflicts:
        files = "\n".join(f"- {path}" for path in conflicts)
        parts.append(
            "The worktree holds your work merged with the newest state of the target branch. These files have conflict "
            f"markers; resolve them:\n{files}"
        )
    if task.starts:
        parts.append(
            f"You have worked on this before and were interrupted after turn {task.turn}. The worktree is as that turn "
            "left it, or later. Look at what is there, then go on."
        )
    return "\n\n".join(part for part in parts if part) + "\n"


def _context(made: Definition) -> str:
    if made.context is None:
        return ""
    text = (
        made.context
        if isinstance(made.context, str)
        else msgspec.json.format(msgspec.json.encode(made.context)).decode()
    )
    return f"Context:\n{text}"


def _judged(shop: Workshop, made: Definition) -> str:
    gates = [gate.command for gate in shop.config.gates if gate.required]
    commands = [_line(check) for check in made.verify] + gates
    return (
        "Your work is accepted when these commands pass:\n" + "\n".join(f"- {each}" for each in commands)
        if commands
        else ""
    )


def _line(check: Check) -> str:
    return check.command if isinstance(check.command, str) else " ".join(check.command)


def _rules(made: Definition) -> str:
    rules = [
        "Work only in the current folder, a git worktree of its own. You need not commit: what you leave is taken."
    ]
    if made.paths:
        rules.append(f"Change nothing outside: {', '.join(made.paths)}")
    return "\n".join(rules)
