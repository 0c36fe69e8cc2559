"""The checkpoint: three projections of the journal, written together for one position, so that a start reads the tail.

    runtime/tasks.jsonl                 the fold's own lines, opaque here
    runtime/wal/uncommitted.idx.json    the open intents
    runtime/wal/idempotency.jsonl       the executed keys

Each begins with a line of `format`, `fold_version`, `position`, `runs`, `lines` and, last, `sha256` over that line's
exact bytes before `,"sha256"` and over everything behind the line. (The index has no further lines: what it holds
stands in `open`, so that it is one JSON document.) They count only together: all three whole, for the same position
and fold version. Otherwise the journal is read from its beginning. They are never the truth, and losing them costs one
scan.

What stands before the position is not read again, but it must still be there: `runs` tells the run files up to it,
plain or archived, and one listing tells whether they are the same. If not, the journal is read from its beginning too,
and that names the run that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast.durable import disk
from holdfast.durable.chain import Chain, Torn
from holdfast.durable.entry import Entry
from holdfast.durable.journal import Position
from holdfast.durable.pairing import Executed, OpenIntent, Pairing

FORMAT = 2
_SHA_FIELD = b',"sha256":"'
_TAIL = len(_SHA_FIELD) + 64 + 2
_decode_executed = msgspec.json.Decoder(Executed).decode


class Fold(Protocol):
    """What a later layer makes of the journal. `version` changes whenever the same entries would give other lines."""

    version: int

    def apply(self, run: str, entry: Entry) -> None: ...
    def dump(self) -> Iterable[bytes]: ...
    def load(self, lines: list[bytes]) -> None: ...


class Files(msgspec.Struct, frozen=True):
    """Where the three projections stand."""

    tasks: Path
    uncommitted: Path
    idempotency: Path


class Recovered(msgspec.Struct, frozen=True):
    """The journal, read: `scanned` says why it was read from the beginning, and is empty when a checkpoint served."""

    pairing: Pairing
    end: Position | None
    torn: list[Torn]
    entries_read: int
    scanned: str


class _Runs(msgspec.Struct, frozen=True):
    """The run files up to a position: how many, and the SHA-256 of their runs' names, each with a line end."""

    count: int
    sha256: str


class _Head(msgspec.Struct, frozen=True):
    format: int
    fold_version: int
    position: Position
    runs: _Runs
    lines: int
    open: list[OpenIntent] = []
    sha256: str = ""


class _Unusable(Exception):
    """Why a checkpoint does not count; it never leaves this module."""


def write(chain: Chain, files: Files, position: Position, fold: Fold, pairing: Pairing) -> None:
    """Writes all three for one position: `fold` and `pairing` must hold exactly the entries up to there."""
    executed = [msgspec.json.encode(done) for done in pairing.executed()]
    stands = {"fold_version": fold.version, "position": position, "runs": _runs_up_to(chain, position)}
    disk.replace_together(
        {
            files.uncommitted: _assemble(stands, [], pairing.open_intents()),
            files.idempotency: _assemble(stands, executed),
            files.tasks: _assemble(stands, list(fold.dump())),
        }
    )


def recover(chain: Chain, files: Files, new_fold: Callable[[], Fold], *, settle: bool = True) -> tuple[Fold, Recovered]:
    """Reads the journal into a fold and a pairing, from the checkpoint on where there is a good one.

    Who builds on what was read settles it first; who only looks may leave the disk alone.

    A checkpoint that is whole but stands on an entry that the journal does not have is not passed over: then it is the
    journal that lost something, and `JournalCorrupt` says so. So it is with a run file that stands before it.
    """
    if settle:
        chain.settle()
    fold = new_fold()
    try:
        position, runs, pairing = _load(files, fold)
        entries = chain.entries(after=position)
        scanned = ""
        if runs != _runs_up_to(chain, position):
            raise _Unusable("other run files stand before the checkpoint than when it was written")
    except _Unusable as reason:
        fold, pairing, entries, scanned = new_fold(), Pairing(), chain.entries(), str(reason)
    for run, entry in entries:
        pairing.apply(run, entry)
        fold.apply(run, entry)
    return fold, Recovered(pairing, chain.end, chain.torn, chain.count, scanned)


def _runs_up_to(chain: Chain, position: Position) -> _Runs:
    names = chain.names_up_to(position.ref.run)
    return _Runs(len(names), sha256("".join(f"{name}\n" for name in names).encode()).hexdigest())


def _assemble(stands: dict[str, Any], lines: list[bytes], intents: list[OpenIntent] | None = None) -> bytes:
    fields = {"format": FORMAT, **stands, "lines": len(lines)}
    if intents is not None:
        fields["open"] = intents
    head = msgspec.json.encode(fields)[:-1]
    body = b"".join(line + b"\n" for line in lines)
    digest = sha256(head + body).hexdigest().encode()
    return b'%b%b%b"}\n%b' % (head, _SHA_FIELD, digest, body)


def _load(files: Files, fold: Fold) -> tuple[Position, _Runs, Pairing]:
    heads, bodies = zip(*map(_disassemble, (files.tasks, files.uncommitted, files.idempotency)), strict=True)
    tasks, index, keys = heads
    if not (tasks.position, tasks.runs) == (index.position, index.runs) == (keys.position, keys.runs):
        raise _Unusable("the three checkpoint files stand at different positions")
    if {head.fold_version for head in heads} != {fold.version}:
        raise _Unusable(f"the checkpoint was folded by another version than {fold.version}")
    try:
        fold.load(bodies[0])
        executed = list(map(_decode_executed, bodies[2]))
    except (msgspec.MsgspecError, ValueError, LookupError) as error:
        raise _Unusable(f"the checkpoint does not read ({error})") from error
    return tasks.position, tasks.runs, Pairing(index.open, executed)


def _disassemble(path: Path) -> tuple[_Head, list[bytes]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _Unusable(f"{path.name}: {error.strerror}") from error
    first, newline, body = content.partition(b"\n")
    if not newline or first[-_TAIL : -_TAIL + len(_SHA_FIELD)] != _SHA_FIELD:
        raise _Unusable(f"{path.name} is truncated or not a checkpoint")
    digest = sha256(first[:-_TAIL])
    digest.update(body)
    if first[-_TAIL + len(_SHA_FIELD) :] != digest.hexdigest().encode() + b'"}':
        raise _Unusable(f"{path.name} does not hold what its SHA-256 says")
    try:
        head = msgspec.json.decode(first, type=_Head)
    except msgspec.MsgspecError as error:
        raise _Unusable(f"{path.name} does not read ({error})") from error
    if head.format != FORMAT:
        raise _Unusable(f"{path.name} has format {head.format}, and this Holdfast writes format {FORMAT}")
    lines = body.split(b"\n")[:-1]
    if len(lines) != head.lines:
        raise _Unusable(f"{path.name} has {len(lines)} lines, and says {head.lines}")
    return head, lines
