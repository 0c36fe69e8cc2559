"""A person's message to an agent at work: by its hook where it has one, else by ending it after its turn."""

from __future__ import annotations

from holdfast.domain.attempt_records import Ending, InboxFile
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
