"""`tell`: a person's message to the agent of a task."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from holdfast.cli.options import complete_task, prints_json
from holdfast.cli.tasks.decisions import decide_and_tell, text_of


@click.command(
    epilog="""\b
Examples:
  holdfast tell fix-login "Keep the old error message."
  holdfast tell fix-login --file notes.md
  git log -3 | holdfast tell fix-login -"""
)
@click.argument("task", shell_complete=complete_task)
@click.argument("message", required=False)
@click.option("--file", type=click.Path(path_type=Path), help="Read the message from this file.")
@prints_json
def tell(ctx: click.Context, task: str, message: str | None, file: Path | None, as_json: bool) -> None:
    """Tell a task's agent something, in the conversation that it has.

    MESSAGE is the text, or - for standard input. An agent at work gets it at the end of its turn. A task that has
    failed, was stopped, is paused or waits for approval goes on in the same conversation, and no attempt is spent. One
    that has not begun has it in its first prompt.
    """
    if (message is None) == (file is None):
        raise click.UsageError("Say one thing: the message, - for standard input, or --file PATH.")
    if file is not None:
        message = _content(file)
    elif message == "-":
        message = text_of(sys.stdin.buffer.read(), "standard input")
    decide_and_tell(ctx, "tell", as_json, task=task, message=message)


def _content(file: Path) -> str:
    try:
        return text_of(file.read_bytes(), str(file))
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}. Nothing was told.") from None
