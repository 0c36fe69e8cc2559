"""Builds `Preparation` from the settings, so that hooks run confined in the same way, with a run and without."""

from __future__ import annotations

import functools
from pathlib import Path

from holdfast.config.settings import Config
from holdfast.layout import Layout
from holdfast.preparation.preparation import Preparation
from holdfast.preparation.setup import Setup
from holdfast.processes import sandbox
from holdfast.processes.resources import of_machine
from holdfast.storage.audit.key import configured_path
from holdfast.storage.records.blobs import Blobs
from holdfast.worktrees.worktrees import Worktrees


def preparation_of(
    repo: Path, layout: Layout, config: Config, blobs: Blobs, *, worktrees: Worktrees, setup: Setup
) -> Preparation:
    key = str(configured_path(repo, config.audit.key_path) or "")
    return Preparation(
        repo,
        layout,
        config,
        blobs,
        worktrees=worktrees,
        setup=setup,
        confine=functools.partial(sandbox.gate, audit_key=key),
        resources=of_machine(config.limits.resources),
    )
