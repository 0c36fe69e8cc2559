"""What the shell completes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from holdfast.cli.options import find_app

_FILE_BYTES_MAX = 1 << 20
_NEW = ("open", "issues")


def complete_task(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Task ids with their states, also of files that no run has taken in yet. No file is parsed for it."""
    # The group itself does not run while the shell completes, so it has not noted its option.
    root = ctx.find_root()
    root.obj = root.params.get("data_root")
    try:
        view = find_app(ctx).look()
        states = {name: str(task.state) for name, task in view.state.tasks.items()}
        states |= dict.fromkeys(_new_ids(view.layout.backlog, states.keys()), "new")
    except Exception:  # noqa: BLE001 (whatever is wrong: what a shell is told here would land on the prompt)
        return []
    # A name given already on the same line is of no use again.
    given = ctx.params.get(param.name or "")
    taken = set(given) if isinstance(given, tuple | list) else set()
    return [
        CompletionItem(name, help=state)
        for name, state in states.items()
        if name.startswith(incomplete) and name.isprintable() and name not in taken
    ]


def _new_ids(backlog: Path, known: Collection[str]) -> Iterator[str]:
    """What the files that the journal does not know call themselves, as far as a look without YAML can tell."""
    from holdfast.backlog.scanner import ENDINGS
    from holdfast.domain.definition import is_id, possible_ids

    for folder in _NEW:
        if not (backlog / folder).is_dir():
            continue
        for entry in os.scandir(backlog / folder):
            stem, ending = os.path.splitext(entry.name)
            if ending not in ENDINGS or stem in known or not entry.is_file(follow_symlinks=False):
                continue
            if entry.stat().st_size <= _FILE_BYTES_MAX:
                name = possible_ids(Path(entry.path).read_bytes(), stem)[0]
                if name not in known and is_id(name):
                    yield name
