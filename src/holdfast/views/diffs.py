"""The changes of an attempt between two of its turns, from git. Read-only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from holdfast.domain.task_record import Task
from holdfast.domain.wording import plural
from holdfast.engine.turn_follower import all_turns
from holdfast.errors import TurnUnknown
from holdfast.layout import Layout
from holdfast.ports import LedgerReader
from holdfast.snapshots.store import Store
from holdfast.worktrees.attempt_commits import base_of, snapshots_of
from holdfast.worktrees.worktrees import Worktrees


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
