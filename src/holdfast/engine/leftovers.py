"""What a killed runner leaves of its agent's secrets: found by the marks in the data root, and removed.

A mark counts only where nothing of its attempt is alive: `alive.lock` is in nobody's hands, and is held meanwhile, so
that no start begins in between.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.layout import Attempt, Layout
from holdfast.storage.files import disk


def find(layout: Layout) -> list[Path]:
    """The folders of agents that have ended, in which a secret was left."""
    found = []
    for files in _marked(layout):
        with _over(files) as is_over:
            if is_over:
                found.append(files.agent)
    return found


def remove(layout: Layout) -> None:
    for files in _marked(layout):
        # `check` reports what cannot be removed.
        with contextlib.suppress(HoldfastError), _over(files) as is_over:
            if is_over:
                if os.path.lexists(files.agent):
                    disk.remove_tree(files.agent)
                disk.unlink(layout.agent_secrets / files.root.name, missing_ok=True)


def _marked(layout: Layout) -> list[Attempt]:
    try:
        names = sorted(os.listdir(layout.agent_secrets))
    except FileNotFoundError:
        return []
    return [layout.attempt_files(name) for name in names if not disk.is_leftover(name)]


@contextlib.contextmanager
def _over(files: Attempt) -> Iterator[bool]:
    if not files.alive.exists():
        # The attempt's folder is gone.
        yield True
        return
    with files.alive.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
