"""The clock that tests can set."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from kit.clock import SetClock

ASKS = """import sys; from holdfast.clock import monotonic, wall
for _ in sys.stdin: print(wall(), monotonic(), flush=True)"""


def asked(process: subprocess.Popen[str]) -> tuple[float, float]:
    assert process.stdin is not None
    assert process.stdout is not None
    print("now", file=process.stdin, flush=True)
    of_wall, of_monotonic = process.stdout.readline().split()
    return float(of_wall) - time.time(), float(of_monotonic) - time.monotonic()


def test_a_running_process_follows_the_file(tmp_path: Path) -> None:
    clock = SetClock(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", ASKS], env={**os.environ, **clock.env}, stdin=-1, stdout=-1, text=True
    ) as process:
        assert [round(each, -3) for each in asked(process)] == [0, 0]
        clock.later(86_400)
        assert [round(each, -2) for each in asked(process)] == [86_400, 86_400]
        clock.set_wall(-172_800)
        assert [round(each, -2) for each in asked(process)] == [-86_400, 86_400]
        Path(clock.env["HOLDFAST_CLOCK"]).unlink()
        assert [round(each, -3) for each in asked(process)] == [0, 0]


def test_without_the_variable_it_is_the_clock_of_the_machine() -> None:
    told = "import time, holdfast.clock as c; print(c.wall is time.time and c.monotonic is time.monotonic)"
    kept = {name: value for name, value in os.environ.items() if name != "HOLDFAST_CLOCK"}
    assert subprocess.run([sys.executable, "-c", told], env=kept, capture_output=True, text=True).stdout == "True\n"
