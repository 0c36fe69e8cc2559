"""The files for one start of an agent: written before it; those with secrets are removed after it.

While a file has a secret in it, a mark in the data root says so: a killed runner leaves the mark behind, and the next
run removes what is left (engine/recovery.py).
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.agents.common import environment
from holdfast.domain.attempt_records import Launch
from holdfast.layout import Attempt, Layout
from holdfast.snapshots.submodule_state import is_real
from holdfast.storage.files import disk
from holdfast.storage.records.attempt_folder import PRIVATE


def prepare(layout: Layout, files: Attempt, launch: Launch) -> tuple[str, ...]:
    """Writes the files of a start, and returns its command line with their places."""
    argv = launch.argv
    for folder in (files.asks, files.tool_asks):
        if folder.exists():
            disk.remove_tree(folder)
        disk.mkdir(folder, 0o700)
    if launch.prompt:
        disk.replace(files.prompt, launch.prompt.encode(), PRIVATE)
        argv = tuple(part.replace("{prompt_file}", str(files.prompt)) for part in argv)
    # The server's address is no secret, and a CLI may want it on its command line.
    argv = tuple(part.replace("${HOLDFAST_URL}", os.environ.get("HOLDFAST_URL", "")) for part in argv)
    if launch.files:
        _write_files(layout, files, launch)
        argv = tuple(part.replace("{files}", str(files.agent)) for part in argv)
    return argv


def _write_files(layout: Layout, files: Attempt, launch: Launch) -> None:
    """Writes them anew for each start: nothing of an earlier one is left."""
    folder = files.agent
    if folder.exists():
        disk.remove_tree(folder)
    disk.mkdir(folder, 0o700)
    if _secret_files(launch):
        disk.mkdir(layout.agent_secrets, 0o700)
        disk.replace(_mark(layout, files), b"", 0o600)
    for name, target in launch.links.items():
        disk.mkdir((folder / name).parent, 0o700)
        if target.endswith("/"):
            disk.mkdir(Path(target), 0o700)
        disk.symlink(folder / name, Path(target))
    for name, text in launch.files.items():
        disk.mkdir((folder / name).parent, 0o700)
        content = environment.referred(text, launch.references, os.environ, is_json=name.endswith(".json"))
        disk.replace(folder / name, content.encode(errors="surrogateescape"), 0o600)


def remove_secrets(layout: Layout, files: Attempt, launch: Launch) -> None:
    if secret := _secret_files(launch):
        for name in secret:
            # Behind a link that the agent has made, it is another file.
            if is_real((files.agent / name).parent, files.agent):
                disk.unlink(files.agent / name, missing_ok=True)
        disk.unlink(_mark(layout, files), missing_ok=True)


def _secret_files(launch: Launch) -> list[str]:
    names = [f"${{{reference}}}" for reference in launch.references]
    return [name for name, text in launch.files.items() if any(each in text for each in names)]


def _mark(layout: Layout, files: Attempt) -> Path:
    return layout.agent_secrets / files.root.name
