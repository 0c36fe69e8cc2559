"""One repository with its settings and its data root, as everybody finds it: to make it, and to look at it.

Who owns the data root, and so may change it, is in `wiring.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.backlog.folder import Backlog
from holdfast.clock import wall
from holdfast.config.layers import Loaded, load
from holdfast.config.new_file import DEFAULT_SETTINGS
from holdfast.domain.state import State
from holdfast.errors import (
    BacklogAlone,
    GitUnusable,
    NotInitialised,
    NotInRepository,
    RepositoryMoved,
)
from holdfast.layout import Layout
from holdfast.ledgers.reader import FileLedgerReader, read_state
from holdfast.ports import LedgerReader
from holdfast.storage.files import disk
from holdfast.storage.journal.checkpoint import Recovered
from holdfast.storage.journal.data_root import (
    create_root,
    has_journal,
    moved_from,
    read_root,
)

# Git carries what people write. All else belongs to the journal, which stays on this machine: a checkout that took
# blobs or format.json away and left the journal would leave half a data root.
GITIGNORE = b"/*\n!/.gitignore\n!/backlog/\n!/config/\n.hf-*.tmp\n"
# What `init` wrote before that; where nobody changed it, it is replaced.
_GITIGNORES_BEFORE = (b"/runtime/\n/worktrees/\n/cache/\n.hf-*.tmp\n",)

Say = Callable[[str], None]


class View(msgspec.Struct, frozen=True):
    """The data root as it is on disk, for read-only commands."""

    layout: Layout
    state: State
    found: Recovered
    backlog: Backlog


class App:
    """One repository with its configuration and data root."""

    def __init__(self, repo: Path, loaded: Loaded, clock: Callable[[], float] = wall) -> None:
        self.repo = repo
        self.loaded = loaded
        self.config = loaded.config
        self.layout = loaded.layout
        self.clock = clock

    @classmethod
    def find(cls, folder: Path, *, environ: Mapping[str, str] = os.environ, options: Mapping[str, Any] = {}) -> App:
        """The repository that `folder` is in, and its settings."""
        repo = repository_of(folder)
        return cls(repo, load(repo, environ=environ, options=options))

    def init(self) -> list[Path]:
        """Makes the data root with its folders and first files; returns the files it wrote. Safe to repeat."""
        from holdfast.backlog.restore import hide_from_git

        create_root(self.layout.root, repo=self.repo)
        written = []
        gitignore = self.layout.root / ".gitignore"
        for path, content in ((self.layout.settings, DEFAULT_SETTINGS.encode()), (gitignore, GITIGNORE)):
            if not path.exists():
                disk.create(path, content)
                written.append(path)
        if gitignore.read_bytes() in _GITIGNORES_BEFORE:
            disk.replace(gitignore, GITIGNORE)
            written.append(gitignore)
        hide_from_git(self.layout.root, self.repo)
        return written

    def read(self) -> View:
        """Reads the data root. Takes no lock and writes nothing, also beside a run."""
        self.expect_initialised()
        layout = read_root(self.layout.root)
        state, found = read_state(layout)
        return View(layout, state, found, Backlog(layout.backlog))

    def reader(self) -> LedgerReader:
        """Reads the journal without owning the data root."""
        return FileLedgerReader(self.layout)

    @property
    def audit_key(self) -> Path | None:
        """The path of the audit key in the settings; None for the default place."""
        from holdfast.storage.audit.key import configured_path

        return configured_path(self.repo, self.config.audit.key_path)

    def expect_initialised(self) -> None:
        """Raises NotInitialised, with what to type, without a data root, or where a move left it behind."""
        layout = self.layout
        # One that lost its format.json has a sentence of its own, which reading it gives.
        if layout.format_file.exists() or has_journal(layout):
            return
        is_shared = layout.root.parent != self.repo
        if is_shared and (found := moved_from(layout, self.repo)) is not None:
            import shlex

            command = shlex.join(["mv", "-n", "-T", str(found), str(layout.root)])
            raise RepositoryMoved(path=layout.root, repo=self.repo, found=found, command=command)
        if any(layout.backlog.glob("*/*.y*ml")):
            raise BacklogAlone(path=layout.root, repo=self.repo)
        raise NotInitialised(path=layout.format_file if layout.root.exists() else layout.root, repo=self.repo)


def repository_of(folder: Path) -> Path:
    """The top of the main work tree that `folder` belongs to: all work trees of a repository share one data root."""
    import subprocess

    asked = ["git", "-C", str(folder), "rev-parse", "--path-format=absolute", "--git-common-dir", "--show-toplevel"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        from holdfast.git.command import MINIMUM

        raise GitUnusable(reason="there is no program `git` on PATH", minimum=f"{MINIMUM[0]}.{MINIMUM[1]}") from None
    if done.returncode != 0:
        raise NotInRepository(path=folder, reason=done.stderr.strip() or "git does not say why")
    common, top = map(Path, done.stdout.splitlines()[:2])
    return (common.parent if common.name == ".git" else top).resolve()
