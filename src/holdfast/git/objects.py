"""Reads git's objects, to tell those that are whole from those that a power cut left empty or torn.

Git gives a loose object its name before it is synced, unless configured otherwise; an agent's own `git commit` does so.
After a power cut such a file may be empty. Git takes it for present and never writes it again, so every later commit
with the same content names an object that cannot be read.

`damaged` reads whole object folders, at the first run after another boot. `unreadable` reads only what some commits
name and others do not, which is little: every step that takes a commit calls it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from holdfast.errors import ObjectsDamaged
from holdfast.git import command as git
from holdfast.storage.files import plain

_FANOUT = re.compile(r"[0-9a-f]{2}")
_REST = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")
_PACKED = (".pack", ".idx", ".rev")
_CHUNK = 1 << 16
_HEADER_BYTES_MAX = 64
_SHOWN_MAX = 3


class Damaged(msgspec.Struct, frozen=True):
    """An object that cannot be read. `path`: its file, if it has one; `is_kept`: another store has it whole."""

    name: str
    reason: str
    path: Path | None = None
    is_kept: bool = False


def damaged(folder: Path, hash_name: str, since: float = 0.0) -> Iterator[Damaged]:
    """Yields loose objects that are empty, those written since then whose content does not match their name, and empty
    packs."""
    for path in _loose(folder):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue  # packed meanwhile
        name = path.parent.name + path.name
        reason = "" if found.st_size else "it is empty"
        if not reason and max(found.st_mtime, found.st_ctime) >= since:
            reason = flaw(path, name, hash_name)
        if reason:
            yield Damaged(name, reason, path)
    for path in sorted((folder / "pack").glob("pack-*")) if (folder / "pack").is_dir() else ():
        if path.suffix in _PACKED and path.is_file() and not path.stat().st_size:
            yield Damaged(path.name, "it is empty", path)


def _loose(folder: Path) -> Iterator[Path]:
    for fan in sorted(os.listdir(folder)) if folder.is_dir() else ():
        if _FANOUT.fullmatch(fan) and (folder / fan).is_dir():
            yield from (folder / fan / name for name in sorted(os.listdir(folder / fan)) if _REST.fullmatch(name))


def flaw(path: Path, name: str, hash_name: str) -> str:
    """Reads a loose object to its end and says what is wrong with it; empty where it matches its name."""
    digest, inflate, head = hashlib.new(hash_name), zlib.decompressobj(), b""
    try:
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK):
                data = inflate.decompress(chunk)
                digest.update(data)
                head += data[: max(0, _HEADER_BYTES_MAX - len(head))]
    except FileNotFoundError:
        return ""  # packed, or pruned, meanwhile
    except (OSError, zlib.error) as error:
        return f"it cannot be read: {error}"
    if not inflate.eof:
        return "it ends too early"
    return (
        "" if digest.hexdigest() == name else f"it holds another object ({head.split(bytes(1))[0].decode('latin-1')})"
    )


def kept_in(folders: Iterable[Path], names: Collection[str], hash_name: str) -> Iterator[tuple[str, bytes]]:
    """Yields, as loose objects, those whose exact content a file or a link below the folders holds."""
    wanted = set(names)
    for folder in folders:
        for parent, folders_below, files in os.walk(folder):
            for path in (os.path.join(parent, name) for name in (*files, *folders_below)):
                if not wanted:
                    return
                if (name := _named(path, hash_name)) in wanted and (content := _content(path)) is not None:
                    whole = b"blob %d\0" % len(content) + content
                    if hashlib.new(hash_name, whole).hexdigest() == name:
                        wanted.discard(name)
                        yield name, zlib.compress(whole)


def _named(path: str, hash_name: str) -> str:
    """The name that git gives to a file's content, unfiltered; empty for what is neither a file nor a link."""
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            target = os.readlink(os.fsencode(path))
            return hashlib.new(hash_name, b"blob %d\0" % len(target) + target).hexdigest()
        with plain.opened(Path(path)) as file:
            digest = hashlib.new(hash_name, b"blob %d\0" % os.fstat(file.fileno()).st_size)
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
            return digest.hexdigest()
    except OSError:
        return ""


def _content(path: str) -> bytes | None:
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            return os.readlink(os.fsencode(path))
        with plain.opened(Path(path)) as file:
            return file.read()
    except OSError:
        return None


def present(repository: git.Repository, commits: Iterable[str]) -> set[str]:
    """Those of the commits that exist."""
    return set(filter(None, commits_of(repository, sorted(set(commits))).values()))


def commits_of(repository: git.Repository, names: Iterable[str]) -> dict[str, str]:
    """The commit that each name refers to; empty where there is none."""
    asked = list(names)
    text = "".join(f"{name}^{{commit}}\n" for name in asked).encode()
    if not text:
        return {}
    answers = repository.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=text).line.split("\n")
    return {
        name: answer.removesuffix(" commit") if answer.endswith(" commit") else ""
        for name, answer in zip(asked, answers, strict=True)
    }


def missing(run: Callable[..., git.GitResult], names: Iterable[str]) -> list[str]:
    """Those of the objects that git does not find where `run` runs it. One that is empty counts as missing, because git
    is asked for its type and size, too."""
    text = "".join(f"{name}\n" for name in names).encode()
    answers = run("cat-file", "--batch-check", stdin=text).line.split("\n") if text else []
    return [answer.split(" ")[0] for answer in answers if answer.endswith(" missing")]


def unreadable(repository: git.Repository, commits: Iterable[str], known: Iterable[str] = ()) -> list[Damaged]:
    """Commits, trees and files that the commits name and `known` do not, and that cannot be read in any store."""
    wanted = list(dict.fromkeys(commits))
    if not wanted:
        return []
    # The trees by themselves, too: the history of a snapshot does not include its base.
    known_names = [word for name in known for word in (f"^{name}", f"^{name}^{{tree}}")]
    text = "".join(f"{name}\n" for name in (*wanted, *known_names)).encode()
    asked = ("rev-list", "--objects", "--no-object-names", "--missing=print", "--stdin")
    listed = repository.run(*asked, stdin=text, codes=(0, 1, 128))
    names = listed.line.split("\n") if listed.line else []
    found = [Damaged(name.removeprefix("?"), "it is not there") for name in names if name.startswith("?")]
    if listed.failure is not None:
        # Git stops at the first object that it cannot follow, and names it.
        found.append(Damaged(wanted[0], f"git cannot follow what it leads to: {listed.failure.stderr}"))
    there = [name for name in names if not name.startswith("?")]
    return found + _unreadable_files(repository, there)


def require_whole(repository: git.Repository, commit: str, known: Sequence[str] = ()) -> None:
    """Raises ObjectsDamaged unless all that the commit names, and `known` do not, can be read."""
    if found := unreadable(repository, [commit], known):
        shown = "; ".join(f"{each.name}: {each.reason}" for each in found[:_SHOWN_MAX])
        more = f" and {len(found) - _SHOWN_MAX} more" if len(found) > _SHOWN_MAX else ""
        raise ObjectsDamaged(commit=commit, path=repository.stores[0], reason=shown + more)


def _unreadable_files(repository: git.Repository, names: Collection[str]) -> list[Damaged]:
    """Reads loose objects to their end ourselves, and asks git for the others, which are in packs."""
    found, packed = [], []
    for name in names:
        paths = [path for store in repository.stores if (path := store / name[:2] / name[2:]).is_file()]
        # Git reads the first copy that it finds, and no other where that one is damaged; which that is differs.
        flaws = [(reason, path) for path in paths if (reason := flaw(path, name, repository.hash_name))]
        found += [Damaged(name, reason, path, len(flaws) < len(paths)) for reason, path in flaws[:1]]
        if not paths:
            packed.append(name)
    if packed:
        text = "".join(f"{name}\n" for name in packed).encode()
        answers = repository.run("cat-file", "--batch-check=%(objectname)", stdin=text).line.split("\n")
        found += [Damaged(each.split(" ")[0], "it is not there") for each in answers if each.endswith(" missing")]
    return found


def is_whole(repository: git.Repository, commit: str, known: Sequence[str] = ()) -> bool:
    return not unreadable(repository, [commit], known)
