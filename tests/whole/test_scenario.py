"""The recorder of a fixed scenario, by which two versions of the program are compared."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import scenario


def test_equal_values_get_equal_names_and_volatile_ones_get_their_kind(tmp_path: Path) -> None:
    names = scenario.Names(tmp_path, "/venv/bin/holdfast")
    one, other = "a" * 40, "b" * 40
    text = f"{tmp_path}/x {one} {other} {one} 2026-11-17T16:45:40Z pid 12345 of 2\n"
    assert names.plain(text) == "FOLDER/x <hash 0> <hash 1> <hash 0> <time> pid <number> of 2\n"
    assert names.plain(f"{other}\n") == "<hash 1>\n"
    assert names.plain('{"decision_type":"audit_noted"}\nkept\n') == "kept\n"


@pytest.mark.heavy
def test_the_scenario_records_every_command_the_journal_and_the_api(tmp_path: Path) -> None:
    said = "".join(scenario.recorded(tmp_path, str(Path(sys.executable).parent / "holdfast")))
    asked = ["run --plain"] * len(scenario.TASKS) + scenario.COMMANDS.strip().splitlines()
    assert re.findall(r"^\$ holdfast (.*)$", said, re.M) == asked
    codes = [int(code) for code in re.findall(r"^exit (\d+)$", said, re.M)]
    assert len(codes) == len(asked) and codes[-2] == 0, "the last check is sound"
    journalled = said[said.index("# <entry>") : said.index("# /openapi.json")]
    for kind in ("run_started", "task_added", "task_verify_intent", "task_closed", "task_failed", "run_ended"):
        assert f'"{kind}"' in journalled, kind
    assert '"openapi"' in said and str(tmp_path) not in said and sys.executable not in said
