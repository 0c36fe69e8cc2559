"""The audit key, which must not lie beside the log that it signs.

It comes from the environment variable HOLDFAST_AUDIT_KEY or, without it, from a file outside the data root that only
its owner can read (`$XDG_CONFIG_HOME/holdfast/audit.key`, else `~/.config/holdfast/audit.key`). A missing file is
created with 32 random bytes in hexadecimal, unless the data root has a log already, which another key has signed. The
key is the text itself, without the space around it and whatever it may encode: the same text gives the same key from
either place. It has at least 32 bytes, and appears in no error, repr or log.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from holdfast.errors import AlreadyExists, AuditKeyUnusable, DiskError
from holdfast.layout import Layout
from holdfast.storage.audit.days import day_files
from holdfast.storage.files import disk

VARIABLE = "HOLDFAST_AUDIT_KEY"
KEY_BYTES_MIN = 32
KEY_BYTES_MAX = 4096
_SIGNATURE = re.compile(rb',"hmac":"([0-9a-f]{64})"\}')
_SIGNATURE_BYTES = 75
_PUT_IT_BACK = (
    f"put the key that has signed it back there or into the variable {VARIABLE}, or, where it is lost for good, move "
    "the log to another place and type `holdfast resolve --audit-lost`, which begins a new one with a new key"
)


class AuditKey:
    """Signs a line of JSON: its last field, `hmac`, is the HMAC-SHA256 of the exact bytes before `,"hmac"`."""

    def __init__(self, secret: bytes) -> None:
        # Keyed once and copied for each line: a fresh HMAC costs four times the hashing of a record.
        self._keyed = hmac.new(secret, digestmod="sha256")

    def __repr__(self) -> str:
        return "Key(hidden)"

    def signed(self, fields: dict[str, Any]) -> bytes:
        body = msgspec.json.encode(fields)[:-1]
        return body + b',"hmac":"%s"}' % self._hmac(body)

    def accepts(self, line: bytes) -> bool:
        found = signature(line)
        return found is not None and hmac.compare_digest(found, self._hmac(line[:-_SIGNATURE_BYTES]))

    def _hmac(self, body: bytes) -> bytes:
        signer = self._keyed.copy()
        signer.update(body)
        return signer.hexdigest().encode()


def signature(line: bytes) -> bytes | None:
    """The hmac at the end of a line, if it ends as a signed one does: all that can be checked without the key."""
    found = _SIGNATURE.fullmatch(line, max(0, len(line) - _SIGNATURE_BYTES))
    return found and found[1]


def load_key(
    data_root: Path, path: Path | None = None, environ: Mapping[str, str] = os.environ, *, create: bool = True
) -> AuditKey:
    """The key of the environment, else of the file `path`, which is created when missing unless `create` is false.

    A key that is to sign (`create`) is on stable storage before it is returned.
    """
    if VARIABLE in environ:
        return _key(os.fsencode(environ[VARIABLE]), f"of the variable {VARIABLE}")
    path = Path(os.path.realpath(path or default_path(environ)))
    if path.is_relative_to(os.path.realpath(data_root)):
        _refuse(path, f"it lies inside the data root {data_root}, where anyone who can edit the log can sign it too")
    # Read before the key: the process that makes the first key makes the first day after it.
    log = _existing_log(data_root) if create else None
    found = _read(path)
    if create:
        # A crash may have left a key beside it; failing to remove that is no reason to refuse the key.
        with contextlib.suppress(DiskError):
            disk.sweep(path.parent, deep=False)
    if found is None and create:
        if log is not None:
            _refuse(path, f"there is no such file, and the audit log {log} is signed already: {_PUT_IT_BACK}")
        disk.mkdir(path.parent, mode=0o700)
        # Where another process was faster, its key is the one to use.
        with contextlib.suppress(AlreadyExists):
            disk.create(path, secrets.token_hex(32).encode() + b"\n", mode=0o600)
        found = _read(path)
    if found is None:
        _refuse(path, "there is no such file")
    key = _key(found, str(path))
    if create:
        _sync_key(path)
    return key


def configured_path(repo: Path, key_path: str | None) -> Path | None:
    """The key's path by the setting `audit.key_path`, relative to the repository; None: the default."""
    return None if key_path is None else repo / os.path.expanduser(key_path)


def default_path(environ: Mapping[str, str]) -> Path:
    config = Path(environ.get("XDG_CONFIG_HOME", ""))
    if not config.is_absolute():
        config = Path(environ.get("HOME") or Path.home()) / ".config"
    return config / "holdfast" / "audit.key"


def _sync_key(path: Path) -> None:
    """Syncs the key: its maker may have been killed before its name was on disk, and no record may outlive its key."""
    disk.mkdir(path.parent, mode=0o700)
    disk.sync_file(path)
    # What we may not even read, we cannot have made.
    if os.access(path.parent, os.R_OK):
        disk.sync_folder(path.parent)


def _existing_log(data_root: Path) -> Path | None:
    folder = Layout(data_root).audit
    return folder if day_files(folder) else None


def _read(path: Path) -> bytes | None:
    try:
        # Not blocking, so that a pipe in the key's place is refused instead of waited for.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        _refuse(path, f"it cannot be opened ({error.strerror})")
    try:
        _check_private(path, os.fstat(fd))
        return os.read(fd, KEY_BYTES_MAX + 1)
    except OSError as error:
        _refuse(path, f"it cannot be read ({error.strerror})")
    finally:
        os.close(fd)


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        _refuse(path, "it is not a file")
    if status.st_uid != os.geteuid():
        _refuse(path, f"it belongs to user {status.st_uid}, and this is user {os.geteuid()}")
    if status.st_mode & 0o077:
        _refuse(path, f"others may use it (mode {stat.S_IMODE(status.st_mode):04o}); make it 0600, or better a new key")


def _key(text: bytes, place: str) -> AuditKey:
    secret = text.strip()
    if not KEY_BYTES_MIN <= len(secret) <= KEY_BYTES_MAX:
        noun = "byte" if len(secret) == 1 else "bytes"
        _refuse(place, f"it has {len(secret)} {noun}, and {KEY_BYTES_MIN} to {KEY_BYTES_MAX} are needed")
    return AuditKey(secret)


def _refuse(place: Path | str, reason: str) -> NoReturn:
    raise AuditKeyUnusable(path=place, reason=reason)
