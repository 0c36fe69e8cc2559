"""Updates the user's checkout after a landing, path by path.

A path that still holds the old commit's content gets the new one's; a path that holds the new one's is done; anything
else is the user's own work, is left as it is, and reported. Only the content decides, so running it again completes
what a crash left half done. Nothing else in the checkout is read or touched.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from holdfast.crashpoints import point
from holdfast.domain.effect_entries import RefreshIntended
from holdfast.errors import LandingReverted
from holdfast.git import command as git
from holdfast.git.tree_diff import GITLINK, PathChange, Slot, changes
from holdfast.ports import DidNotHappen, Happened, InDoubt, Reconciled
from holdfast.storage.journal.intents import OpenIntent
from holdfast.worktrees.checkout import Checkout, Indexed, Stamp

REFRESH_POINTS = tuple(
    f"refresh.{step}.{when}"
    for step in ("lock", "stage", "remove", "write", "index", "unlock")
    for when in ("before", "after")
)
HOLD_POINTS = ("refresh.hold.before", "refresh.hold.after")

# How many paths are named in a message.
NAMED_MAX = 20


class HeldFiles(StrEnum):
    """Whose content a file or an index entry has."""

    OLD = "old"
    NEW = "new"
    OWN = "own"


class RefreshStep(msgspec.Struct, frozen=True, kw_only=True):
    """One path: what its file and its index entry hold. `skipped`: a sparse checkout keeps the file out."""

    change: PathChange
    file: HeldFiles
    entry: HeldFiles
    stamp: Stamp
    skipped: bool = False
    assumed: bool = False

    @property
    def path(self) -> str:
        return self.change.path

    @property
    def is_submodule(self) -> bool:
        """Its commit is noted in the index; the content of its folder is left."""
        return self.change.was_gitlink or self.change.is_gitlink

    @property
    def is_left(self) -> bool:
        # An index entry as the new commit has it, over a file as the old one had it, was staged by a person: a refresh
        # always writes the file first.
        return HeldFiles.OWN in (self.file, self.entry) or (self.file, self.entry) == (HeldFiles.OLD, HeldFiles.NEW)

    @property
    def is_done(self) -> bool:
        return self.file is self.entry is HeldFiles.NEW


class Refresh:
    """The effect of refreshing the checkout that the intent names."""

    def __init__(self) -> None:
        self._held: set[Path] = set()

    @contextlib.contextmanager
    def holding(self, paths: Iterable[Path]) -> Iterator[None]:
        """Holds the indexes of these checkouts from before the branch moves until they have been refreshed. A process
        that dies meanwhile leaves locks that name it, and that stop the user's git until recovery."""
        with contextlib.ExitStack() as held:
            for checkout in map(Checkout, paths):
                point("refresh.hold.before")
                held.enter_context(checkout.locked())
                point("refresh.hold.after")
                self._held.add(checkout.top)
                held.callback(self._held.discard, checkout.top)
            yield

    def perform(self, intent: OpenIntent) -> dict[str, Any]:
        wanted = msgspec.convert(intent.entry.inputs, RefreshIntended)
        checkout = _open(wanted)
        if checkout is None:
            return _result([])
        expect_not_reverted(checkout.repository, wanted.task, "HEAD", wanted.old, wanted.new)
        point("refresh.lock.before")
        with contextlib.nullcontext() if checkout.top in self._held else checkout.locked():
            point("refresh.lock.after")
            with checkout.private() as private, checkout.private(for_files=True) as staging:
                steps = _carry_out(checkout, private, staging, wanted)
            point("refresh.unlock.before")
        point("refresh.unlock.after")
        return _result(steps)

    def reconcile(self, intent: OpenIntent) -> Reconciled:
        wanted = msgspec.convert(intent.entry.inputs, RefreshIntended)
        checkout = _open(wanted)
        if checkout is None:
            return Happened(_result([]))
        try:
            expect_not_reverted(checkout.repository, wanted.task, "HEAD", wanted.old, wanted.new)
        except LandingReverted as error:
            return InDoubt(str(error))
        steps = steps_of(checkout, wanted.old, wanted.new)
        if not all(step.is_done or step.is_left for step in steps):
            return DidNotHappen()
        _settle(checkout, steps)
        return Happened(_result(steps))


def expect_not_reverted(repository: git.Repository, task: str, branch: str, old: str, new: str) -> None:
    """Raises LandingReverted where a commit on top of a landing has the old content of what the landing changed.

    Before the refresh, a checkout's index is that of the commit before: `git commit` there records the old files, which
    a person hardly intends.
    """
    landed = {change.path: change.old for change in changes(repository.run, old, new)}
    since = changes(repository.run, new, branch)
    paths = [each.path for each in since if each.path in landed and landed[each.path] == each.new]
    if not paths:
        return
    names = [git.readable(path) for path in paths]
    literal = ("--literal-pathspecs", "log", "-1", "--format=%H", f"{new}..{branch}", "--", *paths[:NAMED_MAX])
    restore = shlex.join(["git", "restore", f"--source={new}", "--staged", "--worktree", "--", *paths])
    raise LandingReverted(
        task=task,
        commit=repository.run(*literal).line[:12],
        branch=repository.run("rev-parse", "--symbolic-full-name", branch).line.removeprefix("refs/heads/"),
        landed=new[:12],
        paths=", ".join(names[:NAMED_MAX]) + (f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""),
        restore=restore if len(paths) <= NAMED_MAX else f"git revert {repository.run(*literal).line}",
    )


def checkouts(repo: Path, branch: str) -> list[Path]:
    """Every worktree of the repository that has the branch checked out, the main one first."""
    listed = git.discover(repo).run("worktree", "list", "--porcelain", "-z").fields()
    found, path = [], Path()
    for field in listed:
        if field.startswith("worktree "):
            path = Path(field.removeprefix("worktree "))
        elif field == f"branch {branch}" and path.is_dir():
            found.append(path)
    return found


def left_words(lock: Path) -> str:
    """A person should not remove it: a `git commit` before the refresh would undo the landing."""
    return f"{lock} keeps git from committing here: a run died while it landed. Do not remove it; a run finishes that"


def blockers(checkout: Path, branch: str, old: str, new: str) -> list[str]:
    """The paths that a landing would change and that are modified, staged or in the way there, so it has to wait."""
    opened = Checkout(checkout)
    if opened.branch() != branch:
        return []
    steps = steps_of(opened, old, new, landed=False)
    # A submodule's folder is left in any case, so only its staged entry counts.
    return [
        git.readable(step.path)
        for step in steps
        if (step.entry is HeldFiles.OWN if step.is_submodule else step.is_left)
    ]


def _open(wanted: RefreshIntended) -> Checkout | None:
    """None where there is nothing to do: it is gone, or something else is checked out there by now."""
    if not Path(wanted.checkout).is_dir():
        return None
    checkout = Checkout(Path(wanted.checkout))
    return checkout if checkout.head_has(wanted.new) else None


def _result(steps: Collection[RefreshStep]) -> dict[str, Any]:
    left = [git.readable(step.path) for step in steps if step.is_left or step.is_submodule]
    return {"left": left, "updated": len(steps) - len(left)}


# -- reading ----------------------------------------------------------------------------------------------------------


def steps_of(checkout: Checkout, old: str, new: str, *, landed: bool = True) -> list[RefreshStep]:
    with checkout.private() as private:
        return _read_steps(checkout, private, old, new, landed)


def _read_steps(checkout: Checkout, private: Path, old: str, new: str, landed: bool) -> list[RefreshStep]:
    changed = changes(checkout.repository.run, old, new)
    # Before the files are read, so that a later change is noticed.
    stamps = {change.path: checkout.stamp(change.path) for change in changed}
    content = _CheckoutContent(checkout, private, changed, old, new)
    # What the user has committed on top since is the user's own.
    committed = {change.path for change in changes(checkout.repository.run, new, "HEAD")} if landed else set()
    # Removals first, as they may make room: a folder becomes a file, or a file a folder.
    ordered = sorted(changed, key=lambda change: change.new is not None)
    steps = []
    for change in ordered:
        file, entry = content.file(change), content.entry(change)
        if change.path in committed:
            file = HeldFiles.OWN
        indexed = content.index.get(change.path)
        skipped = change.path in content.skipped
        step = RefreshStep(
            change=change,
            file=file,
            entry=entry,
            stamp=stamps[change.path],
            skipped=skipped,
            assumed=indexed is not None and indexed.assumed,
        )
        if change.new is None and not step.is_left:
            content.gone.add(change.path)
        steps.append(step)
    return steps


class _CheckoutContent:
    """The content of files and index entries. `gone`: the paths that will have been removed."""

    def __init__(self, checkout: Checkout, private: Path, changed: list[PathChange], old: str, new: str) -> None:
        self._checkout = checkout
        self.index: dict[str, Indexed] = checkout.index()
        self._names = sorted(self.index)
        self.gone: set[str] = set()
        self._old = _matching(checkout, private, {change.path: change.old for change in changed}, old)
        self._new = _matching(checkout, private, {change.path: change.new for change in changed}, new)
        added = {change.path: change.new for change in changed if change.new is not None and change.old is None}
        out = checkout.outside(private, added)
        out |= {change.path for change in changed if change.path in self.index and self.index[change.path].skipped}
        # A file that exists all the same is treated like any other.
        self.skipped = {path for path in out if not checkout.stands(path)}

    def file(self, change: PathChange) -> HeldFiles:
        path = change.path
        if path in self.skipped:
            # There is nothing to write: the file counts as its entry does.
            return self.entry(change)
        if change.was_gitlink or change.is_gitlink:
            return self._submodule(change)
        if path in self._new:
            return HeldFiles.NEW
        if path in self._old:
            return HeldFiles.OLD
        if change.new is None:
            # A folder in its place holds other files, not this one.
            return HeldFiles.NEW if self._checkout.stamp(path) is None else HeldFiles.OWN
        return HeldFiles.OLD if change.old is None and self._is_free(path) else HeldFiles.OWN

    def entry(self, change: PathChange) -> HeldFiles:
        found = self.index.get(change.path)
        slot = found.slot if found else None
        if slot == change.new:
            return HeldFiles.NEW
        if slot != change.old or (slot is None and not self._is_free_in_index(change.path)):
            return HeldFiles.OWN
        return HeldFiles.OLD

    def _submodule(self, change: PathChange) -> HeldFiles:
        """Its folder is never touched, so it counts as its entry does, unless a file is in its place."""
        plain = any(slot is not None and slot.mode != GITLINK for slot in (change.old, change.new))
        target = self._checkout.top / change.path
        in_the_way = os.path.lexists(target) and (target.is_symlink() or not target.is_dir())
        return HeldFiles.OWN if plain or in_the_way else self.entry(change)

    def _is_free(self, path: str) -> bool:
        """Whether a file can be put there without touching anything of the user's."""
        if obstacle := self._checkout.obstacle(path):
            return obstacle in self.gone
        target = self._checkout.top / path
        if not self._checkout.stands(path):
            return True
        if target.is_symlink() or not target.is_dir():
            return False
        below = (
            os.path.join(parent, name)
            for parent, folders, files in os.walk(target)
            for name in (*files, *(each for each in folders if os.path.islink(os.path.join(parent, each))))
        )
        return all(os.path.relpath(name, self._checkout.top) in self.gone for name in below)

    def _is_free_in_index(self, path: str) -> bool:
        parents = {str(parent) for parent in list(Path(path).parents)[:-1]}
        at = bisect.bisect_left(self._names, path + "/")
        while at < len(self._names) and self._names[at].startswith(path + "/"):
            if self._names[at] not in self.gone:
                return False
            at += 1
        return not any(parent in self.index and parent not in self.gone for parent in parents)


def _matching(checkout: Checkout, private: Path, slots: Mapping[str, Slot | None], commit: str) -> set[str]:
    wanted = {path: slot for path, slot in slots.items() if slot is not None and slot.mode != GITLINK}
    found = checkout.same(private, wanted)
    if any(os.path.basename(path) == ".gitattributes" for path in slots):
        found |= checkout.same_as_made(private, commit, wanted.keys() - found)
    return found


# -- writing ----------------------------------------------------------------------------------------------------------


def _carry_out(checkout: Checkout, private: Path, staging: Path, wanted: RefreshIntended) -> list[RefreshStep]:
    steps = _read_steps(checkout, private, wanted.old, wanted.new, landed=True)
    todo = [step for step in steps if step.file is HeldFiles.OLD and not step.is_left and not step.skipped]
    writes = [step for step in todo if step.change.new is not None and not step.is_submodule]
    point("refresh.stage.before")
    made = checkout.make(staging, wanted.new, [step.path for step in writes]) if writes else staging
    point("refresh.stage.after")
    late = set()
    for step in (each for each in steps if each.change.new is None and not each.is_left and not each.is_submodule):
        point("refresh.remove.before")
        if not _is_unchanged(checkout, step):
            late.add(step.path)
        elif step.file is HeldFiles.OLD and not step.skipped:
            checkout.remove(step.path)
        checkout.prune(step.path)
        point("refresh.remove.after")
    for step in writes:
        point("refresh.write.before")
        if _is_unchanged(checkout, step) and os.path.lexists(made / step.path):
            checkout.put(made / step.path, step.path)
        else:
            late.add(step.path)
        point("refresh.write.after")
    for step in steps:
        if step.is_submodule and step.change.new is not None and not step.is_left and not step.skipped:
            checkout.put_folder(step.path)
    steps = [msgspec.structs.replace(step, file=HeldFiles.OWN) if step.path in late else step for step in steps]
    point("refresh.index.before")
    _set_index(checkout, private, [step for step in steps if step.entry is HeldFiles.OLD and not step.is_left])
    point("refresh.index.after")
    # A `git stash -u` that began before us removes files that the index did not have yet, and cannot reset meanwhile.
    gone = [step for step in writes if step.path not in late and not checkout.stands(step.path)]
    made = checkout.make(staging, wanted.new, [step.path for step in gone]) if gone else staging
    for step in gone:
        if os.path.lexists(made / step.path):
            checkout.put(made / step.path, step.path)
    _settle(checkout, steps)
    return steps


def _settle(checkout: Checkout, steps: Collection[RefreshStep]) -> None:
    """Syncs what is done: the process that did it may have died before its sync."""
    checkout.settle([step.path for step in steps if not step.is_left])


def _is_unchanged(checkout: Checkout, step: RefreshStep) -> bool:
    """Whether the user has not written to the file since it was read."""
    return step.stamp == checkout.stamp(step.path)


def _set_index(checkout: Checkout, private: Path, steps: list[RefreshStep]) -> None:
    if not steps:
        return
    flags = {
        "--skip-worktree": [step.path for step in steps if step.skipped and step.change.new is not None],
        "--assume-unchanged": [step.path for step in steps if step.assumed and step.change.new is not None],
    }
    checkout.set_index(private, {step.path: step.change.new for step in steps}, flags)
