"""Sets files aside that must not be used: each is moved into `quarantine/`, beside a text that says why."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from holdfast.durable import disk


def set_aside(quarantine: Path, path: Path, reason: str, name: str = "") -> Path:
    """Moves a file or folder away; returns where to. The reason is written first: a crash leaves one too many, never
    one too few."""
    disk.mkdir(quarantine)
    for number in itertools.count(1):
        target = quarantine / f"{name or path.name}.{number}"
        told = target.with_name(f"{target.name}.reason.txt")
        if not os.path.lexists(target) and not os.path.lexists(told):
            break
    disk.create(told, f"{path}: {reason}\n".encode())
    disk.rename(path, target)
    return target
