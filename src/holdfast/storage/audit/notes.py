"""The journal's note of how far the audit log reached: `audit_noted`, and the `audit` of each `run_started`.

A noted record that is gone was removed, which no kill does. The journal then notes nothing further, so every reader
finds it gone, until a person acknowledges the loss (`holdfast resolve --audit-lost`).
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import msgspec

from holdfast.domain.entries import AuditNoted
from holdfast.domain.state import State
from holdfast.errors import DiskError, FileMissing
from holdfast.layout import Layout
from holdfast.ports import Ledger
from holdfast.storage.audit import seals
from holdfast.storage.audit.verify import last_first
from holdfast.storage.files import disk
from holdfast.storage.journal import checkpoint
from holdfast.storage.journal import entry as journalled
from holdfast.storage.journal.reader import Chain

WAY_BACK = "Put it back from a backup or, where it is lost, type `holdfast resolve --audit-lost`."


def noted_now(layout: Layout) -> AuditNoted | None:
    """The log's end and its newest seal on disk; None where there is no record, or none can be read."""
    try:
        for name, record in last_first(layout.audit, None):
            seal = (seals.seal_files(layout.audit) or [""])[-1]
            digest = sha256(content(layout.seals / seal)).hexdigest() if seal else ""
            return AuditNoted(name, record.seq, record.hmac, seal, digest)
    except DiskError:
        # The writer of the log reports what is wrong.
        return None
    return None


def to_note(layout: Layout, noted: AuditNoted | None) -> AuditNoted | None:
    """The note that the journal needs now; None while the record that it has `noted` is missing."""
    try:
        is_whole = noted is None or holds(layout, noted)
    except DiskError:
        # The writer of the log reports what is wrong.
        return None
    return noted_now(layout) if is_whole else None


def content(path: Path) -> bytes:
    with disk.reading(path):
        return path.read_bytes()


def note_log(layout: Layout, ledger: Ledger) -> None:
    """Has the journal note how far the log reaches, so that cutting it back is noticed."""
    found = to_note(layout, ledger.state.audit)
    if found is not None and found != ledger.state.audit:
        ledger.append(ledger.epoch, [journalled.Record("audit_noted", msgspec.to_builtins(found), actor="audit")])


def noted_in(layout: Layout) -> AuditNoted | None:
    """The journal's note on the log, for callers that have not read the journal."""
    state, _ = checkpoint.recover(Chain(layout.wal), checkpoint.Files.of(layout), State, settle=False)
    return state.audit


def holds(layout: Layout, noted: AuditNoted) -> bool:
    """Whether the record that the journal has noted still exists."""
    ending = b',"hmac":"%s"}' % noted.hmac.encode()
    try:
        return any(line.endswith(ending) for line in content(layout.audit / noted.file).splitlines())
    except FileMissing:
        return False


def cut(layout: Layout, noted: AuditNoted) -> str:
    return f"Record {noted.seq} of {layout.audit / noted.file}, which the journal has noted, is not there any more."
