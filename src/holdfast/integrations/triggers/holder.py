"""The triggers that count now: `config/triggers.yaml` read again when it changes, and the secrets of its sources.

A file that cannot be used changes nothing: what was read before counts on, and `broken` says why.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.clock import monotonic
from holdfast.config.pull_requests import BRANCH_PREFIX
from holdfast.config.secret_refs import read_secret
from holdfast.errors import TriggersUnusable
from holdfast.integrations.triggers.event import TriggerSource
from holdfast.integrations.triggers.trigger_file import TriggerConfig, read

# A secret that a command gives is not asked for with every delivery; one that was changed counts soon.
SECRET_S_MAX = 60.0
Stamp = tuple[int, int, int]


class TriggersHolder:
    """Used by several threads."""

    def __init__(
        self, path: Path, repo: Path, steady: Callable[[], float] = monotonic, branch_prefix: str = BRANCH_PREFIX
    ) -> None:
        self.path, self._repo, self._steady, self._prefix = path, repo, steady, branch_prefix
        self.broken: TriggersUnusable | None = None
        self._lock = threading.Lock()
        self._stamp: Stamp | None = None
        self._config: TriggerConfig | None = None
        self._secrets: dict[str, tuple[float, str]] = {}

    def current(self) -> TriggerConfig:
        """What counts now. Raises TriggersUnusable where the file cannot be used, and nothing was read before."""
        with self._lock:
            stamp = _stamp(self.path)
            if stamp != self._stamp:
                try:
                    self._config, self.broken = read(self.path, self._prefix), None
                except TriggersUnusable as error:
                    self.broken = error
                self._stamp = stamp
            if self._config is not None:
                return self._config
            assert self.broken is not None
            raise self.broken

    def secrets(self, source: TriggerSource) -> Mapping[str, str]:
        """The secrets of a source, by reference. Raises SecretMissing."""
        found = {}
        for ref in source.secret_refs:
            read_at, secret = self._secrets.get(ref, (0.0, ""))
            if not secret or self._steady() - read_at > SECRET_S_MAX:
                secret = read_secret(ref, self._repo)
                self._secrets[ref] = (self._steady(), secret)
            found[ref] = secret
        return found


def _stamp(path: Path) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)
