"""The first minute: what must be there before agents can work, each with the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.app import App


def preflight(app: App) -> None:
    """Raises the first thing that is missing: a commit to start from, a name to commit with, a branch to land on."""
    from holdfast.engine import merge

    app.expect_initialised()
    branch = merge.target_branch(app.repo, app.config)
    merge.newest(app.repo, branch)
    merge.identity(app.repo, app.config)
