"""Errors of the durable core: disk, journal, blobs, audit, lock."""

from __future__ import annotations

from holdfast.errors.base import HoldfastError, InputError

# -- disk -------------------------------------------------------------------------------------------------------------


class DiskError(HoldfastError, exit_code=3):
    """Could not {operation} {path}: {reason}. What was acknowledged before is kept; fix the cause, then start
    again."""


class DiskFull(DiskError):
    """Could not {operation} {path}: {reason}. What was acknowledged before is kept; free some space, then start
    again."""


class DiskFault(DiskError):
    """Could not {operation} {path}: {reason}. What was acknowledged before is kept; this is a fault of the machine:
    check the disk, then start again."""


class AlreadyExists(DiskError):
    """Could not {operation} {path}: it exists already. It was left as it is."""


class FileMissing(DiskError):
    """Could not {operation} {path}: there is no such file or folder. Nothing was changed."""


class SyncFailed(DiskError):
    """Could not {operation} {path}: {reason}. Nothing is acknowledged after a failed sync, and a sync is never tried
    twice; stop, check the disk, and start again to continue from what is really on it."""


class Poisoned(DiskError):
    """{path} takes no more records, because an earlier write or sync of it failed ({reason}). Stop, check the disk,
    and start again to continue from what is really on it."""


class OutputFailed(HoldfastError, exit_code=3):
    """The output could not be written: {reason}. What was done is kept, and only its output is lost; `holdfast list`
    shows the tasks and their states."""


# -- journal ----------------------------------------------------------------------------------------------------------


class JournalCorrupt(HoldfastError, exit_code=4):
    """The journal is damaged at {path}, byte {offset}: {reason}. Nothing was changed or deleted; restore this file
    from a backup, or look at it with `holdfast log`."""


class JournalShorter(HoldfastError, exit_code=4):
    """The journal in {wal} is older than the files beside it: {witnesses}. It seems to have been put back from a
    backup. Nothing was changed, and no task is worked on: put the newer journal back into that folder or, where it is
    lost, type `holdfast resolve --journal-restored`, which moves what the journal does not know to quarantine/."""


class EntryUnknown(HoldfastError, exit_code=2):
    """Entry {seq} of run {run} is a {decision_type}, which this Holdfast does not know. Nothing was changed; use the
    newer Holdfast that wrote it."""


class EntryUnfit(JournalCorrupt):
    """Entry {seq} of run {run}, a {decision_type}, is not valid there: {reason}. Nothing was changed or deleted; look
    at it with `holdfast log`, or restore runtime/wal from a backup."""


class NoSuchEntry(InputError):
    """There is no {what} in {wal}. Nothing was changed; `holdfast log` shows what there is."""


class JournalClosed(HoldfastError):
    """The journal of run {run} is closed and takes no more records."""


class JournalRemoved(JournalClosed):
    """The journal file {path} of this living run was removed or replaced. {kept} Nothing more was written, and the run
    ends; type `holdfast check`, then start again."""


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
    read before they were durable and lost with the power. Nothing was changed; continue from the end."""


class SegmentDamaged(HoldfastError, exit_code=4):
    """The segment {path} is damaged: {reason}. It was left as it is; what stands before the damage is read, and the
    other segments are whole."""


# -- lock -------------------------------------------------------------------------------------------------------------


class Locked(HoldfastError, exit_code=7):
    """{path} is held by {holder}. Nothing was changed; wait for it to end, or stop it, then try again."""


class InUse(Locked):
    """{path} is being written by another process, or by another part of this one. Nothing was written; wait until that
    one has closed it, then try again."""


class TakeOverRefused(HoldfastError, exit_code=7):
    """{path} was not taken over from {holder}: {reason}. Nothing was changed."""


class TakeOverFailed(Locked):
    """{path} was to be taken over from {holder}. That process is gone or was sent SIGKILL, but {reason}. No epoch was
    taken; start again once the lock is free."""


# -- claims -----------------------------------------------------------------------------------------------------------


class StaleEpoch(HoldfastError, exit_code=7):
    """This owner's epoch {epoch} is over: {current} owns the data root now. Nothing was written."""


class ClaimRefused(HoldfastError, exit_code=9):
    """The task {task} cannot be claimed: {reason}. Nothing was changed."""


class ClaimLost(HoldfastError, exit_code=9):
    """The task {task} is no longer held by this claim of {worker}: {reason}. Nothing was changed."""
