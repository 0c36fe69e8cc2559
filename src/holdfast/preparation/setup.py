"""The effect that sets up a worktree: runs the commands of `worktree.setup`, once for each worktree and its inputs.

    cache/snapshots/<worktree>/setup.json   the stamp: what the worktree was set up with; written last, removed first

The stamp is written when all that the commands made is on disk. Without it, or with another digest in it, the worktree
is set up again: half an installation that a kill left is never taken for a whole one.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.config.settings import Config
from holdfast.crashpoints import point
from holdfast.domain.effect_entries import SetupIntended
from holdfast.errors import GitFailed, NotAWorktree, SetupFailed
from holdfast.git import command as git
from holdfast.landing import gates as running
from holdfast.landing.gates import GatePlace
from holdfast.layout import Layout
from holdfast.ports import DidNotHappen, Happened, Reconciled
from holdfast.preparation import hooks
from holdfast.snapshots.snapshots import files_below
from holdfast.storage.files import disk, plain
from holdfast.storage.journal.intents import OpenIntent
from holdfast.storage.records.blobs import Blobs
from holdfast.worktrees.stamps import SetupStamp, read_stamp, stamp_path
from holdfast.worktrees.worktrees import Worktrees

SETUP_POINTS = tuple(f"setup.{step}.{when}" for step in ("begin", "command", "stamp") for when in ("before", "after"))
INPUT_BYTES_MAX = 64 << 20
HOOK = "setup"
# How many files that git does not ignore are kept on record, and how many a sentence names.
UNIGNORED_MAX, UNIGNORED_NAMED = 20, 3


class Setup:
    """`places`: where each worktree's commands run, by its path; the preparation puts it here before the intent."""

    def __init__(self, layout: Layout, config: Config, blobs: Blobs, worktrees: Worktrees) -> None:
        self._layout, self._blobs, self._worktrees = layout, blobs, worktrees
        settings = config.worktree
        self._hook = hooks.HookSet(HOOK, settings.setup, settings.setup_timeout_s, config.gate_env)
        self.places: dict[str, GatePlace] = {}

    def perform(self, intent: OpenIntent) -> dict[str, Any]:
        wanted = msgspec.convert(intent.entry.inputs, SetupIntended)
        place, stamp = self.places[wanted.worktree], self._stamp(wanted.worktree)
        is_gates, before = is_of_gates(wanted.worktree), self._untracked(place)
        point("setup.begin.before")
        disk.unlink(stamp, missing_ok=True)
        point("setup.begin.after")
        with running.locked(place) as ready:
            point("setup.command.before")
            results = hooks.run(self._hook, ready, self._blobs)
            point("setup.command.after")
        if (failed := hooks.broken(results)) is not None:
            what, lines = f"its setup {hooks.in_words(failed)}", hooks.last_lines(self._blobs, failed)
            raise SetupFailed(task=wanted.task, attempt=wanted.attempt, hook=HOOK, what=what, lines=lines)
        disk.sync_filesystem(place.folder, files_below(place.folder))
        # Of an attempt's worktree nothing is removed, so nothing need be known.
        made = self._worktrees.others_in(place.folder, "-i") if is_gates else []
        unignored = [] if is_gates or before is None else sorted((self._untracked(place) or set()) - before)
        point("setup.stamp.before")
        disk.mkdir(stamp.parent)
        done = SetupStamp(wanted.digest, tuple(made), tuple(unignored[:UNIGNORED_MAX]))
        disk.replace(stamp, msgspec.json.encode(done))
        point("setup.stamp.after")
        return self._result(done, sum(each.seconds for each in results))

    def reconcile(self, intent: OpenIntent) -> Reconciled:
        """Ends what is left of the commands, then answers by the stamp."""
        wanted = msgspec.convert(intent.entry.inputs, SetupIntended)
        files = self._layout.attempt_files(wanted.attempt)
        if files.root.is_dir():
            place = self.places.get(wanted.worktree) or GatePlace(
                wanted.task, wanted.attempt, files, Path(wanted.worktree), is_hook=True
            )
            with running.locked(place):
                pass
        found = read_stamp(self._stamp(wanted.worktree).parent)
        if found is None or found.digest != wanted.digest:
            return DidNotHappen()
        return Happened(self._result(found, 0.0))

    def _untracked(self, place: GatePlace) -> set[str] | None:
        """What git neither tracks nor ignores in an attempt's worktree; None where git cannot tell, which only costs a
        warning. What ran there before was confined like the commands of a gate, so git is as well."""
        if is_of_gates(str(place.folder)):
            return None
        with contextlib.suppress(GitFailed, NotAWorktree):
            found = self._worktrees.others_in(
                place.folder, "--no-empty-directory", is_confined=place.confine is not None
            )
            return set(map(git.readable, found))
        return None

    def _stamp(self, worktree: str) -> Path:
        return stamp_path(self._layout.inside("cache", "snapshots", Path(worktree).name))

    def _result(self, stamp: SetupStamp, seconds: float) -> dict[str, Any]:
        left = {"unignored": list(stamp.unignored)} if stamp.unignored else {}
        return {"digest": stamp.digest, "seconds": round(seconds, 3), **left}


def is_of_gates(worktree: str) -> bool:
    """Whether gates run there, and not an agent."""
    return Path(worktree).name.startswith(".")


def unignored_words(names: Sequence[str]) -> str:
    """The warning of files that a setup made, and that git does not ignore."""
    more = len(names) - UNIGNORED_NAMED
    beyond = f" and {'at least ' if len(names) == UNIGNORED_MAX else ''}{more} more" if more > 0 else ""
    return (
        f"its setup made {', '.join(names[:UNIGNORED_NAMED])}{beyond}, which git does not ignore: that becomes part of "
        "the work, and lands with it. If it is not to, list it in .gitignore, or, for this clone alone, in "
        ".git/info/exclude"
    )


def inputs_of(worktree: Path, names: Sequence[str]) -> dict[str, str]:
    """The digest of each input file as it stands in the worktree; empty where there is no such plain file."""
    found: dict[str, str] = {}
    for name in names:
        digest = hashlib.sha256()
        try:
            # Read without following links: the tree may be an agent's.
            digest.update(plain.read(worktree / name, INPUT_BYTES_MAX, worktree))
            found[name] = digest.hexdigest()
        except (OSError, ValueError):
            found[name] = ""
    return found


def digest_of(commands: Sequence[str], inputs: Mapping[str, str], variables: Mapping[str, str]) -> str:
    return hashlib.sha256(msgspec.json.encode([list(commands), inputs, variables], order="sorted")).hexdigest()
