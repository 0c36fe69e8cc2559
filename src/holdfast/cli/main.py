"""`holdfast`, the command. `--version` is answered before anything else is imported: a prompt may ask it often."""

from __future__ import annotations

import gc
import io
import os
import sys

from holdfast import __version__


def main() -> None:
    """The program: what it does, and its end."""
    _stand_in_for_closed_streams()
    try:
        work()
    except SystemExit as end:
        if end.code:
            raise
    _leave()


def work() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        try:
            sys.stdout.write(f"holdfast {__version__}\n")
            sys.stdout.flush()
        except OSError as error:
            from holdfast.cli.telling import tell

            sys.exit(tell(error, as_json=False))
        return
    # Commands are short: what they allocate is gone with the process. One that stays turns it on again.
    gc.disable()
    from holdfast.cli.commands import run

    run()


def _stand_in_for_closed_streams() -> None:
    """What who started us has closed is empty, and nobody reads it; the command is carried out all the same.

    The descriptor is taken too, or the next file that is opened, a journal perhaps, would get its number.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDONLY)
            setattr(sys, name, io.TextIOWrapper(io.BytesIO()))


def _leave() -> None:
    """Ends the process at once: to take all modules and records apart first costs a tenth of `holdfast list`.

    What must last was synced by who wrote it. Where a thread is left, or something cannot be flushed, the interpreter
    ends as it always does, and says so.
    """
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        return
    # A stream is None where who started us had closed it.
    streams = (sys.stdout, sys.stderr)
    try:
        for stream in filter(None, streams):
            stream.flush()
    except (OSError, ValueError):
        return
    os._exit(0)
