"""Reads the backlog with a cache of earlier reads: an unchanged file costs a stat, not a parse.

The cache is one file of the cache folder. It is a projection: missing, damaged or of another version, it is ignored.
Each file in it counts only under the stamp that it was read with. A read-only command writes it at once; the owner of
the data root, at its start and at its end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast import __version__
from holdfast.backlog.scanner import FoundFile, Scan, ScannedFile, Scanner, Stamp
from holdfast.domain.definition import Definition
from holdfast.errors import DiskError
from holdfast.storage.files import disk
from holdfast.storage.files.json_file import read_json

# To parse one file, the reader of YAML must be loaded: that takes as long as writing what is known of so many files.
FILES_PER_PARSE = 5000
# An owner reads on anyway: only so many new ones are worth a file.
NEW_MIN = 100
_RULES = f"{__version__} {Definition.__struct_fields__}"


class _Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    stamp: Stamp
    digest: str
    definition: Definition


class _Memory(msgspec.Struct, frozen=True):
    rules: str
    files: dict[str, _Kept]


_encode = msgspec.json.Encoder().encode


def scan_remembering(folder: Path, memory: Path) -> Scan:
    """Scans the backlog for a read-only command, and keeps what was new in it."""
    scanner, recalled = Scanner(folder), recall(folder, memory)
    scanner.remember(recalled)
    scan, sure = scanner.scan(), scanner.sure()
    unknown = sum(recalled.get(name) is not seen for name, seen in sure.items())
    if unknown and len(sure) <= unknown * FILES_PER_PARSE:
        keep(memory, sure)
    return scan


def recall(folder: Path, memory: Path) -> dict[str, ScannedFile]:
    """Reads the cache of the files below a folder."""
    return {name: _recalled(folder, name, kept) for name, kept in _load(memory).items()}


def _recalled(root: Path, name: str, kept: _Kept) -> ScannedFile:
    folder, _, file = name.partition("/")
    return ScannedFile(
        kept.stamp,
        kept.digest,
        True,
        FoundFile(kept.definition, root, folder, file, kept.stamp, digest=kept.digest),
        (),
    )


def keep(memory: Path, sure: Mapping[str, ScannedFile]) -> None:
    files = {name: _Kept(seen.stamp, seen.digest, seen.found.definition) for name, seen in sure.items() if seen.found}
    # Nobody is stopped by a folder that cannot be written, nor by a number that no memory can hold.
    with contextlib.suppress(DiskError, OverflowError):
        content = _encode(_Memory(_RULES, files))
        disk.mkdir(memory.parent)
        disk.replace(memory, content)


def _load(memory: Path) -> dict[str, _Kept]:
    found = read_json(memory, _Memory, lenient=True)
    return found.files if found is not None and found.rules == _RULES else {}
