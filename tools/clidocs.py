"""`make docs`: writes the generated parts of docs/cli.md: each command's usage and options, and the exit codes.

The page is prose with places for what is generated, as in docs/lifecycle.md. The place of a command that cannot be
imported is left as it is. With `--check` nothing is written, and the exit code says whether the page is up to date.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

import pages
from holdfast import errors
from holdfast.cli.commands import COMMANDS, holdfast

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
# Codes that no error class has.
OTHER_CODES = [
    (0, "", "It is done."),
    (1, "", "What was asked for did not hold, or something went wrong that has no code of its own."),
    (2, "", "The command line cannot be used: an unknown command or option, or a value that is none."),
    (130, "", "Stopped by Ctrl-C."),
]


def main(arguments: Sequence[str], page: Path = PAGE) -> int:
    return pages.update(page, render, "commands", arguments)


def render(page: str) -> str:
    wanted = ["holdfast", *(f"holdfast {name}" for name in COMMANDS), "exit codes"]
    return pages.fill(page, wanted, lambda name: exit_codes() if name == "exit codes" else command_part(name))


def command_part(name: str) -> str | None:
    """A command's line of usage, what it says of itself, and its options; None where it cannot be imported."""
    command = command_of(name)
    if command is None:
        return None
    ctx = click.Context(command, info_name=name, **holdfast.context_settings)
    usage = " ".join([name, *command.collect_usage_pieces(ctx)])
    said = "\n\n".join(map(_paragraph, re.split(r"\n\s*\n", inspect.cleandoc(command.help or ""))))
    records = [option.get_help_record(ctx) for option in command.get_params(ctx) if isinstance(option, click.Option)]
    rows = [record for record in records if record is not None]
    table = "| option | |\n| --- | --- |\n" + "".join(f"| `{_cell(left)}` | {_cell(right)} |\n" for left, right in rows)
    return f"```console\n{usage}\n```\n\n{said}\n\n{table}"


def _paragraph(text: str) -> str:
    """Click's mark for a paragraph that keeps its lines is `\\b` on a line of its own."""
    head, _, kept = text.partition("\b\n")
    return " ".join(text.split()) if head.strip() or not kept else f"```text\n{kept}\n```"


def command_of(name: str) -> click.Command | None:
    if name == "holdfast":
        return holdfast
    module, _, function = COMMANDS[name.removeprefix("holdfast ")][0].partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError):
        return None
    assert isinstance(found, click.Command)
    return found


def exit_codes() -> str:
    """One row per error, by code. What an error says first tells what happened; facts stand in braces."""
    rows = OTHER_CODES + [
        (kind.exit_code, kind.__name__, _first_sentence(kind)) for kind in _kinds(errors.HoldfastError)
    ]
    lines = [f"| {code} | {f'`{name}`' if name else ''} | {_cell(said)} |\n" for code, name, said in sorted(rows)]
    return "| code | error | what happened |\n| ---: | --- | --- |\n" + "".join(lines)


def _kinds(kind: type[errors.HoldfastError]) -> Iterator[type[errors.HoldfastError]]:
    yield kind
    for narrower in kind.__subclasses__():
        # The page is about the program: an error class that only some test defines is not part of it.
        if narrower.__module__.startswith(f"{errors.__name__}."):
            yield from _kinds(narrower)


def _first_sentence(kind: type[errors.HoldfastError]) -> str:
    said = " ".join(inspect.cleandoc(kind.__doc__ or "").split())
    return re.sub(r"![rs]\}", "}", re.split(r"(?<=\.) |; ", said, maxsplit=1)[0].rstrip(".;") + ".")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
