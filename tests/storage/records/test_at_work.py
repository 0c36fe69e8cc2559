"""What an agent at work does right now, read from the end of its events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.storage.records.at_work import last_tool
from kit.project import layout


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        ([], ("", False)),
        (["1 tool_started x a"], ("x", True)),
        (["1 tool_started x a", "1 tool_ended - a"], ("x", False)),
        (["1 tool_started x a", "1 tool_started y b", "1 tool_ended - b"], ("x", True)),
        (["1 tool_started x", "1 tool_ended - late"], ("x", False)),
        (["1 tool_started x a", "1 tool_ended -"], ("x", False)),
        (["1 tool_started x a", "1 ended"], ("x", False)),
        (["1 tool_started x a", "2 said"], ("x", False)),
        (["1 tool_ended - before", "1 tool_started x a"], ("x", True)),
    ],
)
def test_a_tool_runs_from_its_beginning_to_its_end(tmp_path: Path, events: list[str], wanted: tuple[str, bool]) -> None:
    files = layout(tmp_path).attempt_files("a.1")
    files.events.parent.mkdir(parents=True)
    with open(files.events, "w") as file:
        for each in events:
            start, kind, name, call, *_ = [*each.split(), "", ""]
            file.write(json.dumps({"start": int(start), "type": kind, "name": name, "call": call}) + "\n")
    assert last_tool(files) == wanted
