"""A git dir of our own that converts nothing: what is stored is what is on disk, byte for byte.

`info/attributes` wins over any `.gitattributes`, and turns off line ends, filters, `ident` and encodings.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.snapshots.store import keep
from holdfast.storage.files import disk

_ATTRIBUTES = b"* -text -ident -filter !eol !working-tree-encoding !diff !merge\n"


_OBJECTS_ONLY = {"cat-file", "commit-tree", "diff-tree", "ls-tree", "rev-list", "write-tree"}
_READING_OPTIONS = {"-i", "-m", "-o"}


def reads_files(args: Sequence[str]) -> bool:
    """Whether the git command reads the worktree, and not just objects and the index."""
    return args[0] not in _OBJECTS_ONLY and (args[0] != "ls-files" or bool(_READING_OPTIONS & set(args)))


def make(folder: Path, hash_name: str, exclude: Path | None = None) -> None:
    """Makes the git dir, or what is missing of it. `exclude`: a file of ignore rules to copy."""
    for name in ("refs", "objects", "info"):
        disk.mkdir(folder / name)
    version, name = (0, "") if hash_name == "sha1" else (1, hash_name)
    extension = f"[extensions]\n\tobjectFormat = {name}\n" if name else ""
    keep(folder / "HEAD", b"ref: refs/heads/none\n")
    keep(folder / "config", f"[core]\n\trepositoryFormatVersion = {version}\n\tbare = false\n{extension}".encode())
    keep(folder / "info" / "attributes", _ATTRIBUTES)
    if exclude is not None:
        keep(folder / "info" / "exclude", exclude.read_bytes() if exclude.is_file() else b"")
