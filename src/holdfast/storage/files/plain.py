"""Opens a file in a place where an agent can write: the agent may have put a pipe, a device, a link or a huge file
there, and swap them meanwhile. Never blocks, follows no link, and reads a bounded size.

Everything but a plain file counts as missing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# A link, no folder on the way, or a socket.
_NO_FILE = frozenset((errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.ENXIO))
_CHUNK = 1 << 20


def opened(path: Path, top: Path | None = None) -> BinaryIO:
    """Raises FileNotFoundError for anything but a plain file. Below `top`, no parent folder may be a link, either."""
    parts = path.relative_to(top).parts if top is not None else (path.name,)
    try:
        fd = _open(top or path.parent, parts)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise _missing(path) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _missing(path)
    return open(fd, "rb")


def read(path: Path, most: int, top: Path | None = None) -> bytes:
    """The whole content. Raises FileNotFoundError also where it has more bytes than `most`."""
    with opened(path, top) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise _missing(path)
        return file.read(most)


def pieces(path: Path, top: Path | None = None) -> Iterator[bytes]:
    with opened(path, top) as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def is_free(lock: Path) -> bool:
    """Whether nobody has the file flocked. Asks by a shared lock for a moment, which does not disturb others."""
    try:
        with opened(lock) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True


def _open(top: Path, parts: tuple[str, ...]) -> int:
    # `top` itself may be reached through links.
    within = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
            os.close(within)
            within = inner
        return os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=within)
    finally:
        os.close(within)


def _missing(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "is no plain file", str(path))
