"""What work leaves beside the journal is held against it: attempts, snapshots, landings and every blob."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.backlog.folder import Backlog
from holdfast.checks import expectations
from holdfast.checks.check import CheckReport, Section, check
from holdfast.checks.gc import BLOB_AGE_S_MIN
from holdfast.checks.projections import Reading, read_journal
from holdfast.git import command as durable_git
from holdfast.layout import Layout
from holdfast.ledgers.reader import read_state
from kit.git import git
from kit.program import started, type_in
from kit.project import add, make_repo
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy

NAMED = [expectations.DEFINITION, expectations.ORDER, expectations.GATES, expectations.VERDICT, expectations.FEEDBACK]
TURN = "refs/attempts/{}/turn-{}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks that have landed, one of them at its second attempt; one that has failed; one that pauses at turn 2."""
    repo = make_repo(tmp_path_factory.mktemp("whole") / "repo")
    add(repo, "first", "write x hi\nwrite x2 hi", verify=["echo judged"])
    add(repo, "second", "attempt 1: write y bad\nattempt 2+: write y good", verify=["grep good y"], max_attempts=2)
    add(repo, "failed", "write z hi", verify=["test -f nowhere"], max_attempts=1)
    assert type_in(repo, "run").returncode == 20
    add(repo, "paused", "write p 1\nwrite q 2\nhang")
    with started(repo, "run", "--plain"):
        turns = repo / ".sdd/attempts/paused.1/turns.jsonl"
        wait_for(lambda: turns.exists() and turns.read_bytes().count(b"\n") == 2, "the turns")
        assert type_in(repo, "stop", "--agents").returncode == 0
    return repo


@pytest.fixture
def repo(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "repo", symlinks=True))


def judge(repo: Path, *, without: bool = False) -> CheckReport:
    layout = Layout(repo / ".sdd")
    return check(layout, Backlog(layout.backlog), None, repo=None if without else repo)


def section(report: CheckReport, name: str) -> Section:
    return next(each for each in report.sections if each.name == name)


def findings(repo: Path) -> dict[str, list[str]]:
    return {each.name: each.findings for each in judge(repo).sections if each.findings}


def commands(said: str) -> list[str]:
    return said.split("`")[1::2]


def reading(repo: Path) -> Reading:
    return read_journal(Layout(repo / ".sdd"))


def test_all_of_it_is_looked_at_and_counted(repo: Path) -> None:
    report = judge(repo)
    assert report.sound, findings(repo)
    assert section(report, "attempts").counted == {"attempts": 5, "turns": 7, "exits": 5, "verdicts": 4}
    assert section(report, "snapshots").counted == {"snapshots": 3, "of_tasks_over": 4}
    assert section(report, "landings").counted == {"landings": 2, "branches": 1}
    kinds = {what for what, _ in reading(repo).recorded.blobs.values()}
    assert kinds == set(NAMED)
    assert section(report, "blobs").counted["referenced"] > len(reading(repo).recorded.blobs), "outputs of gates, too"


# -- landings ---------------------------------------------------------------------------------------------------------


def test_a_branch_that_was_moved_away_has_lost_what_landed_there(repo: Path) -> None:
    tasks = read_state(Layout(repo / ".sdd"))[0].tasks
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    found = findings(repo)
    assert list(found) == ["landings"] and len(found["landings"]) == 1, found
    last = max((tasks[name] for name in ("first", "second")), key=lambda task: task.changed_at)
    assert all(word in found["landings"][0] for word in (last.id, last.landing.commit, "refs/heads/main"))
    ways = [f"holdfast promote {last.id}", f"git merge {last.landing.commit}"]
    ways += [f"holdfast resolve {last.id} --rewritten COMMIT", f"holdfast resolve {last.id} --dropped"]
    assert commands(found["landings"][0]) == ways
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    assert len(findings(repo)["landings"]) == 2
    git(repo, "merge", "-q", last.landing.commit)
    assert findings(repo) == {}


def test_a_branch_that_is_gone_has_too_and_is_made_again(repo: Path) -> None:
    git(repo, "checkout", "-q", "--detach")
    git(repo, "branch", "-q", "-D", "main")
    found = findings(repo)
    assert list(found) == ["landings"] and len(found["landings"]) == 2
    assert all("the branch is gone" in said for said in found["landings"])
    subprocess.run(shlex.split(commands(found["landings"][0])[0]), cwd=repo, check=True)
    assert findings(repo) == {}


def test_without_git_or_repository_it_says_what_was_not_checked(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo / ".git").rename(repo / "elsewhere")
    for report in (judge(repo, without=True), judge(repo)):
        assert report.sound
        assert all(section(report, name).not_checked for name in ("snapshots", "landings"))
    (repo / "elsewhere").rename(repo / ".git")
    durable_git.require_minimum.cache_clear()
    monkeypatch.setenv("PATH", str(repo))
    report = judge(repo)
    assert all("`git` cannot be run" in section(report, name).not_checked for name in ("snapshots", "landings"))


# -- attempts ---------------------------------------------------------------------------------------------------------


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _edit(path: Path, old: bytes, new: bytes) -> None:
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new, 1))


DAMAGES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "folder of an older attempt": ("second.1", shutil.rmtree, "is missing"),
    "turns of an older attempt": ("second.1/turns.jsonl", Path.unlink, "ends at 0"),
    "turns of a closed task cut": ("first.1/turns.jsonl", _cut, "ends at"),
    "a turn changed": ("first.1/turns.jsonl", lambda at: _edit(at, b'"turn":1,', b'"turn":9,'), "does not hold the 2"),
    "a turn's line damaged": ("first.1/turns.jsonl", lambda at: _edit(at, b"{", b"["), "does not hold the 2"),
    "exit of an older attempt": ("second.1/exit.json", Path.unlink, "is missing, and the journal has taken"),
    "exit of another start": ("failed.1/exit.json", lambda at: _edit(at, b'"start":1', b'"start":0'), "start 0, and"),
    "exit damaged": ("paused.1/exit.json", _cut, "cannot be read"),
    "verdict of an older attempt": ("second.1/verdict.json", Path.unlink, "is missing, the verdict"),
    "verdict changed": ("first.1/verdict.json", lambda at: _edit(at, b"true", b"null"), "is not the verdict"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_to_an_attempt_is_found_and_named_and_nothing_else_is(repo: Path, damage: str) -> None:
    name, do, words = DAMAGES[damage]
    do(repo / ".sdd/attempts" / name)
    found = findings(repo)
    assert list(found) == ["attempts"] and len(found["attempts"]) == 1, found
    assert str(repo / ".sdd/attempts" / name) in found["attempts"][0] and words in found["attempts"][0]


# -- snapshots --------------------------------------------------------------------------------------------------------


def test_a_snapshot_of_a_task_that_goes_on_must_be_there(repo: Path) -> None:
    ref = TURN.format("paused.1", 1)
    store = repo / ".sdd" / "snapshots.git"
    commit = git(store, "rev-parse", ref)
    for change in (("-d", ref), (ref, git(repo, "rev-parse", "main"))):
        git(store, "update-ref", *change)
        found = findings(repo)
        assert list(found) == ["snapshots"] and len(found["snapshots"]) == 1
        assert ref in found["snapshots"][0] and commit in found["snapshots"][0]
        subprocess.run(shlex.split(commands(found["snapshots"][0])[0]), cwd=repo, check=True)
        assert findings(repo) == {}
    tree = git(store, "rev-parse", f"{commit}^{{tree}}")
    # The commit alone says nothing of what it names.
    for lost in (tree, commit):
        (store / "objects" / lost[:2] / lost[2:]).unlink()
        assert "is lost" in findings(repo)["snapshots"][0]


def test_snapshots_of_an_ended_task_may_be_gone(repo: Path) -> None:
    for turn in (1, 2):
        git(repo / ".sdd" / "snapshots.git", "update-ref", "-d", TURN.format("first.1", turn))
    report = judge(repo)
    assert report.sound and section(report, "snapshots").notes[0].startswith("2 snapshots of tasks that are over")


# -- blobs ------------------------------------------------------------------------------------------------------------


def _blob(repo: Path, digest: str) -> Path:
    return repo / ".sdd/cas" / digest[:2] / digest


@pytest.mark.parametrize("what", NAMED)
def test_each_blob_that_the_journal_names_must_be_there(repo: Path, what: str) -> None:
    digests = [digest for digest, (kind, _) in reading(repo).recorded.blobs.items() if kind == what]
    assert digests
    for digest in digests:
        task = reading(repo).recorded.blobs[digest][1]
        path = _blob(repo, digest)
        content = path.read_bytes()
        path.unlink()
        found = findings(repo)
        assert list(found) == ["blobs"] and found["blobs"][0].startswith(f"{what} of {task}: There is no blob")
        path.write_bytes(content)


def test_each_output_that_a_verdict_names_must_be_there(repo: Path) -> None:
    known = reading(repo).recorded
    verdicts = [digest for digest, (what, _) in known.blobs.items() if what == expectations.VERDICT]
    outputs = {output for verdict in verdicts for output in expectations.outputs_in(_blob(repo, verdict).read_bytes())}
    assert outputs
    for output in outputs:
        _blob(repo, output).unlink()
    found = findings(repo)
    assert list(found) == ["blobs"] and len(found["blobs"]) == len(outputs)
    assert all(said.startswith("the output of a gate of ") for said in found["blobs"])


def test_garbage_collection_keeps_all_that_is_referenced(whole: Path) -> None:
    blobs = [path for path in (whole / ".sdd/cas").rglob("*") if path.is_file()]
    old = time.time() - BLOB_AGE_S_MIN - 60
    for path in blobs:
        os.utime(path, (old, old))
    assert type_in(whole, "gc").returncode == 0
    assert all(path.exists() for path in blobs) and findings(whole) == {}


# -- beside a run, and in little memory -------------------------------------------------------------------------------


def test_a_root_is_sound_at_every_check_while_a_run_works(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    for number in range(2):
        script = "".join(f"write f{number} {turn}\n" for turn in range(3))
        add(repo, f"t{number}", script + "attempt 2+: write good yes", verify=["test -f good"], max_attempts=2)
    with started(repo, "run", "--plain") as run:
        looks = 0
        while run.poll() is None:
            report = judge(repo)
            assert report.sound, [each.findings for each in report.sections]
            looks += 1
            # The run is to get on, too.
            time.sleep(0.03)
    assert looks > 3
    assert section(judge(repo), "attempts").counted["attempts"] >= 4 and judge(repo).sound


def test_a_task_that_is_over_leaves_only_numbers(repo: Path) -> None:
    known = reading(repo).recorded.attempts
    assert known["first.1"].trail is None and known["first.1"].snapshots == 2
    assert [turn for turn, _ in known["paused.1"].trailed()] == [1, 2]
