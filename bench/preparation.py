"""Worktrees: what it costs to have one ready for a start, against `git worktree add` alone."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.harness import Row, alternate, seconds
from holdfast.config.settings import Config
from holdfast.config.worktree import WorktreeSettings
from holdfast.domain.effect_entries import SetupIntended
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import LastAttempt, Task
from holdfast.engine.start import hold
from holdfast.layout import Layout
from holdfast.preparation.preparation import Preparation, WorktreePlace
from holdfast.preparation.setup import Setup
from holdfast.processes.cgroups import NO_LIMITS
from holdfast.storage.journal.entry import GENESIS, Entry
from holdfast.storage.journal.intents import OpenIntent
from holdfast.storage.records.blobs import Blobs
from holdfast.worktrees.factory import worktrees_of

FILES = 2_000


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    place, rounds = Place(folder / "repo"), 3 if quick else 11
    place.prepare()
    ratio, mine, theirs = alternate(lambda: seconds(place.prepare), place.add, rounds)
    assert place.setups == 1, "the setup was cached"
    detail = f"{mine * 1e3:.0f} ms against {theirs * 1e3:.0f} ms; {FILES:,} files, an included file, 10 ports"
    yield Row("start in a worktree whose setup is cached", "git worktree add alone", ratio, 1.5, True, detail)
    ratio, mine, theirs = alternate(place.prepare_new, place.add, rounds)
    detail = f"{mine * 1e3:.0f} ms against {theirs * 1e3:.0f} ms; the same, synced, with a setup that has nothing to do"
    yield Row("first start in a new worktree", "git worktree add alone", ratio, 3, True, detail)


class Place:
    """A repository whose worktrees have an included file, ports and a setup."""

    def __init__(self, repo: Path) -> None:
        for number in range(FILES):
            path = repo / f"folder-{number // 100:02d}" / f"file-{number % 100:02d}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{number}\n" * 200)
        (repo / ".gitignore").write_text("/.sdd/\n.env\n")
        (repo / ".worktreeinclude").write_text(".env\n")
        for command in (
            ["init", "-q"],
            ["add", "."],
            ["-c", "user.name=b", "-c", "user.email=b@b", "commit", "-qm", "b"],
        ):
            subprocess.run(["git", "-c", "gc.auto=0", *command], cwd=repo, check=True)
        (repo / ".env").write_text("KEY=value\n")
        self.repo, self.layout = repo, Layout(repo / ".sdd")
        settings = WorktreeSettings(setup=("true",), inputs=(".gitignore",), ports=10)
        config, blobs = Config(worktree=settings, sandbox="none"), Blobs(self.layout.cas)
        self.trees = worktrees_of(repo, self.layout, config)
        self.effect = Setup(self.layout, config, blobs, self.trees)
        self.preparation = Preparation(
            repo, self.layout, config, blobs,
            worktrees=self.trees, setup=self.effect, confine=lambda *_: [], resources=NO_LIMITS,
        )  # fmt: skip
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repo, capture_output=True, text=True, check=True)
        self.base = head.stdout.strip()
        self.task = Task("t", TaskState.CLAIMED, "", 0.0, 0.0, number=0)
        self.task.attempt = LastAttempt(id="t.1", base=self.base)
        self.setups, self.numbers = 0, itertools.count()

    def prepare(self) -> None:
        place = WorktreePlace(task="t", attempt="t.1", folder=self.trees.path("t"), target=self.base, tree=self.base)
        make_tree = functools.partial(hold, self.trees, self.task, self.base, "", self.base)
        with self.preparation.prepare(place, make_tree, self._carry_out):
            pass

    def _carry_out(self, intended: SetupIntended) -> dict[str, Any]:
        self.setups += 1
        inputs = msgspec.to_builtins(intended)
        entry = Entry(
            1, GENESIS, 1.0, "task_setup_intent", inputs,
            output={}, actor="loop", committed=False, synced=0, entry_hash=GENESIS,
        )  # fmt: skip
        return self.effect.perform(OpenIntent("run", entry))

    def prepare_new(self) -> float:
        assert self.trees.remove("t", landed=self.base)
        os.sync()
        return seconds(self.prepare)

    def add(self) -> float:
        path = self.repo.parent / f"other-{next(self.numbers)}"
        git = ["git", "-C", str(self.repo), "worktree"]
        os.sync()
        taken = seconds(lambda: subprocess.run([*git, "add", "-q", "--detach", str(path), "HEAD"], check=True))
        subprocess.run([*git, "remove", "--force", str(path)], check=True)
        return taken
