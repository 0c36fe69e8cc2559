"""Prints a command's failure: a sentence for people, with --json an object for programs too, and the exit code."""

from __future__ import annotations

import contextlib
import errno
import io
import sys
from collections.abc import Sequence

import click
import msgspec

from holdfast.cli.options import print_notice
from holdfast.domain.wording import plain
from holdfast.errors import HoldfastError, OutputFailed, code_of

STOPPED = 130
# Every write to a file goes through the one door, which gives its errors names: a bare one of these is the output's.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def wants_json(arguments: Sequence[str]) -> bool:
    """Asked of the words themselves: a command line that cannot be read has no options yet."""
    words = list(arguments)
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def print_error(error: BaseException, as_json: bool) -> int:
    """Says what happened and returns the exit code. What is no failure of ours to explain is raised again."""
    if isinstance(error, BrokenPipeError):
        # The reader of a pipe, such as `head`, has enough.
        drop_output()
        return 0
    if isinstance(error, OSError):
        if not _is_of_output(error):
            raise error
        drop_output()
        error, as_json = OutputFailed(reason=error.strerror or str(error)), False
    # Nobody may be listening on standard error either.
    with contextlib.suppress(OSError):
        _say(error)
    code = error.exit_code if isinstance(error, HoldfastError | click.ClickException) else STOPPED
    if as_json and code != STOPPED:
        said = error.format_message() if isinstance(error, click.ClickException) else str(error)
        facts = {"error": {"code": code_of(error), "message": plain(said), "exit_code": code}}
        try:
            # One line, so that it fits behind the lines of a stream as well.
            click.echo(msgspec.json.encode(facts).decode())
        except OSError:
            drop_output()
    return code


def drop_output() -> None:
    """Closes standard output, so that the interpreter does not try to write the rest once more when it ends."""
    with contextlib.suppress(OSError):
        sys.stdout.close()
    sys.stdout = io.StringIO()


def _is_of_output(error: OSError) -> bool:
    if error.filename is not None:
        return False
    if error.errno in _NO_ROOM:
        return True
    try:
        # What could not be written is still in the buffer, and fails again.
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _say(error: BaseException) -> None:
    if isinstance(error, click.ClickException):
        error.show()
    elif isinstance(error, HoldfastError):
        print_notice(str(error))
    else:
        # On a line of its own: the terminal has just shown ^C.
        click.echo("\nholdfast: stopped.", err=True)
