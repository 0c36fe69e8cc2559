"""Seals: the audit log at one moment as one hash that can be published.

`audit/merkle/seal-<YYYYMMDDTHHMMSS.ffffff>Z.json` holds one JSON object, fields in this order:

    format  sealed_at  previous {file sha256}  days [{file records last_hmac records_root size sha256}]  root  hmac

`hmac` signs the exact bytes before `,"hmac"`, as in the log: a seal cannot be forged without the key. (A record starts
with `{"seq"`, a seal with `{"format"`, so neither passes for the other.) `previous` chains seal to seal by the hash of
the file. `days` are days in the order of their links: all of them, or those that have changed since the seal that lists
them, so that a seal for each run does not grow with the log's age; `records_root` is the Merkle root over the exact
bytes of the day's records (their lines, without the line end), and `root` the one over the days, each as its six fields
joined by line ends. Names sort in the order of sealing, whatever the clock says.

`size` and `sha256` are of the whole file at that time, with all that a crash had torn by then: those bytes never
change. The last day of a seal may grow until another day follows it; the others were closed.

A written seal is durable, and so is every record that it covers. Only a root that is kept elsewhere shows that the log
and its newest seals were cut back together; nothing inside the folder can.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.clock import wall
from holdfast.domain.wording import plural
from holdfast.errors import InputError
from holdfast.storage.audit import merkle
from holdfast.storage.audit.days import moment
from holdfast.storage.audit.key import AuditKey, signature
from holdfast.storage.audit.verify import AuditFinding, Findings, TornRecord, Walk
from holdfast.storage.files import disk

FORMAT = 1
_SEAL_FILE = re.compile(r"seal-[0-9]{8}T[0-9]{6}\.[0-9]{6}Z\.json")
_MOMENT = "%Y-%m-%dT%H:%M:%S.%fZ"


class SealedDay(msgspec.Struct, frozen=True):
    """A day as far as it is sealed: its first `records` records, and the first `size` bytes of its file."""

    file: str
    records: int
    last_hmac: str
    records_root: str
    size: int
    sha256: str

    def leaf(self) -> bytes:
        return "\n".join(str(field) for field in msgspec.structs.astuple(self)).encode()


class Link(msgspec.Struct, frozen=True):
    """The seal before: its name, and the SHA-256 of its file."""

    file: str
    sha256: str


class Seal(msgspec.Struct, frozen=True):
    format: int
    sealed_at: str
    previous: Link | None
    days: list[SealedDay]
    root: str
    hmac: str

    @property
    def file(self) -> str:
        return f"seal-{self.sealed_at.replace('-', '').replace(':', '')}.json"


class SealReport(msgspec.Struct, frozen=True):
    """The result of verifying. Without the key (`keyed` false), only links and sealed content were checked.

    `missing`: there is no folder at all. A log that was never written to is sound; only the caller knows whether it
    should exist.
    """

    keyed: bool
    missing: bool
    days: int
    records: int
    seals: int
    torn: list[TornRecord]
    findings: list[AuditFinding]
    unlisted: int

    @property
    def sound(self) -> bool:
        return not self.findings


def seals_folder(folder: Path) -> Path:
    return folder / "merkle"


def day_root(days: list[SealedDay]) -> str:
    return merkle.root(day.leaf() for day in days).hex()


# -- sealing ----------------------------------------------------------------------------------------------------------


def seal(folder: Path, key: AuditKey, *, clock: Callable[[], float] = wall, only_changed: bool = False) -> Seal:
    """Verifies the log, then seals all its records. With nothing new since the last seal, returns that one.
    `only_changed`: lists only the days that have changed since; a root to publish should be of all.

    Like an append, only for the process that holds the data root's lock.
    """
    examined = _Examination(folder, key)
    examined.findings.require_none(folder)
    days, last = examined.days, next(reversed(examined.seals.values()), None)
    if not days:
        raise InputError(detail=f"the audit log {folder} has no record to seal")
    changed = [day for day in days if examined.sealed.get(day.file) != day]
    # What was read may not be on disk yet, as its writer may have been killed; and a seal must never outlive a record
    # that it covers, nor the seal that it follows.
    disk.mkdir(folder)
    disk.mkdir(seals_folder(folder))
    for day in changed:
        disk.sync_file(folder / day.file)
    disk.sync_folder(folder)
    if last is not None:
        disk.sync_file(seals_folder(folder) / last.file)
        disk.sync_folder(seals_folder(folder))
        if last.days == days or (only_changed and not changed):
            return last
    days = changed if only_changed else days
    sealed_at = _moment_after(last, clock())
    fields = {"format": FORMAT, "sealed_at": sealed_at, "previous": examined.link, "days": days, "root": day_root(days)}
    line = key.signed(fields)
    made = msgspec.json.decode(line, type=Seal)
    disk.create(seals_folder(folder) / made.file, line + b"\n")
    return made


def _moment_after(last: Seal | None, now: float) -> str:
    present = moment(now).strftime(_MOMENT)
    if last is None or present > last.sealed_at:
        return present
    after = datetime.datetime.strptime(last.sealed_at, _MOMENT) + datetime.timedelta(microseconds=1)
    return after.strftime(_MOMENT)


# -- reading and verifying --------------------------------------------------------------------------------------------


def seal_files(folder: Path) -> list[str]:
    """The names of the seals, oldest first."""
    with disk.reading(seals_folder(folder) if folder.is_dir() else folder):
        try:
            return sorted(filter(_SEAL_FILE.fullmatch, os.listdir(seals_folder(folder))))
        except FileNotFoundError:
            return []


def parse_seal(content: bytes, key: AuditKey | None) -> Seal | str:
    """The seal, or what is wrong with it."""
    line = content[:-1]
    if not content.endswith(b"\n") or signature(line) is None:
        return "it does not end as a seal does"
    if key is not None and not key.accepts(line):
        return "it is not signed with this key, or was changed since"
    try:
        found = msgspec.json.decode(line, type=Seal)
    except (ValueError, RecursionError) as error:
        return f"it cannot be read as a seal ({error})"
    if found.format != FORMAT:
        return f"it has format {found.format}, and this Holdfast reads format {FORMAT}"
    if not found.days or day_root(found.days) != found.root:
        return "its root is not the root of its days"
    return found


def verify(folder: Path, key: AuditKey | None) -> SealReport:
    """Checks every line, link and seal of the log in one pass and constant memory, and notes all that does not fit."""
    examined = _Examination(folder, key)
    return SealReport(
        keyed=key is not None,
        missing=not os.path.lexists(folder),
        days=len(examined.days),
        records=sum(day.records for day in examined.days),
        seals=examined.seals_count,
        torn=examined.torn,
        findings=list(examined.findings.found.values()),
        unlisted=examined.findings.unlisted,
    )


class _Examination:
    """One verification: the seals first, so that a log that grows meanwhile is never shorter than they say."""

    def __init__(self, folder: Path, key: AuditKey | None) -> None:
        self._folder = folder
        self._key = key
        self.seals_count = 0
        self.seals: dict[str, Seal] = {}
        # Each day as the newest seal that lists it has it.
        self.sealed: dict[str, SealedDay] = {}
        self.link: Link | None = None
        self.findings = Findings()
        self._read_seals()
        walk = Walk(folder, key, findings=self.findings)
        self.torn = walk.torn
        self._contents = self._read_days(walk)
        self.days = [content.day for content in self._contents.values() if content.day is not None]
        self._compare()
        walk.note_strays()

    def _read_seals(self) -> None:
        names = seal_files(self._folder)
        self.seals_count = len(names)
        for name in names:
            place = f"merkle/{name}"
            try:
                content = (seals_folder(self._folder) / name).read_bytes()
            except OSError as error:
                self.findings.note(place, 0, "unreadable", error.strerror or str(error))
                content = b""
            found = parse_seal(content, self._key)
            if isinstance(found, Seal):
                self._check_link(found, names)
                self.seals[name] = found
                if found.file != name:
                    self.findings.note(place, 0, "renamed", f"it was written as {found.file}")
            elif not self.findings.concern(place):
                self.findings.note(place, 0, "edited", found)
            self.link = Link(name, hashlib.sha256(content).hexdigest())

    def _check_link(self, seal: Seal, names: list[str]) -> None:
        previous, before, note = seal.previous, self.link, self.findings.note
        if previous == before:
            return
        if previous is not None and previous.file not in names:
            note(f"merkle/{previous.file}", 0, "removed", f"{seal.file} follows it")
        elif previous is not None and before is not None and previous.file == before.file:
            if not self.findings.concern(f"merkle/{before.file}"):
                note(f"merkle/{before.file}", 0, "edited", f"it is not the seal that {seal.file} follows")
            # What an edited seal says is not compared with the log.
            self.seals.pop(before.file, None)
        else:
            after = previous.file if previous else "no seal"
            stray = before.file if before else seal.file
            note(f"merkle/{stray}", 0, "added", f"{seal.file} follows {after}, and no seal follows this one")

    def _read_days(self, walk: Walk) -> dict[str, _Content]:
        sealed: dict[str, set[SealedDay]] = {}
        for day in (day for seal in self.seals.values() for day in seal.days):
            sealed.setdefault(day.file, set()).add(day)
        contents = {name: _Content(walk, name, sealed.get(name, set())) for name in walk.names}
        walk.finish()
        return contents

    def _compare(self) -> None:
        """Compares each seal with the log."""
        checked: set[tuple[SealedDay, bool]] = set()
        places = {name: place for place, name in enumerate(self._contents)}
        names, looked = list(self._contents), 0
        for seal in self.seals.values():
            last = seal.days[-1].file
            for day in seal.days:
                if (day, day.file == last) not in checked:
                    checked.add((day, day.file == last))
                    self._compare_day(seal, day, closed=day.file != last)
            self.sealed |= {day.file: day for day in seal.days}
            # Which days an edited seal had is unknown.
            is_known = len(self.seals) == self.seals_count
            for name in names[looked : places.get(last, 0)] if is_known else ():
                if self._contents[name].day is not None and name not in self.sealed:
                    reason = f"{seal.file} has later days, and neither it nor a seal before has this one"
                    self.findings.note(name, 0, "added", reason)
            looked = max(looked, places.get(last, 0))

    def _compare_day(self, seal: Seal, day: SealedDay, *, closed: bool) -> None:
        content = self._contents.get(day.file)
        if content is None:
            self.findings.note(day.file, 0, "removed", f"{seal.file} has it with {plural(day.records, 'record')}")
        elif self.findings.concern(day.file):
            return
        elif content.records < day.records:
            self._note_missing(seal, day, content.records)
        elif content.ends.get(day.records) != (day.last_hmac, day.records_root):
            reason = f"it does not begin with the {plural(day.records, 'record')} that {seal.file} has"
            self.findings.note(day.file, 0, "edited", reason)
        elif closed and content.records > day.records:
            reason = f"it has {plural(content.records, 'record')}, and {seal.file} closed it with {day.records:,}"
            self.findings.note(day.file, 0, "added", reason)
        else:
            self._compare_bytes(seal, day, content, closed=closed)

    def _compare_bytes(self, seal: Seal, day: SealedDay, content: _Content, *, closed: bool) -> None:
        """Compares the bytes between and behind the records, too."""
        if content.size < day.size:
            reason = f"it has {plural(content.size, 'byte')} of the {day.size:,} that {seal.file} has"
            self.findings.note(day.file, 0, "truncated", reason)
        elif closed and content.size > day.size:
            reason = f"it has {plural(content.size, 'byte')}, and {seal.file} closed it with {day.size:,}"
            self.findings.note(day.file, 0, "added", reason)
        elif content.digests.get(day.size) != day.sha256:
            reason = f"it does not begin with the {plural(day.size, 'byte')} that {seal.file} has"
            self.findings.note(day.file, 0, "edited", reason)

    def _note_missing(self, seal: Seal, day: SealedDay, records: int) -> None:
        reason = f"it has {plural(records, 'record')} of the {day.records:,} that {seal.file} has"
        torn = [torn for torn in self.torn if torn.file == day.file]
        if torn:
            self.findings.note(day.file, torn[-1].line, "edited", f"damaged here: {reason}")
        else:
            self.findings.note(day.file, 0, "truncated", reason)


class _Content:
    """A day while it is read, with its state at each number of records and of bytes at which it was `sealed`."""

    def __init__(self, walk: Walk, name: str, sealed: set[SealedDay]) -> None:
        self.ends: dict[int, tuple[str, str]] = {}
        self.digests: dict[int, str] = {}
        self.size = 0
        self._sizes = sorted({day.size for day in sealed if day.size > 0}, reverse=True)
        self._hash = hashlib.sha256()
        counts = {day.records for day in sealed}
        tree, hmac = merkle.MerkleTree(), ""
        for line, record in walk.day(name, self._feed):
            tree.add(line)
            hmac = record.hmac
            if tree.count in counts:
                self.ends[tree.count] = hmac, tree.root().hex()
        self.records = tree.count
        whole = SealedDay(name, tree.count, hmac, tree.root().hex(), self.size, sha256=self._hash.hexdigest())
        self.day = whole if tree.count else None

    def _feed(self, piece: bytes) -> None:
        while self._sizes and self._sizes[-1] <= self.size + len(piece):
            size = self._sizes.pop()
            head, piece = piece[: size - self.size], piece[size - self.size :]
            self._hash.update(head)
            self.size, self.digests[size] = size, self._hash.hexdigest()
        self._hash.update(piece)
        self.size += len(piece)
