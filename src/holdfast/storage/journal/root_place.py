"""The place of a data root: `runtime/root.json` holds a random `id` and the `path` at which its last owner found it.

A root that stands elsewhere was moved or copied. It is a copy while the old path still holds a root with this id that
is another folder. Then the processes that its files name are the original's. A copy gets an id of its own, and is a
root like any other from then on; so is one whose original is gone.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from holdfast.layout import Layout
from holdfast.storage.files import disk
from holdfast.storage.files.json_file import read_json

_ID = re.compile(r"[0-9a-f]{32}")


class RootPlace(msgspec.Struct, frozen=True):
    id: str
    path: str


def original_of(layout: Layout) -> Path | None:
    """The data root that this one is a copy of; None: it is none, or the original is gone."""
    here = _read(layout)
    if here is None or here.path == str(layout.root):
        return None
    there = Layout(Path(here.path))
    found = _read(there)
    is_same = found is not None and found.id == here.id
    return there.root if is_same and not os.path.samefile(there.root, layout.root) else None


def id_of(layout: Layout) -> str:
    """Empty where nobody has owned the root yet."""
    known = _read(layout)
    return known.id if known is not None and _ID.fullmatch(known.id) else ""


def copy_notice(original: Path) -> str:
    return (
        f"this data root is a copy of {original}: its agents are the original's, and are left alone; what they were at "
        "goes on here from its last turn"
    )


def settle(layout: Layout, *, is_copy: bool) -> None:
    """Writes down that the root is here. Only for its owner."""
    known = _read(layout)
    name = os.urandom(16).hex() if known is None or is_copy else known.id
    wanted = RootPlace(name, str(layout.root))
    if wanted != known:
        disk.replace(layout.place, msgspec.json.encode(wanted) + b"\n")


def _read(layout: Layout) -> RootPlace | None:
    return read_json(layout.place, RootPlace, lenient=True)
