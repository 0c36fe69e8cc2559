"""The example of the repository, installed by pip and used by real runs that are killed."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path

import pytest

from holdfast.layout import Layout
from holdfast.storage.journal.reader import Chain
from kit.plugins import install, installed_example
from kit.program import begin, holdfast
from kit.project import add, layout, sound
from kit.waiting import wait_for

TASKS = 6


@pytest.fixture
def site() -> dict[str, str]:
    return {"PYTHONPATH": str(installed_example())}


def rows(repo: Path) -> list[dict[str, str]]:
    path = layout(repo).root / "landings.csv"
    return list(csv.DictReader(path.open())) if path.exists() else []


def landings(at: Layout) -> list[tuple[str, str]]:
    """The task and the key of each landing, by the journal."""
    named = [(run, entry) for run, entry in Chain(at.wal).entries() if entry.decision_type == "task_land_confirmed"]
    return [(entry.inputs["task"], f"{run}:{entry.seq}:{entry.entry_hash}") for run, entry in named]


def test_the_example_is_installed_listed_and_used(repo: Path, site: dict[str, str]) -> None:
    told = json.loads(holdfast(repo, "plugins", "--json", env=site))["plugins"]
    assert [(each["name"], each["package"], each["state"]) for each in told] == [
        ("landings", "holdfast-landings", "enabled")
    ]
    assert told[0]["provides"] == {"agents": ["note-taker"], "gates": ["no-marks"]}
    assert "note-taker" in holdfast(repo, "agents", "--wait", "0", env=site)
    add(repo, "good", "write good.txt fine", verify=["gate:no-marks"])
    add(repo, "marked", "write marked.txt FIXME", verify=["gate:no-marks FIXME XXX"], max_attempts=1)
    holdfast(repo, "add", "Take notes", "--id", "notes", "--agent", "note-taker", env=site)
    holdfast(repo, "run", code=20, env=site)
    assert sorted(row["task"] for row in rows(repo)) == ["good", "notes"]
    assert (repo / "NOTES.md").read_text() and not (repo / "marked.txt").exists()
    assert [(row["task"], row["key"]) for row in rows(repo)] == landings(layout(repo))


def test_a_plugin_is_disabled_and_enabled_by_a_person(repo: Path, site: dict[str, str]) -> None:
    add(repo, "one", "write one.txt x")
    holdfast(repo, "run", env=site)
    told = holdfast(repo, "plugins", "disable", "landings", "--reason", "too many rows", env=site)
    assert "its hooks are not called any more" in told
    add(repo, "two", "write two.txt x")
    assert "too many rows" in holdfast(repo, "run", env=site)
    assert [row["task"] for row in rows(repo)] == ["one"]
    assert "landings is set aside: too many rows" in holdfast(repo, "plugins", env=site)
    assert "holdfast plugins enable landings" in holdfast(repo, "doctor", code=20, env=site)
    assert json.loads(holdfast(repo, "plugins", "enable", "landings", "--json", env=site))["plugin"] == "landings"
    holdfast(repo, "run", env=site)
    assert [row["task"] for row in rows(repo)] == ["one", "two"]
    said = holdfast(repo, "log", env=site)
    assert "The plugin landings is set aside: too many rows" in said and "landings is enabled again" in said
    holdfast(repo, "plugins", "enable", "nobody", code=2, env=site)
    holdfast(repo, "plugins", "show", code=2, env=site)
    sound(repo)


@pytest.mark.heavy
@pytest.mark.repo(max_agents=1, grace_s=0.5)
def test_no_landing_is_lost_or_doubled_when_runs_are_killed(repo: Path, site: dict[str, str]) -> None:
    """Each run is killed with SIGKILL as soon as it has written a row, before its cursor is sure to be saved."""
    for number in range(TASKS):
        add(repo, f"task-{number}", f"write {number}.txt x")
    killed = 0
    while len(landings(layout(repo))) < TASKS:
        before = len(rows(repo))
        process = begin(repo, **site)
        wait_for(lambda: len(rows(repo)) > before or process.poll() is not None)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.communicate()
    holdfast(repo, "run", env=site)
    assert killed >= 2, "no run was killed"
    wanted = landings(layout(repo))
    assert [(row["task"], row["key"]) for row in rows(repo)] == wanted and len(wanted) == TASKS
    sound(repo)


# The example, which kills its run beside each row that it writes for the first time.
KILLING = """
holdfast_api = 1
import os, pathlib, signal
import holdfast_landings as example

configure, cursor = example.configure, example.cursor

def _die_once(name):
    mark = pathlib.Path(os.environ["MARKS"], name)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)

@hookimpl
def landed(event, attempt, branch, commit):
    _die_once(f"before-{event.task}")
    example.landed(event, attempt, branch, commit)
    _die_once(f"after-{event.task}")
"""


@pytest.mark.heavy
@pytest.mark.repo(max_agents=2, grace_s=0.5, plugins={"enabled": ["killing"]})
def test_a_kill_on_either_side_of_a_row_gives_it_once(repo: Path, site: dict[str, str], tmp_path: Path) -> None:
    tasks = [f"task-{number}" for number in range(3)]
    (marks := tmp_path / "marks").mkdir()
    install(tmp_path / "other", "killing", KILLING)
    env = {"PYTHONPATH": f"{tmp_path / 'other'}:{site['PYTHONPATH']}", "MARKS": str(marks)}
    for task in tasks:
        add(repo, task, f"write {task}.txt x")
    kills = 0
    while (process := begin(repo, **env)).wait() == -signal.SIGKILL:
        process.communicate()
        kills += 1
        assert kills <= 2 * len(tasks), "it dies again and again"
    assert process.communicate() and process.returncode == 0
    assert kills == len(list(marks.iterdir())) == 2 * len(tasks)
    assert [(row["task"], row["key"]) for row in rows(repo)] == landings(layout(repo))
    assert sorted(row["task"] for row in rows(repo)) == tasks
    sound(repo)


@pytest.mark.parametrize("point", ["append.task_land_confirmed.before:1", "append.task_land_confirmed.after:1"])
def test_a_kill_beside_the_landing_gives_one_row(repo: Path, site: dict[str, str], point: str) -> None:
    add(repo, "one", "write one.txt x")
    holdfast(repo, "run", code=-signal.SIGKILL, env={**site, "HOLDFAST_CRASH_AT": point})
    assert rows(repo) == []
    holdfast(repo, "run", env=site)
    assert [(row["task"], row["key"]) for row in rows(repo)] == landings(layout(repo)) != []


def test_a_torn_row_is_cut_off_and_written_again(repo: Path, site: dict[str, str]) -> None:
    add(repo, "one", "write one.txt x")
    add(repo, "two", "write two.txt x", depends_on=["one"])
    holdfast(repo, "run", env=site)
    path = layout(repo).root / "landings.csv"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    holdfast(repo, "run", env=site)
    assert path.read_bytes() == whole and len(rows(repo)) == 2
