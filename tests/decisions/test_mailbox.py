"""Decisions while `holdfast run` lives go through it; when it dies on the way, the asker decides, and once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import identity
from holdfast.decisions import mailbox
from holdfast.storage.records import attempt_folder
from kit.decisions import ask, failed, journal, keys, living_run, rejected
from kit.engine import add, git, holdfast, landed, layout, make_repo, settings, sound, state, wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path / "repo")


def of_run(repo: Path, kind: str) -> set[str]:
    """The runs whose journal has such an entry."""
    return {file.name for file in layout(repo).wal.glob("*.wal.jsonl") if f'"{kind}"' in file.read_text()}


def left(repo: Path) -> list[str]:
    return [name for name in os.listdir(layout(repo).signals) if name.startswith(("request-", "reply-"))]


def test_a_run_that_lives_decides_and_goes_on_with_what_was_decided(repo: Path) -> None:
    key = rejected(repo)
    failed(repo, "b", script="write e.txt one\nwrite f.txt two\n")
    add(repo, "c", "write c.txt x", approve=True)
    add(repo, "d", "write d.txt x", depends_on=["b"])
    with living_run(repo) as run:
        wait_for(lambda: str(state(repo).tasks["c"].state) == "PENDING_APPROVAL", "what waits for a person")
        before = set(layout(repo).wal.glob("*.wal.jsonl"))
        assert ask(repo, "approve", "c") == [{"id": "c", "state": "DONE", "note": "the run lands it"}]
        key.write_text("")
        assert ask(repo, "promote", "a")[0]["note"] == "the run verifies and lands it"
        assert ask(repo, "cancel", "d")[0]["state"] == "CANCELLED"
        wait_for(lambda: sorted(landed(repo)) == ["a", "c"], "both landings")
        assert ask(repo, "fork", "b", "--turn", "2")[0]["state"] == "OPEN"
        assert "cannot be approved: it is cancelled" in holdfast(repo, "approve", "d", code=9)
        assert "There is no task 'nope' here" in holdfast(repo, "cancel", "nope", code=2)
        assert set(layout(repo).wal.glob("*.wal.jsonl")) == before, "no other run was begun"
        assert run.poll() is None and left(repo) == []
        wait_for(lambda: "b" in landed(repo), "the forked attempt")
    assert run.returncode == 0
    assert of_run(repo, "task_cancelled") == of_run(repo, "attempt_forked")
    sound(repo)


def test_the_run_ends_the_agent_of_what_is_cancelled(repo: Path) -> None:
    settings(repo, grace_s=0.5)
    with living_run(repo):
        running = attempt_folder.read_process(layout(repo).attempt_files("keeper.1"))
        assert running is not None and running.agent.is_alive()
        assert ask(repo, "cancel", "keeper")[0]["state"] == "CANCELLED"
        assert not running.agent.is_alive() and not running.runner.is_alive()
    assert landed(repo) == [] and len(journal(repo, "task_cancelled")) == 1
    sound(repo)


@pytest.mark.parametrize(
    ("point", "line"),
    [
        ("request.seen", "cancel b"),
        ("request.decided", "cancel b"),
        ("request.decided", "resume a"),
        ("request.decided", "fork a --turn 1 --id new"),
    ],
)
def test_when_the_run_dies_on_the_way_the_asker_decides_and_once(repo: Path, point: str, line: str) -> None:
    assert point in mailbox.REQUEST_POINTS
    failed(repo)
    add(repo, "b", "write b.txt x", depends_on=["a"])
    with living_run(repo, HOLDFAST_CRASH_AT=f"{point}:1") as run:
        holdfast(repo, *line.split())
        run.wait(timeout=60)
        assert run.returncode == -9, "the fault fired"
    found = keys(repo)
    assert found and len(found) == len(set(found)) and {key.partition("#")[0] for key in found} == {found[0]}
    kind = {"cancel": "task_cancelled", "resume": "attempt_resumed", "fork": "task_added"}[line.split()[0]]
    assert len([entry for entry in journal(repo, kind) if "idempotency_key" in entry.inputs]) == 1
    assert left(repo) == []
    sound(repo)


def test_what_the_dead_and_strangers_left_is_dropped(repo: Path) -> None:
    add(repo, "b", "write b.txt x", depends_on=["keeper"])
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    dead = {"pid": ended.pid, "start_ticks": 1, "boot_id": identity.boot_id(), "host": "here"}
    ended.wait()
    me = identity.current()
    alive = {"pid": me.pid, "start_ticks": me.start_ticks, "boot_id": me.boot_id, "host": me.host}
    folder = layout(repo).signals
    request = {"kind": "cancel", "params": {"tasks": ["b"]}}
    stranger = repo.parent / "stranger.json"
    with living_run(repo):
        (folder / f"reply-{'c' * 32}.json").write_text(json.dumps({"asker": dead, "result": {"tasks": []}}))
        (folder / f"request-{'1' * 32}.json").write_text(json.dumps({"id": "1" * 32, "asker": dead, **request}))
        (folder / f"request-{'2' * 32}.json").write_text(json.dumps({"id": "3" * 32, "asker": alive, **request}))
        (folder / "request-..json").write_text(json.dumps({"id": "..", "asker": alive, **request}))
        (folder / f"request-{'4' * 32}.json").write_text("no json")
        stranger.write_text(json.dumps({"id": "5" * 32, "asker": alive, **request}))
        (folder / f"request-{'5' * 32}.json").symlink_to(stranger)
        wait_for(lambda: left(repo) == [], "all of it dropped")
        assert str(state(repo).tasks["b"].state) == "OPEN" and stranger.exists()
        # And one that is in order, to know that they would have been answered.
        name = "6" * 32
        (folder / f"request-{name}.json").write_text(json.dumps({"id": name, "asker": alive, **request}))
        wait_for(lambda: (folder / f"reply-{name}.json").exists(), "the answer")
        assert json.loads((folder / f"reply-{name}.json").read_text())["result"]["tasks"][0]["state"] == "CANCELLED"
        name = "7" * 32
        (folder / f"request-{name}.json").write_text(
            json.dumps({"id": name, "asker": alive, "kind": "__import__", "params": {}})
        )
        wait_for(lambda: (folder / f"reply-{name}.json").exists(), "the refusal")
        told = json.loads((folder / f"reply-{name}.json").read_text())["error"]
        assert (told["code"], told["exit_code"]) == ("InputError", 2)
    assert git(repo, "log", "--format=%s", "-1", "main") == "Do keeper"
