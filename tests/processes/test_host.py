"""The machine's room for another agent: what is read, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from holdfast.domain.task_record import LastStart, Task
from holdfast.processes import controllers, host
from holdfast.processes.host import HostRoom, shortage

MB = 1 << 20


@pytest.mark.parametrize(
    ("free", "least", "young", "told"),
    [
        (None, 256 * MB, 0, ""),
        (10 * MB, None, 0, ""),
        (256 * MB, 256 * MB, 0, ""),
        (255 * MB, 256 * MB, 0, "255 MB of memory are free, and memory_free_min is 256 MB. "),
        (511 * MB, 256 * MB, 1, "511 MB of memory are free, and 512 MB are needed: memory_free_min is 256 MB "),
        (512 * MB, 256 * MB, 1, ""),
        (0, 4096, 3, "3 agents of the last 10 s may still take as much"),
    ],
)
def test_a_shortage_of_memory_is_told_from_room(free: int | None, least: int | None, young: int, told: str) -> None:
    found = shortage(HostRoom(memory_free=free), least, young)
    assert told in found if told else found == ""


def test_a_shortage_in_a_control_group_says_so() -> None:
    assert "in the control group of this run" in shortage(HostRoom(memory_free=1, is_group=True), 4096)


def test_agents_count_as_young_while_they_have_not_settled() -> None:
    def task(state: TaskState, began: float) -> Task:
        return Task("t", state, "", 0.0, 0.0, start=LastStart(1, began=began))

    at_work = TaskState.IN_PROGRESS
    found = [task(at_work, 100.0), task(at_work, 99.0 - host.SETTLE_S), task(TaskState.DONE, 100.0), task(at_work, 999)]
    assert host.young(found, 101.0) == 1


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Groups of both versions, as files: the innermost has no limit, the ones around it have."""
    for controller, limit, used, cached in (
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ("", "memory.max", "memory.current", "inactive_file"),
    ):
        outer = tmp_path / (controller or "new")
        (outer / "inner").mkdir(parents=True)
        (outer / limit).write_text("1000\n")
        (outer / used).write_text("900\n")
        (outer / "memory.stat").write_text(f"cache 1\n{cached} 50\n")
        (outer / "inner" / limit).write_text("9223372036854771712\n" if controller else "max\n")
    monkeypatch.setattr(controllers, "place", lambda name, pid="self": tmp_path / (name or "new") / "inner")
    return tmp_path


def test_memory_is_bounded_by_the_groups_around_a_process(groups: Path) -> None:
    machine, group = controllers.memory_free()
    assert machine is not None and machine > 1000 and group == 150
    (groups / "memory" / "memory.usage_in_bytes").write_text("1000\n")
    assert controllers.memory_free()[1] == 50
    (groups / "new" / "memory.current").write_text("2000\n")
    assert controllers.memory_free()[1] == 0
    assert host.measure().memory_free == 0 and host.measure().is_group


def test_without_a_limited_group_memory_is_that_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "place", lambda name, pid="self": None)
    machine, group = controllers.memory_free()
    assert group is None and machine is not None and not host.measure().is_group
