"""Candidates and merges, made of git objects alone: nothing is checked out, no branch moves.

A *candidate* is one commit on top of the commit that its attempt began with. It is made from the attempt's last
snapshot, which holds the tree byte for byte, as `git add` would have made it: with the line ends and filters of the
repository's attributes. The candidate always has the data root as its base has it, whatever the snapshot holds.

A *merge* applies the candidate's changes, and nothing else, to the newest target: one commit with the target as its
only parent, also where the user has rewritten the history below it. A conflict is a result, not an error.

What a function here returns is on disk in the store of snapshots, where a ref keeps it if an attempt is named. Only
`Store.hand_over` brings a commit into the user's repository. Temporary files of git are in the store's `work/`, and are
removed afterwards.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.clock import wall
from holdfast.config.settings import Config
from holdfast.domain.definition import Definition
from holdfast.errors import GitFailed, NestedRepository, NoIdentity, NoTarget
from holdfast.git import command as git
from holdfast.git import objects
from holdfast.git.tree_diff import PathChange, Slot, changes, index_lines, joined
from holdfast.snapshots.shadow_parts import is_below
from holdfast.snapshots.snapshots import files_below
from holdfast.snapshots.store import CANDIDATES, Store, make_git_dir
from holdfast.snapshots.submodule_state import has_commit
from holdfast.storage.files import disk
from holdfast.worktrees import submodules

TITLE_MAX = 72
# The default place of the data root.
DATA_ROOT = (".sdd",)
_LINK = "120000"


class GitAuthor(msgspec.Struct, frozen=True):
    """Author and committer of what lands."""

    name: str
    email: str


class Merged(msgspec.Struct, frozen=True):
    """`commit` is empty where there are `conflicts`; then `tree` has the files with the conflict markers, and `marked`
    is a commit of it."""

    commit: str
    tree: str
    conflicts: list[str] = []
    marked: str = ""


MARKER = ": leftover conflict marker"

# -- reading ----------------------------------------------------------------------------------------------------------


def target_branch(repo: Path, config: Config) -> str:
    """The full name of the branch that work lands on."""
    repository = git.discover(repo)
    if config.git.target_branch is None:
        found = repository.run("symbolic-ref", "-q", "HEAD", codes=(0, 1)).line
        if not found.startswith("refs/heads/"):
            raise NoTarget(repo=repo, reason="no branch is checked out there")
        return found
    name = config.git.target_branch
    branch = name if name.startswith("refs/heads/") else f"refs/heads/{name}"
    if repository.run("check-ref-format", branch, codes=(0, 1)).code:
        raise NoTarget(repo=repo, reason=f"{name!r} cannot be the name of a branch")
    return branch


def newest(repo: Path, branch: str) -> str:
    """The commit that the branch is at."""
    asked = ("rev-parse", "-q", "--verify", f"{branch}^{{commit}}")
    found = git.discover(repo).run(*asked, codes=(0, 1, 128)).line
    if not found:
        short = branch.removeprefix("refs/heads/")
        raise NoTarget(repo=repo, reason=f"the branch {short} was deleted, or has no commit yet")
    return found


def identity(repo: Path, config: Config) -> GitAuthor:
    """The author: from the settings, else from git. A name that git would derive from the machine's is refused."""
    name, email = config.git.author_name, config.git.author_email
    if name is not None and email is not None:
        return GitAuthor(name, email)
    given = {key: os.environ[key] for key in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL") if key in os.environ}
    # Git need not know what the settings have.
    given |= {"GIT_AUTHOR_NAME": name} if name is not None else {}
    given |= {"GIT_AUTHOR_EMAIL": email} if email is not None else {}
    env = git.environment({"user.useConfigOnly": "true"}, **given)
    asked = git.run("var", "GIT_AUTHOR_IDENT", cwd=repo, env=env, codes=(0, 1, 128))
    found, _, rest = asked.line.rpartition(" <")
    if asked.code or not found:
        raise NoIdentity(repo=repo)
    return GitAuthor(name or found, email or rest.partition(">")[0])


def changed(repository: git.Repository, old: str, new: str) -> list[str]:
    """Every path that differs between two commits or trees, a rename under both its names."""
    return [change.path for change in changes(repository.run, old, new)]


def conflict_markers(repository: git.Repository, old: str, new: str) -> list[str]:
    """The files in which `new` has the beginning of a conflict that `old` does not have.

    A line of `=======` alone is no sign of one: it underlines a heading just as well.
    """
    only_markers = "core.whitespace=-blank-at-eol,-blank-at-eof,-space-before-tab,-indent-with-non-tab,-tab-in-indent"
    asked = ("-c", only_markers, "-c", "core.quotePath=false", "diff-tree", "-r", "--check", old, new)
    lines_of_check = repository.run(*asked, codes=(0, 2)).line.split("\n")
    places = [place.rpartition(":") for line in lines_of_check if (place := line.removesuffix(MARKER)) != line]
    found = []
    for path in dict.fromkeys(path for path, _, _ in places):
        lines = repository.run("cat-file", "blob", f"{new}:{path}", codes=(0, 128)).out.split(b"\n")
        numbers = [int(number) for name, _, number in places if name == path]
        if any(lines[number - 1 : number] and lines[number - 1].startswith(b"<<<<<<< ") for number in numbers):
            found.append(path)
    return found


def _tree(repository: git.Repository, commit: str) -> str:
    return repository.run("rev-parse", "-q", "--verify", f"{commit}^{{tree}}").line


def message(task: str, attempt: str, definition: Definition) -> str:
    """The message of what lands: a title, the goal, and the trailers that lead back to the task and the attempt."""
    goal = (definition.goal or "").strip()
    first = (definition.title or "").strip() or goal or task
    title = " ".join(first.splitlines()[0].split())
    if len(title) > TITLE_MAX:
        title = title[: TITLE_MAX - 1].rstrip() + "…"
    body = [goal] if goal and goal != title else []
    trailers = f"Holdfast-Task: {task}\nHoldfast-Attempt: {attempt}"
    return "\n\n".join([title, *body, trailers]).replace("\0", "") + "\n"


# -- making -----------------------------------------------------------------------------------------------------------


def candidate(
    store: Store,
    base: str,
    snapshot_commit: str,
    message: str,
    who: GitAuthor,
    *,
    exclude: Sequence[str] = DATA_ROOT,
    modules: Path | None = None,
    attempt: str = "",
    leaves_nested: bool = False,
) -> str | None:
    """Makes a commit of the snapshot on top of `base`; None when nothing has changed.

    `exclude`: paths that stay as `base` has them, such as the data root. Submodules stay, too, unless `.gitmodules`
    drops them, or the snapshot has another commit that the submodule's own git dir below `modules` has as well.
    `attempt`: its ref is to keep the commit. `leaves_nested`: leaves nested repositories out; without it, one is
    refused, because no snapshot has its files.
    """
    repository = store.seen
    objects.require_whole(repository, snapshot_commit, [base])
    changed = changes(repository.run, base, snapshot_commit)
    inner = _nested(repository, snapshot_commit, changed, exclude)
    if inner and not leaves_nested:
        raise NestedRepository(paths=", ".join(map(git.readable, inner)), first=git.readable(inner[0]))
    kept = [*exclude, *_submodules(repository, snapshot_commit, changed, modules)]
    found = [change for change in changed if not is_below(change.path, [*kept, *inner])]
    with _private(store, base) as run:
        _apply(run, found)
        tree = run("write-tree").line
        if tree == _tree(repository, base):
            return None
        made = run.commit(tree, base, message, who)
        run.publish(tree, base)
    if attempt:
        keep(store, CANDIDATES, attempt, made)
    return made


def below_submodules(store: Store, base: str, snapshot_commit: str, modules: Path | None) -> dict[str, list[str]]:
    """The changes at or below each submodule of `base` that cannot land, as its commits lie elsewhere."""
    changed = changes(store.seen.run, base, snapshot_commit)
    kept = _submodules(store.seen, snapshot_commit, changed, modules)
    # A missing folder, as where submodules are not set up, changes nothing.
    there = [change.path for change in changed if change.new is not None]
    found = {top: [path for path in there if is_below(path, [top])] for top in kept}
    if modules is not None:
        listed = submodules.names(store.seen.run, snapshot_commit)
        was = {change.path: change.old.object for change in changed if change.old is not None}
        for top in filter(found.get, kept):
            inside = submodules.differing(store, modules / listed[top], was[top], f"{snapshot_commit}:{top}")
            found[top] = [f"{top}/{path}" for path in inside] or [top]
    return {top: paths for top, paths in found.items() if paths}


def nested(store: Store, base: str, snapshot_commit: str, exclude: Sequence[str]) -> list[str]:
    """The repositories in the snapshot that are no submodules: only the worktree has their files."""
    return _nested(store.seen, snapshot_commit, changes(store.seen.run, base, snapshot_commit), exclude)


def _nested(
    repository: git.Repository, snapshot: str, changed: Sequence[PathChange], exclude: Sequence[str]
) -> list[str]:
    found = [change.path for change in changed if change.is_gitlink and not is_below(change.path, exclude)]
    listed = submodules.names(repository.run, snapshot) if found else {}
    # Whatever is below a submodule belongs to that one.
    return [path for path in found if not is_below(path, listed)]


def _submodules(
    repository: git.Repository, snapshot: str, changed: Sequence[PathChange], modules: Path | None
) -> list[str]:
    """The submodules that the changes touch, that the snapshot still lists, and that were not only moved."""
    touched = [change for change in changed if change.was_gitlink]
    listed = submodules.names(repository.run, snapshot) if touched else {}
    there = [change for change in touched if change.path in listed]
    return [change.path for change in there if not _is_moved(change, listed[change.path], modules)]


def _is_moved(change: PathChange, name: str, modules: Path | None) -> bool:
    """Whether a submodule is at another commit that the repository has, with nothing else changed in it."""
    if modules is None or change.new is None or not change.is_gitlink:
        return False
    return has_commit(modules / name, change.new.object)


def merge(store: Store, target: str, candidate: str, message: str, who: GitAuthor) -> Merged:
    """Applies the candidate's changes to `target`."""
    repository = store.seen
    if not repository.run("merge-base", "--is-ancestor", candidate, target, codes=(0, 1)).code:
        # The target has all of it: it has landed, or there was nothing to land.
        return Merged(target, _tree(repository, target))
    base = repository.run("rev-parse", "-q", "--verify", f"{candidate}^").line
    if base == target:
        return Merged(candidate, _tree(repository, candidate))
    with _private(store, target) as run:
        # With a history made here, git uses the candidate's own base for the merge, wherever the target comes from.
        side = run.commit(_tree(repository, target), base, "target", who)
        asked = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", side, candidate)
        answer = run(*asked, codes=(0, 1))
        tree, *conflicts = answer.fields() or [answer.line.rstrip("\0")]
        made = run.commit(tree, target, message, who)
        run.publish(tree, target)
    if answer.code:
        return Merged("", tree, sorted(set(conflicts)), made)
    return Merged(made, tree)


def keep(store: Store, kind: str, attempt: str, commit: str) -> None:
    """Points a ref at the commit, so that it stays while it may be needed."""
    store.prepare().name(f"{kind}/{attempt}", commit)


def make_durable(repo: Path) -> None:
    """Syncs every object that git has written, and the folders that name them."""
    for store in git.discover(repo).stores:
        disk.sync_filesystem(store, files_below(store))


class _Run:
    """Git with an index and an empty work tree of our own, independent of the user's checkouts."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._folder, self._store = folder, store
        self._hash = store.repository.hash_name
        self.files = folder / "files"
        # `safecrlf` asks people at work to look again; here it would refuse the work.
        self._env = git.environment(
            {"core.fsync": "none", "core.safecrlf": "false"},
            GIT_DIR=str(store.repository.common_dir),
            GIT_WORK_TREE=str(self.files),
            GIT_INDEX_FILE=str(folder / "index"),
            **store.writing(folder / "objects"),
        )

    def raw(self) -> dict[str, str]:
        """Variables for a git that converts nothing: it writes the bytes of the object."""
        top = self._folder / "git"
        make_git_dir(top, self._hash)
        return {"GIT_DIR": str(top), "GIT_INDEX_FILE": str(self._folder / "raw")}

    def commit(self, tree: str, parent: str, message: str, who: GitAuthor) -> str:
        now = f"@{int(wall())} +0000"
        facts = {"NAME": who.name, "EMAIL": who.email, "DATE": now}
        variables = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in facts.items()}
        text = message.encode(errors="backslashreplace")
        asked = ("-c", "i18n.commitEncoding=UTF-8", "commit-tree", tree, "-p", parent, "-F", "-")
        return self(*asked, stdin=text, variables=variables).line

    def publish(self, tree: str, known: str) -> None:
        """Adds what was made to the store, with the objects that `known` lacks and only the repository holds."""
        self._store.complete(tree, known, self._folder / "objects")
        self._store.publish(self._folder / "objects")

    def filtering(self, *args: str, stdin: bytes) -> None:
        """Runs filters of the repository, which may be programs among the same files: confined as their agent was."""
        git.run(*args, cwd=self.files, env=self._env, stdin=stdin, confine=self._store.confine(self._folder))
        # The next command that writes the index, such as `write-tree`, would filter files that are as new as it again.
        disk.remove_tree(self.files)
        disk.mkdir(self.files)
        planted = [path for path in self._folder.rglob("*") if path.is_symlink()]
        if planted:
            raise GitFailed(command=args[0], path=self.files, code=-1, stderr=f"a filter has left {planted[0].name}")

    def __call__(
        self, *args: str, stdin: bytes = b"", codes: Collection[int] = (0,), variables: Mapping[str, str] | None = None
    ) -> git.GitResult:
        return git.run(*args, cwd=self.files, env={**self._env, **(variables or {})}, stdin=stdin, codes=codes)


@contextlib.contextmanager
def _private(store: Store, tree: str) -> Iterator[_Run]:
    """A `_Run` whose index begins as `tree`."""
    with store.working() as folder:
        disk.mkdir(folder / "files")
        run = _Run(store, folder)
        run("read-tree", tree)
        yield run


def _apply(run: _Run, found: Sequence[PathChange]) -> None:
    """Applies the differences to the index, each file as `git add` would."""
    links = {change.path: change.new for change in found if change.new is not None and change.is_gitlink}
    files = {change.path: change.new for change in found if change.new is not None and not change.is_gitlink}
    gone = joined(change.path for change in found if change.new is None)
    run("update-index", "--force-remove", "-z", "--stdin", stdin=gone)
    # The attributes of the snapshot apply, before the first file is read.
    _put(run, links | {path: slot for path, slot in files.items() if path.rpartition("/")[2] == ".gitattributes"})
    asked = ("check-attr", "-z", "--stdin", "--cached", "text", "crlf", "eol", "ident", "filter")
    attributes = run(*asked, "working-tree-encoding", stdin=joined(files)).fields()
    special = {
        path
        for path, value in zip(attributes[::3], attributes[2::3], strict=True)
        if value not in ("unspecified", "unset")
    }
    automatic = run("config", "core.autocrlf", codes=(0, 1)).line.lower() not in ("", "false", "no", "off", "0")
    converted = {path: slot for path, slot in files.items() if slot.mode != _LINK and (automatic or path in special)}
    _put(run, {path: slot for path, slot in files.items() if path not in converted})
    if converted:
        _convert(run, converted)


def _put(run: _Run, slots: Mapping[str, Slot]) -> None:
    run("update-index", "--add", "--replace", "-z", "--index-info", stdin=index_lines(slots))


def _convert(run: _Run, slots: Mapping[str, Slot]) -> None:
    """Writes the files byte for byte, and has git add them under the repository's own rules."""
    raw = run.raw()
    run("update-index", "--add", "-z", "--index-info", stdin=index_lines(slots), variables=raw)
    run("checkout-index", "-a", variables=raw)
    run.filtering("update-index", "--add", "--replace", "-z", "--stdin", stdin=joined(slots))
