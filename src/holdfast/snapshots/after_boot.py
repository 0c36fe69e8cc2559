"""At the first start after another boot: objects of git that a power cut left empty or torn are found and set aside.

    runtime/objects-read       the boot in which the stores were last looked through
    quarantine/objects-<n>/    what was set aside, by store and name

What a worktree's file still holds, byte for byte, is made anew in the damaged object's place. The rest is set aside:
once it is out of the way, git writes it anew where something has that content. What cannot be made anew is found by
whoever takes the commit, and by `check`. Holdfast's own objects are synced before they have their name; those of an
agent's or a person's git are not.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from holdfast import identity
from holdfast.git import command as git
from holdfast.git import objects
from holdfast.git.objects import Damaged
from holdfast.layout import Layout
from holdfast.snapshots.store import publish, staging_in
from holdfast.storage.files import disk
from holdfast.storage.files.modes import COMMON_FILE, COMMON_FOLDER

# Without a note of the last time, no object that is older than this is read to its end.
DAYS_READ = 7
# A filesystem keeps what was written in memory for a while; far less than this.
WRITTEN_S_MAX = 600.0


def look(layout: Layout, repo: Path, now: float) -> list[str]:
    """Sets aside what a power cut left of objects; says what it did. Does nothing twice in one boot."""
    if not is_due(layout):
        return []
    repository = git.discover(repo)
    since = _last_looked(layout, now) - WRITTEN_S_MAX
    told = []
    for store in stores(layout, repository):
        if found := list(objects.damaged(store, repository.hash_name, since)):
            anew = _make_anew(layout, store, {each.name for each in found}, repository.hash_name)
            told.append(_set_aside(layout, store, [each for each in found if each.name not in anew], len(anew)))
    disk.replace(layout.objects_read, f"{identity.boot_id()}\n".encode())
    return told


def is_due(layout: Layout) -> bool:
    """Whether the next start looks through the stores."""
    return _read_in(layout) != identity.boot_id()


def stores(layout: Layout, repository: git.Repository) -> Iterator[Path]:
    """Every object folder that a git of ours or of an agent's writes into."""
    yield repository.stores[0]
    own = [layout.snapshots / "objects", *layout.root.glob("cache/snapshots/*/own/*/objects")]
    yield from sorted(own)


def _read_in(layout: Layout) -> str:
    try:
        return layout.objects_read.read_text().strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


def _last_looked(layout: Layout, now: float) -> float:
    try:
        return layout.objects_read.stat().st_mtime
    except FileNotFoundError:
        return now - DAYS_READ * 86_400


def _make_anew(layout: Layout, store: Path, names: Collection[str], hash_name: str) -> set[str]:
    """In the place of what is damaged, so that a crash leaves either; returns the names."""
    worktrees = sorted(path for path in layout.worktrees.glob("*") if path.is_dir())
    made = set()
    with staging_in(store) as staging:
        for name, content in objects.kept_in(worktrees, names, hash_name):
            disk.mkdir(staging / name[:2], COMMON_FOLDER)
            disk.create(staging / name[:2] / name[2:], content, COMMON_FILE)
            made.add(name)
        publish(staging, store)
    return made


def _set_aside(layout: Layout, store: Path, found: Sequence[Damaged], anew: int) -> str:
    """The reason is written first; the damaged file goes by a rename, and nothing of it is lost."""
    mended = f"{anew} objects in {store} were empty or torn after a power cut, and were stored anew from a worktree"
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
    told = f"{len(each)} objects in {store} were empty or torn after a power cut, and are set aside in {folder}"
    if anew:
        told += f"; {anew} more were stored anew from a worktree"
    return f"{told}; `holdfast check` names what is lost"
