"""A problem of a task file, with its place. Apart from the reader of YAML, which read-only commands do not load."""

from __future__ import annotations

import msgspec

# A task file has at most so many bytes.
TEXT_BYTES_MAX = 1 << 20


class FileProblem(msgspec.Struct, frozen=True):
    """A problem of a file, and its place. Line and column count from 1; `tasks` are the only ids that it stops."""

    line: int
    column: int
    message: str
    key: str = ""
    file: str = ""
    tasks: tuple[str, ...] = ()

    @classmethod
    def too_long(cls, size: int) -> FileProblem:
        return cls(1, 1, f"the file has {size:,} bytes, and {TEXT_BYTES_MAX:,} are the most")

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class Unreadable(Exception):
    """Carries the problem that ended the reading out of the depth where it was met."""

    def __init__(self, problem: FileProblem) -> None:
        super().__init__(str(problem))
        self.problem = problem
