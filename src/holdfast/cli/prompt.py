"""`prompt`: exactly what an agent would be told."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.completion import complete_task
from holdfast.cli.overview import look, unknown
from holdfast.cli.shared import as_json, find_app, print_json
from holdfast.cli.terminal import plain
from holdfast.domain.state import Task
from holdfast.domain.task import TaskState

if TYPE_CHECKING:
    from holdfast.app import App


@click.command(epilog="Examples:  holdfast prompt fix-login  ·  holdfast prompt --template")
@click.argument("task", required=False, shell_complete=complete_task)
@click.option("--template", "show_template", is_flag=True, help="Print the template that is in use.")
@as_json
@click.pass_context
def prompt(ctx: click.Context, task: str | None, show_template: bool, as_json: bool) -> None:
    """Show exactly what a task's agent would be told at its next start.

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
        shown = "\n".join(map(plain, text.split("\n"))) if sys.stdout.isatty() else text
        click.echo(shown, nl=False)


def _prompt(app: App, name: str) -> str:
    from holdfast.agents.registry import agents
    from holdfast.domain.routing import choose
    from holdfast.durable.blobs import Blobs
    from holdfast.engine.prompt import Words
    from holdfast.engine.prompt import prompt as words_of

    overview = look(app)
    file = overview.files.get(name)
    if file is None:
        raise unknown(name, overview.rows)
    task = _next(overview.view.state.tasks.get(name) or Task(name, TaskState.OPEN, "", 0.0, 0.0))
    chosen = choose(file.definition, app.config, task).agent
    agent = agents(app.config).get(chosen)
    resumes = bool(task.session and chosen == task.worked_by and agent is not None and agent.resumes)
    words = Words(app.layout, Blobs(app.layout.cas), app.config)
    return words_of(words, task, file.definition, _conflicts(app, task), resumes=resumes)


def _next(task: Task) -> Task:
    """The task as its next claim makes it."""
    if task.continues or task.state in (TaskState.CLAIMED, TaskState.IN_PROGRESS):
        return task
    number = task.attempts + 1
    return msgspec.structs.replace(task, attempts=number, attempt=f"{task.id}.{number}", starts=0, turn=0)


def _conflicts(app: App, task: Task) -> list[str]:
    if task.starts or not (task.feedback and task.candidate):
        return []
    from holdfast.engine import merge

    target = merge.newest(app.repo, merge.target_branch(app.repo, app.config))
    who = merge.identity(app.repo, app.config)
    return merge.merge(app.repo, target, task.candidate, "the work so far", who).conflicts
