"""`prompt`: the exact prompt that an agent would get."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.options import complete_task, find_app, print_json, prints_json
from holdfast.domain.definition import Definition, parse
from holdfast.domain.task import AT_WORK, TaskState
from holdfast.domain.task_record import Task, seems_lost
from holdfast.domain.wording import plain_lines
from holdfast.errors import TaskUnknown
from holdfast.views.rows import read_overview

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.config.settings import Config
    from holdfast.storage.records.blobs import Blobs


@click.command(epilog="Examples:  holdfast prompt fix-login  ·  holdfast prompt --template")
@click.argument("task", required=False, shell_complete=complete_task)
@click.option("--template", "show_template", is_flag=True, help="Print the template that is in use.")
@prints_json
def prompt(ctx: click.Context, task: str | None, show_template: bool, as_json: bool) -> None:
    """Show the exact prompt that a task's agent would get at its next start.

    The words come from a template. Yours is config/prompt.md in the data root, where there is one.
    """
    from holdfast.engine.prompt import template

    if (task is None) != show_template:
        raise click.UsageError("Name a task, or give --template.")
    app = find_app(ctx)
    text = template(app.layout) if task is None else _prompt(app, task)
    if as_json:
        print_json({"template": text} if task is None else {"task": task, "prompt": text})
    else:
        # A program gets it byte for byte; a terminal would obey what a stranger wrote into a title.
        shown = plain_lines(text) if sys.stdout.isatty() else text
        click.echo(shown, nl=False)


def _prompt(app: App, name: str) -> str:
    from holdfast.agents.registry import agents
    from holdfast.domain.claims import claimed
    from holdfast.domain.routing import choose
    from holdfast.engine.start import StartInputs, plan_start
    from holdfast.engine.starting.orders import way_back
    from holdfast.storage.records.blobs import Blobs
    from holdfast.views.diffs import Diffs
    from holdfast.worktrees import merges

    overview = read_overview(app)
    file = overview.files.get(name)
    if file is None:
        raise TaskUnknown.among(name, overview.rows)
    before = _at_rest(overview.view.state.tasks.get(name) or Task(name, TaskState.OPEN, "", 0.0, 0.0))
    choice = choose(file.definition, app.config, before)
    agent = agents(app.config).get(choice.agent)
    if agent is None:
        raise click.UsageError(f"There is no agent called {choice.agent}, so there is no prompt.")
    task, blobs = claimed(before, choice.agent, choice.model), Blobs(app.layout.cas)
    inputs = StartInputs(
        repo=app.repo,
        layout=app.layout,
        config=app.config,
        blobs=blobs,
        branch=merges.target_branch(app.repo, app.config),
        base_of=lambda attempt: Diffs(app.repo, app.layout, task, attempt, app.reader()).base(),
        journal=app.reader(),
    )
    made = _pinned(blobs, before) or file.definition
    return plan_start(inputs, task, made, agent, way_back(agent, _NextRun(app.config))).prompt


class _NextRun(msgspec.Struct, frozen=True):
    """The server beside the next run, as the settings want it."""

    config: Config

    @property
    def serves(self) -> bool:
        return self.config.server.enabled

    @property
    def has_tools(self) -> bool:
        from holdfast.mcp.extra import is_installed

        return is_installed()


def _at_rest(task: Task) -> Task:
    """The task as it is when it can be claimed: what is at work goes on, and what has failed is tried again."""
    if task.state in AT_WORK | {TaskState.ORPHANED}:
        return msgspec.structs.replace(task, continues=True)
    if task.state is TaskState.FAILED and not task.again and seems_lost(task):
        return msgspec.structs.replace(task, session="")
    return task


def _pinned(blobs: Blobs, task: Task) -> Definition | None:
    """An attempt that goes on does so with the definition that it began with, whatever the file says by now."""
    if not task.continues or not task.attempt.worked_on:
        return None
    made = parse(blobs.get(task.attempt.worked_on), task.id)
    return made if isinstance(made, Definition) else None
