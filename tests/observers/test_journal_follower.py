"""Followers of the journal: each durable entry at least once and in order, also after a kill, an overflow or damage."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.ledgers.files import FileLedger
from holdfast.ledgers.observers import ORDER
from holdfast.observers.journal_follower import CursorFile, JournalFollower, followed_by
from holdfast.storage.journal.data_root import create_root
from holdfast.storage.journal.entry import Entry, Ref
from kit.ledger_contract import added
from kit.waiting import wait_for

NAMES = ("follower", "other")


@pytest.fixture(autouse=True)
def _lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setitem(ORDER, name, "durable")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[FileLedger]:
    with reopened(tmp_path) as opened:
        yield opened


def reopened(folder: Path) -> FileLedger:
    return FileLedger.open(create_root(folder / ".sdd"))


class Heard:
    """What a follower was given. `gate` holds its thread before the next entry."""

    def __init__(self) -> None:
        self.tasks: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.is_held = threading.Event()

    def __call__(self, run: str, entry: Entry) -> None:
        if not self.gate.is_set():
            self.is_held.set()
        self.gate.wait()
        if "task" in entry.inputs:
            self.tasks.append(entry.inputs["task"])


def add(ledger: FileLedger, *tasks: str) -> None:
    for task in tasks:
        ledger.append(ledger.epoch, [added(task)])


def follower(
    ledger: FileLedger, heard: Heard, *, name: str = "follower", said: list[str] | None = None, **more: bool | int
) -> JournalFollower:
    say = (said if said is not None else []).append
    begins = bool(more.pop("from_beginning", False))
    store = CursorFile(ledger.layout, ledger, name, say, from_beginning=begins)
    return JournalFollower(name, heard, ledger=ledger, store=store, say=say, **more)


def cursor(ledger: FileLedger, name: str = "follower") -> Ref:
    return msgspec.json.decode(ledger.layout.cursor(name).read_bytes(), type=Ref)


def test_a_new_follower_begins_at_the_end_and_goes_on_where_it_was(tmp_path: Path, ledger: FileLedger) -> None:
    add(ledger, "before")
    heard = Heard()
    with followed_by(ledger, follower(ledger, heard)):
        assert cursor(ledger) == ledger.position
        add(ledger, "one", "two")
        with ledger.together():
            add(ledger, "three", "four")
        wait_for(lambda: cursor(ledger) == ledger.position)
    assert heard.tasks == ["one", "two", "three", "four"] and not ledger.observers
    add(ledger, "between")
    ledger.close()
    with reopened(tmp_path) as again:
        add(again, "of the next run")
        with followed_by(again, follower(again, heard)):
            add(again, "last")
    assert heard.tasks[4:] == ["between", "of the next run", "last"]


def test_a_follower_from_the_beginning_gets_the_whole_journal(tmp_path: Path, ledger: FileLedger) -> None:
    add(ledger, "one")
    ledger.close()
    heard = Heard()
    with reopened(tmp_path) as again:
        add(again, "two")
        with followed_by(again, follower(again, heard, from_beginning=True)):
            add(again, "three")
    assert heard.tasks == ["one", "two", "three"]


def test_a_full_queue_is_dropped_and_read_from_the_journal(ledger: FileLedger) -> None:
    heard = Heard()
    following = follower(ledger, heard, queue_max=5)
    tasks = [f"task-{number}" for number in range(33)]
    with followed_by(ledger, following):
        heard.gate.clear()
        add(ledger, tasks[0])
        heard.is_held.wait()
        add(ledger, *tasks[1:])
        assert len(following._queue) <= 5, "the queue was never full"
        heard.gate.set()
    assert heard.tasks == tasks


def test_two_followers_are_at_cursors_of_their_own(tmp_path: Path, ledger: FileLedger) -> None:
    quick, slow = Heard(), Heard()
    slow.gate.clear()
    following = [follower(ledger, quick), follower(ledger, slow, name="other")]
    with followed_by(ledger, *following, patience_s=0.0):
        add(ledger, "one", "two")
        wait_for(lambda: cursor(ledger) == ledger.position)
        assert quick.tasks == ["one", "two"] and slow.tasks == []
        assert cursor(ledger, "other") != ledger.position
    assert following[1].is_alive, "it was to be left behind"
    at = cursor(ledger, "other")
    slow.gate.set()
    wait_for(lambda: not following[1].is_alive)
    # It was given up while it worked: what it did then is done again by the next.
    assert cursor(ledger, "other") == at and slow.tasks == ["one"]
    ledger.close()
    with reopened(tmp_path) as again:
        with followed_by(again, follower(again, quick), follower(again, slow, name="other")):
            add(again, "three")
    assert quick.tasks == ["one", "two", "three"] and slow.tasks == ["one", "one", "two", "three"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"run":"x","seq":1,"entry_hash":"y"}', b'{"seq":1}', b"\xff" * 40])
def test_a_damaged_cursor_is_set_aside_and_said(ledger: FileLedger, content: bytes) -> None:
    add(ledger, "before")
    path = ledger.layout.cursor("follower")
    path.parent.mkdir()
    path.write_bytes(content)
    heard, said = Heard(), list[str]()
    with followed_by(ledger, follower(ledger, heard, said=said)):
        add(ledger, "behind")
    assert heard.tasks == ["behind"]
    (aside,) = ledger.layout.quarantine.glob("cursor-follower.?")
    assert aside.read_bytes() == content and len(said) == 1 and str(aside) in said[0]


def test_a_cursor_of_another_journal_is_damage(ledger: FileLedger) -> None:
    path = ledger.layout.cursor("follower")
    path.parent.mkdir()
    path.write_bytes(msgspec.json.encode(Ref(ledger.run, ledger.position.seq, "f" * 64)))
    said: list[str] = []
    with followed_by(ledger, follower(ledger, Heard(), said=said)):
        assert cursor(ledger) == ledger.position
    assert len(said) == 1


def test_a_follower_may_append_what_follows_from_an_entry(ledger: FileLedger) -> None:
    heard: list[str] = []

    def answer(run: str, entry: Entry) -> None:
        if entry.decision_type == "task_added":
            heard.append(entry.inputs["task"])
            if entry.inputs["task"] == "question":
                ledger.append(ledger.epoch, [added("answer")])

    following = JournalFollower.on_file("follower", answer, layout=ledger.layout, ledger=ledger, say=lambda line: None)
    with followed_by(ledger, following):
        add(ledger, "question")
        wait_for(lambda: "answer" in heard)
    assert heard == ["question", "answer"]


def test_a_follower_that_cannot_go_on_says_so_and_the_next_begins_there(tmp_path: Path, ledger: FileLedger) -> None:
    said: list[str] = []
    heard = Heard()

    def refuse(run: str, entry: Entry) -> None:
        raise OSError("the other side is down")

    following = JournalFollower.on_file("follower", refuse, layout=ledger.layout, ledger=ledger, say=said.append)
    with followed_by(ledger, following):
        add(ledger, "one", "two")
        wait_for(lambda: not following.is_alive)
    assert len(said) == 1 and "the other side is down" in said[0]
    ledger.close()
    with reopened(tmp_path) as again, followed_by(again, follower(again, heard)):
        pass
    assert heard.tasks == ["one", "two"]


# -- kills ------------------------------------------------------------------------------------------------------------

# Adds tasks while a follower writes their names down; kills itself at the n-th of one of these places.
KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.ledgers.files import FileLedger
from holdfast.ledgers.observers import ORDER
from holdfast.observers.journal_follower import CursorFile, JournalFollower, followed_by
from holdfast.storage.journal.data_root import create_root
from holdfast.storage.journal.entry import Record

ORDER["follower"] = "durable"
folder, place, number, first = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
reached = {}

def reach(name):
    reached[name] = reached.get(name, 0) + 1
    if (name, reached[name]) == (place, number):
        os.kill(os.getpid(), signal.SIGKILL)

class Store(CursorFile):
    def save(self, ref):
        reach("before the save")
        super().save(ref)
        reach("after the save")

def handle(run, entry):
    reach("before the effect")
    if "task" in entry.inputs:
        with open(folder / "heard", "a") as heard:
            heard.write(entry.inputs["task"] + "\\n")
    reach("after the effect")

with FileLedger.open(create_root(folder / ".sdd")) as ledger:
    say = lambda line: None
    store = Store(ledger.layout, ledger, "follower", say)
    with followed_by(ledger, JournalFollower("follower", handle, ledger=ledger, store=store, say=say, save_every=3)):
        for task in range(first, first + 10):
            ledger.append(ledger.epoch, [Record("task_added", {"task": f"task-{task}", "definition": "d" * 64})])
"""


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("place", ["before the effect", "after the effect", "before the save", "after the save"])
def test_a_kill_loses_no_entry_and_keeps_the_order(tmp_path: Path, place: str, number: int) -> None:
    calm = [sys.executable, "-c", KILLED, str(tmp_path), "nowhere", "0"]
    subprocess.run([*calm, "0"], check=True)
    # Its cursor is there already: a follower without one would begin behind what the killed one missed.
    killed = subprocess.run([*calm[:-2], place, str(number), "10"])
    assert killed.returncode == -signal.SIGKILL
    subprocess.run([*calm, "20"], check=True)
    with reopened(tmp_path) as ledger:
        wanted = [entry.inputs["task"] for _, entry in ledger.read() if entry.decision_type == "task_added"]
    heard = (tmp_path / "heard").read_text().splitlines()
    assert list(dict.fromkeys(heard)) == wanted and len(wanted) >= 20
    assert_goes_on_in_order(heard, wanted)


def assert_goes_on_in_order(heard: list[str], wanted: list[str]) -> None:
    """Each is the one behind the last, or one that was heard before, where the next process began."""
    places = [wanted.index(task) for task in heard]
    back = [(old, new) for old, new in itertools.pairwise(places) if new != old + 1]
    assert len(back) <= 1 and all(new <= old for old, new in back), heard
