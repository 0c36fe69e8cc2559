"""Helpers of the commands: finding the repository, `--json`, and completing task ids in a shell."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from holdfast.app import App
    from holdfast.config.settings import Config

_FILE_BYTES_MAX = 1 << 20
_NEW = ("open", "issues")


def prints_json(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--json`, alike on every command that prints; and the command gets its context."""
    option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    return option(click.pass_context(command))


def find_app(ctx: click.Context, **settings: Any) -> App:
    """The repository that the command was typed in. `settings` are those given as options; None: not given."""
    from holdfast.app import App

    data_root = ctx.find_root().obj
    options: Mapping[str, Any] = {**settings, **({"data_root": os.path.abspath(data_root)} if data_root else {})}
    app = App.find(Path.cwd(), options=options)
    branch = linked_branch(Path.cwd())
    if branch and app.config.git.target_branch is None:
        return App.find(Path.cwd(), options={**options, "git.target_branch": branch})
    return app


def linked_branch(folder: Path) -> str:
    """The branch of the linked worktree that `folder` is in: work lands where the person stands. Empty elsewhere."""
    try:
        top = next(each for each in (folder, *folder.parents) if os.path.lexists(each / ".git"))
        git_dir = top / (top / ".git").read_text().removeprefix("gitdir:").strip()
        # A submodule has a file for its git folder, too, but shares nothing with another.
        head = (git_dir / "HEAD").read_text().strip() if (git_dir / "commondir").exists() else ""
    except (StopIteration, OSError, UnicodeDecodeError):
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else ""


def config_here(ctx: click.Context) -> Config:
    """The settings in effect; outside a repository those of the environment alone."""
    from holdfast.errors import NotInRepository

    try:
        return find_app(ctx).config
    except NotInRepository:
        from holdfast.config.layers import combine
        from holdfast.config.sources import environment

        return combine(environment(os.environ))[0]


def print_notice(line: str) -> None:
    """On standard error; it may quote what an agent or a stranger wrote."""
    from holdfast.domain.wording import plain

    click.echo(f"holdfast: {plain(line)}", err=True)


def print_json(value: Any) -> None:
    """It may hold what an agent or a stranger wrote, and be looked at on a terminal: see `terminal`."""
    from holdfast.domain.wording import plain_json

    click.echo(plain_json(msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2).decode()))


# -- what the shell completes ------------------------------------------------------------------------------------------


def complete_task(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Task ids with their states, also of files that no run has taken in yet. No file is parsed for it."""
    from click.shell_completion import CompletionItem

    # The group itself does not run while the shell completes, so it has not noted its option.
    root = ctx.find_root()
    root.obj = root.params.get("data_root")
    try:
        view = find_app(ctx).read()
        states = {name: str(task.state) for name, task in view.state.tasks.items()}
        states |= dict.fromkeys(_new_ids(view.layout.backlog, states.keys()), "new")
    except Exception:  # noqa: BLE001 (whatever is wrong: an error printed here would land on the prompt)
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
    """The ids in files that the journal does not know, as far as they can be told without a YAML parser."""
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
