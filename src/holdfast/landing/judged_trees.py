"""The contract between `verify` and the preparation of the worktree for its gates."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec


class JudgedTree(msgspec.Struct, frozen=True):
    """The worktree for gates that is to be prepared, and how its users are confined. `target`: the commit of the target
    branch whose rules count. `is_wanted`: asked while commands run; once it is false they are ended."""

    task: str
    attempt: str
    folder: Path
    target: str
    merged: str
    confinement: tuple[str, tuple[str, ...], str]
    is_wanted: Callable[[], bool] = lambda: True


class PreparedTree(Protocol):
    """`variables`: for the gates. `descriptors`: of their ports, which they inherit."""

    @property
    def variables(self) -> Mapping[str, str]: ...
    @property
    def descriptors(self) -> tuple[int, ...]: ...


class NothingPrepared(msgspec.Struct, frozen=True):
    variables: dict[str, str] = {}
    descriptors: tuple[int, ...] = ()


# Makes a worktree the tree that is judged, by the function given, and then ready for its gates.
PrepareTree = Callable[[JudgedTree, Callable[[], object]], AbstractContextManager[PreparedTree]]


@contextlib.contextmanager
def only_tree(judged: JudgedTree, make_tree: Callable[[], object]) -> Iterator[PreparedTree]:
    make_tree()
    yield NothingPrepared()
