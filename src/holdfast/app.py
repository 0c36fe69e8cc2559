"""The composition root: the only place that knows which adapter stands behind which port."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.config.layers import Loaded, load
from holdfast.config.settings import DEFAULT_SETTINGS, Config
from holdfast.domain.entries import ReplayCompleted
from holdfast.domain.state import State
from holdfast.durable import disk
from holdfast.durable.blobs import Blobs
from holdfast.durable.checkpoint import Recovered
from holdfast.durable.root import create_root, open_root, read_root
from holdfast.engine.intake import Report, project, take_in
from holdfast.engine.recover import Closed, recover
from holdfast.errors import NotInitialised, NotInRepository
from holdfast.layout import Layout
from holdfast.ports import Effect
from holdfast.stores.backlog import Backlog
from holdfast.stores.files import FileLedger, read_state

# What must not be committed: the journal of this machine, what only lives while Holdfast runs, and the work trees.
GITIGNORE = b"/runtime/\n/worktrees/\n/cache/\n.hf-*.tmp\n"


class View(msgspec.Struct, frozen=True):
    """The data root as it is on disk, for who only looks."""

    layout: Layout
    state: State
    found: Recovered
    backlog: Backlog


class Session(msgspec.Struct, frozen=True):
    """A short run of its own: the ledger is ours until the session ends."""

    ledger: FileLedger
    backlog: Backlog
    blobs: Blobs
    config: Config
    recovered: ReplayCompleted
    closed: list[Closed]
    intake: Report


class App:
    """One repository with its configuration and data root."""

    def __init__(self, repo: Path, loaded: Loaded, clock: Callable[[], float] = time.time) -> None:
        self.repo = repo
        self.loaded = loaded
        self.config = loaded.config
        self.layout = loaded.layout
        self.clock = clock
        # Effects register here as they are built; recovery parks what nothing knows how to look for.
        self.effects: dict[str, Effect] = {}

    @classmethod
    def find(cls, folder: Path, *, environ: Mapping[str, str] = os.environ, options: Mapping[str, Any] = {}) -> App:
        """The repository that `folder` is in, and its settings."""
        repo = repository_of(folder)
        return cls(repo, load(repo, environ=environ, options=options))

    def init(self) -> list[Path]:
        """Makes the data root with its folders and first files; returns the files it created. Safe to repeat."""
        create_root(self.layout.root)
        created = []
        for path, content in ((self.layout.settings, DEFAULT_SETTINGS.encode()), (self._gitignore, GITIGNORE)):
            if not path.exists():
                disk.create(path, content)
                created.append(path)
        return created

    @property
    def _gitignore(self) -> Path:
        return self.layout.root / ".gitignore"

    def look(self) -> View:
        """Reads, takes no lock and writes nothing; also while somebody else runs."""
        self._expect_initialised()
        layout = read_root(self.layout.root)
        state, found = read_state(layout)
        return View(layout, state, found, Backlog(layout.backlog))

    @contextlib.contextmanager
    def session(self, *, take_over: bool = False) -> Iterator[Session]:
        """Owns the data root for a while: recovers, takes in what people did to the files, and projects at the end."""
        self._expect_initialised()
        layout = open_root(self.layout.root)
        backlog, blobs = Backlog(layout.backlog), Blobs(layout.cas)
        with FileLedger.open(layout, take_over=take_over, clock=self.clock) as ledger:
            counts, closed = recover(ledger, self.effects, self.clock(), self.config.replay_age_max_s)
            report = take_in(ledger, backlog, blobs)
            yield Session(ledger, backlog, blobs, self.config, counts, closed, report)
            project(ledger, backlog)

    def _expect_initialised(self) -> None:
        if not self.layout.format_file.exists():
            raise NotInitialised(path=self.layout.root, repo=self.repo)


def repository_of(folder: Path) -> Path:
    """The top of the main work tree that `folder` belongs to: all work trees of a repository share one data root."""
    asked = ["git", "-C", str(folder), "rev-parse", "--path-format=absolute", "--git-common-dir", "--show-toplevel"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NotInRepository(path=folder, reason="there is no `git` on this machine; install it") from None
    if done.returncode != 0:
        raise NotInRepository(path=folder, reason=done.stderr.strip() or "git does not say why")
    common, top = (Path(line) for line in done.stdout.splitlines()[:2])
    return (common.parent if common.name == ".git" else top).resolve()
