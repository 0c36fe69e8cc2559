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
    return Worktrees(repo, layout, config.submodules, key, Bounds.of(config.limits.resources))
