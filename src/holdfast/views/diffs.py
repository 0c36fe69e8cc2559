"""The changes of an attempt, from git: as they would land, or between two of its turns. Read-only.

All of it is read from commits in our own store, never from a worktree, which an agent can write.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from holdfast.config.settings import Config
from holdfast.domain.task import AT_WORK
from holdfast.domain.task_record import Task
from holdfast.domain.wording import plural
from holdfast.engine.earlier_starts import tree_of
from holdfast.engine.turn_follower import all_turns
from holdfast.errors import TurnUnknown
from holdfast.layout import Layout
from holdfast.ports import LedgerReader
from holdfast.snapshots.store import Store
from holdfast.worktrees import merges
from holdfast.worktrees.attempt_commits import base_of, snapshots_of
from holdfast.worktrees.factory import worktrees_of
from holdfast.worktrees.worktrees import Worktrees

# Of commits that are only looked at, and have no name.
_VIEWER = merges.GitAuthor("holdfast", "holdfast@localhost")


class WholeChange(msgspec.Struct, frozen=True):
    """From the commit `old` of the target to `new`, which has the attempt's work on top of it.

    `conflicts`: files in which `new` has conflict markers, because work and target changed the same lines. `landed`:
    `new` is the commit as which it landed.
    """

    old: str
    new: str
    conflicts: list[str] = []
    landed: bool = False


class Diffs(msgspec.Struct, frozen=True):
    """The diffs of one attempt."""

    repo: Path
    layout: Layout
    task: Task
    attempt: str
    journal: LedgerReader

    @property
    def _store(self) -> Store:
        return Store.of(self.layout.snapshots, self.repo)

    def after(self, turn: int) -> str:
        """The commit that holds the tree as the turn left it; 0: as the attempt found it."""
        turns = {line.turn: line.snapshot for line in all_turns(self.layout.attempt_files(self.attempt))}
        if turn and turn not in turns:
            known = f"has {plural(max(turns), 'turn')}" if turns else "has completed none"
            raise TurnUnknown(turn=turn, attempt=self.attempt, known=known)
        commit = turns[turn] if turn else self.base()
        if not commit:
            raise TurnUnknown(turn=turn, attempt=self.attempt, known="was made elsewhere, and left no tree")
        return commit

    def before(self, turn: int) -> str:
        """The tree as it stood when the turn began: what the one before left, or what the turn's start found."""
        starts = {line.turn: line.start for line in all_turns(self.layout.attempt_files(self.attempt))}
        if starts.get(turn) != starts.get(turn - 1):
            found = snapshots_of(self._store, self.attempt).get(f"start-{starts.get(turn)}")
            # By its name alone it could be of an older life of this data root.
            if found and self._store.descends(self.after(turn), found):
                return found
        return self.after(turn - 1)

    def as_landed(self, config: Config) -> WholeChange:
        """The whole change as it would land on the newest target, or as it has landed."""
        landing, is_last = self.task.landing, self.attempt == self.task.attempt.id
        if landing.commit and is_last:
            return WholeChange(
                self._store.seen.run("rev-parse", f"{landing.commit}^").line, landing.commit, landed=True
            )
        target = merges.newest(self.repo, merges.target_branch(self.repo, config))
        merged = merges.merge(self._store, target, self._work(config), f"The work of {self.attempt}", _VIEWER)
        return WholeChange(target, merged.commit or merged.marked, merged.conflicts)

    def _work(self, config: Config) -> str:
        """The attempt's candidate or, where it goes on after that, the last tree that was saved, as a commit."""
        task, base = self.task, self.base()
        is_last = self.attempt == task.attempt.id
        if is_last and task.candidate and task.made == task.attempt.at and not task.was_taken:
            return task.candidate
        is_settled = is_last and task.state not in AT_WORK
        snapshot = (tree_of(self.journal, task.attempt) if is_settled else "") or self.whole()[1]
        trees = worktrees_of(self.repo, self.layout, config)
        more = (trees.store, base, snapshot, f"The work of {self.attempt}", _VIEWER)
        made = merges.candidate(*more, exclude=trees.exclude, modules=trees.modules, leaves_nested=True)
        return made or base

    def whole(self) -> tuple[str, str]:
        """From the tree that the attempt found to what its last turn left."""
        last = max((line.turn for line in all_turns(self.layout.attempt_files(self.attempt))), default=0)
        if not last:
            raise TurnUnknown(turn=1, attempt=self.attempt, known="has completed none")
        return self.after(0), self.after(last)

    def base(self) -> str:
        """The commit that the attempt began with; of an earlier attempt only the journal itself knows it."""
        return base_of(self.journal, self.task, self.attempt)

    def patch(self, old: str, new: str, *options: str) -> bytes:
        """A patch without the data root, which no snapshot holds."""
        return self._store.seen.run(*self._command(old, new, *(options or PATCH))).out

    def beginning(self, old: str, new: str, most: int, *options: str) -> bytes:
        """Like `patch`, but no more than so many bytes of it: git is ended when it has more to say."""
        return self._store.seen.first_bytes(most, *self._command(old, new, *(options or PATCH)))

    def counts(self, old: str, new: str) -> list[dict[str, Any]]:
        return counted(self.patch(old, new, "--numstat", "-z").decode(errors="backslashreplace"))

    def _command(self, old: str, new: str, *options: str) -> list[str]:
        exclude = [f":(top,exclude,literal){name}" for name in Worktrees(self.repo, self.layout).exclude]
        return ["diff", *_FIXED, *options, old, new, "--", ":/", *exclude]


PATCH = ("-p", "--binary", "--full-index")
_FIXED = ("--no-color", "--no-ext-diff", "--no-textconv", "-M")


def counted(numbers: str) -> list[dict[str, Any]]:
    """Reads `--numstat -z`: `added deleted path`, and for a rename both paths behind an empty one."""
    files, rest = [], iter(numbers.split("\0")[:-1])
    for line in rest:
        added, deleted, path = line.split("\t", 2)
        old_path = ""
        if not path:
            old_path, path = next(rest), next(rest)
        count = {"added": None if added == "-" else int(added), "deleted": None if deleted == "-" else int(deleted)}
        files.append({"path": path, **({"old_path": old_path} if old_path else {}), **count})
    return files
