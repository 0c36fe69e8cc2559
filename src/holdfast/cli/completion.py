"""What the shell completes."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from holdfast.cli.shared import find_app
from holdfast.errors import HoldfastError


def complete_task(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Task ids with their states. A shell that asks gets no error, whatever is wrong: it would land on the prompt."""
    # The group itself does not run while the shell completes, so it has not noted its option.
    root = ctx.find_root()
    root.obj = root.params.get("data_root")
    try:
        tasks = find_app(ctx).look().state.tasks
    except HoldfastError:
        return []
    return [
        CompletionItem(name, help=str(task.state))
        for name, task in tasks.items()
        if name.startswith(incomplete) and name.isprintable()
    ]
