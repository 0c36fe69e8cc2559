"""A person's message to an agent at work: by its hook where it has one, else by ending it after its turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.domain.attempt_records import Ending, InboxFile, Launch, ProtocolCall
from holdfast.domain.conversations.conversation_records import Message
from holdfast.storage.records import attempt_folder
from kit.claude import BEGIN, END, began, claude, hooked, result
from kit.runner import Bench

ONE, TWO = Message("m1", 'Say "yes".', "ada"), Message("m2", "Then go on.", "ada")


def told(bench: Bench, *messages: Message, start: int = 1) -> None:
    attempt_folder.make_folder(bench.files)
    attempt_folder.write_inbox(bench.files, InboxFile(start, messages))


def test_an_agent_without_a_hook_is_ended_after_its_turn(bench: Bench) -> None:
    told(bench, ONE)
    exit = bench.run("write one 1\nwrite two 2")
    assert exit.ending is Ending.TOLD and exit.told == [] and [turn.told for turn in bench.turns()] == [[]]
    assert bench.tree(exit.snapshot) == {"a", "one"} and not bench.files.told.exists()


def test_an_agent_whose_prompt_has_the_message_is_not_ended_for_it(bench: Bench) -> None:
    told(bench, ONE)
    exit = bench.run("write one 1\nwrite two 2", told=(ONE,))
    assert exit.ending is Ending.DONE and [turn.told for turn in bench.turns()] == [["m1"], []]
    assert [record["id"] for record in bench.records(bench.files.told)] == ["m1"]
    assert bench.records(bench.files.traces)[0]["text"] == 'Say "yes".'


def test_a_message_for_another_start_is_not_this_ones(bench: Bench) -> None:
    told(bench, ONE, start=2)
    assert bench.run("write one 1").ending is Ending.DONE


def test_a_hook_prints_the_messages_and_the_agent_goes_on(bench: Bench) -> None:
    told(bench, ONE, TWO)
    first, second = began("1") + "echo 1 > one\n" + hooked("1"), began("2") + "echo 2 > two\n" + hooked("2")
    script = BEGIN + first + result("1") + second + result("2") + END
    exit = bench.run(agent="claude", launch=claude(script))
    assert exit.ending is Ending.DONE and [turn.told for turn in bench.turns()] == [[], ["m1", "m2"]]
    said = bench.files.output.read_text()
    assert said.count('"additionalContext":"A person tells you, while you work:') == 1
    assert 'Say \\"yes\\".\\n\\nThen go on."' in said
    assert [record["id"] for record in bench.records(bench.files.told)] == ["m1", "m2"]
    assert [record["text"] for record in bench.records(bench.files.events) if record["type"] == "told"] == [
        'Say "yes".',
        "Then go on.",
    ]


SESSION = "550d58ee-a0ec-439e-ab29-c89c1c6645b0"


def gemini(record: Path, *, by_protocol: bool) -> Launch:
    """Gemini CLI as it ends a tool: it tells of that first, and writes it into its record a moment later."""
    update = {"sessionUpdate": "tool_call", "toolCallId": "c-1", "kind": "execute", "rawInput": {"command": "ls"}}
    ended = {**update, "sessionUpdate": "tool_call_update", "status": "completed"}
    if by_protocol:
        lines = [
            {"id": 1, "result": {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}},
            {"id": 2, "result": {"sessionId": SESSION}},
            *(
                {"method": "session/update", "params": {"sessionId": SESSION, "update": each}}
                for each in (update, ended)
            ),
        ]
    else:
        lines = [
            {"type": "init", "session_id": SESSION, "model": "m"},
            {"type": "tool_use", "tool_id": "c-1", "tool_name": "ls", "parameters": {}},
            {"type": "tool_result", "tool_id": "c-1", "status": "success", "output": "x"},
        ]
    kept = {"toolCalls": [{"id": "c-1", "result": [{"functionResponse": {"id": "c-1"}}]}]}
    said = "".join(
        f"read asked; echo '{json.dumps(each)}'\n" if "id" in each else f"echo '{json.dumps(each)}'\n" for each in lines
    )
    script = f"echo 1 > one\n{said}sleep 0.5\necho '{json.dumps(kept)}' >> {record}\nsleep 600\n"
    call = ProtocolCall(title="gemini", program="gemini") if by_protocol else None
    return Launch(
        ("sh", "-c", script), stream="" if call else "gemini", protocol=call, talks=by_protocol, writes_late=True
    )


@pytest.mark.parametrize("by_protocol", [False, True])
def test_an_agent_that_writes_its_turn_down_late_does_so_before_it_is_ended(
    bench: Bench, tmp_path: Path, by_protocol: bool
) -> None:
    told(bench, ONE)
    record = tmp_path / ".gemini" / "tmp" / "T" / "chats" / f"session-2026-11-18T08-35-{SESSION[:8]}.jsonl"
    record.parent.mkdir(parents=True)
    record.write_text("{}\n")
    order = bench.order(agent="gemini", launch=gemini(record, by_protocol=by_protocol))
    assert bench.start(order, GEMINI_CLI_HOME=str(tmp_path)).wait(120) == 0
    assert bench.exit().ending is Ending.TOLD and len(bench.turns()) == 1
    assert "functionResponse" in record.read_text(), "the next start does not know what this one did"
