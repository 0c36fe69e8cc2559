"""Asks a program for a line. The program may hang, print without end, or leave other processes behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Sequence

from holdfast.clock import monotonic

OUTPUT_BYTES_MAX = 1 << 16


def first_line(argv: Sequence[str], wait_s: float) -> str:
    """The first line that it prints, if it ends with code 0 in time; else empty."""
    try:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
        )
    except OSError:
        return ""
    with child:
        try:
            text = _read(child, monotonic() + wait_s)
        finally:
            # It has not been reaped yet, so the group is still its own.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
    return text.decode(errors="replace").partition("\n")[0].strip() if child.returncode == 0 else ""


def answer(argv: Sequence[str], asked: bytes, wait_s: float) -> bytes:
    """The first line that it prints when it is given these bytes; empty where it prints none in time.

    Its input stays open until then: a program that talks may end where its input does.
    """
    try:
        child = subprocess.Popen(
            argv, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
        )
    except OSError:
        return b""
    with child:
        try:
            assert child.stdin is not None
            # Less than a pipe holds, so this never waits.
            child.stdin.write(asked)
            text = _read(child, monotonic() + wait_s, until=b"\n")
        except BrokenPipeError:
            text = b""
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
    return text.partition(b"\n")[0]


def _read(child: subprocess.Popen[bytes], deadline: float, until: bytes | None = None) -> bytes:
    """What it prints until it ends, or until these bytes."""
    assert child.stdout is not None
    output, text = child.stdout.fileno(), b""
    ended = os.pidfd_open(child.pid)
    watched = [output, ended]
    try:
        while len(text) < OUTPUT_BYTES_MAX and (left := deadline - monotonic()) > 0:
            ready = select.select(watched, [], [], left)[0]
            if output in ready:
                data = os.read(output, OUTPUT_BYTES_MAX)
                text += data
                if not data:
                    watched = [ended]
                if until is not None and until in data:
                    break
            elif ended in ready:
                break
    finally:
        os.close(ended)
    return text
