"""Reading the journal: streaming, verifying, over all runs, telling torn from corrupt.

Run files are read in the order of their epochs. Each entry must follow the one before it by sequence and hash, and each
run's `run_started` must name the end of the run before, so that an entry or a whole file that is missing, changed,
added or out of place is seen.

Where the entries stop following each other, the rest of the file is searched for sound lines. None of them claims
`synced` at or past the missing entry: it was never acknowledged, a crash tore it, and it is passed over. One does: an
acknowledged entry is lost, and that is corruption. So is a sound line that does not fit: no crash writes one.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

import msgspec

from holdfast.errors import FileMissing, JournalCorrupt, NewerFormat
from holdfast.storage.files import disk
from holdfast.storage.journal.entry import GENESIS, TAIL, UNREADABLE, Entry, Ref, decode, decode_sound, sha256
from holdfast.storage.journal.writer import FORMAT, RUN_STARTED, SUFFIX, Position, epoch_of, is_run_id, run_file

ARCHIVED = SUFFIX + ".zst"
_BUFFER = 1 << 20
_BLOCK = 1 << 15


class TornEnd(msgspec.Struct, frozen=True):
    """The bytes that a crash left behind the last entry of a run: never acknowledged, kept as it is, passed over."""

    run: str
    offset: int
    length: int


def plain_files(wal: Path) -> list[Path]:
    """The run files that are not archived, by name, for callers that look at the files and read no entry."""
    return sorted(wal.glob(f"*{SUFFIX}"))


class RunFile(msgspec.Struct, frozen=True):
    run: str
    path: Path

    def open(self, offset: int = 0) -> tuple[IO[bytes], int]:
        """The run's bytes from `offset` on, and how many there are, as far as that is known before unpacking.

        A plain file may be archived between the listing and this: then its copy holds the same bytes.
        """
        path = self.path
        if not path.name.endswith(ARCHIVED):
            with contextlib.suppress(FileNotFoundError):
                plain = path.open("rb", buffering=_BUFFER)
                plain.seek(offset)
                return plain, os.fstat(plain.fileno()).st_size
            path = path.parent / "archive" / f"{self.run}{ARCHIVED}"
        archived = io.BufferedReader(_Unpacking(path), _BUFFER)
        while offset > 0:
            offset -= len(archived.read(min(offset, _BUFFER))) or offset
        return archived, sys.maxsize

    def entries(self) -> Iterator[Entry]:
        """The run's entries as far as they are whole, for callers that read on from a position and judge nothing."""
        with contextlib.ExitStack() as reading:
            reading.enter_context(disk.reading(self.path))
            stream = reading.enter_context(self.open()[0])
            for line in stream:
                entry = decode_sound(line)
                if entry is None:
                    return
                yield entry


class _Unpacking(io.RawIOBase):
    """An archived run's bytes. Where they do not unpack, the error names the file and how far they did."""

    def __init__(self, path: Path) -> None:
        from backports import zstd

        # EOFError: the file ends in the middle of a frame.
        self._path, self._errors, self._offset = path, (zstd.ZstdError, EOFError), 0
        self._packed = path.open("rb")
        self._unpacked = zstd.ZstdFile(self._packed)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            got = self._unpacked.read(len(buffer))
        except self._errors as error:
            raise JournalCorrupt(
                path=self._path, offset=self._offset, reason=f"it does not unpack ({error})"
            ) from error
        buffer[: len(got)] = got
        self._offset += len(got)
        return len(got)

    def close(self) -> None:
        self._packed.close()
        super().close()


class Chain:
    """All runs of a journal, oldest first. When `entries` is exhausted, `end`, `torn` and `count` say what it found."""

    def __init__(self, wal: Path) -> None:
        self.wal = wal
        self.end: Position | None = None
        self.torn: list[TornEnd] = []
        self.count = 0

    def runs(self) -> list[RunFile]:
        """The run files in the order of the chain. A plain file counts before its archived copy."""
        found: dict[str, RunFile] = {}
        # The plain files first: a run that is archived between the two looks is then still met.
        for folder, suffix in ((self.wal, SUFFIX), (self.wal / "archive", ARCHIVED)):
            with contextlib.suppress(FileMissing), disk.reading(folder):
                for name in os.listdir(folder):
                    if name.endswith(suffix) and not name.startswith("."):
                        run = name.removesuffix(suffix)
                        file = found.setdefault(run, RunFile(run, folder / name))
                        if not is_run_id(run):
                            self._corrupt(file, 0, "its name is not a run's, so it does not belong here")
        return sorted(found.values(), key=lambda file: (epoch_of(file.run), file.run))

    def names_up_to(self, run: str) -> list[str]:
        """The runs that there are files of, up to and with this one, which must be among them."""
        files = self.runs()
        return [file.run for file in files[: files.index(self._file_of(files, run)) + 1]]

    def settle(self) -> None:
        """Makes what the newest run wrote durable, before anyone relies on having read it.

        A killed process leaves lines that it never synced. They are read like any others, and the next run names the
        last of them as its predecessor: were they lost to a power cut afterwards, the chain would have a hole.
        """
        newest = [file for file in self.runs() if file.path.name.endswith(SUFFIX)][-1:]
        for file in newest:
            disk.sync_file(file.path)
            disk.sync_folder(self.wal)

    def entries(self, after: Position | None = None) -> Iterator[tuple[str, Entry]]:
        """Every entry with its run, verified, in order; or only those behind a position that is known to be good."""
        self.end, self.torn, self.count = after, [], 0
        files = self.runs()
        if after is None:
            return itertools.chain.from_iterable(self._run(file, 0) for file in files)
        begun = self._file_of(files, after.ref.run)
        self._expect_at(begun, after)
        later = files[files.index(begun) + 1 :]
        return itertools.chain(self._run(begun, after.end), *(self._run(file, 0) for file in later))

    def _run(self, file: RunFile, offset: int) -> Iterator[tuple[str, Entry]]:
        """One run's entries from a byte offset on, block by block."""
        before = self.end
        seq, prev = (0, GENESIS) if offset == 0 or before is None else (before.ref.seq + 1, before.ref.entry_hash)
        with contextlib.ExitStack() as reading:
            reading.enter_context(disk.reading(file.path))
            stream, limit = file.open(offset)
            reading.enter_context(stream)
            while lines := stream.readlines(_BLOCK):
                entries = _following(lines, seq, prev)
                if entries and seq == 0:
                    self._expect_link(file, entries[0], before)
                yield from zip(itertools.repeat(file.run), entries)
                if entries:
                    start = offset + sum(map(len, lines[: len(entries) - 1]))
                    offset = start + len(lines[len(entries) - 1])
                    seq, prev = seq + len(entries), entries[-1].entry_hash
                    self.count += len(entries)
                    self.end = Position(Ref(file.run, seq - 1, prev), start, offset)
                if len(entries) < len(lines):
                    rest = itertools.chain(lines[len(entries) :], stream)
                    self._judge(file, rest, offset, seq, limit)
                    return

    def _judge(self, file: RunFile, rest: Iterator[bytes], offset: int, seq: int, limit: int) -> None:
        """Decides on the lines behind the last good entry: torn is noted, corrupt raises.

        Nothing behind `limit`, the length of the file when reading began, bears witness: a living writer may have
        finished the line that was read half, and gone on.
        """
        end = offset
        for line in rest:
            sound = decode_sound(line)
            if end == offset and seq == 0:
                _refuse_newer(file, line)
            if end == offset and sound is not None:
                reason = (
                    f"a whole entry {sound.seq} stands where entry {seq} must follow, or its prev_hash does not fit"
                )
                self._corrupt(file, offset, reason)
            end += len(line)
            if end > limit:
                break
            witness = sound or _sound_part(line)
            if witness is not None and witness.synced >= seq:
                reason = f"entry {seq} is damaged, and entry {witness.seq} shows that it had been acknowledged"
                self._corrupt(file, offset, reason)
        self.torn.append(TornEnd(file.run, offset, end - offset))

    def _expect_link(self, file: RunFile, first: Entry, before: Position | None) -> None:
        if first.decision_type != RUN_STARTED:
            self._corrupt(file, 0, f"a run begins with {RUN_STARTED}, not with {first.decision_type}")
        written_in = first.inputs.get("format")
        if written_in != FORMAT:
            raise NewerFormat(path=file.path, found=written_in, known=FORMAT)
        named = first.inputs.get("previous")
        found = None if before is None else msgspec.to_builtins(before.ref)
        if named == found:
            return
        if named is None:
            self._corrupt(
                file, 0, f"it says that it is the first run, but {before and before.ref.run} stands before it"
            )
        if before is None or named["run"] != before.ref.run:
            standing = "nothing" if before is None else before.ref.run
            self._corrupt(
                file, 0, f"it follows run {named['run']}, but {standing} stands before it: a run is missing or added"
            )
        earlier = self._file_of(self.runs(), before.ref.run)
        seen = f"but run {file.run} saw it end with entry {named['seq']}, hash {named['entry_hash']}"
        self._corrupt(earlier, before.end, f"it ends with entry {before.ref.seq}, {seen}")

    def _expect_at(self, file: RunFile, after: Position) -> None:
        """The entry that a checkpoint stands on must be in the journal, at its place."""
        with disk.reading(file.path), file.open(after.start)[0] as stream:
            line = stream.read(after.end - after.start)
        entry = decode_sound(line)
        if entry is None or (entry.seq, entry.entry_hash) != (after.ref.seq, after.ref.entry_hash):
            self._corrupt(
                file, after.start, f"entry {after.ref.seq}, on which the checkpoint stands, is missing or another"
            )

    def _file_of(self, files: list[RunFile], run: str) -> RunFile:
        for file in files:
            if file.run == run:
                return file
        reason = "the file of this run, on which the checkpoint stands, is missing"
        raise JournalCorrupt(path=run_file(self.wal, run), offset=0, reason=reason)

    def _corrupt(self, file: RunFile, offset: int, reason: str) -> NoReturn:
        raise JournalCorrupt(path=file.path, offset=offset, reason=reason)


def _following(lines: list[bytes], seq: int, prev: str) -> list[Entry]:
    """The entries of the lines that follow each other from `seq` and `prev` on, up to the first that does not.

    This is the hot path of every run. All lines of a block are decoded, hashed and compared together, which takes
    a good deal less time than one after the other; only a block that does not hold is gone through line by line.
    """
    with contextlib.suppress(*UNREADABLE, RecursionError):
        entries = list(map(decode, lines))
        digests = [sha256(line[:-TAIL]).hexdigest() for line in lines]
        if (
            [entry.entry_hash for entry in entries] == digests
            and [entry.prev_hash for entry in entries] == [prev, *digests[:-1]]
            and [entry.seq for entry in entries] == list(range(seq, seq + len(lines)))
            and lines[-1].endswith(b"\n")
        ):
            return entries
    found: list[Entry] = []
    for line in lines:
        entry = decode_sound(line)
        if entry is None or (entry.seq, entry.prev_hash) != (seq, prev):
            break
        found.append(entry)
        seq, prev = seq + 1, entry.entry_hash
    return found


def _refuse_newer(file: RunFile, line: bytes) -> None:
    """A later format may have other fields, which must not be called damage; a line with our fields can be no other."""
    try:
        decode(line)
    except (*UNREADABLE, RecursionError):
        with contextlib.suppress(*UNREADABLE, RecursionError, TypeError, LookupError):
            found = msgspec.json.decode(line)["inputs"]["format"]
            if isinstance(found, int) and found > FORMAT:
                raise NewerFormat(path=file.path, found=found, known=FORMAT) from None


def _sound_part(line: bytes) -> Entry | None:
    """A sound entry in a line, also behind the zeros that a lost page leaves in front of it."""
    start = line.find(b'{"seq":')
    while start >= 0:
        entry = decode_sound(line[start:])
        if entry is not None:
            return entry
        start = line.find(b'{"seq":', start + 1)
    return None


def find(chain: Chain, ref: Ref) -> Position | None:
    """The position of an entry in the journal; None where it is not in it."""
    ending = b'"entry_hash":"%s"}\n' % ref.entry_hash.encode()
    for file in chain.runs():
        if file.run != ref.run:
            continue
        with disk.reading(file.path), file.open()[0] as stream:
            offset = 0
            for line in stream:
                if line.endswith(ending):
                    return Position(ref, offset, offset + len(line))
                offset += len(line)
    return None
