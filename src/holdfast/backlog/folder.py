"""The backlog folder: one YAML file per task, in `open`, `claimed`, `closed`, `failed` or `issues`.

The folder a file stands in is a projection; the file is the truth for its definition. So a file is never overwritten by
another task's, a change counts only against the content it was made from, and a move puts the new file down, durable,
before it removes the old one. A crash between leaves both: the same words outside our block, in two folders. `scan`
tells such a pair (`moved`) from a duplicate, and the caller, who knows the journal, says with `settle` which one stays.

Our writers hold `runtime/backlog.lock` from reading to writing, so that no command of ours undoes another's.
Not guarded: an editor that writes into the very file that is being moved, in the moment between its last reading and
its removal. One that saves by renaming loses nothing: its file stands beside the moved one, and is reported.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.backlog.scanner import (
    ENDINGS,
    FOLDERS,
    FoundFile,
    Scan,
    ScannedFile,
    Scanner,
    Stamp,
    name_of,
    read_plain,
    stamp_of,
    stem,
)
from holdfast.domain.definition import BLOCKS, ID_RULE, Definition, is_id, parse
from holdfast.errors import (
    BacklogBusy,
    BacklogFolderMissing,
    BlockUnfit,
    DefinitionInvalid,
    InputError,
    InvalidName,
    PathEscapes,
    TaskExists,
    TaskFileChanged,
    TaskFileMissing,
    TaskFilesDiffer,
)
from holdfast.layout import Layout
from holdfast.storage.files import disk
from holdfast.storage.journal.lock import flocked

# Beyond so many the notes are dropped: a change of our own is then looked at like any other.
OWN_MAX = 50_000

# No file has this stamp, so a comparison reads the file again.
NO_STAMP: Stamp = (0, 0, 0, 0)

BLOCK_OF = {"claimed": "claim", "closed": "result", "failed": "error"}

# Others hold the lock for a few syncs.
LOCK_WAIT_S_MAX = 10.0
LOCK_POLL_S = 0.005


class Backlog:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = Layout(folder.parent).backlog_lock
        self._scanner = Scanner(folder)
        self._recalled: dict[str, ScannedFile] = {}
        # What we have written and removed, so that the watcher of the folder can tell our changes from people's.
        self._own: dict[str, Stamp | None] = {}

    def recall(self, memory: Path) -> dict[str, FoundFile]:
        """Loads what an earlier process read, by task: files that have not changed since are not read again."""
        from holdfast.backlog.scan_cache import recall

        self._recalled = recall(self.folder, memory)
        self._scanner.remember(self._recalled)
        return {seen.found.definition.id: seen.found for seen in self._recalled.values() if seen.found is not None}

    def keep(self, memory: Path) -> None:
        """Keeps what the last scan read for the next process, if much of it is new."""
        from holdfast.backlog.scan_cache import NEW_MIN, keep

        sure = self._scanner.sure()
        if sum(self._recalled.get(name) is not seen for name, seen in sure.items()) >= NEW_MIN:
            keep(memory, sure)
            self._recalled = sure

    def is_own(self, path: Path) -> bool:
        """Whether a path is unchanged since we wrote it."""
        own = self._own
        return str(path) in own and own[str(path)] == _stamp(path)

    def _note(self, found: FoundFile) -> FoundFile:
        if len(self._own) >= OWN_MAX:
            self._own = {}
        self._own[str(found.path)] = found.stamp
        return found

    def scan(self) -> Scan:
        """Reads what is new or changed; an unchanged file costs a stat."""
        return self._scanner.scan()

    def read(self, task: str) -> tuple[FoundFile, bytes]:
        """A task's file as it is now. Of several that a crash left, one: they say the same."""
        found = self._copies(task)[0]
        return found, self._scanner.text(found)

    def bare(self, file: FoundFile) -> bytes:
        """A file's text without the blocks that we write: what a person wrote."""
        from holdfast.backlog.yaml_blocks import without_blocks

        return without_blocks(self._scanner.text(file))

    def add(self, text: bytes, name: str, folder: str = "open") -> FoundFile:
        """Creates the file of a new task, called `name`. Nothing is ever overwritten."""
        _check_id(name)
        place = self._place(folder)
        made = _parsed(text, name, name)
        with self._writing():
            self.scan()
            for other in self._scanner.found():
                if other.definition.id == made.id:
                    raise TaskExists(task=made.id, path=other.path)
            path = place / f"{name}{ENDINGS[0]}"
            self._expect_folder(place)
            disk.create(path, text)
            return self._note(_found(made, folder, path, text))

    def add_many(self, texts: Mapping[str, bytes], folder: str = "open") -> dict[str, FoundFile]:
        """Creates the files of new open tasks, by id, for one sync. One that is there stays as it is."""
        place = self._place(folder)
        added = {}
        with self._writing():
            self._expect_folder(place)
            with disk.Batch(place) as batch:
                for name, text in texts.items():
                    _check_id(name)
                    path = place / f"{name}{ENDINGS[0]}"
                    if not os.path.lexists(path):
                        batch.add(path, text, keep=True)
                        added[name] = (path, text)
                batch.publish()
        return {
            name: self._note(_found(_parsed(text, name, name), folder, path, text))
            for name, (path, text) in added.items()
        }

    def edit(self, task: str, text: bytes, digest: str) -> FoundFile:
        """Replaces a task's file if it still has the content of `digest`. Our block stays as it is."""

        def unless_changed(found: FoundFile, before: bytes) -> bytes:
            if found.digest != digest:
                raise TaskFileChanged(path=found.path)
            return text

        return self.change(task, unless_changed)

    def change(self, task: str, make: Callable[[FoundFile, bytes], bytes]) -> FoundFile:
        """Replaces a task's file by what `make` makes of it, as it is now. Our block stays as it is."""
        with self._writing():
            copies = self._copies(task)
            if len(copies) > 1:
                raise InputError(detail=f"a crash left {task!r} in several folders; the next `holdfast run` settles it")
            found = copies[0]
            text = make(found, self._scanner.text(found))
            made = _parsed(text, stem(found.path.name), name_of(found))
            if made.id != task:
                raise InputError(detail=f"the text has the id {made.id!r}, and {found.path} is the file of {task!r}")
            if any(getattr(made, key) != getattr(found.definition, key) for key in BLOCKS):
                blocks = ((key, block) for key in BLOCKS if (block := getattr(found.definition, key)) is not None)
                text = _text_with(found, text, *next(blocks, (None, None)))
            return self._replace(found, text)

    def move(
        self, task: str, folder: str, block: Mapping[str, Any] | None = None, file: FoundFile | None = None
    ) -> FoundFile:
        """Puts a task's file into a folder, with that folder's block, or none. Again after a crash, it goes on.

        `file` is the task's file as the last scan or move had it: while it is unchanged, nothing else is read.
        """
        with self._writing():
            is_same = file is not None and _stamp(file.path) == file.stamp
            return self._move(task, folder, block, (file,) if file and is_same else self._copies(task))

    def _move(
        self, task: str, folder: str, block: Mapping[str, Any] | None, copies: tuple[FoundFile, ...]
    ) -> FoundFile:
        place = self._place(folder)
        key = BLOCK_OF.get(folder)
        if key is None and block is not None:
            raise InputError(detail=f"a file in {folder} carries no block")
        here = next((each for each in copies if each.folder == folder), None)
        source = here or copies[0]
        text = _text_with(source, self._scanner.text(source), key, block)
        if here is not None:
            kept = self._replace(here, text)
            self._remove(copies, kept)
            return kept
        self._expect_folder(place)
        path = place / source.path.name
        if os.path.lexists(path):
            # Another file has that name.
            path = place / f"{source.definition.id}{ENDINGS[0]}"
        made = _parsed(text, stem(path.name), f"{folder}/{path.name}")
        disk.create(path, text, _mode(source))
        kept = self._note(_found(made, folder, path, text))
        try:
            self._remove(copies, kept)
        except TaskFileChanged:
            # Somebody saved the old file meanwhile. That is the newer word, and it still stands where it was.
            disk.unlink(kept.path)
            raise
        return kept

    def settle(self, task: str, folder: str) -> FoundFile:
        """Of the files that a crash left of a task, keeps the one in `folder` as it is and removes the others."""
        with self._writing():
            copies = self._copies(task)
            kept = next((each for each in copies if each.folder == folder), None)
            if kept is None:
                raise TaskFileMissing(task=task, path=self.folder / folder)
            self._replace(kept, self._scanner.text(kept))
            self._remove(copies, kept)
            return kept

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Alone among our own writers, for a moment. What was read before must be read again."""
        if not self._lock.parent.is_dir():
            disk.mkdir(self._lock.parent)
        refusal = BacklogBusy(path=self._lock, seconds=LOCK_WAIT_S_MAX)
        with flocked(self._lock, LOCK_WAIT_S_MAX, LOCK_POLL_S, refusal):
            yield

    def _copies(self, task: str) -> tuple[FoundFile, ...]:
        """The files of a task: one, or several that a crash left."""
        _check_id(task)
        scan = self.scan()
        if task in scan.tasks:
            return (scan.tasks[task],)
        if task in scan.moved:
            return scan.moved[task]
        same = [each for each in self._scanner.found() if each.definition.id == task]
        if same:
            raise TaskFilesDiffer(task=task, paths=", ".join(str(each.path) for each in same))
        raise TaskFileMissing(task=task, path=self.folder)

    def _remove(self, copies: tuple[FoundFile, ...], kept: FoundFile) -> None:
        """Removes the other files, each only if it still is what was read."""
        for each in copies:
            if each.path != kept.path and os.path.lexists(each.path):
                self._scanner.text(each)
                disk.unlink(each.path)
                self._own[str(each.path)] = None

    def _replace(self, found: FoundFile, text: bytes) -> FoundFile:
        if text != self._scanner.text(found):
            disk.replace(found.path, text, _mode(found))
        else:
            # It was seen, but perhaps a crash came before it was durable.
            disk.sync_file(found.path)
            disk.sync_folder(found.path.parent)
        made = _parsed(text, stem(found.path.name), name_of(found))
        return self._note(_found(made, found.folder, found.path, text))

    def _expect_folder(self, place: Path) -> None:
        """An `open` folder that is gone took its tasks with it: made anew by a file, it would say they were deleted."""
        has_journal = os.path.lexists(self.folder.parent / "runtime" / "wal")
        if place.name in ("open", "issues") and not place.is_dir() and (has_journal or self.folder.is_dir()):
            raise BacklogFolderMissing(path=place)
        disk.mkdir(place)

    def _place(self, folder: str) -> Path:
        if folder not in FOLDERS:
            raise InvalidName(what="The backlog folder", name=folder, rule=f"it must be one of {', '.join(FOLDERS)}")
        place = self.folder / folder
        if place.is_symlink():
            raise PathEscapes(name=folder, root=self.folder)
        return place


def _text_with(found: FoundFile, text: bytes, key: str | None, block: Mapping[str, Any] | None) -> bytes:
    """The file with this block, once it is certain that all else is, and says, the same."""
    # Loads the reader of YAML, which read-only commands do without.
    from holdfast.backlog.yaml_blocks import with_block, without_blocks

    edited = with_block(text, key, block)
    own = stem(found.path.name)
    before, after = parse(text, own), parse(edited, own)
    same = isinstance(before, Definition) and isinstance(after, Definition) and _bare(before) == _bare(after)
    if not same or without_blocks(edited) != without_blocks(text):
        raise BlockUnfit(block=key or "/".join(BLOCKS), path=found.path)
    return edited


def _found(made: Definition, folder: str, path: Path, text: bytes) -> FoundFile:
    """A file that we have just written, and that somebody may have changed or taken away again already."""
    try:
        there, stamp = read_plain(path)
    except OSError:
        there, stamp = b"", NO_STAMP
    digest = hashlib.sha256(text).hexdigest()
    return FoundFile(made, path.parent.parent, folder, path.name, stamp if there == text else NO_STAMP, digest=digest)


def _stamp(path: Path) -> Stamp | None:
    try:
        return stamp_of(os.lstat(path))
    except FileNotFoundError:
        return None


def _mode(found: FoundFile) -> int:
    try:
        return stat.S_IMODE(os.lstat(found.path).st_mode)
    except FileNotFoundError:
        raise TaskFileChanged(path=found.path) from None


def _bare(made: Definition) -> Definition:
    return msgspec.structs.replace(made, claim=None, result=None, error=None)


def _parsed(text: bytes, own: str, name: str) -> Definition:
    made = parse(text, own)
    if isinstance(made, Definition):
        return made
    raise DefinitionInvalid(name=name, problems="; ".join(f"line {each.line}: {each.message}" for each in made))


def _check_id(name: str) -> None:
    if not is_id(name):
        raise InvalidName(what="The task id", name=name, rule=f"it must be {ID_RULE}")
