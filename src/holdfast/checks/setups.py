"""Compares what setups and hooks have left with the journal: the stamps of worktrees, and the outputs of commands."""

from __future__ import annotations

from holdfast.checks.expectations import Recorded
from holdfast.checks.report import RESTORE, RUN, Draft
from holdfast.checks.work import BLOB_FLAWS
from holdfast.layout import Layout
from holdfast.preparation import hooks
from holdfast.preparation.setup import HOOK
from holdfast.storage.files.json_file import read_json
from holdfast.storage.records.blobs import Blobs
from holdfast.worktrees.stamps import read_stamp, stamp_path

AWAY = "move it away, and the next start there sets it up again"


def setups(recorded: Recorded, layout: Layout, store: Blobs) -> Draft:
    """A stamp is that of the last setup that the journal has of its worktree; and each output of a hook is there."""
    draft = Draft("setups", stamps=0, setups=len(recorded.setups.by_attempt), hooks=0)
    _stamps(draft, recorded, layout)
    for name in recorded.attempts:
        files = layout.attempt_files(name)
        if files.root.is_dir():
            _hook_runs(draft, recorded, layout, store, name)
    return draft


def _stamps(draft: Draft, recorded: Recorded, layout: Layout) -> None:
    """A wrong stamp lets an agent and gates work in a worktree that is not set up, or is set up otherwise."""
    known = recorded.setups
    for private in sorted(layout.inside("cache", "snapshots").glob("*")):
        path, worktree = stamp_path(private), layout.worktrees / private.name
        if not path.exists() or not worktree.is_dir():
            # A worktree that is made anew begins without a stamp.
            continue
        draft.counted["stamps"] += 1
        found = read_stamp(private)
        if found is None:
            draft.pending.append(f"{path} cannot be read, so {worktree} is set up again; {RUN}")
        elif found.digest in known.intended_for(private.name):
            draft.pending.append(f"the setup of {worktree} has ended, and its outcome is not in the journal yet; {RUN}")
        elif private.name not in known.confirmed:
            draft.passing.append(f"{path} says that {worktree} is set up, and the journal has no setup of it; {AWAY}")
        elif found.digest != known.confirmed[private.name]:
            draft.passing.append(f"{path} is of another setup than the last that the journal has; {AWAY}")
    for name in sorted(known.confirmed):
        if (layout.worktrees / name).is_dir() and not stamp_path(layout.inside("cache", "snapshots", name)).exists():
            draft.notes.append(f"{layout.worktrees / name} was set up and has no stamp: its next start does it again")


def _hook_runs(draft: Draft, recorded: Recorded, layout: Layout, store: Blobs, name: str) -> None:
    path, is_set_up = layout.attempt_files(name).hooks, name in recorded.setups.by_attempt
    runs = read_json(path, list[hooks.HookRun]) if path.exists() else []
    if runs is None:
        draft.findings.append(f"{path} cannot be read, and has the hooks of {name}; {RESTORE}")
        return
    draft.counted["hooks"] += len(runs)
    if is_set_up and len(runs) < hooks.KEPT_MAX and not any(each.hook == HOOK for each in runs):
        draft.findings.append(f"{path} has no setup, and the journal has one of {name}; {RESTORE}")
    # The same output of the same hook, for the gates' worktree, too, is one blob.
    for hook, digest in dict.fromkeys((each.hook, each.run.output) for each in runs if each.run.output):
        try:
            store.meta(digest)
            for _ in store.open_stream(digest):
                pass
        except BLOB_FLAWS as error:
            draft.findings.append(f"the output of the hook {hook} of {name}: {error} ({RESTORE})")
