"""Finds git objects that a power cut left empty or torn, at the first run after another boot, and sets them aside.

    runtime/objects-read       the boot in which the stores were last read through
    quarantine/objects-<n>/    what was set aside, by store and name

A damaged object whose content a worktree's file still has, byte for byte, is replaced by a good one. The rest is set
aside: once it is out of the way, git writes the object again when something has that content. An object that cannot be
made again is found by the step that takes its commit, and by `check`. Holdfast's own objects are synced before they
have their name; those of an agent's or a person's git are not.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from holdfast import identity
from holdfast.domain.wording import plural
from holdfast.git import command as git
from holdfast.git import objects
from holdfast.git.objects import Damaged
from holdfast.layout import Layout
from holdfast.snapshots.store import publish, staging_in
from holdfast.storage.files import disk

# Without a record of the last time, objects older than this are not read to their end.
DAYS_READ = 7
# The kernel writes dirty pages back after far less than this.
WRITTEN_S_MAX = 600.0


def set_damaged_aside(layout: Layout, repo: Path, now: float) -> list[str]:
    """Sets aside the objects that a power cut damaged and returns what it did, as sentences. Once per boot."""
    if not is_due(layout):
        return []
    repository = git.discover(repo)
    try:
        last_read_at = layout.objects_read.stat().st_mtime
    except FileNotFoundError:
        last_read_at = now - DAYS_READ * 86_400
    since = last_read_at - WRITTEN_S_MAX
    sentences = []
    for store in stores(layout, repository):
        if found := list(objects.damaged(store, repository.hash_name, since)):
            anew = _replace_damaged(layout, store, {each.name for each in found}, repository.hash_name)
            sentences.append(_set_aside(layout, store, [each for each in found if each.name not in anew], len(anew)))
    disk.replace(layout.objects_read, f"{identity.boot_id()}\n".encode())
    return sentences


def is_due(layout: Layout) -> bool:
    """Whether the next run reads through the stores."""
    try:
        return layout.objects_read.read_text().strip() != identity.boot_id()
    except (FileNotFoundError, UnicodeDecodeError):
        return True


def stores(layout: Layout, repository: git.Repository) -> Iterator[Path]:
    """Every object folder that a git of ours or of an agent writes to."""
    yield repository.stores[0]
    own = [layout.snapshots / "objects", *layout.root.glob("cache/snapshots/*/own/*/objects")]
    yield from sorted(own)


def _replace_damaged(layout: Layout, store: Path, names: Collection[str], hash_name: str) -> set[str]:
    """Replaces damaged objects by rename, so that a crash leaves either one; returns their names."""
    worktrees = sorted(path for path in layout.worktrees.glob("*") if path.is_dir())
    made = set()
    with staging_in(store) as staging:
        for name, content in objects.kept_in(worktrees, names, hash_name):
            disk.mkdir(staging / name[:2], disk.COMMON_FOLDER)
            disk.create(staging / name[:2] / name[2:], content, disk.COMMON_FILE)
            made.add(name)
        publish(staging, store)
    return made


def _set_aside(layout: Layout, store: Path, found: Sequence[Damaged], anew: int) -> str:
    """Writes the reason first, then moves the damaged files by rename, so that none is lost."""
    mended = f"{plural(anew, 'object')} in {store} {_were(anew)} empty or torn after a power cut"
    mended += f", and {_were(anew)} stored anew from a worktree"
    if not found:
        return mended
    disk.mkdir(layout.quarantine)
    # A rename cannot leave its filesystem, and the data root may be on another.
    is_near = store.stat().st_dev == layout.quarantine.stat().st_dev
    top = layout.quarantine if is_near else store.parent / "holdfast-quarantine"
    disk.mkdir(top)
    folder = next(path for number in itertools.count(1) if not os.path.lexists(path := top / f"objects-{number}"))
    each = [one for one in found if one.path is not None]
    lines = [f"{one.path}: {one.reason}" for one in each]
    text = f"objects of {store} that a power cut left damaged, before the machine's last start:\n" + "\n".join(lines)
    disk.create(top / f"{folder.name}.reason.txt", f"{text}\n".encode())
    disk.mkdir(folder)
    disk.rename_together({one.path: folder / one.name for one in each if one.path is not None})
    sentence = f"{plural(len(each), 'object')} in {store} {_were(len(each))} empty or torn after a power cut"
    sentence += f", and {'is' if len(each) == 1 else 'are'} set aside in {folder}"
    if anew:
        sentence += f"; {anew} more {_were(anew)} stored anew from a worktree"
    return f"{sentence}; `holdfast check` names what is lost"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
