"""What a source's tracker last said, kept in `runtime/trackers/<source>.json`: etags, limits, and when.

It is written behind everything that follows from the answers. So losing it, or a kill before it is written, costs
requests, and nothing else.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from holdfast.config.trackers import SourceSettings
from holdfast.domain.issues.issue_records import RateLimit
from holdfast.integrations.trackers.tracker import SeenPage
from holdfast.layout import Layout
from holdfast.storage.files import disk
from holdfast.storage.files.json_file import decode_json


class TrackerMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """`settings`: of those the rest is. `absent`: etags of issues that are not open any more, and whose tasks are.

    `not_before`: the tracker wants no request until then. `error`: why the last round failed.
    """

    settings: str = ""
    pages: dict[str, SeenPage] = {}
    absent: dict[str, str] = {}
    limit: RateLimit = RateLimit()
    synced_at: float = 0.0
    not_before: float = 0.0
    error: str = ""


def settings_mark(source: SourceSettings) -> str:
    """Another label, query or list of trusted authors makes other tasks of the same answers."""
    return sha256(msgspec.json.encode(source)).hexdigest()[:16]


def recall(layout: Layout, source: SourceSettings) -> TrackerMemory:
    """A file that does not read, or is of other settings, is as none."""
    mark = settings_mark(source)
    try:
        found = decode_json(layout.tracker(source.name).read_bytes(), TrackerMemory)
    except OSError:
        found = None
    if found is None:
        return TrackerMemory(mark)
    if found.settings != mark:
        return msgspec.structs.replace(found, settings=mark, pages={}, absent={})
    return found


def keep(layout: Layout, source: str, memory: TrackerMemory) -> None:
    path = layout.tracker(source)
    disk.mkdir(path.parent)
    disk.replace(path, msgspec.json.encode(memory) + b"\n")
