"""One line of the journal.

    {"seq":…,"prev_hash":…,"timestamp":…,"decision_type":…,"inputs":…,"output":…,"actor":…,"committed":…,"synced":…,"entry_hash":…}

`entry_hash` is last, and is the SHA-256 of the line's exact bytes before `,"entry_hash"`: a line is verified as it
stands on disk, without serialising anything again. `prev_hash` is the entry hash of the line before (64 zeros in a
file's first line). `committed` is false for an intent. `synced` is the last sequence that was durable when the line
was written: the line's own witness that everything up to there had been acknowledged.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import msgspec

from holdfast.domain.effect_entries import entry_name
from holdfast.errors import InputError

GENESIS = "0" * 64
# Deeper JSON could be written, but not be read back everywhere: readers go down by recursion.
DEPTH_MAX = 200
HASH_FIELD = b',"entry_hash":"'
# The field, 64 hexadecimal digits, the closing quote and brace, the newline.
TAIL = len(HASH_FIELD) + 64 + 3


class Ref(msgspec.Struct, frozen=True):
    """Names one entry for good: the hash makes sure that it is the entry meant, not another at the same place."""

    run: str
    seq: int
    entry_hash: str

    @property
    def name(self) -> str:
        return entry_name(self.run, self.seq, self.entry_hash)


class Entry(msgspec.Struct, frozen=True, gc=False):
    seq: int
    prev_hash: str
    timestamp: float
    decision_type: str
    inputs: dict[str, Any]
    output: dict[str, Any]
    actor: str
    committed: bool
    synced: int
    entry_hash: str


class Record(msgspec.Struct, frozen=True):
    """The caller's part of an entry, in the order of the line; the journal adds sequence, hashes and time."""

    decision_type: str
    inputs: dict[str, Any] = {}
    output: dict[str, Any] = {}
    actor: str = "holdfast"
    committed: bool = True


# Not RecursionError: what was hashed when it was written can be read, if not from so deep a stack.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Entry).decode
sha256 = hashlib.sha256


def encode_middle(record: Record) -> bytes:
    """The part of a line that the caller decides, from `decision_type` to `committed`.

    Refuses what could be written but not be read back as it was.
    """
    try:
        encoded = encode(record)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InputError(detail=f"a {record.decision_type} record holds what JSON cannot ({error})") from error
    named = type(record.decision_type) is str and type(record.actor) is str
    if not (named and type(record.inputs) is dict and type(record.output) is dict and type(record.committed) is bool):
        raise InputError(detail=f"a record of the type {record.decision_type!r} has fields of the wrong type")
    # Infinities and NaN are written as null: nearly always there is none.
    if b"null" in encoded and not is_finite(record.inputs, record.output):
        raise InputError(detail=f"a {record.decision_type} record holds a number that is not finite")
    # What is nested so deep has at least so many brackets: nearly always the length alone tells that it is not.
    if len(encoded) > 2 * DEPTH_MAX and is_deeper(record.inputs, record.output):
        raise InputError(detail=f"a {record.decision_type} record is nested more than {DEPTH_MAX} deep")
    return encoded[1:-1]


def is_deeper(*values: Any) -> bool:
    """True for what is nested more than DEPTH_MAX deep, found level by level, without going down itself."""
    for _ in range(DEPTH_MAX):
        values = _inside(values)
        if not values:
            return False
    return True


def is_finite(*values: Any) -> bool:
    while values:
        if any(isinstance(value, float) and not math.isfinite(value) for value in values):
            return False
        values = _inside(values)
    return True


def _inside(values: tuple[Any, ...]) -> tuple[Any, ...]:
    containers = [value for value in values if isinstance(value, dict | list | tuple | set | frozenset)]
    return tuple(inner for value in containers for inner in (value.values() if isinstance(value, dict) else value))


def put_together(seq: int, prev_hash: str, timestamp: bytes, middle: bytes, synced: int) -> bytes:
    """A line up to its hash, from parts that are encoded already."""
    parts = (seq, prev_hash.encode(), timestamp, middle, synced)
    return b'{"seq":%d,"prev_hash":"%b","timestamp":%b,%b,"synced":%d' % parts


def seal(head: bytes) -> tuple[bytes, str]:
    """The whole line and its hash."""
    digest = sha256(head).hexdigest()
    return b'%b,"entry_hash":"%b"}\n' % (head, digest.encode()), digest


def decode_sound(line: bytes) -> Entry | None:
    """The entry, if the line is whole and its own hash fits; None for anything else."""
    if line[-TAIL : -TAIL + len(HASH_FIELD)] != HASH_FIELD or line[-3:] != b'"}\n':
        return None
    if sha256(line[:-TAIL]).hexdigest().encode() != line[-67:-3]:
        return None
    try:
        return decode(line)
    except UNREADABLE:
        return None
