"""Typing a command: in this process, through the command's very edge, or as a process of its own."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from click.testing import CliRunner

from holdfast.cli.commands import run

HOLDFAST = [sys.executable, "-m", "holdfast"]


class Typed(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def type_in(
    folder: Path, *arguments: str, stdin: str | IO[bytes] = "", environ: Mapping[str, str | None] | None = None
) -> Typed:
    """What a person would see, without the price of a process. Settings of this shell do not reach the command.

    Nor does the sandbox, which has tests of its own."""
    kept = {"HOLDFAST_SANDBOX", "HOLDFAST_LIMITS__NICE"}
    ours: dict[str, str | None] = {
        name: None for name in os.environ if name.startswith("HOLDFAST_") and name not in kept
    }
    code: str | int | None = None
    with CliRunner().isolation(stdin, {**ours, **(environ or {})}) as (out, err, _), contextlib.chdir(folder):
        try:
            run(arguments)
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    return Typed(code, out.getvalue().decode(), err.getvalue().decode())


class Beforehand(io.BytesIO):
    """Standard input that does something at the moment it is read: after the command has looked around."""

    def __init__(self, content: bytes, act: Callable[[], object]) -> None:
        super().__init__(content)
        self._act = act
        self.acted = False

    def read(self, size: int | None = -1, /) -> bytes:
        # Reading nothing is how click finds out what kind of stream it has.
        if size != 0 and not self.acted:
            self.acted = True
            self._act()
        return super().read(size)
