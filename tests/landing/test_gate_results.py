"""The results of gates as people read them: the end of the output of those that did not pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.domain.task import TaskState
from holdfast.landing.gate_results import (
    LINE_CHARS_MAX,
    SHOWN_LINES,
    TOLD_LINES,
    failed_output,
    last_lines,
    last_verdict,
    output_of_task,
    output_of_verdict,
    shown_output,
)
from holdfast.landing.gates import GateRun
from holdfast.landing.verify import GateVerdict, Kind
from holdfast.layout import Layout
from holdfast.storage.records.blobs import Blobs
from kit.states import folded, story

LINES = [f"line {number}" for number in range(1, 31)]


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "cas")


def gate(blobs: Blobs, text: str = "", name: str = "g", outcome: Any = "failed", required: bool = True) -> GateRun:
    printed = blobs.put(text.encode()) if text else ""
    return GateRun(name=name, outcome=outcome, command="make", required=required, output=printed)


def verdict(*results: GateRun, passed: bool = False, kind: Kind = "gate_failed") -> GateVerdict:
    return GateVerdict("c", "t", "m", "g", passed=passed, kind=kind, detail="why", results=list(results))


@pytest.mark.parametrize(
    ("outcome", "wanted"),
    [("failed", LINES[-SHOWN_LINES:]), ("timed_out", LINES[-SHOWN_LINES:]), ("passed", []), ("not_run", [])],
)
def test_the_end_of_the_output_is_shown_of_gates_that_did_not_pass(
    blobs: Blobs, outcome: str, wanted: list[str]
) -> None:
    assert shown_output(blobs, gate(blobs, "\n".join(LINES), outcome=outcome)) == wanted


@pytest.mark.parametrize(
    ("text", "lines", "words"),
    [
        ("why\n----\n\nmore  \n\n \n", ["why", "----", "", "more"], ["why", "more"]),
        ("x" * 400, ["x" * LINE_CHARS_MAX], ["x" * LINE_CHARS_MAX]),
        ("====\n\n", ["===="], []),
        ("", [], []),
    ],
)
def test_empty_lines_at_the_end_and_lines_without_words_are_left_out(
    blobs: Blobs, text: str, lines: list[str], words: list[str]
) -> None:
    assert last_lines(blobs, gate(blobs, text), 10) == lines
    assert last_lines(blobs, gate(blobs, text), 10, with_words=True) == words


def test_the_output_of_a_verdict_is_that_of_the_first_required_gate_that_broke(blobs: Blobs) -> None:
    advisory, passed = gate(blobs, "advice", required=False), gate(blobs, "fine", outcome="passed")
    broken, later = gate(blobs, "\n".join([*LINES, "----"])), gate(blobs, "later", outcome="timed_out")
    assert failed_output(blobs, verdict(advisory, passed, broken, later)) == LINES[-TOLD_LINES:]
    assert failed_output(blobs, verdict(advisory, passed)) == failed_output(blobs, verdict(broken, passed=True)) == []
    digest = blobs.put(msgspec.json.encode(verdict(later)))
    assert output_of_verdict(blobs, digest) == ["later"]
    assert output_of_verdict(blobs, blobs.put(b"{")) == output_of_verdict(blobs, "0" * 64) == []


@pytest.mark.parametrize(
    ("kind", "attempt", "wanted"),
    [
        ("gate_failed", "t.1", ["why"]),
        ("gate_timed_out", "t.1", ["why"]),
        ("gate_failed", "t.2", []),
        ("failed", "t.1", []),
    ],
)
def test_a_task_shows_the_output_of_the_gate_that_it_failed_for(
    blobs: Blobs, tmp_path: Path, kind: str, attempt: str, wanted: list[str]
) -> None:
    layout = Layout(tmp_path / "data")
    task = folded(story("t", TaskState.FAILED, outcome={"kind": kind, "attempt": attempt})).tasks["t"]
    assert last_verdict(layout, task) is None and output_of_task(layout, blobs, task) == []
    files = layout.attempt_files("t.1")
    files.root.mkdir(parents=True)
    judged = verdict(gate(blobs, "why"))
    files.verdict.write_bytes(msgspec.json.encode(judged))
    assert last_verdict(layout, task) == ("t.1", judged)
    assert output_of_task(layout, blobs, task) == wanted
