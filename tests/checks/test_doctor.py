"""The doctor, on real ailments; each finding comes with a command."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.layout import Layout
from holdfast.storage.files import filesystems
from holdfast.storage.records import attempt_folder
from kit.git import git
from kit.program import started, type_in
from kit.project import add, settings
from kit.roots import short_run
from kit.waiting import wait_for

pytestmark = pytest.mark.usefixtures("no_agent_left")


@pytest.fixture(autouse=True)
def on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' folders may be in memory, which is a finding; `test_filesystems` has its own tests."""
    monkeypatch.setattr(filesystems, "kind_of", lambda path: "ext4")


def findings(repo: Path) -> dict[str, list[dict[str, Any]]]:
    """What the doctor finds, by part; its exit code must fit."""
    typed = type_in(repo, "doctor", "--json")
    report = msgspec.json.decode(typed.stdout)
    found = {part["name"]: part["findings"] for part in report["parts"] if part["findings"]}
    assert (typed.returncode, report["well"]) == ((20, False) if found else (0, True))
    return found


def only_finding(repo: Path, part: str) -> dict[str, Any]:
    found = findings(repo)
    assert list(found) == [part] and len(found[part]) == 1, found
    return found[part][0]


def test_a_healthy_root_has_no_findings_before_and_after_work(repo: Path) -> None:
    assert findings(repo) == {}
    add(repo, "one", "write x hi")
    assert type_in(repo, "run").returncode == 0
    assert findings(repo) == {}
    told = type_in(repo, "doctor").stdout
    assert told.endswith("All is well.\n") and re.search(r"^ok  git +git version", told, re.M)


def test_an_agent_without_a_run_is_found_and_a_stopped_run(repo: Path) -> None:
    add(repo, "one", "write x hi\nhang")
    with started(repo, "run", "--plain") as run:
        files = Layout(repo / ".sdd").attempt_files("one.1")
        wait_for(lambda: attempt_folder.liveness(files, 1) is attempt_folder.Liveness.ALIVE, "it does not begin")
        assert findings(repo) == {}
        run.send_signal(signal.SIGSTOP)
        wait_for(lambda: findings(repo), "it does not stop")
        assert only_finding(repo, "lock")["next"] == f"kill -CONT {run.pid}"
        run.kill()
        run.wait()
    wait_for(lambda: "lock" not in findings(repo), "the lock is held")
    found = findings(repo)["attempts"]
    assert [each["next"] for each in found] == ["holdfast run"] and "works on" in found[0]["said"]


def test_a_broken_journal_is_found(repo: Path) -> None:
    assert type_in(repo, "run").returncode == 0
    assert type_in(repo, "run").returncode == 0
    first = sorted((repo / ".sdd/runtime/wal").glob("*.wal.jsonl"))[0]
    first.write_bytes(first.read_bytes().replace(b'"seq":0', b'"seq":7', 1))
    assert findings(repo)["chain"][0]["next"] == "holdfast check --chain"


@pytest.mark.heavy
def test_a_lost_landing_names_the_command_that_brings_it_back(repo: Path) -> None:
    add(repo, "one", "write x hi")
    assert type_in(repo, "run").returncode == 0
    landed = git(repo, "rev-parse", "HEAD")
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    finding = only_finding(repo, "landings")
    assert finding["next"] == "holdfast promote one" and f"`git merge {landed}`" in finding["said"]
    # What lands later does not hide it.
    add(repo, "two", "write y hi")
    run = type_in(repo, "run")
    assert run.returncode == 20 and "landing of one on refs/heads/main is lost" in run.stdout + run.stderr
    assert only_finding(repo, "landings") == finding | {"said": only_finding(repo, "landings")["said"]}
    assert type_in(repo, *shlex.split(finding["next"])[1:]).returncode == 0
    assert findings(repo) == {} and (repo / "x").exists() and (repo / "y").exists()


def test_leftovers_of_crashes_are_found(repo: Path) -> None:
    lock = repo / ".git" / "index.lock"
    lock.write_bytes(b"")
    os.utime(lock, (time.time() - 3600,) * 2)
    finding = only_finding(repo, "git locks")
    subprocess.run(shlex.split(finding["next"]), check=True)
    assert not lock.exists()
    git(repo, "worktree", "add", "-q", "--detach", str(repo / ".sdd/worktrees/gone"))
    assert "status" in only_finding(repo, "worktrees")["next"]
    git(repo, "worktree", "remove", str(repo / ".sdd/worktrees/gone"))
    (repo / ".sdd/quarantine/tasks.jsonl.1").write_text("")
    (repo / ".sdd/quarantine/tasks.jsonl.1.reason.txt").write_text("damaged")
    assert only_finding(repo, "quarantine")["next"].startswith("cat ")


def test_a_clock_that_was_set_back_is_found(repo: Path) -> None:
    from holdfast.app import App

    app = App(repo, App.find(repo, environ={}).loaded, lambda: time.time() + 3600)
    with short_run(app):
        pass
    assert "3600 s behind" in only_finding(repo, "clock")["said"].replace("3599", "3600").replace("3598", "3600")


def test_a_missing_agent_counts_only_where_a_task_asks_for_it(repo: Path) -> None:
    (repo / ".sdd/config/settings.yaml").write_text("agents: [{name: ghost, command: [no-such-program]}]\n")
    assert findings(repo) == {} and re.search(r"agents .*\bghost\b.* missing", type_in(repo, "doctor").stdout)
    add(repo, "one", "write x hi", agent="ghost")
    assert only_finding(repo, "agents")["next"] == "holdfast edit one --agent NAME"


def test_a_list_says_which_program_is_missing_and_that_an_agent_speaks_no_protocol(repo: Path) -> None:
    named = [{"name": name, "acp": [program]} for name, program in (("ghost", "no-such-program"), ("mute", "true"))]
    settings(repo, agents=named, sandbox="none")
    for agent in ("ghost", "mute"):
        assert type_in(repo, "add", "Write it", "--id", agent, "--agent", agent, "--max-attempts", "1").returncode == 0
    assert type_in(repo, "run", "--plain").returncode == 20
    rows = {line.split()[0]: line for line in type_in(repo, "list").stdout.splitlines()}
    assert "there is no program 'no-such-program'" in rows["ghost"]
    assert "does not speak the Agent Client Protocol" in rows["mute"]


def test_a_gate_that_tests_the_main_checkout_is_found_for_settings_and_tasks(repo: Path) -> None:
    """The trap: a program of the checkout imports the project from there, and anything would land."""
    check = repo / "tools" / "check.sh"
    check.parent.mkdir()
    check.write_text("#!/bin/sh\n")
    check.chmod(0o755)
    add(repo, "one", "write x hi", verify=[str(check)])
    settings(repo, gates=[{"name": "unit", "command": f"cd {repo} && true"}])
    first, second = findings(repo)["gates"]
    assert "the gate unit" in first["said"] and "the gate verify-1" in second["said"]
    assert f"in another checkout, {repo}. It tests that checkout and not the candidate" in second["said"]
    ran = type_in(repo, "run", "--plain")
    told = [line for line in (ran.stdout + ran.stderr).splitlines() if "tests that checkout and not" in line]
    assert len(told) == 2, "the run warns of each gate once, before it begins"
    log = type_in(repo, "log", "--json").stdout
    assert log.count('"gate_warned"') == 2
