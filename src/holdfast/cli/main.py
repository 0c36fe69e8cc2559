"""`holdfast`, the command. `--version` is answered before anything else is imported: a prompt may ask it often."""

from __future__ import annotations

import gc
import sys

from holdfast import __version__


def main() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        sys.stdout.write(f"holdfast {__version__}\n")
        return
    # Commands are short: what they allocate is gone with the process. One that stays turns it on again.
    gc.disable()
    from holdfast.cli.commands import run

    run()
