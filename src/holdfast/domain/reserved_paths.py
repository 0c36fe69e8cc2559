"""Paths that no candidate may change: where Holdfast looks for its settings and its data root.

A writer there decides what the next run starts, outside of every sandbox. Names count alike whatever their case,
and with or without characters that nobody sees: some filesystems take them for the same.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

REPOSITORY_FILE = "holdfast.yaml"
DEFAULT_ROOT = ".sdd"


def among(changed: Iterable[str], roots: Sequence[str]) -> list[str]:
    """The reserved ones of the changed paths, sorted. `roots`: data roots, as paths in the repository."""
    tops = [_alike(top) for top in (REPOSITORY_FILE, DEFAULT_ROOT, *roots)]
    return sorted({path for path in changed if _is_reserved(_alike(path), tops)})


def _is_reserved(path: str, tops: Sequence[str]) -> bool:
    # A link or a file in place of a folder above leads elsewhere just as well.
    return any(path == top or path.startswith(f"{top}/") or top.startswith(f"{path}/") for top in tops)


def _alike(path: str) -> str:
    seen = "".join(each for each in unicodedata.normalize("NFKC", path) if unicodedata.category(each) != "Cf")
    return seen.casefold()
