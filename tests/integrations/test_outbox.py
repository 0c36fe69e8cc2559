"""Messages leave once: refused, lost, killed and repeated, counted at their receiver."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import wiring
from holdfast.app import App
from holdfast.domain.messages import outbox_records
from holdfast.domain.messages.outbox_records import Outgoing
from holdfast.engine.context import RunContext
from holdfast.engine.effects import POINTS
from holdfast.integrations.outbox import sender
from holdfast.integrations.outbox.publish import PUBLISH_POINTS
from holdfast.integrations.outbox.sender import TRIES_AWAITED, Sender
from holdfast.orchestrator.loop import Loop
from holdfast.orchestrator.wakeup import LEAVE
from holdfast.storage.records.ledger import LineLedger
from holdfast.wiring import run_context
from kit import TOP
from kit.program import QUICK, holdfast
from kit.project import add, layout, sound, state
from kit.receiver import ASKABLE, MUTE, PAUSE_S, publishers, queue, received
from kit.server import served
from kit.waiting import WAIT_S_MAX, wait_for

KILLS = int(os.environ.get("HOLDFAST_KILLS", "5"))
KEYS = ("one", "two", "three")
ENTRIES = ("message_queued", "task_publish_intent", "task_publish_confirmed", "task_publish_failed")


@contextmanager
def short_run(repo: Path) -> Iterator[RunContext]:
    with run_context(App.find(repo, environ=QUICK), works=False) as context:
        yield context


def killable(repo: Path, inbox: Path, *arguments: str, points: str = "") -> int:
    """`holdfast` as a process of its own, whose messages reach the file."""
    command = [sys.executable, str(TOP / "tests" / "kit" / "receiver.py"), str(inbox), *arguments]
    env = {**os.environ, **QUICK, "PYTHONPATH": str(TOP / "tests"), "HOLDFAST_CRASH_AT": points}
    return subprocess.run(command, cwd=repo, env=env, capture_output=True, timeout=240, check=False).returncode


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the messages of runs in this process end; a failed one is tried again soon."""
    path = tmp_path / "inbox"
    monkeypatch.setattr(outbox_records, "PAUSE_S", PAUSE_S)
    monkeypatch.setattr(wiring, "build_publishers", lambda *_: publishers(path))
    return path


def test_a_message_leaves_in_the_next_run_and_never_again(repo: Path, inbox: Path) -> None:
    with short_run(repo) as context:
        assert queue(context, *KEYS) == list(KEYS)
        assert queue(context, *KEYS, "four") == ["four"], "what was queued before is not queued again"
    holdfast(repo, "run")
    assert received(inbox) == dict.fromkeys((*KEYS, "four"), 1) and not state(repo).outbox
    with short_run(repo) as context:
        assert queue(context, *KEYS) == [], "a key that has left stays used"
    holdfast(repo, "run")
    assert received(inbox)["one"] == 1
    sound(repo)


def test_a_message_waits_for_the_one_before_it(repo: Path, inbox: Path) -> None:
    with short_run(repo) as context:
        queue(context, "second", "first", after={"second": "first"})
    holdfast(repo, "run")
    assert inbox.read_text().split() == ["first", "second"]


def test_a_run_waits_for_a_receiver_that_comes_back(repo: Path, inbox: Path) -> None:
    with short_run(repo) as context:
        queue(context, "late", trouble="away")
    told = holdfast(repo, "run", "--plain")
    assert "nobody is there" in told and "by itself" in told and "waits to be sent" not in told
    assert received(inbox) == {"late": 1} and holdfast(repo, "outbox") == "Nothing waits to be sent.\n"
    sound(repo)


def test_a_message_whose_receiver_stays_away_is_kept_and_the_run_ends(repo: Path, inbox: Path) -> None:
    with short_run(repo) as context:
        queue(context, "late", trouble="away", troubled_tries=3)
    told = holdfast(repo, "run", "--plain")
    assert told.splitlines()[-1].strip() == "1 message waits to be sent; `holdfast outbox`"
    [left] = state(repo).outbox.values()
    assert (left.tries, left.parked, received(inbox)) == (TRIES_AWAITED, "", {}) and left.not_before > 0
    assert "nobody is there" in holdfast(repo, "outbox")
    holdfast(repo, "outbox", "--retry", "late")
    holdfast(repo, "run")
    assert received(inbox) == {"late": 1} and not state(repo).outbox


def test_a_run_does_not_wait_for_a_try_that_is_far_off(
    repo: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_records, "PAUSE_S", 3600.0)
    with short_run(repo) as context:
        queue(context, "late", trouble="away")
    assert "1 message waits to be sent" in holdfast(repo, "run", "--plain")
    assert state(repo).outbox["late"].tries == 1


def test_a_run_that_is_asked_to_stop_does_not_wait_for_the_next_try(
    repo: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Far enough that the run would wait for it for ever, as seen from here.
    monkeypatch.setattr(outbox_records, "PAUSE_S", 3600.0)
    monkeypatch.setattr(sender, "AWAITED_S_MAX", 7200.0)
    with run_context(App.find(repo, environ=QUICK)) as context:
        queue(context, "late", trouble="away")
        loop = Loop(context)
        running = threading.Thread(target=loop.run)
        running.start()
        wait_for(lambda: context.ledger.state.outbox["late"].reason, "a try has failed")
        assert loop.connections.is_busy and not loop.connections.sender.is_sending
        loop.stop(LEAVE)
        running.join(WAIT_S_MAX)
        assert not running.is_alive() and context.ledger.state.outbox["late"].tries == 1


def test_a_lost_answer_is_asked_for_and_the_message_not_repeated(repo: Path, inbox: Path) -> None:
    with short_run(repo) as context:
        queue(context, "lost", trouble="loses")
    told = holdfast(repo, "run", "--plain")
    assert "the line was cut" in told, "the fault did not fire"
    assert received(inbox) == {"lost": 1} and not state(repo).outbox


@pytest.mark.parametrize(("channel", "trouble"), [(ASKABLE, "refuses"), (MUTE, "loses")])
def test_a_message_in_doubt_is_parked(repo: Path, inbox: Path, channel: str, trouble: str) -> None:
    with short_run(repo) as context:
        queue(context, "odd", channel=channel, trouble=trouble)
    holdfast(repo, "run")
    holdfast(repo, "run")
    before = dict(received(inbox))
    assert state(repo).outbox["odd"].parked and before == ({"odd": 1} if channel == MUTE else {})
    assert "--drop odd" in holdfast(repo, "outbox") and "1 of them for you" in holdfast(repo, "status")
    assert "waits for you" in holdfast(repo, "check")
    holdfast(repo, "outbox", "--sent" if channel == MUTE else "--drop", "odd")
    holdfast(repo, "run")
    assert not state(repo).outbox and received(inbox) == before
    sound(repo)


def test_a_decision_about_an_unknown_message_changes_nothing(repo: Path) -> None:
    assert "holdfast outbox" in holdfast(repo, "outbox", "--drop", "nothing", code=2)


def test_an_unknown_channel_keeps_the_message(repo: Path, inbox: Path) -> None:
    with short_run(repo) as context:
        queue(context, "odd", channel="pigeon")
    holdfast(repo, "run")
    assert "no publisher" in state(repo).outbox["odd"].reason


@pytest.mark.parametrize("channel", [ASKABLE, MUTE])
@pytest.mark.parametrize(
    "point",
    [
        *(name for name in POINTS if name.startswith("effect.publish.")),
        *(f"append.{name}.{when}" for name in ENTRIES[1:3] for when in ("before", "after")),
        *PUBLISH_POINTS[1:],
    ],
)
def test_a_kill_at_each_point_loses_and_doubles_nothing(repo: Path, inbox: Path, point: str, channel: str) -> None:
    with short_run(repo) as context:
        queue(context, *KEYS, channel=channel)
    assert killable(repo, inbox, "run", points=f"{point}:2") == -signal.SIGKILL, "the fault did not fire"
    sound(repo)
    for _ in range(2):
        assert killable(repo, inbox, "run") == 0
        for key, message in state(repo).outbox.items():
            # One that nobody can ask for is parked, whether it left or not; a person knows.
            holdfast(repo, "outbox", "--retry" if channel == ASKABLE or not received(inbox)[key] else "--sent", key)
            assert channel == ASKABLE or message.parked
    assert received(inbox) == dict.fromkeys(KEYS, 1) and not state(repo).outbox
    sound(repo)


def test_a_kill_while_the_receiver_is_asked_repeats_nothing(repo: Path, inbox: Path) -> None:
    with short_run(repo) as context:
        queue(context, "lost", trouble="loses")
    assert killable(repo, inbox, "run", points="publish.asked:1") == -signal.SIGKILL, "the fault did not fire"
    assert received(inbox) == {"lost": 1} and "lost" in state(repo).outbox
    holdfast(repo, "run")
    assert received(inbox) == {"lost": 1} and not state(repo).outbox


@pytest.mark.heavy
def test_kills_at_random_points_lose_and_double_nothing(repo: Path, inbox: Path) -> None:
    chance, keys = random.Random(int(os.environ.get("HOLDFAST_SEED", "1"))), [f"m{number}" for number in range(40)]
    with short_run(repo) as context:
        queue(context, *keys)
    killed = 0
    while killed < KILLS and state(repo).outbox:
        point = f"{chance.choice(['append.*', 'effect.*', 'publish.*'])}:{chance.randint(1, 9)}"
        killed += killable(repo, inbox, "run", points=point) == -signal.SIGKILL
        for key in state(repo).outbox:
            holdfast(repo, "outbox", "--retry", key)
    holdfast(repo, "run")
    assert killed and received(inbox) == dict.fromkeys(keys, 1) and not state(repo).outbox
    sound(repo)


def test_an_error_that_ends_the_journal_ends_the_run(repo: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Exception):
        pass

    def breaks(_: Sender, message: Outgoing) -> None:
        raise Broken

    monkeypatch.setattr(Sender, "_send", breaks)
    with run_context(App.find(repo, environ=QUICK)) as context:
        queue(context, "one")
        with pytest.raises(Broken):
            Loop(context).run()


def test_the_pause_grows_and_has_an_end() -> None:
    assert [outbox_records.pause_s(tries) for tries in (1, 2, 3, 40)] == [5.0, 10.0, 20.0, 3600.0]


def test_the_next_moment_is_that_of_the_message_that_waits_least() -> None:
    def made(key: str, **facts: object) -> Outgoing:
        return Outgoing(key=key, channel=ASKABLE, **facts)  # type: ignore[arg-type]

    outbox = {each.key: each for each in (made("a", parked="x"), made("b", not_before=9.0), made("c", after="b"))}
    assert outbox_records.next_due(outbox, 5.0) is None and outbox_records.next_moment(outbox) == 9.0
    assert outbox_records.next_due(outbox, 9.0) is outbox["b"]


def test_the_api_lists_and_decides(repo: Path) -> None:
    with short_run(repo) as context:
        queue(context, "odd", channel="pigeon")
    with served(repo) as server:
        wait_for(lambda: server.operator.get("/outbox")["messages"][0]["state"] == "waits", "a try has failed")
        assert "no publisher" in server.operator.get("/outbox")["messages"][0]["why"]
        chosen = {"key": "odd", "how": "dropped"}
        assert server.operator.post("/outbox", chosen) == chosen
        assert server.operator.get("/outbox") == {"messages": []}
        assert server.operator.ask("POST", "/outbox", chosen).status == 422


def test_the_metric_files_follow_messages_of_an_earlier_run(
    repo: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They fold the journal behind the end of that run, and begin with what it left, messages too."""
    monkeypatch.setattr(sender, "TRIES_AWAITED", 0)
    add(repo, "one", "write x y")
    with short_run(repo) as context:
        queue(context, "late", channel="pigeon")
    holdfast(repo, "run")
    assert "late" in state(repo).outbox, "the fault did not fire"
    add(repo, "two", "write z y")
    holdfast(repo, "outbox", "--retry", "late")
    assert "nothing is written" not in holdfast(repo, "run", "--plain")
    told = [line.record["task"] for line in LineLedger(layout(repo).metrics_tasks).read()]
    assert told == ["one", "two"]
