"""How runs have ended, as the audit log has it. Each of its files is read once; later looks read what came since."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.storage.audit.from_journal import RUN_ENDED

How = Literal["orderly", "killed", "unknown"]
_MARKER = RUN_ENDED.encode()
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class RunEnds:
    """Ask `of` after `look`. Who asks keeps others from asking meanwhile."""

    def __init__(self) -> None:
        self._found: dict[str, How] = {}
        # Only the newest file grows: those before it are not opened again.
        self._newest = ""
        self._offset = 0

    def look(self, audit: Path) -> None:
        for name in sorted(path.name for path in audit.glob("*.jsonl")):
            if name >= self._newest:
                self._read(audit / name, self._offset if name == self._newest else 0)

    def of(self, run: str) -> How:
        """Whose end nobody put on record, not even the run after it, may have ended in any way."""
        return self._found.get(run, "unknown")

    def _read(self, path: Path, offset: int) -> None:
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                for line in file:
                    # What is being written now is for the next look.
                    if not line.endswith(b"\n"):
                        break
                    offset += len(line)
                    if _MARKER in line:
                        self._take(line)
        except FileNotFoundError:
            return
        self._newest, self._offset = path.name, offset

    def _take(self, line: bytes) -> None:
        try:
            record = _decode(line)
            if record["event"] == RUN_ENDED:
                how = str(record["details"]["how"])
                self._found[str(record["details"]["journal"]["run"])] = "orderly" if how == "orderly" else "killed"
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            return
