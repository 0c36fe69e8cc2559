"""Asks the git repository around a folder: its first commit, and files that a checkout carried off.

Read-only, and without anything of the caller's environment.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

import msgspec

from holdfast.git.command import GitResult, environment, run

_RAW = ("--raw", "-z", "--no-abbrev", "--no-renames", "--relative")
# A `git gc` may remove the commit of a worktree of ours that is still being made.
_IN_LOG = ("--format=%H %ct", "-m", "--ignore-missing")
# All that a checkout can have come from: branches, stashes and their reflogs. Our own snapshots hold no backlog.
_EVERYWHERE = (*_IN_LOG, "--exclude=refs/holdfast/*", "--all", "--reflog")


def _ask(folder: Path, *args: str, stdin: bytes = b"", codes: tuple[int, ...] = (0,), **variables: str) -> GitResult:
    env = environment({"log.showSignature": "false", "log.showRoot": "true"}, **variables)
    return run(*args, cwd=folder, env=env, stdin=stdin, codes=codes)


# -- which repository this is -----------------------------------------------------------------------------------------


def first_commit(repo: Path) -> str:
    """The oldest commit of HEAD without a parent; empty where there is none yet, or a shallow clone left it out."""
    # 128: HEAD has no commit yet.
    first = _ask(repo, "rev-list", "--max-parents=0", "HEAD", codes=(0, 128)).line.rpartition("\n")[2]
    return "" if first and is_shallow(repo) else first


def is_shallow(repo: Path) -> bool:
    return _ask(repo, "rev-parse", "--is-shallow-repository").line == "true"


def is_landed(repo: Path, path: str) -> bool:
    """Whether a file is as the newest commit that changed it left it, and that commit has our trailers."""
    if _ask(repo, "status", "--porcelain", "--", path, codes=(0, 128)).out.strip():
        return False
    said = _ask(repo, "log", "-1", "--format=%(trailers:key=Holdfast-Task)", "--", path, codes=(0, 128))
    return not said.code and bool(said.out.strip())


def commits_here(repo: Path, commits: Iterable[str]) -> set[str]:
    """Those of the commits that the repository has."""
    asked = list(commits)
    stdin = "".join(f"{name}\n" for name in asked).encode()
    # A partial clone would ask its origin for a commit of another repository.
    answer = _ask(repo, "cat-file", "--batch-check=%(objecttype)", stdin=stdin, GIT_NO_LAZY_FETCH="1")
    return {name for name, kind in zip(asked, answer.line.split("\n"), strict=True) if kind == "commit"}


def is_in_a_branch(folder: Path, file: Path) -> bool:
    """Whether a branch has, or had, the file. `folder` is where git runs, and exists."""
    if not _is_in_repository(folder):
        return False
    asked = ("rev-list", "--ignore-missing", "--exclude=refs/stash", "--all", "--max-count=1", "--", str(file))
    return bool(_ask(folder, *asked).line)


# -- files that are gone ----------------------------------------------------------------------------------------------


class Gone(msgspec.Struct, frozen=True):
    """Git's knowledge of files that are gone. A file in none of these sets is unknown to git, or still in its index.

    `carried_off`: other commits have them, and a checkout, reset or stash took them away; each with the command that
    brings it back. `removed`: deleted with git's knowledge, in the index or by a commit of HEAD's own history that is
    newer than our first sight of the file. An older one was undone elsewhere: the file was there after it.
    """

    carried_off: dict[str, str] = {}
    removed: set[str] = set()
    # Not in the history of any branch, but in a stash: `git stash` took them.
    stashed: set[str] = set()
    # Neither tracked nor ignored, so `git stash -u` and `git clean` remove them.
    unprotected: set[str] = set()


def find_gone(folder: Path, texts: Mapping[str, bytes], known_since: Callable[[str], float]) -> Gone:
    """Asks git for missing files below `folder`, given by name and text. A renamed file is found by its content."""
    if not texts or not _is_in_repository(folder):
        return Gone()
    names = _names_by_blob(folder, texts)

    def named(found: Iterable[_Change], *, is_newer: bool = False) -> dict[str, _Change]:
        """The newest change of each file. `is_newer`: only changes newer than our first sight of the file."""
        changes: dict[str, _Change] = {}
        for change in found:
            stem = PurePosixPath(change.path).stem
            known = [stem] if stem in texts else [names[blob] for blob in change.blobs if blob in names]
            for name in known:
                # Git counts whole seconds. Within the same one the order is unknown, and waiting loses nothing.
                if not is_newer or change.time > known_since(name):
                    changes.setdefault(name, change)
        return changes

    held = named(change for change in _changes(folder, "log", *_EVERYWHERE) if change.kind != "D")
    deleted = named(_changes(folder, "diff", "--diff-filter=D"))
    removed = named(_changes(folder, "diff", "--cached", "--diff-filter=D"))
    if _ask(folder, "rev-parse", "--quiet", "--verify", "HEAD", codes=(0, 1)).code == 0:
        removed |= named(_changes(folder, "log", *_IN_LOG, "--diff-filter=D", "HEAD"), is_newer=True)
    carried_off = {
        name: f"git checkout {change.commit[:12]} -- {shlex.quote(str(folder / change.path))}"
        for name, change in held.items()
        if name not in deleted and name not in removed
    }
    stashed = _stashed(folder, named) & carried_off.keys()
    unknown = texts.keys() - deleted.keys() - removed.keys()
    return Gone(carried_off, removed.keys() - deleted.keys(), stashed, unknown - _ignored(folder, unknown))


def _ignored(folder: Path, names: Collection[str]) -> set[str]:
    paths = {f"open/{name}.yaml": name for name in names}
    stdin = "".join(f"{path}\0" for path in paths).encode()
    # Code 1: none of them is ignored. 128: `open` is a link, which git does not follow.
    answer = _ask(folder, "check-ignore", "-z", "--stdin", stdin=stdin, codes=(0, 1, 128)) if paths else None
    return {paths[path] for path in answer.fields()} if answer is not None else set()


def _stashed(folder: Path, named: Callable[[Iterable[_Change]], Mapping[str, _Change]]) -> set[str]:
    """Files that stashes hold, tracked or not, and no branch does."""
    if _ask(folder, "rev-parse", "--quiet", "--verify", "refs/stash", codes=(0, 1)).code:
        return set()
    commits = _ask(folder, "log", "--walk-reflogs", "--format=%H %P", "refs/stash").line.split()
    in_stashes = named(each for each in _changes(folder, "log", *_IN_LOG, "--no-walk", *commits) if each.kind != "D")
    branches = (*_IN_LOG, "--exclude=refs/holdfast/*", "--exclude=refs/stash", "--all")
    return in_stashes.keys() - named(each for each in _changes(folder, "log", *branches) if each.kind != "D").keys()


def tracked(folder: Path) -> list[str]:
    """The files below the folder, by path from there, that git's index has."""
    return _ask(folder, "ls-files", "-z", "--", ".").fields() if _is_in_repository(folder) else []


def as_checked_out(folder: Path) -> set[str]:
    """The files below `folder`, by path from there, that are in git's index and have not been changed since."""
    if not _is_in_repository(folder):
        return set()
    changed = _ask(folder, "diff", "--name-only", "-z", "--relative", "--", ".").fields()
    return set(_ask(folder, "ls-files", "-z", "--", ".").fields()) - set(changed)


class _Change(msgspec.Struct, frozen=True):
    commit: str
    time: float
    kind: str
    blobs: tuple[str, str]
    path: str


def _changes(folder: Path, *command: str) -> Iterator[_Change]:
    """Parses what a git command prints about the files below `folder`, newest first."""
    fields = iter(_ask(folder, *command, *_RAW, "--", ".").fields())
    commit, time = "", 0.0
    for field in fields:
        if field.lstrip("\n").startswith(":"):
            # :100644 000000 <blob> <zeros> D, then the path
            _, _, old, new, kind = field.split()
            yield _Change(commit, time, kind, (old, new), next(fields))
        elif field.strip():
            commit, _, seconds = field.strip().partition(" ")
            time = float(seconds)


def _is_in_repository(folder: Path) -> bool:
    asked = _ask(folder, "rev-parse", "--is-inside-work-tree", codes=(0, 128))
    if asked.failure is not None and "not a git repository" not in asked.failure.stderr:
        raise asked.failure
    return asked.line == "true"


def _names_by_blob(folder: Path, texts: Mapping[str, bytes]) -> dict[str, str]:
    """Maps the blob id of each text to its name, as it is and as git stores it where line ends are converted."""
    hash_name = _ask(folder, "rev-parse", "--show-object-format").line

    def blob(text: bytes) -> str:
        return hashlib.new(hash_name, b"blob %d\0" % len(text) + text).hexdigest()

    return {blob(form): name for name, text in texts.items() if text for form in (text, text.replace(b"\r\n", b"\n"))}
