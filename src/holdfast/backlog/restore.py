"""Puts back what `git stash -u` or `git clean -fd` took out of the data root.

Git carries the backlog and the settings, so those who do not commit them leave them untracked, and both commands take
untracked files. A person deletes single files of open tasks; these commands take whole folders. So:

- An `open/` that is gone is put back whole, from the texts that the journal pinned. The folder appears by one rename
  with all its files in it: a crash in between never leaves a folder that says its tasks were deleted.
- `config/` is put back from the copy that every owner keeps below `runtime/`.
- The repository's own exclude file hides the data root from git. Once git tracks a file of it, because somebody added
  one with `git add -f`, it hides only what git does not carry: the journal stays hidden, also while the data root's
  `.gitignore` is away.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.backlog.missing import only_away, removed
from holdfast.domain.task import FOLDER_OF
from holdfast.domain.task_record import Task
from holdfast.errors import AlreadyExists, BlobCorrupt, BlobMissing, DiskError, FileMissing
from holdfast.git.repository import is_in_a_branch, tracked
from holdfast.layout import Layout
from holdfast.ports import BacklogFolder, Ledger
from holdfast.storage.files import disk
from holdfast.storage.records.blobs import Blobs

_STAGED = ".hf-open"
_KEPT_MAX = 1 << 20


def put_back_open(ledger: Ledger, backlog: BacklogFolder, blobs: Blobs) -> list[str]:
    """Makes `open/` anew with the files of all open tasks, where it is gone; returns the tasks."""
    place = backlog.folder / "open"
    if os.path.lexists(place):
        return []
    disk.mkdir(backlog.folder)
    tasks = ledger.state.tasks.copy()
    scan = backlog.scan()
    texts = {
        name: text
        for name, task in tasks.items()
        if FOLDER_OF[task.state] == "open" and not (task.unfiled or name in scan.tasks or name in scan.moved)
        if (text := pinned_text(task, blobs))
    }
    kept = {name for problem in only_away(backlog, scan, tasks, texts) for name in problem.tasks}
    kept |= removed(backlog, tasks, texts)
    back = {name: text for name, text in texts.items() if name not in kept}
    try:
        is_back = _make_whole(place, back)
    except FileMissing:
        # Git took it again in that moment: the next look puts it back.
        is_back = False
    return list(back) if is_back else []


def _make_whole(place: Path, files: Mapping[str, bytes]) -> bool:
    """Makes the folder with all its files at once. False: somebody made it meanwhile, and theirs stands."""
    staged = place.parent / _STAGED
    if os.path.lexists(staged):
        disk.remove_tree(staged)
    disk.mkdir(staged)
    for name, text in files.items():
        disk.create(staged / f"{name}.yaml", text)
    try:
        disk.rename(staged, place)
    except DiskError:
        if not place.is_dir():
            raise
        disk.remove_tree(staged)
        return False
    return True


def pinned_text(task: Task, blobs: Blobs) -> bytes:
    """The text that the journal pinned; empty where its blob is lost."""
    try:
        return blobs.get(task.definition)
    except (BlobMissing, BlobCorrupt):
        return b""


# -- the settings -----------------------------------------------------------------------------------------------------


def keep_config(layout: Layout) -> None:
    """Copies the settings to where git does not look; only what has changed is written."""
    for path, kept in _config_files(layout).items():
        try:
            content = path.read_bytes() if path.stat().st_size <= _KEPT_MAX else b""
        except OSError:
            continue
        if content and not (kept.exists() and kept.read_bytes() == content):
            disk.mkdir(kept.parent, 0o700)
            disk.replace(kept, content, 0o600)


def put_back_config(layout: Layout, note: Callable[[str, str], None] = lambda task, text: None) -> list[Path]:
    """Puts back the files of a `config/` that is gone as a whole; returns them. A single file that is gone is not."""
    if os.path.lexists(layout.settings.parent):
        return []
    back = []
    for path, kept in _config_files(layout).items():
        # What a branch has comes back with a checkout of it, and would be in its way.
        if kept.is_file() and not is_in_a_branch(layout.root, path):
            try:
                disk.mkdir(path.parent)
                disk.create(path, kept.read_bytes())
            except (AlreadyExists, FileMissing):
                # A `git stash pop` was quicker, or another stash took the folder again: the next look sees to it.
                continue
            back.append(path)
            note("", f"{path} was gone with its folder, and is put back")
    return back


def _config_files(layout: Layout) -> Mapping[Path, Path]:
    kept = layout.signals.parent / "config"
    return {path: kept / path.name for path in (layout.settings, layout.mcp_servers, layout.triggers)}


# -- hidden from git --------------------------------------------------------------------------------------------------

_MARK = "# holdfast: what git does not carry of the data root"


def hide_from_git(root: Path, repo: Path) -> None:
    """Writes our rules into the repository's own exclude file."""
    exclude = repo / ".git" / "info" / "exclude"
    if root.parent != repo or not (repo / ".git").is_dir() or exclude.is_symlink():
        return
    carried = [f"/{root.name}/*", *(f"!/{root.name}/{name}" for name in (".gitignore", "backlog/", "config/"))]
    found = exclude.read_text(errors="surrogateescape").splitlines() if exclude.is_file() else []
    rules = carried if tracked(root) else [f"/{root.name}/"]
    if set(found) >= {_MARK, *rules} or set(found) >= {_MARK, *carried}:
        return
    lines = [line for line in found if line not in (_MARK, f"/{root.name}/")]
    text = "\n".join([*lines, _MARK, *rules]) + "\n"
    try:
        disk.mkdir(exclude.parent, disk.COMMON_FOLDER)
        disk.replace(exclude, text.encode(errors="surrogateescape"), disk.COMMON_FILE)
    except DiskError:
        # A `.git` that is not ours to write: `.sdd/.gitignore` still hides the journal.
        return
