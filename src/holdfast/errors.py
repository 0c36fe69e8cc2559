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


class InputError(HoldfastError):
    """The input cannot be used: {detail}. Nothing was changed."""

    exit_code = 2


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


# -- disk -------------------------------------------------------------------------------------------------------------


class DiskError(HoldfastError):
    """Could not {operation} {path}: {reason}. What was acknowledged before is kept; fix the cause, then start
    again."""

    exit_code = 3


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


# -- journal ----------------------------------------------------------------------------------------------------------


class JournalCorrupt(HoldfastError):
    """The journal is damaged at {path}, byte {offset}: {reason}. Nothing was changed or deleted; restore this file
    from a backup, or look at it with `holdfast log`."""

    exit_code = 4


class EntryUnknown(HoldfastError):
    """Entry {seq} of run {run} is a {decision_type}, which this Holdfast does not know. Nothing was changed; use the
    newer Holdfast that wrote it."""

    exit_code = 2


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


class BlobMissing(HoldfastError):
    """There is no blob {digest} in {path}."""

    exit_code = 5


class BlobCorrupt(HoldfastError):
    """The blob {path} does not hold the bytes its name promises ({reason}), so it is not served. The file was left as
    it is; put the same content again to mend it, or restore it from a backup."""

    exit_code = 4


class BlobUndescribed(HoldfastError):
    """The description {path} of a blob cannot be used: {reason}. Nothing was changed; put the same content again
    to mend it."""

    exit_code = 4


class AuditKeyUnusable(HoldfastError):
    """The audit key {path} cannot be used: {reason}. Nothing was written."""

    exit_code = 6


class AuditCorrupt(HoldfastError):
    """The audit log does not verify at {place}: {reason}. Nothing was changed or deleted; keep the file as evidence,
    and restore what it held from a backup."""

    exit_code = 4


class NotSealed(HoldfastError):
    """Record {seq} of {file} is in no seal of {path}, so there is nothing to prove it against. Nothing was changed;
    seal the log first, then ask again."""

    exit_code = 5


class ProofInvalid(HoldfastError):
    """The proof does not hold: {reason}."""

    exit_code = 4


class RecordUnfit(InputError):
    """The record cannot be written to {path}: {reason}. Nothing was written."""


class CursorAhead(InputError):
    """The cursor {cursor} lies past the end of {path} ({end}). It belongs to another ledger, or to records that were
    read before they were durable and lost with the power. Nothing was changed; go on from the end."""


class SegmentDamaged(HoldfastError):
    """The segment {path} is damaged: {reason}. It was left as it is; what stands before the damage is read, and the
    other segments are whole."""

    exit_code = 4


# -- tasks ------------------------------------------------------------------------------------------------------------


class IllegalTransition(HoldfastError):
    """{what} in state {state} cannot take the event {event}; the legal moves there: {moves}. Nothing was changed."""

    exit_code = 9


class TaskUnknown(InputError):
    """There is no task {task!r} here. Nothing was changed; {hint}"""


class NothingParked(HoldfastError):
    """Nothing of the task {task} waits for a decision: it is {state}. Nothing was changed; `holdfast show {task}` tells
    what it waits for."""

    exit_code = 9


class TaskIsFinal(HoldfastError):
    """The task {task} is {state}, and an edit of its definition would count for nothing. Nothing was written; add a
    new task."""

    exit_code = 9


# -- backlog ----------------------------------------------------------------------------------------------------------


class DefinitionInvalid(InputError):
    """The task file {name} cannot be used: {problems}. Nothing was written; mend what is named, then try again."""


class TaskExists(InputError):
    """There is a task {task!r} already, in {path}. Nothing was written; choose another id, or edit that task."""


class TaskFileMissing(InputError):
    """There is no usable file of a task {task!r} in {path}. Nothing was changed; `holdfast list` shows what there is
    and which files have problems."""


class TaskFileChanged(HoldfastError):
    """{path} has changed since it was read. It was left as it is; read it again, then make the change anew."""

    exit_code = 10


class TaskFilesDiffer(HoldfastError):
    """Several files claim to be the task {task!r}, and they differ: {paths}. All were kept; join what they say in one
    of them, and remove the others."""

    exit_code = 10


class BlockUnfit(HoldfastError):
    """The block `{block}:` cannot be written to {path} without changing what else the file says. It was left as it
    is; write its keys one per line, then try again."""

    exit_code = 10


# -- lock -------------------------------------------------------------------------------------------------------------


class Locked(HoldfastError):
    """{path} is held by {holder}. Nothing was changed; wait for it to end, stop it, or use `holdfast run
    --take-over`."""

    exit_code = 7


class InUse(Locked):
    """{path} is being written by another process, or by another part of this one. Nothing was written; wait until that
    one has closed it, then try again."""


class TakeOverRefused(HoldfastError):
    """{path} was not taken over from {holder}: {reason}. Nothing was changed."""

    exit_code = 7


class TakeOverFailed(Locked):
    """{path} was to be taken over from {holder}. That one is gone or was sent SIGKILL, but {reason}. No epoch was
    taken; start again once the lock is free."""


# -- claims -----------------------------------------------------------------------------------------------------------


class StaleEpoch(HoldfastError):
    """This owner's epoch {epoch} is over: epoch {current} owns the data root now. Nothing was written."""

    exit_code = 7


class ClaimRefused(HoldfastError):
    """The task {task} cannot be claimed: {reason}. Nothing was changed."""

    exit_code = 9


class ClaimLost(HoldfastError):
    """The task {task} is no longer held by this claim of {worker}: {reason}. Nothing was changed."""

    exit_code = 9


# -- git --------------------------------------------------------------------------------------------------------------


class GitFailed(HoldfastError):
    """`git {command}` failed in {path} with code {code}: {stderr}"""

    exit_code = 8


class GitUnusable(HoldfastError):
    """git cannot be used: {reason}. Nothing was changed; install git {minimum} or newer, then start again."""

    exit_code = 8


class NotAWorktree(InputError):
    """{path} is not the top folder of a git worktree: {reason}. Nothing was changed."""


class RestoreIncomplete(HoldfastError):
    """{path} was put back to {name}, but these still differ: {paths}. Nothing else was touched; stop what writes
    there, then restore again."""

    exit_code = 8


class SnapshotDamaged(HoldfastError):
    """The snapshot {name} is not whole in {path}: {reason}. Nothing was changed; bring the object back from a copy of
    the repository, or use another snapshot."""

    exit_code = 8


class SnapshotMissing(HoldfastError):
    """There is no snapshot {name}. List what there is with `git for-each-ref refs/holdfast`."""

    exit_code = 8
