"""The gates of a task, and what their commands stand for: `gate:NAME arguments` is a command that a plugin makes.

The command is made when a candidate is about to be judged, and pinned with the other gates: a crash, or another version
of the plugin, changes nothing about a judging that has begun. It runs like any gate, as a process in the sandbox.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from holdfast.config.settings import Config
from holdfast.domain.definition import Definition
from holdfast.integrations.plugins import catalog
from holdfast.landing.gates import TIMEOUT_S, Gate

PREFIX = "gate:"
Command = str | tuple[str, ...]


def gates_of(definition: Definition, config: Config) -> tuple[Gate, ...]:
    """The task's own checks, then the gates of the settings; each with a unique name."""
    found: dict[str, Gate] = {}
    for number, check in enumerate(definition.verify, 1):
        name = _unused(check.name or f"verify-{number}", found)
        command = resolved(check.command, config)
        found[name] = Gate(name, command, check.timeout_s or TIMEOUT_S, True, check.repeatable)
    for gate in config.gates:
        name = _unused(gate.name, found)
        command = resolved(gate.command, config)
        found[name] = Gate(name, command, gate.timeout_s, gate.required, gate.repeatable)
    return tuple(found.values())


def _unused(name: str, taken: dict[str, Gate]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def resolved(command: Command, config: Config) -> Command:
    """The command that this one stands for. Where there is none: one that fails, and says why."""
    made, why = _made(command, config)
    return made if not why else f"echo {shlex.quote(why)} >&2; exit 127"


def missing(definition: Definition, config: Config) -> str:
    """A sentence that says which gate of the task no plugin makes; empty where there is none."""
    commands: list[Command] = [*(each.command for each in definition.verify), *(each.command for each in config.gates)]
    for command in commands:
        if why := _made(command, config)[1]:
            return f"{why} Nothing was started; `holdfast plugins` lists what is installed."
    return ""


def _made(command: Command, config: Config) -> tuple[Command, str]:
    if not isinstance(command, str) or not command.startswith(PREFIX):
        return command, ""
    try:
        name, *arguments = shlex.split(command.removeprefix(PREFIX))
    except ValueError as error:
        return command, f"The gate {command!r} cannot be read: {error}."
    known = catalog.provided("gates", config.plugins)
    if name not in known:
        return command, f"No plugin provides the gate {name!r}; there are: {', '.join(sorted(known)) or 'none'}."
    made, why = catalog.made(f"the gate {name}", known[name], tuple(arguments))
    if not why and not _is_command(made):
        why = f"the plugin's factory of the gate {name} gave no command"
    if why:
        return command, f"{why[0].upper()}{why[1:]}."
    return made if isinstance(made, str) else tuple(made), ""


def _is_command(made: object) -> bool:
    if isinstance(made, str):
        return bool(made.strip())
    return isinstance(made, Sequence) and bool(made) and all(isinstance(part, str) for part in made)
