"""The commands that make, show and decide tasks, as a person types them: real processes in real repositories."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shlex
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import click
import pytest

from holdfast.app import App
from holdfast.cli.commands import holdfast
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.errors import Locked, MoveRefused, TaskFileChanged, TaskIsFinal
from holdfast.storage.journal.entry import Record
from holdfast.views.rows import read_overview
from kit.program import HOLDFAST, Beforehand, type_in
from kit.roots import short_run

ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]


def run(folder: Path, line: str, *, stdin: str | IO[bytes] = "", code: int = 0) -> str:
    """Types a command; returns what it printed, standard error behind standard output."""
    done = type_in(folder, *shlex.split(line), stdin=stdin)
    assert done.returncode == code, done
    return done.stdout + done.stderr


def ask(folder: Path, line: str, *, code: int = 0) -> Any:
    done = type_in(folder, *shlex.split(line), "--json")
    assert done.returncode == code, done
    return json.loads(done.stdout)


def start(folder: Path, line: str, **options: Any) -> subprocess.Popen[str]:
    """The same as a process of its own."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([*HOLDFAST, *shlex.split(line)], cwd=folder, env=ENVIRON, text=True, **options)


def run_process(folder: Path, line: str, *, code: int = 0, **options: Any) -> str:
    with start(folder, line, **options) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == code, (process.returncode, out, err)
    assert "Traceback" not in err
    return (out or "") + err


def states(folder: Path) -> dict[str, str]:
    return {row.id: row.state.value for row in read_overview(app_of(folder)).rows.values()}


def backlog(folder: Path, name: str) -> Path:
    return folder / ".sdd" / "backlog" / name


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    subprocess.run(["git", "init", "-q", folder], check=True)
    app_of(folder).init()
    return folder


def app_of(folder: Path) -> App:
    return App.find(folder, environ=ENVIRON)


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        backlog(folder, f"open/{name}.yaml").write_text(text)


def end(folder: Path, task: str, *events: TaskEvent) -> None:
    """Works on a task, as the loop will: claims it and takes it through these events."""
    with short_run(app_of(folder)) as session:
        claim = session.ledger.claim("tester", task, lease_s=60)
        for event in events:
            session.ledger.complete(claim, event, Reason.AGENT_REPORTED, {"said": "so"})


def fail(folder: Path, task: str) -> None:
    end(folder, task, TaskEvent.IMMEDIATE_FAILURE)


def close(folder: Path, task: str) -> None:
    end(folder, task, TaskEvent.FAST_COMPLETION, TaskEvent.JANITOR_VERIFIED_AND_MERGED)


def decisions(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / ".sdd/runtime/wal").glob("*.wal.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


# -- the whole story --------------------------------------------------------------------------------------------------


def test_a_backlog_from_init_to_a_clone(tmp_path: Path) -> None:
    folder = tmp_path / "repo"
    subprocess.run(["git", "init", "-q", folder], check=True)
    assert "holdfast add" in run(folder, "init")
    assert "already" in run(folder, "init")
    (folder / "sub").mkdir()

    added = run(folder / "sub", "add --id base --goal 'Lay the base' --verify 'test -d .' --label first")
    assert added == f"{backlog(folder, 'open/base.yaml')}\n"
    run(folder, "add --goal 'Build the wall, then rest' --depends-on base --priority 1")
    run(folder, "add", stdin="# in my own words\ntitle: Paint it\ndepends_on: [build-wall-then-rest]\n")
    table = run(folder, "list").splitlines()
    assert table[0].split() == ["ID", "STATE", "PRIO", "TRIES", "AGENT", "TITLE", "WHY"]
    assert "build-wall-then-rest" in table[1] and "it waits for base, which is open" in table[1]
    assert [task["id"] for task in ask(folder, "list --ready")["tasks"]] == ["base"]
    assert not backlog(folder, "../runtime/tasks.jsonl").exists(), "adding and looking begin no run"

    # A person edits one file and deletes another; the next session takes both in.
    text = backlog(folder, "open/paint-it.yaml").read_text()
    backlog(folder, "open/paint-it.yaml").write_text(text.replace("Paint it", "Paint it red"))
    run(folder, "cancel build-wall-then-rest")
    assert ask(folder, "show paint-it")["definition"]["title"] == "Paint it red"
    backlog(folder, "open/paint-it.yaml").unlink()
    assert ask(folder, "list --label none")["tasks"] == []
    run(folder, "add --id last --goal 'The last one'")
    assert "paint-it is cancelled: its file was deleted" in run(folder, "retry last", code=9)
    close(folder, "base")
    fail(folder, "last")
    now = {"base": "CLOSED", "build-wall-then-rest": "CANCELLED", "paint-it": "CANCELLED", "last": "FAILED"}
    assert states(folder) == now

    # A person may commit the backlog, never the journal: what was closed stays closed in a clone.
    subprocess.run([*GIT, "add", "-f", ".sdd/.gitignore"], cwd=folder, check=True)
    run(folder, "init")
    subprocess.run([*GIT, "add", "."], cwd=folder, check=True)
    subprocess.run([*GIT, "commit", "-qm", "backlog"], cwd=folder, check=True)
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", folder, clone], check=True)
    assert not (clone / ".sdd/runtime").exists()
    for line in ("list", "show base", "add --goal g", "edit base --role r", "cancel base", "check", "log", "run"):
        assert "There is a backlog in" in run(clone, line, code=2), line
    assert "Made the data root" in run(clone, "init")
    assert {task["id"]: task["state"] for task in ask(clone, "list")["tasks"]} == now
    assert "closed (new)" in run(clone, "list --state closed")
    assert run(clone, "retry last") == "last: open (the next `holdfast run` begins another attempt)\n"
    assert "cannot be cancelled: it is closed" in run(clone, "cancel base", code=9)
    assert states(clone) == {**now, "last": "OPEN"}
    assert backlog(clone, "open/last.yaml").exists() and backlog(clone, "closed/base.yaml").exists()
    assert states(folder) == now


# -- adding -----------------------------------------------------------------------------------------------------------


def test_every_option_of_add_reaches_the_definition(repo: Path) -> None:
    run(repo, "add --id other --goal o")
    run(
        repo,
        "add --id t --title T --goal G --role R --priority 2 --depends-on other --parent other --agent claude "
        "--model M --command C --verify 'a b' --verify c --label x --label y --path src --budget-usd 1.5 "
        "--max-attempts 2 --timeout-s 9 --not-before 2030-01-31T12:00:00Z --approve",
    )
    shown = ask(repo, "show t")
    assert shown["definition"] == {
        "id": "t", "title": "T", "goal": "G", "role": "R", "priority": 2, "depends_on": ["other"], "parent": "other",
        "agent": "claude", "model": "M", "command": "C", "verify": [{"command": "a b"}, {"command": "c"}],
        "labels": ["x", "y"], "paths": ["src"], "budget_usd": 1.5, "max_attempts": 2, "timeout_s": 9.0,
        "not_before": 1896091200.0, "approve": True,
    }  # fmt: skip
    assert shown["waits"] == ["it waits for other, which is open", "not before 2030-01-31 12:00:00Z"]


def test_ids_are_made_of_the_words_and_never_twice(repo: Path) -> None:
    for _ in range(2):
        run(repo, "add --goal 'Fix: the *login*!'")
    run(repo, "add", stdin="goal: 'Fix: the *login*!'\n")
    assert sorted(states(repo)) == ["fix-login", "fix-login-2", "fix-login-3"]


@pytest.mark.parametrize("rival", ["open/fix-it.yaml", "closed/fix-it.yaml", "open/other.yml"])
def test_the_slower_of_two_adds_with_the_same_goal_gets_the_next_id(repo: Path, rival: str) -> None:
    """The other's file appears between our looking and our writing."""

    def write_rival() -> None:
        backlog(repo, rival).write_text("id: fix-it\ngoal: theirs\n")

    stdin = Beforehand(b"goal: Fix it\n", write_rival)
    told = type_in(repo, "add", stdin=stdin).stdout
    assert stdin.acted and told == f"{backlog(repo, 'open/fix-it-2.yaml')}\n"
    assert backlog(repo, rival).read_text() == "id: fix-it\ngoal: theirs\n"
    assert sorted(states(repo)) == ["fix-it", "fix-it-2"]


def test_an_id_that_was_given_is_not_changed_for_a_rival(repo: Path) -> None:
    def write_rival() -> None:
        backlog(repo, "open/mine.yaml").write_text("not even: a task\n")

    stdin = Beforehand(b"id: mine\ngoal: Fix it\n", write_rival)
    told = run(repo, "add", stdin=stdin, code=2)
    assert stdin.acted and "There is a task 'mine' already" in told
    assert backlog(repo, "open/mine.yaml").read_text() == "not even: a task\n"


def test_files_are_added_as_they_are_and_all_or_none(repo: Path, tmp_path: Path) -> None:
    first, second, bad = (tmp_path / f"{name}.yaml" for name in ("first", "second", "bad"))
    first.write_text("# first\ngoal: one\ndepends_on: [second]\n")
    second.write_text("goal:   'two'   # kept\n")
    bad.write_text("goal: three\nprio: 1\n")
    told = run(repo, f"add {first} {second} {bad}", code=2)
    assert f"{bad} cannot be used: line 2: the key 'prio' is not known: did you mean 'priority'?" in told
    assert states(repo) == {}
    assert [each["id"] for each in ask(repo, f"add {first} {second}")] == ["first", "second"]
    assert backlog(repo, "open/second.yaml").read_bytes() == second.read_bytes()
    assert "There is a task 'first' already" in run(repo, f"add {first}", code=2)


@pytest.mark.parametrize(
    ("line", "stdin", "told"),
    [
        ("add --goal x --depends-on nope", "", "depends_on[0] names 'nope', and there is no such task"),
        ("add --goal x --max-attempts 0", "", "max_attempts: expected a whole number >= 1"),
        ("add --id ../x --goal x", "", "cannot be a task id"),
        ("add --id x", "", "says nothing to do"),
        ("add -", "goal: x\ndepends_on: [nope]\n", "standard input cannot be used: line 2: depends_on[0]"),
        ("add", "goal: [x\n", "line 2: this is not YAML"),
        ("add no-such-file.yaml", "", "there is no file no-such-file.yaml"),
        ("add .", "", ". is no task file"),
        ("add - --goal x", "goal: y\n", "options or files, not both"),
    ],
)
def test_bad_input_is_reported_and_nothing_is_written(repo: Path, line: str, stdin: str, told: str) -> None:
    assert told in run(repo, line, stdin=stdin, code=2)
    assert list(backlog(repo, "open").iterdir()) == []


def test_an_id_that_the_journal_knows_is_not_taken_again(repo: Path) -> None:
    write(repo, a="goal: a\n")
    close(repo, "a")
    backlog(repo, "closed/a.yaml").unlink()
    assert "There is a task 'a' already" in run(repo, "add --id a --goal again", code=2)


# -- editing ----------------------------------------------------------------------------------------------------------


def test_options_change_their_own_keys_and_leave_the_rest(repo: Path) -> None:
    write(repo, a="# mine\ngoal: 'do it' # why\n\n# how\npriority: 5   # low\nlabels:\n    - x\nagent: claude\n")
    run(repo, "edit a --priority 1 --agent '' --model no --role 'a\nb'")
    text = backlog(repo, "open/a.yaml").read_text()
    assert text == (
        "# mine\ngoal: 'do it' # why\n\n# how\npriority: 1   # low\nlabels:\n    - x\n"
        'model: "no"\nrole: |-\n  a\n  b\n'
    )


def test_an_edit_keeps_the_block_and_a_failed_task_tries_the_new_words(repo: Path) -> None:
    write(repo, a="goal: a\n")
    fail(repo, "a")
    run(repo, "edit a --goal better")
    shown = ask(repo, "show a")
    assert (shown["definition"]["goal"], shown["definition"]["error"]["said"]) == ("better", "so")
    run(repo, "retry a")
    run(repo, "cancel a")
    assert [each["decision_type"] for each in decisions(repo)].count("task_edited") == 1


def test_a_whole_text_replaces_the_file_if_it_is_sound(repo: Path) -> None:
    write(repo, a="goal: a\n")
    assert "line 1" in run(repo, "edit a -", stdin="gaol: b\n", code=2)
    assert "goes round in a circle" in run(repo, "edit a --file -", stdin="goal: b\ndepends_on: [a]\n", code=2)
    assert "of 'a'" in run(repo, "edit a -", stdin="id: b\ngoal: b\n", code=2)
    assert "say what to change" in run(repo, "edit a", code=2)
    assert backlog(repo, "open/a.yaml").read_text() == "goal: a\n"
    run(repo, "edit a -", stdin="goal: b # new\n")
    assert backlog(repo, "open/a.yaml").read_text() == "goal: b # new\n"


def test_a_closed_task_is_not_edited(repo: Path) -> None:
    write(repo, a="goal: a\n")
    close(repo, "a")
    assert "is closed" in run(repo, "edit a --goal b", code=9)


def test_the_editor_opens_in_a_terminal(repo: Path) -> None:
    write(repo, a="goal: a\n")
    shell, terminal = pty.openpty()
    environ = {**ENVIRON, "EDITOR": "sed -i s/a$/edited/", "TERM": "dumb"}
    try:
        done = subprocess.run([*HOLDFAST, "edit", "a"], cwd=repo, env=environ, stdin=terminal, stdout=terminal)
    finally:
        os.close(terminal)
        os.close(shell)
    assert done.returncode == 0
    assert backlog(repo, "open/a.yaml").read_text() == "goal: edited\n"


# -- looking ----------------------------------------------------------------------------------------------------------


def test_broken_files_are_reported_and_stop_no_other(repo: Path) -> None:
    write(repo, good="goal: g\n", bad="goal: g\npriority: high\n", lost="goal: l\ndepends_on: [nope]\n")
    told = run(repo, "list")
    assert f"{backlog(repo, 'open/bad.yaml')}:2:" in told
    assert f"{backlog(repo, 'open/lost.yaml')}:2:" in told
    assert states(repo) == {"good": "OPEN", "lost": "OPEN"}
    assert [task["id"] for task in ask(repo, "list --ready")["tasks"]] == ["good"]
    assert "priority: expected" in run(repo, "show bad")
    assert "bad.yaml cannot be used: line 2" in run(repo, "edit bad --priority 1", code=2)
    assert run(repo, "cancel good").startswith("good: cancelled\n")


def test_ready_tasks_come_in_the_order_in_which_they_are_taken(repo: Path) -> None:
    write(repo, a="goal: a\npriority: 3\n", b="goal: b\npriority: 1\n", c="goal: c\nnot_before: 2090-01-01T00:00:00\n")
    assert [task["id"] for task in ask(repo, "list --ready")["tasks"]] == ["b", "a"]


# -- deciding ---------------------------------------------------------------------------------------------------------


def test_of_several_tasks_all_are_cancelled_or_none(repo: Path) -> None:
    write(repo, a="goal: a\n", b="goal: b\n")
    close(repo, "b")
    told = run(repo, "cancel a b", code=9)
    assert "The task b cannot be cancelled: it is closed." in told
    assert "the refusal is on record" in told and "Nothing was changed" not in told
    assert states(repo)["a"] == "OPEN"
    [refused] = [each for each in decisions(repo) if each["decision_type"] == "task_move_refused"]
    assert (refused["decision_type"], refused["inputs"]["task"], refused["actor"]) == ("task_move_refused", "b", "cli")
    assert ask(repo, "cancel a a") == [{"id": "a", "state": "CANCELLED", "note": ""}]
    assert "cancelled before" in run(repo, "cancel a")
    moves = [each for each in decisions(repo) if each["decision_type"] == "task_cancelled"]
    assert [(each["inputs"]["reason"], each["actor"]) for each in moves] == [(Reason.CANCELLED, "cli")]
    assert "state: CANCELLED" in backlog(repo, "closed/a.yaml").read_text()


def test_retry_opens_what_failed_and_nothing_else(repo: Path) -> None:
    write(repo, a="goal: a\n")
    fail(repo, "a")
    assert backlog(repo, "failed/a.yaml").exists()
    assert run(repo, "retry a") == "a: open (the next `holdfast run` begins another attempt)\n"
    assert backlog(repo, "open/a.yaml").read_text() == "goal: a\n"
    assert "The task a cannot be tried again: it is open." in run(repo, "retry a", code=9)


def park(folder: Path, task: str, effect: str, *events: TaskEvent) -> None:
    """Leaves an open intent behind, as a crash does; it says too little to tell whether it took place."""
    with short_run(app_of(folder)) as session:
        claim = session.ledger.claim("tester", task, lease_s=60)
        for event in events:
            session.ledger.complete(claim, event, Reason.AGENT_REPORTED, {})
        session.ledger.append(
            session.ledger.epoch, [Record(f"task_{effect}_intent", {"task": task}, actor="test", committed=False)]
        )


@pytest.mark.parametrize(
    ("decision", "effect", "state"),
    [
        ("retry", "spawn", "IN_PROGRESS"),
        ("abandon", "spawn", "CANCELLED"),
        ("happened", "spawn", "IN_PROGRESS"),
        ("happened", "land", "CLOSED"),
        ("abandon", "land", "FAILED"),
        ("retry", "land", "DONE"),
    ],
)
def test_a_parked_task_waits_for_a_person(repo: Path, decision: str, effect: str, state: str) -> None:
    write(repo, a="goal: a\n", b="goal: b\n")
    begin = [TaskEvent.AGENT_STARTS_WORK] if effect == "spawn" else [TaskEvent.FAST_COMPLETION]
    park(repo, "a", effect, *begin)
    assert f"a: task_{effect}_intent is parked" in run(repo, "cancel b")
    assert app_of(repo).read().state.tasks["a"].parked.startswith(f"task_{effect}_parked: its intent does not say")
    assert run(repo, f"resolve a --{decision}") == f"a: {TaskState(state)} (resolved as: {decision})\n"
    last = [entry for entry in decisions(repo) if entry["decision_type"] == "task_flagged"][-1]
    assert (last["output"]["decision"], last["actor"]) == (decision, "cli")
    assert app_of(repo).read().state.tasks["a"].parked == ""


def test_nothing_is_resolved_that_is_not_parked(repo: Path) -> None:
    write(repo, a="goal: a\n")
    assert "Nothing of the task a waits for a decision: it is open" in run(repo, "resolve a --retry", code=9)
    assert "Say one of --happened" in run(repo, "resolve a", code=2)


def test_a_move_that_the_ledger_refuses_is_on_record_once(repo: Path) -> None:
    write(repo, a="goal: a\n")
    with short_run(app_of(repo)) as session:
        claim = session.ledger.claim("tester", "a", lease_s=60)
        with pytest.raises(
            MoveRefused, match=r"^The task a cannot be tried again: it is claimed\. .* the refusal is on record;"
        ):
            session.ledger.complete(claim, TaskEvent.RETRY, Reason.AGENT_REPORTED, {})
    [refused] = [each["inputs"] for each in decisions(repo) if each["decision_type"] == "task_move_refused"]
    assert refused == {"task": "a", "state": "CLAIMED", "event": "retry", "reason": "agent_reported"}
    assert states(repo) == {"a": "CLAIMED"}


def test_two_files_of_one_id_are_both_named(repo: Path) -> None:
    write(repo, one="id: d\ngoal: x\n", two="id: d\ngoal: y\n", bad="gaol: z\n")
    files = [str(backlog(repo, f"open/{name}.yaml")) for name in ("one", "two")]
    told = [run(repo, "cancel d", code=10), run(repo, "show d"), run(repo, "history d")]
    assert all(file in each for file in files for each in told)
    assert "Several files claim to be the task 'd'" in told[0] and "given by several files" in told[1]
    assert "the key 'gaol' is not known" in run(repo, "cancel bad", code=2)
    assert states(repo) == {}


# -- errors -----------------------------------------------------------------------------------------------------------


def test_outside_git_and_before_init(tmp_path: Path) -> None:
    assert "is not in a git work tree" in run(tmp_path, "init", code=2)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for line in ("list", "add --goal x", "cancel x"):
        assert "type `holdfast init`" in run(tmp_path, line, code=2)
    assert not (tmp_path / ".sdd").exists()


@pytest.mark.parametrize("line", ["show bose", "edit bose --goal x", "cancel bose"])
def test_an_unknown_task_is_reported_with_the_nearest_name(repo: Path, line: str) -> None:
    write(repo, base="goal: a\n")
    assert "There is no task 'bose' here. Nothing was changed; did you mean base?" in run(repo, line, code=2)


def hold_since(folder: Path, unix_s: float) -> None:
    """Makes the holder of the lock one that has had it since then. In place: the lock is on this very file."""
    lock = app_of(folder).layout.lock
    lock.write_text(json.dumps({**json.loads(lock.read_text()), "since": unix_s}) + "\n")


def test_a_deciding_command_needs_the_lock_and_a_reading_one_does_not(repo: Path) -> None:
    write(repo, a="goal: a\n")
    with short_run(app_of(repo)):
        hold_since(repo, 0)
        told = run_process(repo, "cancel a", code=7)
        assert f"pid {os.getpid()}" in told and "wait for it to end" in told and "--take-over" not in told
        assert states(repo) == {"a": "OPEN"}
        run(repo, "add --id b --goal b")
        run(repo, "edit b --goal better")
    assert states(repo) == {"a": "OPEN", "b": "OPEN"}


def test_a_short_session_is_waited_for(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(repo, a="goal: a\n")
    sleep, waits = time.sleep, []
    with ExitStack() as other:
        other.enter_context(short_run(app_of(repo)))

        def sleep_until_it_ends(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 3:
                other.close()
            sleep(seconds)

        monkeypatch.setattr(time, "sleep", sleep_until_it_ends)
        assert run(repo, "cancel a") == "a: cancelled\n"
    assert len(waits) >= 3


def test_patience_ends_and_a_long_run_is_not_waited_for(repo: Path) -> None:
    app = app_of(repo)
    with short_run(app):
        with pytest.raises(Locked, match=f"pid {os.getpid()} "), short_run(app, patience_s=0.05):
            pass
        hold_since(repo, time.time() - 3600)
        # Who would wait here, waits until the time limit of the tests.
        with pytest.raises(Locked, match=f"pid {os.getpid()} "), short_run(app, patience_s=3000):
            pass


def test_commands_at_once_all_succeed(repo: Path) -> None:
    names = ["a", "b", "c"]
    write(repo, **dict.fromkeys(names, "goal: g\n"))
    started = [start(repo, f"cancel {name}") for name in names] + [start(repo, "add --goal 'The same'") for _ in names]
    done = [(*process.communicate(timeout=120), process.returncode) for process in started]
    assert [code for _, _, code in done] == [0] * 6, done
    same = {"same": "OPEN", "same-2": "OPEN", "same-3": "OPEN"}
    assert states(repo) == {**dict.fromkeys(names, "CANCELLED"), **same}


PAIRS = 4


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out + err


def test_edits_at_once_are_both_there(repo: Path) -> None:
    write(repo, a="# mine\ngoal: g\n")
    for number in range(1, PAIRS + 1):
        pair = [start(repo, f"edit a --role r{number}"), start(repo, f"edit a --priority {number}")]
        assert [finish(process)[0] for process in pair] == [0, 0]
        lines = backlog(repo, "open/a.yaml").read_text().splitlines()
        assert sorted(lines) == ["# mine", "goal: g", f"priority: {number}", f"role: r{number}"]


@pytest.mark.heavy
def test_an_edit_beside_a_cancel_makes_no_second_file_and_is_not_lost(repo: Path) -> None:
    names = [f"t{number}" for number in range(PAIRS)]
    write(repo, **dict.fromkeys(names, "goal: g\n"))
    for name in names:
        cancelling = start(repo, f"cancel {name}")
        if name in names[::2]:
            # Without this the edit, which has less to do, is nearly always the first.
            await_open(cancelling, repo / ".sdd/runtime/lock")
        editing = start(repo, f"edit {name} --role keeper")
        (edited, told), (cancelled, why) = finish(editing), finish(cancelling)
        assert cancelled == 0 and edited in (0, TaskIsFinal.exit_code), (told, why)
        [file] = (repo / ".sdd/backlog").glob(f"*/{name}.yaml")
        text = file.read_text()
        assert file.parent.name == "closed" and "state: CANCELLED" in text
        assert ("role: keeper" in text) == (edited == 0)
    assert states(repo) == dict.fromkeys(names, "CANCELLED")
    run(repo, "check")


@pytest.mark.parametrize("how", ["options", "whole text", "closed"])
def test_an_edit_that_waited_sees_what_was_written_meanwhile(repo: Path, tmp_path: Path, how: str) -> None:
    write(repo, a="goal: g\n")
    (tmp_path / "new.yaml").write_text("goal: new\n")
    lock = repo / ".sdd/runtime/backlog.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        change = f"--file {tmp_path}/new.yaml" if how == "whole text" else "--role r"
        process = start(repo, f"edit a {change}")
        await_open(process, lock)
        assert process.poll() is None
        write(repo, a="goal: g\npriority: 1\n")
        if how == "closed":
            closed = backlog(repo, "open/a.yaml").rename(backlog(repo, "closed/a.yaml"))
            closed.write_text("goal: g\nresult:\n  state: CANCELLED\n")
    code, told = finish(process)
    if how == "closed":
        assert code == TaskIsFinal.exit_code and "The task a is cancelled" in told
        assert not backlog(repo, "open/a.yaml").exists() and "role" not in closed.read_text()
        return
    text = backlog(repo, "open/a.yaml").read_text()
    if how == "options":
        assert (code, text) == (0, "goal: g\npriority: 1\nrole: r\n"), told
    else:
        assert (code, text) == (TaskFileChanged.exit_code, "goal: g\npriority: 1\n") and "has changed since" in told


def await_open(process: subprocess.Popen[str], file: Path) -> None:
    """Until the process has the file open, or has ended."""
    deadline = time.monotonic() + 120
    while process.poll() is None and not holds_open(process.pid, file):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def holds_open(pid: int, file: Path) -> bool:
    try:
        return any(os.readlink(each) == str(file) for each in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("name", ["init", "add", "list", "show", "edit", "cancel", "retry", "resolve"])
def test_help_has_an_example(name: str) -> None:
    # With the group's own settings: a command remembers the first help option that it made.
    context = click.Context(holdfast, **holdfast.context_settings)
    command = holdfast.get_command(context, name)
    assert command is not None
    told = " ".join(command.get_help(click.Context(command, context, name)).split())
    assert "--json" in told and "Example" in told and f"holdfast {name}" in told


@pytest.mark.parametrize("limit", ["--budget-usd nan", "--budget-usd inf", "--timeout-s nan"])
def test_a_limit_that_is_no_number_is_refused(repo: Path, limit: str) -> None:
    assert "finite" in run(repo, f"add --id limited --goal g {limit}", code=2)
    assert not list((repo / ".sdd" / "backlog" / "open").glob("limited*"))


def test_titles_cannot_drive_the_terminal_and_far_times_stop_nothing(repo: Path) -> None:
    run(repo, "add --id hostile --goal 'a\x1b]0;owned\x07\x1b[31mX'")
    run(repo, "add --id far --goal g --not-before 99999999999999")
    shown = run(repo, "list") + run(repo, "show far") + run(repo, "status")
    assert "\x1b" not in shown and "\x07" not in shown and "99999999999999" in shown


def test_a_file_that_is_put_back_is_reported(repo: Path) -> None:
    run(repo, "add --id one --goal g")
    run(repo, "add --id two --goal g")
    run(repo, "cancel one")
    (repo / ".sdd" / "backlog" / "closed" / "one.yaml").unlink()
    assert "one: its file was gone, and is put back" in run(repo, "cancel two")


# -- failing, for programs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "exit_code", "said"),
    [
        ("show nope --json", "task_unknown", 2, "There is no task 'nope' here."),
        ("add --json --goal x --depends-on nope", "input_error", 2, "there is no such task"),
        ("resolve a --retry --json", "nothing_parked", 9, "it is open"),
        ("retry a --json", "move_refused", 9, "on record"),
        ("resolve a --json", "usage_error", 2, "Say one of --happened"),
        ("list --json --frob", "no_such_option", 2, "--frob"),
        ("cancel --json", "missing_parameter", 2, "TASK"),
        ("list --state nope --json", "bad_parameter", 2, "nope"),
        ("frob --json", "no_such_command", 2, "frob"),
        ("history nope --json", "task_unknown", 2, "nope"),
        ("log --json --at 1:5", "no_such_entry", 2, "no run '1'"),
    ],
)
def test_a_failure_is_json_where_json_was_asked_for(
    repo: Path, line: str, code: str, exit_code: int, said: str
) -> None:
    write(repo, a="goal: a\n")
    done = type_in(repo, *shlex.split(line))
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["exit_code"], done.returncode) == (code, exit_code, exit_code)
    assert said in error["message"] and said in done.stderr and not done.stderr.startswith("{")
    alone = type_in(repo, *shlex.split(line.replace("--json", "")))
    assert alone.stdout == "" and alone.returncode == exit_code


def test_a_task_may_be_called_like_an_option(repo: Path) -> None:
    assert type_in(repo, "show", "--", "--json").stdout == ""


@pytest.mark.parametrize("line", ["list", "list --json", "add --goal x", "cancel a", "log", "show --help", "--version"])
def test_an_output_that_is_full_is_reported(repo: Path, line: str) -> None:
    write(repo, a="goal: a\n")
    with short_run(app_of(repo)):
        pass
    with open("/dev/full", "w") as full:
        told = run_process(repo, line, code=3, stdout=full)
    assert "The output could not be written: No space left on device. What was done is kept" in told
    if line.startswith("cancel"):
        assert backlog(repo, "closed/a.yaml").exists(), "the files follow all the same"


@pytest.mark.parametrize("line", ["list", "show a --json", "cancel a", "show nope --json", "--version"])
def test_a_reader_that_is_gone_is_no_error(repo: Path, line: str) -> None:
    write(repo, a="goal: a\n")
    reader, writer = os.pipe()
    os.close(reader)
    told = run_process(repo, line, code=2 if "nope" in line else 0, stdout=writer)
    os.close(writer)
    assert ("There is no task" in told) if "nope" in line else (told == "")
    assert backlog(repo, "closed/a.yaml").exists() == line.startswith("cancel")


@pytest.mark.parametrize("line", ["list", "log", "cancel a", "--version"])
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_output_stops_nothing(repo: Path, line: str, closed: str) -> None:
    write(repo, a="goal: a\n")
    script = f'"$@" {closed}'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *HOLDFAST, *line.split()], cwd=repo, env=ENVIRON, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert states(repo) == {"a": "CANCELLED" if line.startswith("cancel") else "OPEN"}


def test_a_closed_input_is_an_empty_one(repo: Path) -> None:
    done = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *HOLDFAST, "add"], cwd=repo, env=ENVIRON, capture_output=True)
    assert done.returncode == 2 and b"standard input cannot be used" in done.stderr
