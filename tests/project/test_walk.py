"""The measure of a task's way: what counts as a jump back. `make walk` takes it of a real run."""

from __future__ import annotations

import pytest

from walk import Function, jumps_back


def function(module: str, name: str) -> Function:
    return Function(module, name, 1, 2)


START, SPAWN = function("engine.start", "start"), function("engine.spawn", "Spawn.perform")
MORE, BUILT = function("engine.start", "more"), function("engine.start", "Start.__init__")


@pytest.mark.parametrize(
    ("calls", "count"),
    [
        pytest.param([(None, START), (START, SPAWN)], 0, id="forward"),
        pytest.param([(None, START), (START, SPAWN), (START, MORE)], 0, id="a function of the caller's own module"),
        pytest.param([(None, START), (START, SPAWN), (SPAWN, MORE)], 1, id="back to a function that is new"),
        pytest.param([(None, START), (START, SPAWN), (SPAWN, START)], 0, id="back to one that was read"),
        pytest.param([(None, START), (START, SPAWN), (SPAWN, MORE), (SPAWN, MORE)], 1, id="counted once"),
        pytest.param([(None, BUILT), (None, SPAWN), (SPAWN, START)], 0, id="a constructor enters no module"),
    ],
)
def test_a_call_of_a_new_function_in_an_earlier_module_is_a_jump_back(
    calls: list[tuple[Function | None, Function]], count: int
) -> None:
    assert len(list(jumps_back(calls))) == count
