"""The checkpoint: three projections of the journal, written together for one position, so that a run reads the tail.

    runtime/tasks.jsonl                 the fold's own lines, opaque here
    runtime/wal/uncommitted.idx.json    the open intents
    runtime/wal/idempotency.jsonl       the executed keys

Each begins with a line of `format`, `fold_version`, `position`, `runs`, `lines`, `size` and, last, `sha256` over that
line's exact bytes before `,"sha256"` and over everything behind the line. (The index has no further lines: what it
holds stands in `open`, so that it is one JSON document.) They count only together: all three whole, for the same
position and fold version. Otherwise the journal is read from its beginning. They are never the truth, and losing them
costs one scan.

Of the executed keys, which grow with the history, a run looks at the first line and the file's size. The content is
held against its SHA-256 when somebody first asks for a key, or when the next checkpoint takes it over. If it does not
hold then, the journal is read for the keys alone.

What stands before the position is not read again, but it must still be there: `runs` tells the run files up to it,
plain or archived, and one listing tells whether they are the same. If not, the journal is read from its beginning too,
and that names the run that is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.domain.wording import plural
from holdfast.layout import Layout
from holdfast.storage.files import disk
from holdfast.storage.journal.entry import Entry
from holdfast.storage.journal.intents import Executed, Keys, OpenIntent, Pairing
from holdfast.storage.journal.reader import Chain, TornEnd
from holdfast.storage.journal.writer import Position

FORMAT = 3
_SHA_FIELD = b',"sha256":"'
_TAIL = len(_SHA_FIELD) + 64 + 2
_FIRST_MAX = 1 << 16
_decode_executed = msgspec.json.Decoder(Executed).decode


class Fold(Protocol):
    """A later layer's fold of the journal. `version` changes whenever the same entries would give other lines."""

    version: int

    def apply(self, run: str, entry: Entry) -> None: ...
    def dump(self) -> Iterable[bytes]: ...
    def load(self, lines: list[bytes]) -> None: ...


F = TypeVar("F", bound=Fold)


class Files(msgspec.Struct, frozen=True):
    """The paths of the three projections."""

    tasks: Path
    uncommitted: Path
    idempotency: Path

    @classmethod
    def of(cls, layout: Layout) -> Files:
        return cls(layout.tasks, layout.uncommitted, layout.idempotency)


class Recovered(msgspec.Struct):
    """The journal, read: `scanned` says why it was read from the beginning, and is empty when a checkpoint served.

    When the executed keys turn out to be damaged, at the first question, `scanned` and `entries_read` say so from then.
    """

    pairing: Pairing
    end: Position | None
    torn: list[TornEnd]
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
    size: int
    open: list[OpenIntent] = []
    sha256: str = ""


class _Unusable(Exception):
    """The reason why a checkpoint is ignored. Never leaves this module."""


class _Unread(msgspec.Struct, frozen=True):
    """The executed keys in their file, behind the first line that a run saw, for the position that it names."""

    wal: Path
    path: Path
    first: bytes
    position: Position
    count: int
    note_scan: Callable[[str, int], None]

    def body(self) -> tuple[bytes, int]:
        try:
            return self._verified(), self.count
        except _Unusable as reason:
            keys = self._scan(str(reason))
            return b"".join(msgspec.json.encode(done) + b"\n" for done in keys), len(keys)

    def load(self) -> list[Executed]:
        try:
            return list(map(_decode_executed, _lines(self.path, self._verified(), self.count)))
        except _Unusable as reason:
            return self._scan(str(reason))
        except (msgspec.MsgspecError, ValueError) as error:
            return self._scan(f"{self.path.name} does not read ({error})")

    def moved(self, first: bytes, position: Position, count: int) -> _Unread:
        return msgspec.structs.replace(self, first=first, position=position, count=count)

    def _verified(self) -> bytes:
        first, body = _read(self.path)
        if first != self.first:
            raise _Unusable(f"{self.path.name} is another than at the start")
        return body

    def _scan(self, reason: str) -> list[Executed]:
        """The executed keys at the position, from the whole journal. Raises JournalCorrupt where that is gone."""
        chain, pairing, last, count = Chain(self.wal), Pairing(), self.position.ref, 0
        chain.entries(after=self.position)
        for run, entry in chain.entries():
            pairing.apply(run, entry)
            count += 1
            if (run, entry.seq) == (last.run, last.seq):
                break
        self.note_scan(reason, count)
        return pairing.executed()


def write(chain: Chain, files: Files, position: Position, fold: Fold, pairing: Pairing) -> None:
    """Writes all three for one position: `fold` and `pairing` must hold exactly the entries up to there."""
    body, count = pairing.keys.pack()
    lines = [line + b"\n" for line in fold.dump()]
    folded = b"".join(lines)
    stands = {"fold_version": fold.version, "position": position, "runs": _runs_up_to(chain, position)}
    first = _first_line(stands, body, count)
    disk.replace_together(
        {
            files.uncommitted: _first_line(stands, b"", 0, pairing.open_intents()) + b"\n",
            files.idempotency: b"%b\n%b" % (first, body),
            files.tasks: b"%b\n%b" % (_first_line(stands, folded, len(lines)), folded),
        }
    )
    pairing.keys.saved(first, position, count)


def position_of(files: Files) -> Position | None:
    """The position of the checkpoint; None where there is none that can be read."""
    try:
        return _head(files.tasks, _peek(files.tasks)[0]).position
    except _Unusable:
        return None


def recover(chain: Chain, files: Files, new_fold: Callable[[], F], *, settle: bool = True) -> tuple[F, Recovered]:
    """Reads the journal into a fold and a pairing, from the checkpoint on where there is a good one.

    A writer that builds on what was read settles it first; a read-only caller may leave the disk alone.

    A checkpoint that is whole but stands on an entry that the journal does not have is not passed over: then it is the
    journal that lost something, and `JournalCorrupt` says so. So it is with a run file that stands before it.
    """
    if settle:
        chain.settle()
    fold = new_fold()
    found = Recovered(Pairing(), None, [], 0, "")
    try:
        position, runs, found.pairing = _load(chain, files, fold, found)
        entries = chain.entries(after=position)
        if runs != _runs_up_to(chain, position):
            raise _Unusable("other run files stand before the checkpoint than when it was written")
    except _Unusable as reason:
        fold, found.pairing, entries, found.scanned = new_fold(), Pairing(), chain.entries(), str(reason)
    for run, entry in entries:
        found.pairing.apply(run, entry)
        fold.apply(run, entry)
    found.end, found.torn, found.entries_read = chain.end, chain.torn, chain.count
    return fold, found


def _runs_up_to(chain: Chain, position: Position) -> _Runs:
    names = chain.names_up_to(position.ref.run)
    return _Runs(len(names), sha256("".join(f"{name}\n" for name in names).encode()).hexdigest())


def _first_line(stands: dict[str, Any], body: bytes, lines: int, intents: list[OpenIntent] | None = None) -> bytes:
    fields = {"format": FORMAT, **stands, "lines": lines, "size": len(body)}
    if intents is not None:
        fields["open"] = intents
    head = msgspec.json.encode(fields)[:-1]
    return b'%b%b%b"}' % (head, _SHA_FIELD, _digest(head, body))


def _digest(head: bytes, body: bytes) -> bytes:
    digest = sha256(head)
    digest.update(body)
    return digest.hexdigest().encode()


def _load(chain: Chain, files: Files, fold: Fold, found: Recovered) -> tuple[Position, _Runs, Pairing]:
    def note_scan(reason: str, entries: int) -> None:
        found.scanned, found.entries_read = reason, found.entries_read + entries

    (first, body), (index_first, _) = map(_read, (files.tasks, files.uncommitted))
    tasks, index = _head(files.tasks, first), _head(files.uncommitted, index_first)
    keys_first, behind = _peek(files.idempotency)
    keys = _head(files.idempotency, keys_first)
    if not (tasks.position, tasks.runs) == (index.position, index.runs) == (keys.position, keys.runs):
        raise _Unusable("the three checkpoint files stand at different positions")
    if {head.fold_version for head in (tasks, index, keys)} != {fold.version}:
        raise _Unusable(f"the checkpoint was folded by another version than {fold.version}")
    if behind != keys.size:
        raise _Unusable(f"{files.idempotency.name} has {behind} bytes behind its first line, and says {keys.size}")
    try:
        fold.load(_lines(files.tasks, body, tasks.lines))
    except (msgspec.MsgspecError, ValueError, LookupError) as error:
        raise _Unusable(f"the checkpoint does not read ({error})") from error
    unread = _Unread(chain.wal, files.idempotency, keys_first, keys.position, keys.lines, note_scan=note_scan)
    return tasks.position, tasks.runs, Pairing(index.open, Keys(unread))


def _read(path: Path) -> tuple[bytes, bytes]:
    """A file's first line and what stands behind it, as its SHA-256 says."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _Unusable(f"{path.name}: {error.strerror}") from error
    first, newline, body = content.partition(b"\n")
    if not newline or not _is_first_line(first):
        raise _Unusable(f"{path.name} is truncated or not a checkpoint")
    if first[-_TAIL + len(_SHA_FIELD) :] != _digest(first[:-_TAIL], body) + b'"}':
        raise _Unusable(f"{path.name} does not hold what its SHA-256 says")
    return first, body


def _peek(path: Path) -> tuple[bytes, int]:
    """The first line, as it is, and how many bytes stand behind it."""
    try:
        with path.open("rb") as file:
            first = file.readline(_FIRST_MAX)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise _Unusable(f"{path.name}: {error.strerror}") from error
    if not first.endswith(b"\n") or not _is_first_line(first[:-1]):
        raise _Unusable(f"{path.name} is truncated or not a checkpoint")
    return first[:-1], size - len(first)


def _is_first_line(first: bytes) -> bool:
    return first[-_TAIL : -_TAIL + len(_SHA_FIELD)] == _SHA_FIELD


def _head(path: Path, first: bytes) -> _Head:
    try:
        head = msgspec.json.decode(first, type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _Unusable(f"{path.name} does not read ({error})") from error
    if head.format != FORMAT:
        raise _Unusable(f"{path.name} has format {head.format}, and this Holdfast writes format {FORMAT}")
    return head


def _lines(path: Path, body: bytes, count: int) -> list[bytes]:
    lines = body.split(b"\n")[:-1]
    if len(lines) != count:
        raise _Unusable(f"{path.name} has {plural(len(lines), 'line')}, and says {count}")
    return lines
