"""Inclusion proofs: show one record of the audit log to an outsider who has neither the key nor the log.

A proof is a small JSON object:

    format  seal  root  line  day  record_path  day_index  day_count  day_path

The outsider trusts only a root, published or handed over when the log was sealed. `line` is the record's exact line,
and `day` is as in the seal: `file records last_hmac records_root size sha256`. The line and `record_path` give the
day's `records_root` (the record's own seq is its index, `records` the count); the day's leaf and `day_path` give the
root. `seal` and `root` only name the source; they prove nothing. Each path is a list of hashes from the bottom up, one
for each level of the tree, so a proof grows with the logarithm of the log. See `merkle` for the hashes and `seals` for
a day's leaf.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.domain.wording import plural
from holdfast.errors import AuditCorrupt, NotSealed, ProofInvalid
from holdfast.storage.audit import merkle
from holdfast.storage.audit.days import day_file
from holdfast.storage.audit.seals import Seal, SealedDay, parse_seal, seal_files, seals_folder
from holdfast.storage.audit.verify import AuditRecord, Walk, parse

FORMAT = 1


class Proof(msgspec.Struct, frozen=True):
    format: int
    seal: str
    root: str
    line: str
    day: SealedDay
    record_path: list[str]
    day_index: int
    day_count: int
    day_path: list[str]

    def document(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"


def prove(folder: Path, day: str, seq: int) -> Proof:
    """Proves record `seq` of a day (a date or its file's name) against the newest seal that covers it. Needs no key."""
    file = day_file(day)
    seal, sealed = _newest_seal_of(folder, file, seq)
    line, record_path = _record_and_path(folder, seal, sealed, seq)
    day_index = seal.days.index(sealed)
    return Proof(
        format=FORMAT,
        seal=seal.file,
        root=seal.root,
        line=line.decode(),
        day=sealed,
        record_path=[step.hex() for step in record_path],
        day_index=day_index,
        day_count=len(seal.days),
        day_path=[step.hex() for step in merkle.path((each.leaf() for each in seal.days), day_index)],
    )


def _newest_seal_of(folder: Path, file: str, seq: int) -> tuple[Seal, SealedDay]:
    for name in reversed(seal_files(folder)):
        found = _read_seal(seals_folder(folder) / name)
        for day in found.days:
            if day.file == file and 0 <= seq < day.records:
                return found, day
    raise NotSealed(seq=seq, file=file, path=folder)


def _read_seal(path: Path) -> Seal:
    try:
        found = parse_seal(path.read_bytes(), key=None)
    except OSError as error:
        found = f"it cannot be read ({error.strerror})"
    if isinstance(found, str):
        raise AuditCorrupt(path=path, line=0, place=str(path), reason=found)
    return found


def _record_and_path(folder: Path, seal: Seal, day: SealedDay, seq: int) -> tuple[bytes, list[bytes]]:
    """Reads the sealed part of the day once, and holds no more of it than one path."""
    tree, wanted = merkle.MerkleTree(watch=seq), b""
    for line, _ in Walk(folder, None, whole=False).day(day.file):
        if tree.count == day.records:
            break
        wanted = line if tree.count == seq else wanted
        tree.add(line)
    if tree.count != day.records or tree.root().hex() != day.records_root:
        reason = f"it does not begin with the {plural(day.records, 'record')} that {seal.file} has"
        raise AuditCorrupt(path=folder / day.file, line=0, place=str(folder / day.file), reason=reason)
    return wanted, tree.path()


def check_proof(document: bytes, root: str) -> AuditRecord:
    """The proven record, if the log with this root holds it where the proof says. Raises ProofInvalid."""
    try:
        proof = msgspec.json.decode(document, type=Proof)
        record_path = [bytes.fromhex(step) for step in proof.record_path]
        day_path = [bytes.fromhex(step) for step in proof.day_path]
        line, leaf = proof.line.encode(), proof.day.leaf()
    except (TypeError, ValueError, RecursionError) as error:
        raise ProofInvalid(reason=f"it cannot be read ({error})") from error
    if proof.format != FORMAT:
        raise ProofInvalid(reason=f"it has format {proof.format}, and this Holdfast reads format {FORMAT}")
    record = parse(line, key=None)
    if record is None:
        raise ProofInvalid(reason="its line is not a record")
    if merkle.verify(line, record.seq, proof.day.records, record_path).hex() != proof.day.records_root:
        raise ProofInvalid(reason=f"its line is not record {record.seq} of {proof.day.file}")
    found = merkle.verify(leaf, proof.day_index, proof.day_count, day_path).hex()
    if found != root.strip().lower():
        raise ProofInvalid(reason=f"it leads to the root {found}, and not to the one that is trusted")
    return record
