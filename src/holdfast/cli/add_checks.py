"""What `add` and `edit` refuse or warn of beyond the rules of a task's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.domain.definition import Definition
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.app import App

GATE_WAYS = "Add `--verify COMMAND` to a task, or `gates:` in config/settings.yaml for all."


def expect_usable(app: App, options: Mapping[str, Any]) -> None:
    """Refuses values that no task could be worked on with, though a file may have them."""
    if any(not command.strip() for command in options.get("verify") or ()):
        raise InputError(detail="--verify is empty and would check nothing; give a command, as in --verify 'pytest -q'")
    if name := options.get("agent"):
        from holdfast.agents.registry import agents

        known = agents(app.config)
        if name not in known:
            told = f"there is no agent {name!r}; known are {', '.join(sorted(known))}"
            raise InputError(detail=f"{told}. Others are declared as `agents` in {app.layout.settings}")


def warn_without_gates(app: App, made: Sequence[Definition]) -> None:
    """Says so where nothing would judge what lands."""
    bare = [each.id for each in made if not each.verify and not each.may_change_nothing]
    if bare and not app.config.gates:
        told = f"{bare[0]} has" if len(bare) == 1 else f"{len(bare)} of these have"
        click.echo(f"note: {told} no gate, so what the agent makes lands unchecked. {GATE_WAYS}", err=True)
