"""What a person tells an agent: it wakes the conversation wherever the task stands, and reaches it once."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from holdfast.app import App
from holdfast.decisions import mailbox
from holdfast.decisions.context import Answer, DecisionContext
from holdfast.decisions.conversations import MESSAGE_CHARS_MAX
from holdfast.domain.attempt_records import Order
from holdfast.domain.task import TaskState
from holdfast.storage.records.blobs import Blobs
from kit.program import begin, holdfast, type_in
from kit.project import add, landed, layout, settings, sound, state
from kit.roots import short_run
from kit.tasks import failed, journal, turns
from kit.waiting import shell_wait, wait_for


def tell(repo: Path, key: str, message: str = "Keep the old words.") -> Answer:
    with short_run(App.find(repo, environ={})) as context:
        return mailbox.decide(DecisionContext.of(context, key), "tell", {"task": "a", "message": message})


def orders(repo: Path) -> list[Order]:
    """What each start of an agent was given, in order."""
    blobs = Blobs(layout(repo).cas)
    digests = [entry.inputs["order"] for entry in journal(repo, "task_spawn_intent")]
    return [msgspec.json.decode(blobs.get(each), type=Order) for each in digests]


def texts(repo: Path) -> list[list[str]]:
    return [[message.text for message in order.told] for order in orders(repo)]


# -- where the task stands --------------------------------------------------------------------------------------------


def test_a_message_that_is_no_text_is_refused_with_a_sentence(repo: Path) -> None:
    add(repo, "a", "write a.txt x")
    notes = repo.parent / "notes.bin"
    notes.write_bytes(b"bin\x00\xff\n")
    with notes.open("rb") as stream:
        typed = type_in(repo, "tell", "a", "-", stdin=stream)
    assert typed.returncode == 2 and "standard input is not UTF-8 text" in typed.stderr
    wrong = os.fsdecode(b"bin\xff")
    for words in (["tell", "a", "--file", str(notes)], ["tell", "a", wrong], ["resume", "a", "--message", wrong]):
        said = holdfast(repo, *words, code=2)
        assert "is not UTF-8 text" in said and "iconv" in said and "task_told" not in said
    assert not journal(repo, "task_told")


def test_a_task_that_has_not_begun_has_all_messages_in_its_first_prompt_in_order(repo: Path) -> None:
    add(repo, "a", "write a.txt x")
    assert "first prompt" in holdfast(repo, "tell", "a", "One thing.")
    holdfast(repo, "tell", "a", "-", stdin="Another thing.\n")
    notes = repo.parent / "notes.md"
    notes.write_text("A third.")
    holdfast(repo, "tell", "a", "--file", str(notes))
    prompt = holdfast(repo, "prompt", "a")
    assert "## What a person tells you now\n\nOne thing.\n\nAnother thing.\n\n\nA third." in prompt
    assert "may have seen" not in prompt
    layout(repo).prompt_template.write_text("Only: {{goal}}\n")
    assert holdfast(repo, "prompt", "a").startswith("Only: a\n\n## What a person tells you now\n\nOne thing.")
    holdfast(repo, "run")
    assert texts(repo) == [["One thing.", "Another thing.\n", "A third."]] and state(repo).tasks["a"].told == ()
    said = [record["text"] for record in _events(repo, "a.1") if record["type"] == "told"]
    assert said == ["One thing.", "Another thing.\n", "A third."]
    assert ": One thing." in holdfast(repo, "attach", "a") and "told it: One thing." in holdfast(repo, "history", "a")
    refusal = holdfast(repo, "tell", "a", "Too late.", code=9)
    assert "it is closed" in refusal and "`holdfast fork a --turn 1`" in refusal
    sound(repo)


def test_a_failed_task_goes_on_in_the_same_attempt_and_is_told_once(repo: Path) -> None:
    failed(repo)
    answer = tell(repo, "k1")
    assert "goes on with a.1" in answer.tasks[0].note
    before = len(journal(repo, "task_told", "task_opened", "attempt_resumed"))
    assert tell(repo, "k1") == answer and before == 3
    assert len(journal(repo, "task_told", "task_opened", "attempt_resumed")) == 3
    task = state(repo).tasks["a"]
    assert task.state is TaskState.OPEN and task.continues and [each.id for each in task.told] == ["k1"]
    assert "Keep the old words." in holdfast(repo, "show", "a")
    holdfast(repo, "run", code=20)
    task = state(repo).tasks["a"]
    # The script fails again in its first attempt: that it did so without a turn is no sign that it has not heard.
    assert texts(repo) == [[], ["Keep the old words."]] and task.attempts == 1
    sound(repo)


@pytest.mark.heavy
def test_a_result_that_waits_for_approval_goes_on_in_the_same_conversation(repo: Path) -> None:
    add(repo, "a", "session s1\nwrite a.txt x", approve=True)
    holdfast(repo, "run", code=20)
    assert "`holdfast tell a" in holdfast(repo, "resume", "a", "--message", "Go on.", code=9)
    assert state(repo).tasks["a"].state is TaskState.PENDING_APPROVAL
    holdfast(repo, "tell", "a", "One more thing.")
    task = state(repo).tasks["a"]
    assert task.state is TaskState.OPEN and task.continues and task.session == "s1"
    holdfast(repo, "run", code=20)
    task = state(repo).tasks["a"]
    assert task.state is TaskState.PENDING_APPROVAL and (task.attempts, task.told) == (1, ())
    assert texts(repo) == [[], ["One more thing."]]
    holdfast(repo, "approve", "a")
    holdfast(repo, "run")
    assert landed(repo) == ["a"]


@pytest.mark.heavy
def test_resume_and_retry_take_a_message_along(repo: Path) -> None:
    failed(repo)
    holdfast(repo, "resume", "a", "--message", "Go on.")
    assert [each.text for each in state(repo).tasks["a"].told] == ["Go on."] and state(repo).tasks["a"].continues
    failed(repo, "b")
    holdfast(repo, "retry", "b", "--message", "Anew.")
    task = state(repo).tasks["b"]
    assert [each.text for each in task.told] == ["Anew."] and not task.continues and task.state is TaskState.OPEN


@pytest.mark.parametrize(
    ("message", "words"), [(" \n", "the message is empty"), ("x" * (MESSAGE_CHARS_MAX + 1), "at most 20,000")]
)
def test_a_message_that_cannot_be_told_is_refused_and_nothing_is_journalled(
    repo: Path, message: str, words: str
) -> None:
    add(repo, "a", "write a.txt x")
    assert words in holdfast(repo, "tell", "a", message, code=2)
    assert not journal(repo, "task_told")
    (layout(repo).backlog_open / "c.yaml").write_text("goal: c\ncommand: 'true'\n")
    assert "its work is a command" in holdfast(repo, "tell", "c", "Hello.", code=9)
    assert "Say one thing" in holdfast(repo, "tell", "a", code=2)


# -- at work ----------------------------------------------------------------------------------------------------------


def _events(repo: Path, attempt: str) -> list[dict[str, object]]:
    lines = layout(repo).attempt_files(attempt).events.read_bytes().splitlines()
    return [msgspec.json.decode(line) for line in lines]


@pytest.mark.heavy
@pytest.mark.parametrize("killed", [False, True])
def test_an_agent_at_work_is_told_at_the_end_of_its_turn_and_no_turn_is_redone(repo: Path, killed: bool) -> None:
    go = repo.parent / "go"
    add(repo, "a", f"session s1\nwrite a.txt x\nrun {shell_wait(go)}; echo once >> b.txt\nappend a.txt y")
    process = begin(repo)
    wait_for(lambda: turns(repo, "a") == 1, "the first turn")
    if killed:
        process.kill()
        process.communicate()
    assert "at the end of its turn" in holdfast(repo, "tell", "a", "While you work.")
    go.touch()
    if killed:
        ended = layout(repo).attempt_files("a.1").exit
        wait_for(ended.exists, "the end of the start that was told")
        holdfast(repo, "run")
    else:
        process.communicate()
    task = state(repo).tasks["a"]
    assert task.state is TaskState.CLOSED and (task.attempts, task.attempt.turn, task.told) == (1, 3, ())
    assert texts(repo) == [[], ["While you work."]] and task.session == "s1"
    assert (repo / "b.txt").read_text() == "once\n" and (repo / "a.txt").read_text() == "x\ny\n"
    assert [entry.inputs["reason"] for entry in journal(repo, "task_opened")] == ["told"]
    sound(repo)


def plain_agent(repo: Path, command: str) -> None:
    """An agent of the settings that reports no turns; its orders hold the whole prompt."""
    settings(repo, agents=[{"name": "plain", "command": ["sh", "-c", command], "prompt": "file"}], grace_s=0.5)
    (layout(repo).backlog_open / "a.yaml").write_text("goal: Make it.\nagent: plain\n")


@pytest.mark.heavy
def test_an_agent_that_ends_before_it_was_told_goes_on_before_its_work_lands(repo: Path) -> None:
    go, began = repo.parent / "go", repo.parent / "began"
    plain_agent(repo, f"echo x >> {began}; {shell_wait(go)}; echo x >> a.txt")
    process = begin(repo)
    wait_for(began.exists, "its agent")
    holdfast(repo, "tell", "a", "Do not forget this.")
    go.touch()
    process.communicate()
    task = state(repo).tasks["a"]
    assert texts(repo) == [[], ["Do not forget this."]] and (task.attempts, task.told) == (1, ())
    assert (repo / "a.txt").read_text() == "x\nx\n" and landed(repo) == ["a"]
    assert "What a person tells you now\n\nDo not forget this." in orders(repo)[1].launch.prompt
    sound(repo)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("point", "may_have_seen"), [("runner.told.before:1", False), ("runner.told.after:1", True), ("", False)]
)
def test_after_a_kill_a_message_is_given_again_and_the_prompt_says_that_it_may_have_been_seen(
    repo: Path, point: str, may_have_seen: bool
) -> None:
    plain_agent(repo, "echo x > a.txt")
    holdfast(repo, "tell", "a", "Only once.")
    once = repo.parent / "once"
    once.mkdir()
    begin(repo, HOLDFAST_CRASH_AT=point, HOLDFAST_CRASH_ONCE=str(once)).communicate()
    assert len(list(once.iterdir())) == bool(point)
    prompts = [order.launch.prompt for order in orders(repo)]
    assert len(prompts) == 1 + bool(point) and all(each.count("Only once.") == 1 for each in prompts)
    assert "may have seen" not in prompts[0] and ("may have seen" in prompts[-1]) == may_have_seen
    assert state(repo).tasks["a"].told == () and landed(repo) == ["a"]
    sound(repo)
