"""Builds `Worktrees` from the settings, so that every caller has them confined in the same way."""

from __future__ import annotations

from pathlib import Path

from holdfast.config.settings import Config
from holdfast.layout import Layout
from holdfast.snapshots.size_limits import Bounds
from holdfast.storage.audit.key import configured_path
from holdfast.worktrees.worktrees import Worktrees


def worktrees_of(repo: Path, layout: Layout, config: Config) -> Worktrees:
    key = str(configured_path(repo, config.audit.key_path) or "")
    made = Worktrees(repo, layout, config.submodules, key, Bounds.of(config.limits.resources))
    # Whether the gates' worktree keeps what its setup has made.
    made.is_warm = config.worktree.warm
    return made
