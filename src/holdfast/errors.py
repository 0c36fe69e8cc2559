"""Every error Holdfast raises on purpose, in one tree.

A class's docstring is its message: a sentence that says what happened, what was kept and what to do next. The fields in
braces are given by name when the error is raised, and stay readable on the instance. `exit_code` is what the command
line returns for it; docs list the codes.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, ClassVar


class HoldfastError(Exception):
    """Something went wrong: {detail}."""

    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls, exit_code: int | None = None) -> None:
        if exit_code is not None:
            cls.exit_code = exit_code

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        super().__init__(_sentence(type(self), facts))

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is copied and pickled by its positional arguments, and this one takes none.
        return functools.partial(type(self), **self.facts), (), self.__dict__

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["facts"][name]
        except KeyError:
            raise AttributeError(name) from None


def _sentence(kind: type[HoldfastError], facts: dict[str, Any]) -> str:
    # `python -OO` strips docstrings; the facts alone still tell what happened.
    template = kind.__doc__ or kind.__name__ + ": " + ", ".join(f"{name} {{{name}}}" for name in facts)
    return " ".join(inspect.cleandoc(template).split("\n")).format(**facts)


# -- input ------------------------------------------------------------------------------------------------------------


class InputError(HoldfastError, exit_code=2):
    """The input cannot be used: {detail}. Nothing was changed."""


class PathEscapes(InputError):
    """The path {name!r} leads out of {root}. Nothing was read or written; give a relative path that stays inside."""


class InvalidName(InputError):
    """{what} {name!r} cannot be used: {rule}. Nothing was changed."""


class NotABlobId(InputError):
    """{digest!r} is not a blob id: 64 lower-case hexadecimal digits were expected. Nothing was read."""


class RootUnusable(InputError):
    """The data root {path} cannot be used: {reason}. Nothing was changed; name another with --data-root."""


class NewerFormat(InputError):
    """{path} was written in format {found}, and this Holdfast reads up to format {known}. Nothing was changed;
    use the newer Holdfast that wrote it."""


class FormatBroken(InputError):
    """{path} cannot be read: {reason}. Nothing was changed; restore this file from a backup, or, if its folder is no
    data root, name another with --data-root."""


class FormatMissing(InputError):
    """{path} is missing, though {wal} holds a journal. Nothing was changed; restore that file from a backup or with
    git, or type `holdfast init`, which writes a new one and leaves all else as it is."""


class RootOfAnother(InputError):
    """The data root {path} is of the repository that begins with commit {recorded}, and {repo} does not have it: it
    {first}. Nothing was changed; name another data root with --data-root, or, if {repo} is that repository with its
    history rewritten, set `root_commit` in {file} to "" and start again."""


class ConfigError(InputError):
    """{place} sets {key} to {value}. Allowed is {allowed}. Nothing was changed; correct it, then start again."""


class SettingUnknown(ConfigError):
    """{place} sets {key} to {value}, and there is no such setting there. {allowed} Nothing was changed; correct it,
    then start again."""


class SettingTwice(ConfigError):
    """{place} sets {key} to {value}, but {first} sets it too. Allowed is {allowed}. Nothing was changed; remove one,
    then start again."""


class ConfigUnreadable(ConfigError):
    """{place} cannot be read as configuration: {reason}. Allowed is {allowed}. Nothing was changed; correct the file,
    then start again."""


class NotInRepository(InputError):
    """{path} is not in a git work tree ({reason}). Nothing was changed; go to your repository, or make one with
    `git init`."""


class NotInitialised(InputError):
    """There is no Holdfast in {repo} yet: {path} is missing. Nothing was changed; type `holdfast init`."""


class RepositoryMoved(NotInitialised):
    """There is no Holdfast in {repo} yet: {path} is missing. But {found} is of a repository with the same first
    commit, which is no longer where it was. Nothing was changed; if you moved it here, type `{command}`, otherwise
    `holdfast init`."""


# -- disk -------------------------------------------------------------------------------------------------------------


class DiskError(HoldfastError, exit_code=3):
    """Could not {operation} {path}: {reason}. What was acknowledged before is kept; fix the cause, then start
    again."""


class DiskFull(DiskError):
    """Could not {operation} {path}: {reason}. What was acknowledged before is kept; free some space, then start
    again."""


class AlreadyExists(DiskError):
    """Could not {operation} {path}: it exists already. It was left as it is."""


class FileMissing(DiskError):
    """Could not {operation} {path}: there is no such file or folder. Nothing was changed."""


class SyncFailed(DiskError):
    """Could not {operation} {path}: {reason}. Nothing is acknowledged after a failed sync, and a sync is never tried
    twice; stop, check the disk, and start again to go on from what is really on it."""


class Poisoned(DiskError):
    """{path} takes no more records, because an earlier write or sync of it failed ({reason}). Stop, check the disk,
    and start again to go on from what is really on it."""


class OutputFailed(HoldfastError, exit_code=3):
    """The output could not be written: {reason}. What was done is kept, and only the telling of it is lost; `holdfast
    list` shows how things stand."""


# -- journal ----------------------------------------------------------------------------------------------------------


class JournalCorrupt(HoldfastError, exit_code=4):
    """The journal is damaged at {path}, byte {offset}: {reason}. Nothing was changed or deleted; restore this file
    from a backup, or look at it with `holdfast log`."""


class EntryUnknown(HoldfastError, exit_code=2):
    """Entry {seq} of run {run} is a {decision_type}, which this Holdfast does not know. Nothing was changed; use the
    newer Holdfast that wrote it."""


class EntryUnfit(JournalCorrupt):
    """Entry {seq} of run {run}, a {decision_type}, cannot be: {reason}. Nothing was changed or deleted; look at it
    with `holdfast log`, or restore runtime/wal from a backup."""


class NoSuchEntry(InputError):
    """There is no {what} in {wal}. Nothing was changed; `holdfast log` shows what there is."""


class JournalClosed(HoldfastError):
    """The journal of run {run} is closed and takes no more records."""


class PairingBroken(JournalCorrupt):
    """The journal contradicts itself at entry {seq} of run {run}: {reason}. Nothing was changed or deleted; restore
    this file from a backup, or look at it with `holdfast log`."""


# -- blobs, audit, ledgers --------------------------------------------------------------------------------------------


class BlobMissing(HoldfastError, exit_code=5):
    """There is no blob {digest} in {path}."""


class BlobCorrupt(HoldfastError, exit_code=4):
    """The blob {path} does not hold the bytes its name promises ({reason}), so it is not served. The file was left as
    it is; put the same content again to mend it, or restore it from a backup."""


class BlobUndescribed(HoldfastError, exit_code=4):
    """The description {path} of a blob cannot be used: {reason}. Nothing was changed; put the same content again
    to mend it."""


class AuditKeyUnusable(HoldfastError, exit_code=6):
    """The audit key {path} cannot be used: {reason}. Nothing was written."""


class AuditCorrupt(HoldfastError, exit_code=4):
    """The audit log does not verify at {place}: {reason}. Nothing was changed or deleted; keep the file as evidence,
    and restore what it held from a backup."""


class NotSealed(HoldfastError, exit_code=5):
    """Record {seq} of {file} is in no seal of {path}, so there is nothing to prove it against. Nothing was changed;
    seal the log first, then ask again."""


class ProofInvalid(HoldfastError, exit_code=4):
    """The proof does not hold: {reason}."""


class RecordUnfit(InputError):
    """The record cannot be written to {path}: {reason}. Nothing was written."""


class CursorAhead(InputError):
    """The cursor {cursor} lies past the end of {path} ({end}). It belongs to another ledger, or to records that were
    read before they were durable and lost with the power. Nothing was changed; go on from the end."""


class SegmentDamaged(HoldfastError, exit_code=4):
    """The segment {path} is damaged: {reason}. It was left as it is; what stands before the damage is read, and the
    other segments are whole."""


# -- tasks ------------------------------------------------------------------------------------------------------------


class IllegalTransition(HoldfastError, exit_code=9):
    """{what} in state {state} cannot take the event {event}; the legal moves there: {moves}. Nothing was changed."""


class MoveRefused(IllegalTransition):
    """{what} in state {state} cannot take the event {event}; the legal moves there: {moves}. It stays as it is. The
    refusal is on record."""


class TaskUnknown(InputError):
    """There is no task {task!r} here. Nothing was changed; {hint}"""


class NothingParked(HoldfastError, exit_code=9):
    """Nothing of the task {task} waits for a decision: it is {state}. Nothing was changed; `holdfast show {task}` tells
    what it waits for."""


class TaskIsFinal(HoldfastError, exit_code=9):
    """The task {task} is {state}, and an edit of its definition would count for nothing. Nothing was written; add a
    new task."""


# -- backlog ----------------------------------------------------------------------------------------------------------


class DefinitionInvalid(InputError):
    """The task file {name} cannot be used: {problems}. Nothing was written; mend what is named, then try again."""


class TaskExists(InputError):
    """There is a task {task!r} already, in {path}. Nothing was written; choose another id, or edit that task."""


class TaskFileMissing(InputError):
    """There is no usable file of a task {task!r} in {path}. Nothing was changed; `holdfast list` shows what there is
    and which files have problems."""


class TaskFileChanged(HoldfastError, exit_code=10):
    """{path} has changed since it was read. It was left as it is; read it again, then make the change anew."""


class TaskFilesDiffer(HoldfastError, exit_code=10):
    """Several files claim to be the task {task!r}, and they differ: {paths}. All were kept; join what they say in one
    of them, and remove the others."""


class BlockUnfit(HoldfastError, exit_code=10):
    """The block `{block}:` cannot be written to {path} without changing what else the file says. It was left as it
    is; write its keys one per line, then try again."""


# -- lock -------------------------------------------------------------------------------------------------------------


class Locked(HoldfastError, exit_code=7):
    """{path} is held by {holder}. Nothing was changed; wait for it to end, or stop it, then try again."""


class InUse(Locked):
    """{path} is being written by another process, or by another part of this one. Nothing was written; wait until that
    one has closed it, then try again."""


class TakeOverRefused(HoldfastError, exit_code=7):
    """{path} was not taken over from {holder}: {reason}. Nothing was changed."""


class TakeOverFailed(Locked):
    """{path} was to be taken over from {holder}. That one is gone or was sent SIGKILL, but {reason}. No epoch was
    taken; start again once the lock is free."""


# -- claims -----------------------------------------------------------------------------------------------------------


class StaleEpoch(HoldfastError, exit_code=7):
    """This owner's epoch {epoch} is over: epoch {current} owns the data root now. Nothing was written."""


class ClaimRefused(HoldfastError, exit_code=9):
    """The task {task} cannot be claimed: {reason}. Nothing was changed."""


class ClaimLost(HoldfastError, exit_code=9):
    """The task {task} is no longer held by this claim of {worker}: {reason}. Nothing was changed."""


# -- git --------------------------------------------------------------------------------------------------------------


class GitFailed(HoldfastError, exit_code=8):
    """`git {command}` failed in {path} with code {code}: {stderr}"""


class GitUnusable(HoldfastError, exit_code=8):
    """git cannot be used: {reason}. Nothing was changed; install git {minimum} or newer, then start again."""


class GitLocked(HoldfastError, exit_code=8):
    """{path} is held by {holder}. Nothing was changed; let that git end, then it is tried again by itself."""


class LandingLost(HoldfastError, exit_code=8):
    """The task {task} was to land on {branch} on top of {old}, but the branch {found}. Nothing was changed; the work
    is merged onto the newer commit and verified anew."""


class GateStuck(HoldfastError, exit_code=8):
    """A gate of {attempt} was sent SIGKILL and has not ended: {processes}. Nothing was decided; end what it waits for
    (often a network disk), then start again."""


class NoIdentity(InputError):
    """Nobody is named as the author of what lands in {repo}. The work is kept; type `git config user.name "Your Name"`
    and `git config user.email you@example.org`, or set `git.author_name` and `git.author_email` in
    config/settings.yaml."""


class NoTarget(InputError):
    """There is no branch in {repo} that work could land on: {reason}. Nothing was changed; check out a branch that has
    a commit, or name one as `git.target_branch` in config/settings.yaml."""


class NotAWorktree(InputError):
    """{path} is not the top folder of a git worktree: {reason}. Nothing was changed."""


class RestoreIncomplete(HoldfastError, exit_code=8):
    """{path} was put back to {name}, but these still differ: {paths}. Nothing else was touched; stop what writes
    there, then restore again."""


class SnapshotDamaged(HoldfastError, exit_code=8):
    """The snapshot {name} is not whole in {path}: {reason}. Nothing was changed; bring the object back from a copy of
    the repository, or use another snapshot."""


class SnapshotMissing(HoldfastError, exit_code=8):
    """There is no snapshot {name}. List what there is with `git for-each-ref refs/holdfast`."""


class SpawnFailed(HoldfastError, exit_code=8):
    """The runner of {attempt} could not be started: {reason}. The task keeps its worktree, and is tried again."""


class DetachFailed(HoldfastError):
    """The run in the background ended at once, with code {code}. What it said is at the end of {path}."""


class NobodyRuns(HoldfastError, exit_code=7):
    """Nobody runs in {path}. `holdfast status` tells how the tasks stand."""


class NotStopped(HoldfastError, exit_code=7):
    """The run with pid {pid} has been asked to end, and has not within {seconds:g} s. It ends when it comes to it;
    `holdfast run --take-over` ends it at once, and loses nothing."""


class LandingWaits(HoldfastError, exit_code=9):
    """The landing of {task} waits: it changes {paths}, and so have you, in your checkout. Commit or put away your
    changes there, and it goes on by itself."""
