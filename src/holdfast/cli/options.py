"""What the commands share: finding the repository, and printing for people or for programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.config.settings import Config

F = TypeVar("F", bound=Callable[..., Any])


def as_json(command: F) -> F:
    """The option `--json`, alike on every command that prints."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


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


def print_json(value: Any) -> None:
    """It may hold what an agent or a stranger wrote, and be looked at on a terminal: see `terminal`."""
    from holdfast.domain.printable import plain_json

    click.echo(plain_json(msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2).decode()))
