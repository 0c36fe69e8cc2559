"""An agent whose stream has no end: what is kept of it is limited and reported once, and all its spending counts."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.agents.adapters.simple_streams import OneCall
from holdfast.domain.attempt_records import AttemptLimits, Ending, Launch
from holdfast.layout import Attempt
from kit.runner import Bench

MOST = 64 << 10
# Two turns, each with more words and more spending than may be kept.
FLOOD = """
import json
for turn in (1, 2):
    print(json.dumps({"type": "tool_started", "name": "sh", "call": str(turn)}))
    for _ in range(2000):
        print(json.dumps({"type": "said", "text": "x" * 200}))
        print(json.dumps({"type": "spent", "usd": 0.001, "tokens_in": 1}))
    print(json.dumps({"type": "tool_ended", "call": str(turn), "output": "y" * 10_000}))
print(json.dumps({"type": "finished", "ok": True}))
"""


def sizes(files: Attempt) -> dict[str, int]:
    paths = (files.events, files.traces, files.spend, files.provenance, files.turns, files.output)
    return {path.name: path.stat().st_size for path in paths if path.exists()}


def test_the_stored_part_of_an_endless_stream_is_bounded_and_all_spending_counts(bench: Bench) -> None:
    limits = AttemptLimits(grace_s=0.2, output_bytes_max=MOST)
    ended = bench.run(agent="scripted", launch=Launch((sys.executable, "-c", FLOOD)), limits=limits)
    assert ended.ending is Ending.DONE, ended
    assert (round(ended.spent.usd, 6), ended.spent.tokens, ended.spent.turns) == (4.0, 4000, 2)
    assert [round(line.usd, 6) for line in bench.turns()] == [2.0, 2.0]
    spends = bench.records(bench.files.spend)
    assert (round(sum(each["usd"] for each in spends), 6), sum(each["tokens_in"] for each in spends)) == (4.0, 4000)
    # What comes in one piece is kept whole, or not at all.
    piece = 512 << 10
    assert {name: size for name, size in sizes(bench.files).items() if size > MOST + piece} == {}
    told = [each["detail"] for each in bench.records(bench.files.events) if each["type"] == "refused"]
    assert [each for each in told if "events.jsonl" in each and "output_bytes_max" in each] == told[-1:], told
    before = sizes(bench.files)
    again = bench.run(agent="scripted", launch=Launch((sys.executable, "-c", FLOOD)), limits=limits, start=2, turn=2)
    assert round(again.spent.usd, 6) == 4.0 and len(bench.turns()) == 4
    grown = {name: size - before[name] for name, size in sizes(bench.files).items()}
    assert {name for name, more in grown.items() if more} <= {"turns.jsonl", "spend.jsonl"}, grown
    assert grown["spend.jsonl"] < 2000, "one line for each turn"


def test_the_last_lines_of_a_command_are_held_only_as_far_as_they_are_shown() -> None:
    stream = OneCall(("sh", "-c", "x"))
    for _ in range(200):
        stream.read(b"x" * (1 << 20))
    stream.read(b"the last words")
    assert sum(map(len, stream._last)) < 2 << 20
    ended = stream.end(1)[0]
    assert ended.output.endswith("the last words")  # type: ignore[union-attr]


def test_a_short_stream_is_kept_whole(bench: Bench, tmp_path: Path) -> None:
    ended = bench.run("append f x\nspend 0.5", limits=AttemptLimits(grace_s=0.2, output_bytes_max=MOST))
    assert ended.ending is Ending.DONE, ended
    assert not [each for each in bench.records(bench.files.events) if each["type"] == "refused"]
