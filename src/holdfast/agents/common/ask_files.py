"""Questions that an agent puts to a person by `holdfast ask` or by the API: files in a folder of its start.

The command writes `<digest>.json` and waits until the runner removes that. Then `<digest>.out` has the answer. The name
is made of the words: the same question, put again after the command was ended by its CLI, finds its answer.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.errors import HoldfastError
from holdfast.questions.records import WORDS_CHARS_MAX, Verdict
from holdfast.storage.files import disk, plain
from holdfast.storage.files.json_file import decode_json

# The variable with the folder, in the environment of an agent.
FOLDER = "HOLDFAST_ASKS"
# Questions of one start that may wait at the same time.
ASKS_MAX = 100
_BYTES_MAX = 8 * WORDS_CHARS_MAX
T = TypeVar("T")


class AskedWords(msgspec.Struct, frozen=True):
    question: str


def put(folder: Path, words: str) -> Path:
    """Writes the question, unless it waits already or has its answer; returns its file."""
    path = _path(folder, words)
    if not is_put(folder, words):
        disk.replace(path, msgspec.json.encode(AskedWords(words)), 0o600)
    return path


def is_put(folder: Path, words: str) -> bool:
    """Whether the question waits, or has its answer."""
    path = _path(folder, words)
    return path.exists() or path.with_suffix(".out").exists()


def _path(folder: Path, words: str) -> Path:
    return folder / f"{hashlib.sha256(words.encode()).hexdigest()[:16]}.json"


def take_answer(path: Path) -> Verdict | None:
    """The answer, once it is there; it is given once."""
    found = read_answer(path)
    if found is not None:
        disk.unlink(path.with_suffix(".out"), missing_ok=True)
    return found


def read_answer(path: Path) -> Verdict | None:
    """The answer, once it is there; it stays, for the same question asked again."""
    return None if path.exists() else _read(path.with_suffix(".out"), Verdict)


def waiting(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if not path.is_symlink())[:ASKS_MAX]


def words_of(path: Path) -> str:
    """The question; empty where the agent has put something else there."""
    found = _read(path, AskedWords)
    return found.question[:WORDS_CHARS_MAX] if found is not None else ""


def answer(path: Path, verdict: Verdict) -> None:
    """Lets the command end with it, unless the agent has removed its folder meanwhile."""
    with contextlib.suppress(HoldfastError):
        disk.replace(path.with_suffix(".out"), msgspec.json.encode(verdict), 0o600)
        disk.unlink(path, missing_ok=True)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return decode_json(plain.read(path, _BYTES_MAX), kind)
    except OSError:
        return None
