"""Sets files aside that must not be used: each is moved into `quarantine/`, beside a text that says why."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from holdfast.storage.files import disk


def set_aside(quarantine: Path, path: Path, reason: str, name: str = "") -> Path:
    """Moves a file or folder away; returns its new path. Writes the reason first, so that a crash leaves at worst a
    reason without a file."""
    target = _place(quarantine, path, reason, name)
    disk.rename(path, target)
    return target


def set_end_aside(quarantine: Path, path: Path, at: int, reason: str, name: str, mode: int) -> Path:
    """Moves the end of a file, from the offset `at`. A crash may leave it in both places, never in none."""
    target = _place(quarantine, path, reason, name)
    with disk.reading(path):
        content = path.read_bytes()
    disk.create(target, content[at:], mode)
    disk.replace(path, content[:at], mode)
    return target


def _place(quarantine: Path, path: Path, reason: str, name: str) -> Path:
    disk.mkdir(quarantine)
    for number in itertools.count(1):
        target = quarantine / f"{name or path.name}.{number}"
        reason_path = target.with_name(f"{target.name}.reason.txt")
        if not os.path.lexists(target) and not os.path.lexists(reason_path):
            break
    disk.create(reason_path, f"{path}: {reason}\n".encode())
    return target
