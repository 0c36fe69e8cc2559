"""`holdfast`, the command. `--version` is answered before anything else is imported: a prompt may ask it often."""

from __future__ import annotations

import sys

from holdfast import __version__


def main() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        sys.stdout.write(f"holdfast {__version__}\n")
        return
    from holdfast.cli.commands import run

    run()
