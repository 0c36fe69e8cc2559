"""`holdfast history` and `log` as a person runs them: real repositories, a real pseudo-terminal; and real processes
wherever a process is what it is about: following, pipes, memory, time zones."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import msgspec
import pytest

from holdfast.app import App
from holdfast.cli.commands import COMMANDS
from holdfast.cli.screen import terminal
from holdfast.domain.task import TaskEvent
from holdfast.ledgers.files import FileLedger
from holdfast.storage.journal.entry import Record
from holdfast.storage.journal.writer import Journal, Ref
from kit import TOP
from kit.program import HOLDFAST, Typed, type_in
from kit.roots import short_run

SCRIPT = Path(sys.executable).parent / "holdfast"
# Clears the screen, sets the title, an 8-bit CSI, turns the reading order, ends the line.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\r\nDone"


class Ticking:
    """A clock that goes on by one second each time it is asked."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def app(tmp_path: Path) -> App:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    app = App(tmp_path, App.find(tmp_path, environ={}).loaded, Ticking())
    app.init()
    return app


def write_task(app: App, name: str, text: str) -> None:
    folder = app.layout.backlog / "open"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_text(text)


def live(app: App) -> None:
    """Two runs: two tasks taken in, one claimed, spawned and failed; then its definition edited."""
    write_task(app, "parser", "title: Mend the parser\ngoal: mend it\n")
    write_task(app, "docs", "title: Write it up\ngoal: write\ndepends_on: [parser]\n")
    with short_run(app) as session:
        ledger = session.ledger
        claim = ledger.claim("agent-1", "parser", lease_s=60)
        intent = Record("task_spawn_intent", {"task": "parser", "attempt": claim.attempt}, committed=False)
        (ref,) = ledger.append(ledger.epoch, [intent])
        closing = {"intent": msgspec.to_builtins(ref), "task": "parser"}
        ledger.append(ledger.epoch, [Record("task_spawn_confirmed", closing)])
        ledger.complete(claim, TaskEvent.AGENT_STARTS_WORK, "scheduled", {})
    write_task(app, "docs", "title: Write it all up\ngoal: write\ndepends_on: [parser]\n")
    with short_run(app) as session:
        ledger = session.ledger
        if ledger.state.tasks["parser"].state == "IN_PROGRESS":
            failed = {"task": "parser", "event": "agent_reports_failure", "reason": "tests failed"}
            ledger.append(ledger.epoch, [Record("task_failed", {**failed, "outcome": {"tests": 3}}, actor="verifier")])


def run(app: App, *arguments: str, code: int = 0) -> Typed:
    done = type_in(app.repo, *arguments)
    assert done.returncode == code, done
    return done


def run_process(app: App, *arguments: str, code: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*HOLDFAST, *arguments],
        cwd=app.repo,
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    return done


def lines(app: App, *arguments: str, **options: Any) -> list[Any]:
    return [json.loads(line) for line in run(app, *arguments, "--json", **options).stdout.splitlines()]


def raw(app: App) -> str:
    return "".join(path.read_text() for path in sorted(app.layout.wal.glob("*.wal.jsonl")))


def append(journal: Journal, record: Record) -> Ref:
    return journal.append_many([record])[0]


def newest(app: App) -> Path:
    return max(app.layout.wal.glob("*.wal.jsonl"))


# -- history ----------------------------------------------------------------------------------------------------------


def test_history_tells_the_whole_story_in_words_oldest_first(app: App) -> None:
    live(app)
    told = run(app, "history", "parser").stdout.splitlines()
    order = ["Added", "Given to agent-1, as attempt parser.1", "is about to be started", "was started", "Work begins"]
    for words, line in zip(order, told, strict=False):
        assert words in line
    assert "docs" not in "".join(told)
    # No name of the state machine's.
    assert not re.search(r"[a-z]_[a-z]", "".join(told))
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  1:\d+ +intake ", told[0])
    begins = {line.index(words) for words, line in zip(order[:2] + ["Its agent"] * 2 + order[4:], told, strict=False)}
    assert len(begins) == 1, "the sentences begin in one column"
    facts = lines(app, "history", "parser")
    assert [fact["timestamp"] for fact in facts] == sorted(fact["timestamp"] for fact in facts)
    assert {"run", "seq", "what", "actor", "reason", "inputs"} <= facts[0].keys()


def test_times_are_local(app: App) -> None:
    live(app)
    utc, tokyo = (run_process(app, "history", "docs", TZ=zone).stdout[:23] for zone in ("UTC", "Asia/Tokyo"))
    assert datetime.fromisoformat(tokyo) - datetime.fromisoformat(utc) == timedelta(hours=9)


def test_a_pause_is_reported_with_its_date(app: App) -> None:
    write_task(app, "docs", "goal: write\n")
    with short_run(app) as session:
        flag = Record("task_flagged", {"task": "docs", "parked": "", "not_before": 4e9, "cause": "the line is cut"})
        session.ledger.append(session.ledger.epoch, [flag])
    assert "Put off until 2096-10-02 07:06:40Z: the line is cut" in run(app, "history", "docs").stdout


def test_a_closing_belongs_to_the_task_of_its_intent(app: App) -> None:
    """Also where the closing itself names no task: the reference to the intent is enough."""
    live(app)
    end = app.read().found.end
    assert end is not None
    with Journal.start(app.layout.wal, "000003-x", end.ref) as journal:
        ref = append(journal, Record("task_land_intent", {"task": "docs"}, committed=False))
        append(journal, Record("task_land_failed", {"intent": msgspec.to_builtins(ref), "reason": "moved"}))
        other = append(journal, Record("task_land_intent", {"task": "parser"}, committed=False))
        append(journal, Record("task_land_confirmed", {"intent": msgspec.to_builtins(other)}))
    told = [fact["decision_type"] for fact in lines(app, "history", "docs")]
    assert told[-2:] == ["task_land_intent", "task_land_failed"]
    assert "Landing it failed: moved" in run(app, "history", "docs").stdout


def test_definitions_are_shown_as_they_were_then(app: App) -> None:
    live(app)
    told = run(app, "history", "docs", "--definitions").stdout
    assert told.index("| title: Write it up") < told.index("| title: Write it all up")
    texts = [fact.get("definition_text") for fact in lines(app, "history", "docs", "--definitions")]
    assert texts[0].startswith("title: Write it up\n") and texts[1].startswith("title: Write it all up\n")
    assert "title:" not in run(app, "history", "docs").stdout


def test_a_lost_definition_does_not_end_the_story(app: App) -> None:
    live(app)
    digest = lines(app, "history", "docs")[0]["inputs"]["definition"]
    (app.layout.cas / digest[:2] / digest).unlink()
    told = run(app, "history", "docs", "--definitions").stdout
    assert "There is no blob" in told and "| title: Write it all up" in told


def test_an_unknown_task_is_reported_with_near_names(app: App) -> None:
    live(app)
    done = run(app, "history", "prser", code=2)
    assert done.stdout == "" and "did you mean 'parser'?" in done.stderr
    assert "holdfast list" in run(app, "history", "zzz", code=2).stderr


def test_a_task_that_no_run_has_taken_in_has_an_empty_story(app: App) -> None:
    live(app)
    write_task(app, "later", "goal: go\n")
    done = run(app, "history", "later")
    assert done.stdout == "" and "later has no story yet: the next run takes its file in" in done.stderr
    assert lines(app, "history", "later") == []
    write_task(app, "later", "gaol: go\n")
    done = run(app, "history", "later")
    assert "while its file has a problem" in done.stderr and "later.yaml:1:1: " in done.stderr


# -- log --------------------------------------------------------------------------------------------------------------


def test_json_is_the_journal_byte_for_byte(app: App) -> None:
    live(app)
    with short_run(app) as session:
        odd = {"task": "docs", "parked": 'naïve \u2028 😀 \x1b \\ " / \x7f\x9b', "not_before": 1e22}
        session.ledger.append(
            session.ledger.epoch, [Record("task_flagged", odd), Record("task_flagged", {"task": "docs"})]
        )
    assert run_process(app, "log", "--json").stdout == raw(app)


def test_filters_of_the_log_print_the_entries_that_fit(app: App) -> None:
    live(app)
    whole = lines(app, "log")

    def check(wanted: Callable[[dict[str, Any]], bool], *options: str) -> None:
        expected = [entry for entry in whole if wanted(entry)]
        assert expected and expected != whole
        assert lines(app, "log", *options) == expected

    begun = [number for number, entry in enumerate(whole) if entry["decision_type"] == "run_started"]
    second = newest(app).name.removesuffix(".wal.jsonl")
    assert lines(app, "log", "--run", second) == lines(app, "log", "--run", "2") == whole[begun[1] :]
    check(lambda entry: entry["decision_type"].startswith("task_s"), "--type", "task_s*")
    check(lambda entry: "added" in entry["decision_type"] or "run" in entry["decision_type"],
          "--type", "*_added", "--type", "run_*")  # fmt: skip
    check(lambda entry: entry["inputs"].get("task") == "docs", "--task", "docs")
    check(lambda entry: entry["actor"] == "intake", "--actor", "intake")
    middle = whole[5]["timestamp"]
    check(lambda entry: entry["timestamp"] >= middle, "--since", str(middle))
    check(lambda entry: entry["timestamp"] <= middle, "--until", str(middle))
    check(lambda entry: entry in whole[-3:], "-n", "3")
    check(
        lambda entry: entry in [one for one in whole if one["actor"] == "intake"][-2:], "-n", "2", "--actor", "intake"
    )
    assert lines(app, "log", "-n", "0") == [] and lines(app, "log", "-n", "1000") == whole
    assert lines(app, "log", "-n", "9" * 30) == whole
    assert "run '77'" in run(app, "log", "--run", "77", code=2).stderr
    assert "no run '99" in run(app, "log", "--run", "9" * 5000, code=2).stderr
    assert "is no time" in run(app, "log", "--since", "soon", code=2).stderr


def test_the_table_is_aligned_and_names_every_entry(app: App) -> None:
    live(app)
    shown = run(app, "log").stdout.splitlines()
    whole = lines(app, "log")
    assert len(shown) == len(whole)
    begins = {line.index(f"  {entry['decision_type']} ") for line, entry in zip(shown, whole, strict=True)}
    assert len(begins) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000", 1_700_000_000.0), ("1700000000.5", 1_700_000_000.5), ("2h", 1_000_000 - 7200.0),
        ("10m", 1_000_000 - 600.0), ("1d12h", 1_000_000 - 129_600.0), ("0s", 1_000_000.0),
        ("1970-01-02T00:00:00Z", 86_400.0), ("1970-01-02T01:00+01:00", 86_400.0),
        ("2026-01-31T12:00", datetime(2026, 1, 31, 12).timestamp()), ("2026-01-31", datetime(2026, 1, 31).timestamp()),
    ],
)  # fmt: skip
def test_times_can_be_given_in_three_ways(text: str, expected: float) -> None:
    assert terminal.parse_moment(text, 1_000_000) == expected


@pytest.mark.parametrize("text", ["", "soon", "2x", "h", "-5", "nan", "inf", "2026-13-01", "1e5", "9" * 30 + "w", "٣h"])
def test_anything_else_is_no_time(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no time"):
        terminal.moment(click.Context(click.Command("log")), None, text)


def test_a_torn_end_is_noted_on_standard_error_only(app: App) -> None:
    live(app)
    whole = raw(app)
    with newest(app).open("ab") as file:
        file.write(b'{"seq":99,"prev_')
    done = run(app, "log", "--json")
    assert done.stdout == whole and "never acknowledged" in done.stderr and "16 bytes" in done.stderr
    assert "never acknowledged" in run(app, "history", "parser").stderr
    with short_run(app):
        pass
    assert "never acknowledged" in run(app, "log").stderr


@pytest.mark.parametrize("options", [[], ["-n", "4"]])
def test_damage_is_reported_after_the_good_part(app: App, options: list[str]) -> None:
    live(app)
    path = min(app.layout.wal.glob("*.wal.jsonl"))
    content = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*content[:5], content[5].replace(b"parser", b"barber", 1), *content[6:]]))
    done = run(app, "log", "--json", *options, code=4)
    *good, last = done.stdout.encode().splitlines(keepends=True)
    assert good == (content[1:5] if options else content[:5])
    assert json.loads(last)["error"]["code"] == "journal_corrupt"
    assert "The journal is damaged at" in done.stderr and f"byte {len(b''.join(content[:5]))}" in done.stderr
    assert "Given to agent-1" in run(app, "history", "parser", code=4).stdout


def test_entries_of_unknown_types_are_shown(app: App) -> None:
    live(app)
    end = app.read().found.end
    assert end is not None
    with Journal.start(app.layout.wal, "000003-x", end.ref) as journal:
        append(journal, Record("task_teleported", {"task": "docs", "to": ["Mars"]}))
        append(journal, Record("task_added", {"task": 7, "definition": None}))
    assert 'task_teleported {"task":"docs","to":["Mars"]}' in run(app, "log").stdout
    assert "teleported" in run(app, "history", "docs", "--definitions").stdout
    assert "task_teleported, which this Holdfast does not know" in run(app, "log", "--at", "3:2", code=2).stderr


def test_without_a_data_root_it_says_what_to_do(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    app = App.find(tmp_path, environ={})
    for command in (["log"], ["history", "a"]):
        assert "holdfast init" in run(app, *command, code=2).stderr


# -- as of a moment ---------------------------------------------------------------------------------------------------


def test_the_graph_as_of_an_entry(app: App) -> None:
    live(app)
    whole = lines(app, "log")
    claimed = next(entry for entry in whole if entry["decision_type"] == "task_claimed")

    def states(at: str) -> dict[str, str]:
        (found,) = lines(app, "log", "--at", at)
        return {task["id"]: task["state"] for task in found["tasks"]}

    seq = claimed["seq"]
    assert states("1:0") == {}
    assert states(f"1:{seq - 1}") == {"docs": "OPEN", "parser": "OPEN"}
    assert states(f"1:{seq}") == {"docs": "OPEN", "parser": "CLAIMED"}
    assert states(str(claimed["timestamp"])) == states(f"1:{seq}")
    assert states(str(claimed["timestamp"] - 0.5)) == states(f"1:{seq - 1}")
    now = {name: str(task.state) for name, task in app.read().state.tasks.items()}
    assert states("9999999999") == states("9" * 20) == states("9" * 400) == now != states(f"1:{seq}")


def test_titles_and_dependencies_are_of_the_definitions_pinned_then(app: App) -> None:
    live(app)
    run_of = min(app.layout.wal.glob("*.wal.jsonl")).name.removesuffix(".wal.jsonl")
    (before,) = lines(app, "log", "--at", f"{run_of}:4", "--task", "docs")
    (after,) = lines(app, "log", "--at", "9999999999", "--task", "docs")
    assert [row["title"] for row in before["tasks"] + after["tasks"]] == ["Write it up", "Write it all up"]
    assert before["tasks"][0]["waits"] == ["it waits for parser, which is claimed"]
    shown = run(app, "log", "--at", "1:4").stdout
    assert "Write it up" in shown and "parser" in shown and "TASK" in shown


@pytest.mark.parametrize(
    ("at", "said"),
    [("1:999", "no entry 999 of run 000001-"), ("9:0", "no run '9'"), ("000009-x:0", "no run '000009-x'"),
     ("1000", "no entry as old as"), ("nonsense", "is no time"), ("1:x", "is no time"),
     ("1:" + "9" * 20, f"no entry {'9' * 20} of run 000001-"), ("1:" + "9" * 5000, "is no time"),
     ("9" * 5000 + ":1", "is no time")],
)  # fmt: skip
def test_a_moment_that_was_not_is_an_error(app: App, at: str, said: str) -> None:
    live(app)
    done = run(app, "log", "--at", at, code=2)
    assert done.stdout == "" and said in done.stderr


def test_entries_behind_the_moment_are_not_needed(app: App) -> None:
    live(app)
    path = min(app.layout.wal.glob("*.wal.jsonl"))
    path.write_bytes(path.read_bytes().replace(b"task_started", b"task_stopped"))
    assert "claimed" in run(app, "log", "--at", "1:4").stdout
    run(app, "log", "--at", "1:7", code=4)


def test_at_goes_with_no_other_filter(app: App) -> None:
    live(app)
    for options in (["--follow"], ["-n", "0"], ["--run", "1"], ["--type", "*"]):
        assert "--at shows one moment" in run(app, "log", "--at", "1:1", *options, code=2).stderr


# -- following, pipes -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def following(app: App, *options: str) -> Iterator[subprocess.Popen[str]]:
    follower = subprocess.Popen(
        [*HOLDFAST, "log", "--follow", *options],
        cwd=app.repo,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield follower
    finally:
        follower.kill()
        follower.communicate()


def read(follower: subprocess.Popen[str]) -> Any:
    assert follower.stdout is not None
    return json.loads(follower.stdout.readline())


def test_follow_goes_on_while_a_ledger_is_open_and_over_new_runs(app: App) -> None:
    live(app)
    with following(app, "--json", "-n", "1", "--type", "task_*") as follower:
        assert read(follower)["decision_type"].startswith("task_")
        for run_number in range(2):
            with FileLedger.open(app.layout, clock=app.clock) as ledger:
                for number in range(3):
                    flagged = {"task": "docs", "parked": f"{run_number}.{number}"}
                    ledger.append(ledger.epoch, [Record("task_flagged", flagged)])
                    # Read before the next is written: it comes at once, not when a buffer is full.
                    assert read(follower)["inputs"]["parked"] == f"{run_number}.{number}"
        # A run whose epoch leaves some out goes on like any other.
        end = app.read().found.end
        assert end is not None
        with Journal.start(app.layout.wal, "000009-x", Ref(end.ref.run, end.ref.seq, end.ref.entry_hash)) as journal:
            append(journal, Record("task_flagged", {"task": "docs"}))
        assert read(follower)["inputs"] == {"task": "docs"}
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=120)
        assert (follower.returncode, out) == (130, "")
        assert "Traceback" not in err and "torn" not in err and "stopped" in err


def test_a_follower_whose_reader_goes_ends_without_waiting_for_the_next_entry(app: App) -> None:
    live(app)
    with following(app, "--json") as follower:
        read(follower)
        assert follower.stdout is not None and follower.stderr is not None
        follower.stdout.close()
        assert follower.wait(120) == 0
        assert follower.stderr.read() == ""


def test_damage_that_comes_while_following_is_reported(app: App) -> None:
    live(app)
    with following(app, "--json", "-n", "1") as follower:
        read(follower)
        (app.layout.wal / "000007-odd.wal.jsonl").write_bytes(newest(app).read_bytes())
        _, err = follower.communicate(timeout=120)
        assert follower.returncode == 4 and "The journal is damaged" in err


def long_journal(app: App, count: int) -> None:
    with Journal.start(app.layout.wal, "000001-x", None) as journal:
        for _ in range(count // 1000):
            journal.append_many([Record("task_flagged", {"task": "a", "parked": "x" * 50})] * 1000)


@pytest.mark.parametrize("options", [["log"], ["log", "--json"], ["history", "a"]])
def test_a_closed_pipe_ends_it_quietly(app: App, options: list[str]) -> None:
    long_journal(app, 5000)
    process = subprocess.Popen(
        [*HOLDFAST, *options], cwd=app.repo, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(120) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.heavy
def test_memory_does_not_grow_with_the_journal(app: App) -> None:
    """The first lines come while the rest is unread, and ten times the entries take about the same memory."""
    script = "import resource, sys; from holdfast.cli.main import work\ntry: work()\nfinally: "
    script += "sys.stderr.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))"

    def most_kb(*options: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", script, *options], cwd=app.repo, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        return int(done.stderr)

    commands = (["log"], ["log", "--json", "-n", "10"], ["history", "a"])
    long_journal(app, 3000)
    small = [most_kb(*options) for options in commands]
    next(app.layout.wal.glob("*.wal.jsonl")).unlink()
    long_journal(app, 30_000)
    size_kb = newest(app).stat().st_size // 1000
    for few, many in zip(small, (most_kb(*options) for options in commands), strict=True):
        assert many - few < size_kb / 4


# -- what others wrote ------------------------------------------------------------------------------------------------


def hostile_life(app: App) -> None:
    write_task(app, "parser", f"title: {json.dumps(HOSTILE)}\ngoal: go\n")
    with short_run(app) as session:
        moved = {"task": "parser", "event": "manual_cancel", "reason": HOSTILE, "outcome": {HOSTILE: HOSTILE}}
        session.ledger.append(session.ledger.epoch, [Record("task_cancelled", moved, actor=HOSTILE)])
    end = app.read().found.end
    assert end is not None
    with Journal.start(app.layout.wal, "000002-x", end.ref) as journal:
        blob = session.blobs.put(f"# {HOSTILE}\n\tgoal".encode())
        append(journal, Record("task_edited", {"task": "parser", "definition": blob}))
        append(journal, Record(f"task_{HOSTILE}", {"task": HOSTILE, HOSTILE: [HOSTILE]}))


COMMAND_LINES = [
    ["log"], ["log", "--json"], ["log", "--at", "1:3"], ["log", "--at", "1:3", "--json"], ["history", "parser"],
    ["history", "parser", "--definitions"], ["history", "parser", "--definitions", "--json"], ["history", HOSTILE],
]  # fmt: skip


def on_terminal(app: App, *arguments: str, **environ: str) -> str:
    """What a terminal would get."""
    ours, theirs = pty.openpty()
    base = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [*HOLDFAST, *arguments], cwd=app.repo, stdin=theirs, stdout=theirs, stderr=theirs,
        env={**base, "TERM": "xterm", **environ},
    )  # fmt: skip
    os.close(theirs)
    got = b""
    # The kernel answers with an error once nobody holds the other side any more.
    with contextlib.suppress(OSError):
        while part := os.read(ours, 65536):
            got += part
    os.close(ours)
    assert process.wait(120) in (0, 2)
    return got.decode()


@pytest.mark.parametrize("arguments", COMMAND_LINES, ids=lambda arguments: " ".join(arguments[:3])[:20])
def test_nothing_that_others_wrote_controls_the_terminal(app: App, arguments: list[str]) -> None:
    hostile_life(app)
    seen = on_terminal(app, *arguments, NO_COLOR="1").replace("\r\n", "\n")
    assert "owned" in seen
    assert all(char.isprintable() or char in "\n\t" for char in seen)


def test_colours_come_on_a_terminal_only_and_not_where_they_are_unwanted(app: App) -> None:
    live(app)
    assert "\x1b[36m" in on_terminal(app, "log")
    assert "\x1b" not in on_terminal(app, "log", NO_COLOR="1")
    assert "\x1b" not in on_terminal(app, "log", TERM="dumb")
    assert "\x1b" not in run(app, "log").stdout


# -- completion -------------------------------------------------------------------------------------------------------


def complete(app: App, words: str, shell: str = "bash", cwd: Path | None = None) -> list[str]:
    """What the shell gets for the last of the words."""
    given = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    if shell == "fish":
        given = {"COMP_WORDS": words, "COMP_CWORD": words.split(" ")[-1]}
    environ = {**os.environ, **given, "_HOLDFAST_COMPLETE": f"{shell}_complete"}
    done = subprocess.run([SCRIPT], cwd=cwd or app.repo, env=environ, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


def test_commands_are_completed_without_importing_them(app: App) -> None:
    assert complete(app, "holdfast ") == [f"plain,{name}" for name in COMMANDS]
    assert complete(app, "holdfast hi") == ["plain,history"]
    assert complete(app, "holdfast --d") == ["plain,--data-root"]
    script = "import sys; from holdfast.cli.commands import run\ntry: run()\n"
    script += "finally: assert not [name for name in sys.modules if name.startswith('holdfast.cli.journal')]"
    given = {"COMP_WORDS": "holdfast hi", "COMP_CWORD": "1", "_HOLDFAST_COMPLETE": "bash_complete"}
    code = f"import sys; sys.argv[0] = 'holdfast'\n{script}"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **given}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("plain,history\n", "")


def test_task_ids_are_completed(app: App, tmp_path_factory: pytest.TempPathFactory) -> None:
    live(app)
    assert sorted(complete(app, "holdfast history ")) == ["plain,docs", "plain,parser"]
    assert complete(app, "holdfast history p") == complete(app, "holdfast log --task p") == ["plain,parser"]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    subprocess.run(["git", "init", "-q", str(elsewhere)], check=True)
    assert complete(app, "holdfast history ", cwd=elsewhere) == []
    base = tmp_path_factory.mktemp("base")
    apart = App.find(elsewhere, environ={}, options={"data_root": str(base)})
    apart.init()
    write_task(apart, "far", "goal: go\n")
    with short_run(apart):
        pass
    assert complete(app, f"holdfast --data-root {base} history f", cwd=elsewhere) == ["plain,far"]


def test_completion_says_nothing_on_damage_and_outside_a_repository(app: App, tmp_path_factory: Any) -> None:
    live(app)
    assert complete(app, "holdfast history ", cwd=tmp_path_factory.mktemp("none")) == []
    newest(app).write_bytes(b"")
    assert complete(app, "holdfast history ") == []


@pytest.mark.parametrize(("shell", "expected"), [("zsh", ["plain", "history"]), ("fish", ["plain,history"])])
def test_other_shells_complete_commands(app: App, shell: str, expected: list[str]) -> None:
    got = complete(app, "holdfast hi", shell)
    assert [line.split("\t")[0] for line in got][: len(expected)] == expected or got[:2] == ["plain", "history"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(app: App, shell: str) -> None:
    environ = {**os.environ, "_HOLDFAST_COMPLETE": f"{shell}_source"}
    done = subprocess.run([SCRIPT], cwd=app.repo, env=environ, capture_output=True, text=True)
    assert f"_HOLDFAST_COMPLETE={shell}_complete" in done.stdout and done.returncode == 0


# -- the page ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clidocs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("clidocs", TOP / "tools" / "clidocs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_commands_say(clidocs: ModuleType) -> None:
    assert clidocs.main(["--check"]) == 0, "docs/cli.md is stale: run `make docs`"


def test_a_stale_page_is_seen_and_made_anew(clidocs: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "cli.md"
    page.write_text((TOP / "docs" / "cli.md").read_text().replace("Only the last N.", "Only the first N."))
    assert clidocs.main(["--check"], page) == 1
    assert clidocs.main([], page) == 0
    assert page.read_text() == (TOP / "docs" / "cli.md").read_text()
    page.write_text("no places")
    with pytest.raises(SystemExit, match="Nothing was written"):
        clidocs.main([], page)


def test_the_examples_are_command_lines_that_the_commands_take(clidocs: ModuleType) -> None:
    page = (TOP / "docs" / "cli.md").read_text()
    shown = re.findall(r"^\$ holdfast (.*)$", page, re.MULTILINE)
    assert {line.split()[0] for line in shown} == set(COMMANDS)
    for line in shown:
        name, *arguments = shlex.split(line.split(" | ")[0])
        command = clidocs.command_of(f"holdfast {name}")
        if command is not None:
            command.make_context(name, arguments)
