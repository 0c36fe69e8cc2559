"""The files that only one start of an agent needs: written before it, and what is secret in them gone behind it."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.agents import environment
from holdfast.domain.attempt import Launch
from holdfast.durable import disk


def write_files(folder: Path, launch: Launch) -> None:
    """Anew for each start: nothing of an earlier one is left."""
    if folder.exists():
        disk.remove_tree(folder)
    disk.mkdir(folder, 0o700)
    for name, target in launch.links.items():
        disk.mkdir((folder / name).parent, 0o700)
        if target.endswith("/"):
            disk.mkdir(Path(target), 0o700)
        disk.symlink(folder / name, Path(target))
    for name, text in launch.files.items():
        disk.mkdir((folder / name).parent, 0o700)
        content = environment.referred(text, launch.references, os.environ, is_json=name.endswith(".json"))
        disk.replace(folder / name, content.encode(errors="surrogateescape"), 0o600)


def remove_secrets(folder: Path, launch: Launch) -> None:
    for name, text in launch.files.items():
        if any(f"${{{reference}}}" in text for reference in launch.references):
            disk.unlink(folder / name, missing_ok=True)
