"""The effect that sets up a worktree: runs the commands of `worktree.setup`, once for each worktree and its inputs.

    cache/snapshots/<worktree>/setup.json   the stamp: what the worktree was set up with; written last, removed first

The stamp is written when all that the commands made is on disk. Without it, or with another digest in it, the worktree
is set up again: half an installation that a kill left is never taken for a whole one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.config.settings import Config
from holdfast.crashpoints import point
from holdfast.domain.effect_entries import SetupIntended
from holdfast.errors import SetupFailed
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
        made = self._worktrees.ignored_in(place.folder) if place.folder.name.startswith(".") else []
        point("setup.stamp.before")
        disk.mkdir(stamp.parent)
        disk.replace(stamp, msgspec.json.encode(SetupStamp(wanted.digest, tuple(made))))
        point("setup.stamp.after")
        return self._result(wanted.digest, sum(each.seconds for each in results))

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
        is_done = found is not None and found.digest == wanted.digest
        return Happened(self._result(wanted.digest, 0.0)) if is_done else DidNotHappen()

    def _stamp(self, worktree: str) -> Path:
        return stamp_path(self._layout.inside("cache", "snapshots", Path(worktree).name))

    def _result(self, digest: str, seconds: float) -> dict[str, Any]:
        return {"digest": digest, "seconds": round(seconds, 3)}


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
