"""Reading the backlog folder as a whole: each file once, and again only when its stamp changed.

The cache lives in memory and trusts a stamp (inode, mtime, ctime, size) only when it was old enough at the reading that
a later change must show in it. Younger files are read again and compared by digest.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.domain import definition as definitions
from holdfast.domain.definition import Definition, parse, problems_of
from holdfast.domain.file_problem import TEXT_BYTES_MAX, FileProblem
from holdfast.errors import FileMissing, TaskFileChanged
from holdfast.storage.files import disk

# A task passes through them in this order: a reader meets a file that moves on meanwhile at least once.
FOLDERS = ("issues", "open", "claimed", "closed", "failed")
ENDINGS = (".yaml", ".yml")

# A file written again within one tick of the filesystem's clock keeps its stamp; two seconds is the coarsest in use.
_RACY_NS = 2_000_000_000
_SCANS_MAX = 3
# What a crash or a full disk leaves of a file: nothing, or zeros.
_BLANK = b"\0 \t\r\n"

Stamp = tuple[int, int, int, int]


class FoundFile(msgspec.Struct, frozen=True, gc=False):
    """A task file as it was read: `name` in `folder` of the backlog `root`.

    `stamp`: inode, mtime, ctime (both in ns) and size.
    """

    definition: Definition
    root: Path
    folder: str
    name: str
    stamp: Stamp
    digest: str

    @property
    def path(self) -> Path:
        return Path(str(self))

    @property
    def written_ns(self) -> int:
        return self.stamp[1]

    def __str__(self) -> str:
        """The path as text: a thousand of them cost little, other than a thousand paths."""
        return f"{self.root}/{self.folder}/{self.name}"


class Scan(msgspec.Struct, frozen=True):
    """The whole backlog.

    `moved` holds the tasks that a crash left in several folders, `doubled` those that several files claim to be, each
    with a problem. A task of which neither `tasks` nor `moved` nor any problem's `tasks` speaks has no file, unless it
    is one of the `unread`: files and folders whose content cannot be told, so that they may be any task's.
    """

    tasks: dict[str, FoundFile]
    moved: dict[str, tuple[FoundFile, ...]]
    problems: tuple[FileProblem, ...]
    doubled: dict[str, tuple[FoundFile, ...]] = {}
    unread: tuple[str, ...] = ()


class ScannedFile(msgspec.Struct, frozen=True, gc=False):
    """The result of the last read of a file. `settled`: its stamp was old enough that a later change shows.

    `unread`: it could not be read, or holds nothing that would tell whose it is.
    """

    stamp: Stamp
    digest: str
    settled: bool
    found: FoundFile | None
    problems: tuple[FileProblem, ...]
    unread: bool = False


class Scanner:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[str, ScannedFile] = {}
        self._last: tuple[tuple[FileProblem, ...], Scan] | None = None

    def scan(self) -> Scan:
        """Reads what is new or changed; an unchanged file costs a stat."""
        for _ in range(_SCANS_MAX):
            before = self._folder_times()
            scan = self._scan_once()
            # A file that another process moved meanwhile may have been missed, or met twice.
            if self._folder_times() == before:
                break
        return scan

    def sure(self) -> dict[str, ScannedFile]:
        """The usable files of the last scan whose stamps are old enough that a later change shows."""
        return {name: seen for name, seen in self._seen.items() if seen.settled and seen.found is not None}

    def remember(self, seen: dict[str, ScannedFile]) -> None:
        """Starts the cache with the results of an earlier scan."""
        self._seen = seen

    def found(self) -> list[FoundFile]:
        """Every file that the last scan could use, also those whose id several have."""
        return [seen.found for seen in self._seen.values() if seen.found is not None]

    def _scan_once(self) -> Scan:
        before, now = self._seen, dict[str, ScannedFile]()
        odd: list[FileProblem] = []
        for folder in FOLDERS:
            for file, info in self._entries(folder, odd):
                name = f"{folder}/{file}"
                seen = before.get(name)
                if seen is None or not seen.settled or seen.stamp != stamp_of(info):
                    seen = self._scan_file(folder, name, seen, info)
                if seen is not None:
                    now[name] = seen
        strange = tuple(odd)
        self._seen = now
        if self._last is not None and self._last[0] == strange and _same(before, now):
            return self._last[1]
        scan = self._judge(strange)
        self._last = (strange, scan)
        return scan

    def _folder_times(self) -> list[int]:
        times = []
        for folder in FOLDERS:
            try:
                times.append(os.lstat(self.folder / folder).st_mtime_ns)
            except FileNotFoundError:
                times.append(0)
        return times

    def _entries(self, folder: str, odd: list[FileProblem]) -> Iterator[tuple[str, os.stat_result]]:
        """The task files of a folder, sorted by name; what else bears such a name goes to `odd`."""
        place = self.folder / folder
        if place.is_symlink():
            odd.append(FileProblem(1, 1, "the folder is a symbolic link, and links are not followed", file=folder))
            return
        try:
            with disk.reading(place), os.scandir(place) as listing:
                files = (each for each in listing if each.name.endswith(ENDINGS) and not each.name.startswith("."))
                entries = sorted(files, key=lambda each: each.name)
        except FileMissing:
            return
        for entry in entries:
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(info.st_mode):
                yield entry.name, info
                continue
            what = "a symbolic link, and links are not followed" if entry.is_symlink() else "not a plain file"
            told = f"this is {what}: put the file itself here"
            odd.append(FileProblem(1, 1, told, file=f"{folder}/{entry.name}", tasks=(stem(entry.name),)))

    def _scan_file(self, folder: str, name: str, seen: ScannedFile | None, info: os.stat_result) -> ScannedFile | None:
        """Reads a file; None when it is gone. Parses it only if its content is new."""
        now_ns = time.time_ns()
        path = self.folder / name
        own = stem(path.name)
        try:
            text, stamp = read_plain(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            told = f"the file cannot be read: {error.strerror}"
            return ScannedFile(
                stamp_of(info), "", False, None, (FileProblem(1, 1, told, file=name, tasks=(own,)),), unread=True
            )
        digest = hashlib.sha256(text).hexdigest()
        settled = stamp[2] + _RACY_NS < now_ns
        if seen is not None and (seen.stamp, seen.digest) == (stamp, digest):
            return msgspec.structs.replace(seen, settled=settled)
        if len(text) > TEXT_BYTES_MAX:
            made: Definition | list[FileProblem] = [FileProblem.too_long(stamp[3])]
        else:
            made = parse(text, own)
        if isinstance(made, Definition):
            return ScannedFile(
                stamp, digest, settled, FoundFile(made, self.folder, folder, path.name, stamp, digest=digest), ()
            )
        ids = definitions.possible_ids(text, own)
        problems = tuple(msgspec.structs.replace(each, file=name, tasks=ids) for each in made)
        return ScannedFile(stamp, digest, settled, None, problems, unread=not text.strip(_BLANK))

    def _judge(self, odd: tuple[FileProblem, ...]) -> Scan:
        by_id: dict[str, list[FoundFile]] = {}
        problems = list(odd)
        for seen in self._seen.values():
            problems += seen.problems
            if seen.found is not None:
                by_id.setdefault(seen.found.definition.id, []).append(seen.found)
        broken = {task for problem in problems for task in problem.tasks}
        several = {task: found for task, found in by_id.items() if len(found) > 1}
        moved = {task: tuple(found) for task, found in several.items() if self._is_one_task(found)}
        judged = [each for task, found in by_id.items() for each in (found[:1] if task in moved else found)]
        paths = {name_of(each): each for each in judged}
        for problem in problems_of(((name, each.definition) for name, each in paths.items()), broken):
            problems.append(self._with_line(problem, paths[problem.file]))
        tasks = {task: found[0] for task, found in by_id.items() if task not in several}
        doubled = {task: tuple(found) for task, found in several.items() if task not in moved}
        # A folder that cannot be looked into is a problem of no task in particular.
        unread = [problem.file for problem in odd if not problem.tasks]
        unread += [seen.problems[0].file for seen in self._seen.values() if seen.unread]
        shown = [_printable(problem) for problem in problems]
        return Scan(tasks, moved, tuple(shown), doubled, tuple(map(_as_text, unread)))

    def _with_line(self, problem: FileProblem, found: FoundFile) -> FileProblem:
        try:
            line, column = definitions.find(self.text(found), problem.key)
        except TaskFileChanged:
            line, column = 1, 1
        return msgspec.structs.replace(problem, line=line, column=column)

    def _is_one_task(self, found: list[FoundFile]) -> bool:
        """True for what a crash in a move leaves: several folders, and the same words outside our block."""
        if len({each.folder for each in found}) < len(found):
            return False
        # Loads the reader of YAML, which a scan of unchanged files does without.
        from holdfast.backlog.yaml_blocks import without_blocks

        try:
            return len({without_blocks(self.text(each)) for each in found}) == 1
        except TaskFileChanged:
            return False

    def text(self, found: FoundFile) -> bytes:
        """The content that `found` speaks of, or TaskFileChanged."""
        try:
            with disk.reading(found.path):
                text, _ = read_plain(found.path)
        except FileMissing:
            text = b""
        if hashlib.sha256(text).hexdigest() != found.digest:
            raise TaskFileChanged(path=found.path)
        return text


def _same(before: dict[str, ScannedFile], after: dict[str, ScannedFile]) -> bool:
    return len(before) == len(after) and all(
        (old := before.get(name)) is not None and (old is seen or (seen.found is not None and old.found is seen.found))
        for name, seen in after.items()
    )


def _printable(problem: FileProblem) -> FileProblem:
    """A file's name may be bytes that are no text, and a problem is shown, and written as JSON."""
    if problem.file.isascii():
        return problem
    file, *tasks = map(_as_text, (problem.file, *problem.tasks))
    return msgspec.structs.replace(problem, file=file, tasks=tuple(tasks))


def _as_text(name: str) -> str:
    return os.fsencode(name).decode(errors="replace")


def read_plain(path: Path) -> tuple[bytes, Stamp]:
    """Content and stamp of a plain file. A link is an error, and a pipe cannot make us wait."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        stamp = stamp_of(os.fstat(fd))
        return file.read(TEXT_BYTES_MAX + 1), stamp


def stamp_of(info: os.stat_result) -> Stamp:
    return info.st_ino, info.st_mtime_ns, info.st_ctime_ns, info.st_size


def stem(name: str) -> str:
    return name.rpartition(".")[0]


def name_of(found: FoundFile) -> str:
    return f"{found.folder}/{found.name}"
