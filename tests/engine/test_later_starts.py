"""The tree and the prompt of a later start: after a lost conversation, a failure, an undo or a kill. `prompt` shows it.

The agent is a shell script that is declared as one. It keeps what each start was called with and told, and its tree.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.config.settings import Config
from holdfast.domain.definition import Definition
from holdfast.domain.task import TaskState
from holdfast.engine.prompt import FILES_MAX, PromptTree, Words, prompt
from holdfast.storage.journal.reader import Chain
from holdfast.storage.records import session_use
from holdfast.storage.records.blobs import Blobs
from kit.git import git
from kit.program import begin, holdfast
from kit.project import layout, settings, sound, state
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy

EVENTS = {
    "session.id": "session",
    "said.text": "said",
    "tool_started.when": "type=call",
    "tool_started.name": "name",
    "tool_started.input": "input",
    "tool_ended.when": "type=res",
    "finished.when": "type=end",
    "finished.ok": "status=success",
}
# `edit NAME TEXT` is a turn, and returns when that is saved.
PROLOGUE = r"""#!/bin/sh
top=TOP
n=$(ls $top/told-* 2>/dev/null | wc -l)
cat > $top/told-$n
echo "$*" > $top/args-$n
ls > $top/tree-$n
turns() { cat $top/repo/.sdd/attempts/$HOLDFAST_ATTEMPT/turns.jsonl 2>/dev/null | wc -l; }
session() { echo "{\"session\":\"s-$n\"}"; }
edit() {
    before=$(turns)
    echo "{\"type\":\"call\",\"name\":\"edit\",\"input\":\"$1: $2\"}"
    echo "$2" > "$1"
    echo '{"type":"res"}'
    while [ $(turns) = $before ]; do sleep 0.02; done
}
say() { echo "{\"said\":\"$1\"}"; }
finish() { echo "{\"type\":\"end\",\"status\":\"$1\"}"; exit 0; }
has_lost() { case "$*" in *--resume*) echo "No conversation found with session ID $2" >&2; exit 1;; esac; }
"""


def declare(repo: Path, script: str, **more: object) -> None:
    cli = repo.parent / "cli"
    cli.write_text(PROLOGUE.replace("TOP", str(repo.parent)) + script)
    cli.chmod(0o755)
    agent = {
        "name": "fake",
        "command": [str(cli)],
        "prompt": "stdin",
        "resume": ["--resume", "{session}"],
        "events": EVENTS,
    }
    settings(repo, agent="fake", agents=[agent], grace_s=1, **more)


def task(repo: Path, **more: object) -> None:
    content = {"id": "t", "goal": "Make it right.", **more}
    (layout(repo).backlog_open / "t.yaml").write_bytes(msgspec.yaml.encode(content))


def kept(repo: Path, what: str, number: int) -> str:
    return (repo.parent / f"{what}-{number}").read_text()


def starts(repo: Path) -> list[str]:
    return [kept(repo, "args", number).strip() for number in range(len(list(repo.parent.glob("args-*"))))]


def losses(repo: Path) -> list[str]:
    entries = (entry for _, entry in Chain(layout(repo).wal).entries())
    return [each.inputs["outcome"]["detail"] for each in entries if each.inputs.get("reason") == "conversation_lost"]


# -- a conversation that is not there ---------------------------------------------------------------------------------


def test_a_lost_conversation_costs_no_attempt_and_its_history_is_in_the_prompt(repo: Path) -> None:
    declare(repo, 'has_lost "$@"; session\n[ $n = 0 ] && edit a.txt wrong || edit a.txt right\nfinish success\n')
    task(repo, verify=["grep right a.txt"], max_attempts=2)
    told = holdfast(repo, "run")
    assert starts(repo) == ["", "--resume s-0", ""]
    (lost,) = losses(repo)
    assert "The conversation s-0 was lost" in lost and "No conversation found with session ID s-0" in lost
    assert lost in told
    found = state(repo).tasks["t"]
    assert (found.state, found.attempts, found.start.number) == (TaskState.CLOSED, 2, 2)
    assert "You called edit with a.txt: wrong" in kept(repo, "told", 2)
    assert "grep right a.txt" in kept(repo, "told", 2).partition("said of your work")[2]
    sound(repo)


def test_an_agent_killed_after_its_first_line_begins_anew(repo: Path) -> None:
    declare(repo, 'has_lost "$@"; session\n[ $n = 0 ] && kill -9 $$\nedit a.txt right; finish success\n')
    task(repo, max_attempts=1)
    holdfast(repo, "run")
    assert starts(repo) == ["", "--resume s-0", ""] and len(losses(repo)) == 1
    found = state(repo).tasks["t"]
    assert (found.state, found.attempts) == (TaskState.CLOSED, 1)


def test_a_conversation_is_lost_without_cost_only_once_in_an_attempt(repo: Path) -> None:
    script = 'has_lost "$@"; session\n[ $n -lt 3 ] && kill -9 $$\nedit a.txt right; finish success\n'
    declare(repo, script)
    task(repo, max_attempts=2)
    holdfast(repo, "run")
    assert starts(repo) == ["", "--resume s-0", "", "--resume s-2", ""] and len(losses(repo)) == 1
    found = state(repo).tasks["t"]
    assert (found.state, found.attempts, found.start.number) == (TaskState.CLOSED, 2, 1)
    assert "was lost" in found.past[0].detail and found.past[0].kind == "failed"


def test_retry_does_not_try_a_conversation_again_that_came_to_nothing(repo: Path) -> None:
    declare(repo, "session\n[ $n = 0 ] && exit 1\nedit a.txt right; finish success\n")
    task(repo, max_attempts=1)
    holdfast(repo, "run", code=20)
    assert state(repo).tasks["t"].session == "s-0"
    holdfast(repo, "retry", "t")
    holdfast(repo, "run")
    assert starts(repo) == ["", ""] and state(repo).tasks["t"].state is TaskState.CLOSED


# -- what a failed attempt leaves to the next -------------------------------------------------------------------------


def test_the_next_attempt_begins_with_what_a_failed_one_had_done(repo: Path) -> None:
    declare(repo, "session\nedit helper$n.py x\n[ $n = 0 ] && finish failure\nfinish success\n")
    task(repo)
    holdfast(repo, "run")
    assert starts(repo) == ["", "--resume s-0"]
    assert "helper0.py" in kept(repo, "tree", 1)
    told = kept(repo, "told", 1)
    assert "begins with what attempt 1 had done by the end of its turn 1" in told
    assert "- attempt 1: 1 turn, failed: " in told
    assert {"helper0.py", "helper1.py"} <= set(git(repo, "ls-tree", "--name-only", "main").split("\n"))


@pytest.mark.parametrize("turns", ["edit helper1.py x", ": no turn"])
def test_a_gates_words_and_the_candidate_outlast_a_failed_attempt(repo: Path, turns: str) -> None:
    each = f"case $n in 0) edit helper0.py x;; 1) {turns}; finish failure;; 2) edit right x;; esac\n"
    declare(repo, "session; say Hm.\n" + each + "finish success\n")
    task(repo, verify=["test -e right"])
    holdfast(repo, "run")
    told, tree = kept(repo, "told", 2), kept(repo, "tree", 2).split()
    assert "helper0.py" in tree and ("helper1.py" in tree) == (turns != ": no turn")
    assert "test -e right" in told.partition("## What was said of your work")[2]
    assert "- attempt 1: 1 turn, gate_failed: " in told and "- attempt 2: " in told.partition("attempt 1")[2]
    assert "The agent has finished" not in told
    found = state(repo).tasks["t"]
    assert (found.state, found.attempts, found.left) == (TaskState.CLOSED, 3, None)


# -- what was undone, and what was cut short --------------------------------------------------------------------------


def test_a_killed_agent_gets_the_files_that_are_missing_in_the_tree(repo: Path) -> None:
    declare(
        repo,
        "session\n[ $n = 0 ] && edit a.txt one && echo half > half.txt && echo other > a.txt && kill -9 $$\n"
        "edit b.txt two; finish success\n",
    )
    task(repo)
    holdfast(repo, "run")
    assert starts(repo) == ["", "--resume s-0"]
    assert kept(repo, "tree", 1).split() == ["README.md", "a.txt"]
    assert git(repo, "show", "main:a.txt") == "one"
    where = kept(repo, "told", 1).partition("## Where you were")[2]
    assert "after turn 1" in where and "yours to redo:\n\n- a.txt\n- half.txt\n" in where


def test_an_agent_woken_and_killed_before_its_first_turn_still_has_the_candidate(repo: Path) -> None:
    each = "case $n in 0) edit a.txt one;; 1) echo half > half.txt; kill -9 $$;; 2) edit right x;; esac\n"
    declare(repo, f"session\n{each}finish success\n")
    task(repo, verify=["test -e right"])
    holdfast(repo, "run")
    assert starts(repo) == ["", "--resume s-0", "--resume s-1"]
    assert kept(repo, "tree", 2).split() == ["README.md", "a.txt"]
    where = kept(repo, "told", 2).partition("## Where you were")[2]
    assert "in your first turn" in where and "yours to redo:\n\n- half.txt\n" in where
    assert state(repo).tasks["t"].attempts == 2


def test_of_very_many_files_the_first_are_named(repo: Path) -> None:
    declare(repo, "session; edit a.txt x; finish success\n")
    task(repo)
    holdfast(repo, "run")
    words = Words(layout(repo), Blobs(layout(repo).cas), Config())
    names = [f"f{number:03}" for number in range(FILES_MAX + 7)]
    told = prompt(words, state(repo).tasks["t"], Definition("t"), PromptTree(differing=names, is_kept=True))
    assert "also holds what you have done since" in told and f"f{FILES_MAX - 1:03}" in told
    assert f"f{FILES_MAX:03}" not in told and "(and 7 more)" in told


# -- one and the same -------------------------------------------------------------------------------------------------


def test_prompt_shows_the_next_prompt_byte_for_byte(repo: Path) -> None:
    """First; woken by a gate; put back and resumed; stopped, edited and resumed."""
    declare(
        repo,
        "session\n"
        "case $n in\n"
        "0|1) edit a.txt $n-1; edit a.txt $n-2; edit a.txt $n-3; [ $n = 0 ] && finish success; finish failure;;\n"
        "2) edit b.txt two; sleep 600;;\n"
        "3) edit right x; finish success;;\n"
        "esac\n",
    )
    task(repo, verify=[{"command": ["test", "-e", "right", "-o", "-e", "a b"]}], max_attempts=1)
    shown = [holdfast(repo, "prompt", "t")]
    holdfast(repo, "run", code=20)
    holdfast(repo, "retry", "t")
    shown.append(holdfast(repo, "prompt", "t"))
    holdfast(repo, "run", code=20)
    holdfast(repo, "undo", "t", "--turn", "1")
    holdfast(repo, "resume", "t")
    shown.append(holdfast(repo, "prompt", "t"))
    with begin(repo) as process:
        wait_for(lambda: state(repo).tasks["t"].attempt.turn == 4, "the fourth turn")
        holdfast(repo, "stop", "--agents")
        process.wait(120)
    path = next(layout(repo).backlog.rglob("t.yaml"))
    path.write_text(path.read_text().replace("Make it right.", "Make it otherwise."))
    shown.append(holdfast(repo, "prompt", "t"))
    holdfast(repo, "run")
    told = [kept(repo, "told", number) for number in range(4)]
    assert shown == told
    assert starts(repo) == ["", "--resume s-0", "--resume s-1", "--resume s-2"]
    assert "- test -e right -o -e 'a b'\n" in told[0]
    assert "## What was said of your work" in told[1]
    assert "put the worktree back to what turn 1 left" in told[2]
    assert "a.txt: 1-1" in told[2] and "1-2" not in told[2] and "1-3" not in told[2]
    assert "Make it right." in told[3] and "b.txt: two" in told[3]


# -- a conversation that is long enough -------------------------------------------------------------------------------


def rotations(repo: Path) -> list[str]:
    entries = (entry for _, entry in Chain(layout(repo).wal).entries())
    return [each.inputs["outcome"]["detail"] for each in entries if each.inputs.get("reason") == "session_full"]


def test_a_long_conversation_is_followed_by_another_with_its_history(repo: Path) -> None:
    declare(
        repo,
        "session\nwhile [ $(turns) -lt 5 ]; do edit f$(turns).txt made; done\nfinish success\n",
        session_turns_max=2,
    )
    task(repo, verify=["ls f0.txt f1.txt f2.txt f3.txt f4.txt"], max_attempts=1)
    told = holdfast(repo, "run")
    # None is resumed, and each has made its turns.
    assert set(starts(repo)) == {""}
    # A call that was already on its way when a conversation was ended may have made one turn more of it.
    number = len(rotations(repo))
    assert 1 <= number <= 2 and len(starts(repo)) == number + 1
    assert all("behind a turn, because it has reached session_turns_max" in each for each in rotations(repo))
    assert told.count("begins another one, with the history in its prompt") == number
    found = state(repo).tasks["t"]
    assert (found.state, found.attempts, found.attempt.turn, found.lost_in) == (TaskState.CLOSED, 1, 5, "")
    assert "You called edit with f0.txt: made" in kept(repo, "told", 1)
    assert "You called edit with f1.txt: made" in kept(repo, "told", 1)
    history = holdfast(repo, "history", "t")
    assert history.count("Put back, for another conversation with the history in its prompt") == number
    assert "its conversation was long or dear enough" in history
    why = "begins another conversation: the conversation was ended behind a turn, because it has reached session_turns"
    assert history.count(why) == number and why in " ".join(holdfast(repo, "show", "t").split())
    sound(repo)


def test_a_conversation_that_became_too_long_meanwhile_is_not_resumed(repo: Path) -> None:
    script = "session\n[ $n = 0 ] && edit a.txt wrong; edit a.txt wrong$n; finish success\n"
    declare(repo, script)
    task(repo, verify=["grep wrong1 a.txt"], max_attempts=1)
    holdfast(repo, "run", code=None)
    assert state(repo).tasks["t"].session == "s-0"
    declare(repo, script, session_turns_max=2)
    assert "You called edit with a.txt: wrong" in holdfast(repo, "prompt", "t")
    holdfast(repo, "retry", "t")
    holdfast(repo, "run")
    assert starts(repo) == ["", ""], "it would have been resumed"
    (claimed,) = [
        entry
        for _, entry in Chain(layout(repo).wal).entries()
        if entry.inputs.get("forget") and entry.inputs.get("why")
    ]
    assert (
        claimed.decision_type == "task_claimed"
        and "has had 2 turns, and session_turns_max is 2" in claimed.inputs["why"]
    )
    assert "begins another conversation: the conversation has had 2 turns" in holdfast(repo, "history", "t")


def test_an_agent_that_only_finds_its_way_again_in_each_conversation_is_ended(repo: Path) -> None:
    declare(repo, "session\nwhile :; do edit /dev/null $n; done\n", session_turns_max=1, idle_turns_max=3)
    task(repo, max_attempts=1)
    holdfast(repo, "run", code=None)
    found = state(repo).tasks["t"]
    assert (found.state, found.outcome["kind"]) == (TaskState.FAILED, "circuit_open")
    # A call that was already on its way when a conversation was ended may have made one turn more of it.
    assert 1 <= len(rotations(repo)) == len(starts(repo)) - 1 <= 3


def test_an_attempt_that_was_started_often_stays_in_its_conversation(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes two turns in each, and is ended behind the second; it would never get to its end."""
    monkeypatch.setattr(session_use, "ROTATED_STARTS_MAX", 2)
    declare(repo, "session\nedit a.txt $n; edit a.txt again$n; sleep 0.2; finish success\n", session_turns_max=1)
    task(repo, max_attempts=1)
    holdfast(repo, "run")
    assert len(rotations(repo)) == 2 and starts(repo) == ["", "", ""]
    assert state(repo).tasks["t"].state is TaskState.CLOSED
