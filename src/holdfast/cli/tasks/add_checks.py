"""Refusals and warnings of `add` and `edit` beyond the rules of a task's file, and their words when it is written."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.screen.table import cut, echo_wrapped, terminal_width
from holdfast.domain.wording import plain
from holdfast.errors import InputError
from holdfast.storage.journal.lock import live_owner

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.backlog.scanner import FoundFile
    from holdfast.domain.definition import Definition

GATE_WAYS = "Add `--verify COMMAND` to a task, or `gates:` in .sdd/config/settings.yaml for all."


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
    if kind := options.get("sandbox"):
        from holdfast.processes.sandbox import KINDS

        if kind not in KINDS:
            raise InputError(detail=f"there is no sandbox {kind!r}; use {', '.join(KINDS)}")
    if script := options.get("script"):
        from holdfast.agents.adapters.script import OTHERS, TURNS, unknown_step

        if step := unknown_step(script):
            raise InputError(detail=f"a script has no step {step!r}; known are {', '.join((*TURNS, *OTHERS))}")


def warn_without_gates(app: App, made: Sequence[Definition]) -> None:
    """Says so where nothing would judge what lands."""
    bare = [each.id for each in made if not each.verify and not each.may_change_nothing]
    if bare and not app.config.gates:
        told, way = f"{len(bare)} of these have", GATE_WAYS
        if len(bare) == 1:
            told, way = f"{bare[0]} has", f"`holdfast edit {bare[0]} --verify COMMAND` sets one, or `gates:` in"
            way += f" {app.layout.settings} for all."
        click.echo(f"note: {told} no gate, so what the agent makes lands unchecked. {way}", err=True)


def print_added(app: App, added: Sequence[FoundFile]) -> None:
    """Prints for a person what there is now and what to type; for a program the paths alone, a line for each."""
    if not sys.stdout.isatty():
        for each in added:
            click.echo(str(each.path))
        return
    for each in added:
        made = each.definition
        title = (made.title or made.goal or str(made.command or "")).strip().partition("\n")[0]
        click.echo(cut(plain(f"Added {made.id}: {title}"), terminal_width()))
    one, name = len(added) == 1, added[0].definition.id
    if (holder := live_owner(app.layout.lock)) is not None:
        which = "it" if one else "them"
        echo_wrapped("", f"The run that is alive (pid {holder.pid}) takes {which} in; `holdfast watch` shows {which}.")
        return
    ways = f"; `holdfast edit {name}` changes it" if one else ""
    echo_wrapped("", f"Next: `holdfast run` works on {'it' if one else 'them'}{ways}.")


def print_edited(task: str, path: Path | None) -> None:
    """Prints a sentence for a person and the path alone for a program."""
    if path is None:
        click.echo("Nothing was changed.")
    else:
        click.echo(f"Changed {plain(task)}: {path}" if sys.stdout.isatty() else str(path))
