"""`holdfast`, the command. `--version` is answered before anything else is imported: a prompt may ask it often."""

from __future__ import annotations

import gc
import io
import os
import sys

from holdfast import __version__
from holdfast.processes.quick_exit import leave


def main() -> None:
    """The program: what it does, and its end."""
    _stand_in_for_closed_streams()
    try:
        work()
    except SystemExit as end:
        if isinstance(end.code, int):
            leave(end.code)
        raise
    leave(0)


def work() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        try:
            sys.stdout.write(f"holdfast {__version__}\n")
            sys.stdout.flush()
        except OSError as error:
            from holdfast.cli.errors import print_error

            sys.exit(print_error(error, as_json=False))
        return
    # Commands are short: what they allocate is gone with the process. One that stays turns it on again.
    gc.disable()
    from holdfast.cli.commands import run

    run()


def _stand_in_for_closed_streams() -> None:
    """Replaces a standard stream that the parent process closed with /dev/null, so that the command still runs.

    The descriptor is taken too, or the next file that is opened, a journal perhaps, would get its number.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDONLY)
            setattr(sys, name, io.TextIOWrapper(io.BytesIO()))
