"""Secrets by reference: the settings name where a secret is, and never hold it.

    env:GITHUB_TOKEN          a variable of the user who runs Holdfast
    file:~/.config/token      a file's content, without white space around it
    command:pass show token   what a command prints

A secret is read when it is needed, and is kept in no file, log or journal.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from holdfast.errors import SecretMissing

SECRET_PATTERN = r"^(env:[A-Za-z_][A-Za-z0-9_]{0,199}|file:[^\x00-\x1f]{1,4000}|command:[^\x00-\x1f]{1,4000})\Z"
SecretRef = Annotated[str, Meta(pattern=SECRET_PATTERN, description="env:NAME, file:PATH or command:WORDS")]
BYTES_MAX = 1 << 16
COMMAND_S_MAX = 30.0


def read_secret(ref: str, folder: Path | None = None) -> str:
    """The secret that a reference names. Raises SecretMissing, which repeats nothing of it.

    A relative path counts from `folder`.
    """
    kind, _, rest = ref.partition(":")
    if re.fullmatch(SECRET_PATTERN, ref) is None:
        raise SecretMissing(ref=f"{kind}:…" if rest else "…", reason="it is no env:NAME, file:PATH or command:WORDS")
    reader = {"env": _from_variable, "file": _from_file, "command": _from_command}[kind]
    found = reader(ref, rest, folder)
    if not found:
        raise SecretMissing(ref=ref, reason="it is empty")
    return found


def _from_variable(ref: str, name: str, folder: Path | None) -> str:
    if name not in os.environ:
        raise SecretMissing(ref=ref, reason="there is no such variable")
    return os.environ[name].strip()


def _from_file(ref: str, name: str, folder: Path | None) -> str:
    path = Path(name).expanduser()
    try:
        with (folder / path if folder is not None else path).open("rb") as file:
            return file.read(BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise SecretMissing(ref=ref, reason=why or "it cannot be read") from None


def _from_command(ref: str, words: str, folder: Path | None) -> str:
    try:
        ran = subprocess.run(shlex.split(words), capture_output=True, timeout=COMMAND_S_MAX, cwd=folder, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise SecretMissing(ref=ref, reason=f"the command failed: {type(error).__name__}") from None
    if ran.returncode:
        raise SecretMissing(ref=ref, reason=f"the command ended with code {ran.returncode}")
    return ran.stdout[:BYTES_MAX].decode(errors="replace").strip()
