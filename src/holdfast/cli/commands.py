"""The commands. Each imports what it needs when it runs, so that `--help` stays fast."""

from __future__ import annotations

import click

from holdfast import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="holdfast", message="%(prog)s %(version)s")
def holdfast() -> None:
    """Runs CLI coding agents over a backlog of tasks in a git repository, verifies what they made, and lands it.

    Kill anything, at any instant, and start again in the same folder: nothing that was acknowledged is lost, and no
    side effect is blindly repeated.
    """


def run() -> None:
    holdfast()
