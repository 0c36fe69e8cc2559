"""A view of the state's tasks to try entries on."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.domain.state import Task


class Overlay(dict[str, "Task"]):
    """Copies a task when it is first asked for, so that a trial costs what it touches."""

    def __init__(self, below: dict[str, Task]) -> None:
        super().__init__()
        self._below = below

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self.keys() and name in self._below:
            self[name] = copy.copy(self._below[name])
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._below
