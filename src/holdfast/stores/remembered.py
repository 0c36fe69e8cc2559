"""The backlog read with the help of what an earlier process read: an unchanged file costs a stat, not a parse.

What was read is kept in one file of the cache folder. It is a projection for those who only look: missing, damaged or
of another version, it is passed over, and each file in it counts only under the stamp that it was read with.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from holdfast import __version__
from holdfast.domain.definition import Definition
from holdfast.durable import disk
from holdfast.errors import DiskError
from holdfast.stores.scan import Found, Scan, Scanner, Seen, Stamp

# To parse one file, the reader of YAML must be loaded: that takes as long as writing what is known of so many files.
FILES_PER_PARSE = 5000
_RULES = f"{__version__} {Definition.__struct_fields__}"


class _Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    stamp: Stamp
    digest: str
    definition: Definition


class _Memory(msgspec.Struct, frozen=True):
    rules: str
    files: dict[str, _Kept]


_decode = msgspec.json.Decoder(_Memory).decode
_encode = msgspec.json.Encoder().encode


class RememberingScanner(Scanner):
    def __init__(self, folder: Path, memory: Path) -> None:
        super().__init__(folder)
        self._memory = memory
        self._seen = {name: self._recalled(name, kept) for name, kept in _load(memory).items()}

    def scan(self) -> Scan:
        recalled = dict(self._seen)
        scan = super().scan()
        sure = {name: seen for name, seen in self._seen.items() if seen.settled and seen.found is not None}
        unknown = sum(recalled.get(name) is not seen for name, seen in sure.items())
        if unknown and len(sure) <= unknown * FILES_PER_PARSE:
            self._keep(sure)
        return scan

    def _recalled(self, name: str, kept: _Kept) -> Seen:
        folder, _, file = name.partition("/")
        found = Found(kept.definition, self.folder, folder, file, kept.stamp, kept.digest)
        return Seen(kept.stamp, kept.digest, True, found, ())

    def _keep(self, sure: dict[str, Seen]) -> None:
        files = {
            name: _Kept(seen.stamp, seen.digest, seen.found.definition) for name, seen in sure.items() if seen.found
        }
        # Who looks is not stopped by a folder that cannot be written, nor by a number that no memory can hold.
        with contextlib.suppress(DiskError, OverflowError):
            content = _encode(_Memory(_RULES, files))
            disk.mkdir(self._memory.parent)
            disk.replace(self._memory, content)


def _load(memory: Path) -> dict[str, _Kept]:
    try:
        found = _decode(memory.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found.files if found.rules == _RULES else {}
