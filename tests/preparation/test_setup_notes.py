"""The lines about a setup: that it runs, how long it took, and which files it made that would land."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from holdfast.app import App
from holdfast.cli.screen.picture import DISK_LOOK_S, Looking
from holdfast.preparation import hooks
from holdfast.preparation.setup import UNIGNORED_MAX, unignored_words
from holdfast.worktrees.stamps import read_stamp
from kit.confined import needs_bwrap
from kit.git import git
from kit.program import Terminal, begin, holdfast, type_in
from kit.project import add, landed, layout, settings, sound, state
from kit.tasks import journal
from kit.waiting import shell_wait, wait_for


def ignore(repo: Path, *names: str) -> None:
    (repo / ".gitignore").write_text("".join(f"{name}\n" for name in ("/.sdd/", *names)))
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "ignore")


@pytest.mark.heavy
@pytest.mark.repo(worktree={"setup": ["sleep 0.2; mkdir -p made; date > made/x", "true"]})
def test_a_run_says_when_a_setup_begins_and_ends_and_only_where_one_runs(repo: Path) -> None:
    ignore(repo, "made/")
    add(repo, "a", "attempt 1: fail as it should\nattempt 2+: write a.txt x", verify=["true"])
    shown = holdfast(repo, "run", "--plain")
    own = "a: setting up its worktree: `sleep 0.2; mkdir -p made; date > made/x` and 1 more command\n"
    # The second attempt finds the stamp of the first.
    assert shown.count(own) == 1 and state(repo).tasks["a"].attempts == 2
    assert len(re.findall(r"a: its worktree is set up, after \d+\.\d s\n", shown)) == 1
    assert shown.count("a: setting up the worktree for its gates: ") == 1
    assert len(re.findall(r"a: the worktree for its gates is set up, after \d+\.\d s\n", shown)) == 1
    assert shown.index(own) < shown.index("a: its worktree is set up") < shown.index("a.1 is at work")
    assert "does not ignore" not in shown


@pytest.mark.heavy
@pytest.mark.repo(worktree={"setup": ["exit 3"]})
def test_a_failing_setup_has_its_sentence_and_no_line_of_its_end(repo: Path) -> None:
    add(repo, "a", "write a.txt x")
    shown = holdfast(repo, "run", "--plain", code=20)
    assert "a: setting up its worktree: `exit 3`" in shown and "is set up, after" not in shown
    assert "could not be made ready" in shown


@pytest.mark.heavy
@pytest.mark.parametrize("sandbox", ["none", pytest.param("bwrap", marks=needs_bwrap)])
def test_files_of_a_setup_that_git_does_not_ignore_are_warned_of_and_land(repo: Path, sandbox: str) -> None:
    made = "mkdir -p deep cache; echo x > deep/one; echo x > two; echo x > cache/three"
    settings(repo, worktree={"setup": [made]}, max_attempts=1)
    ignore(repo, "cache/")
    go = repo.parent / "go"
    waits = f"\nrun {shell_wait(go)}" if sandbox == "none" else ""
    add(repo, "a", f"write a.txt x{waits}", verify=["true"], sandbox=sandbox)
    if sandbox == "none":
        process = begin(repo, "--plain")
        wait_for(lambda: turn_done(repo), "the first turn")
        told = next(part for part in msgspec.json.decode(type_in(repo, "doctor", "--json").stdout)["parts"]
                    if part["name"] == "setups")  # fmt: skip
        assert "a: its setup made deep/, two, which" in told["findings"][0]["said"]
        assert told["findings"][0]["next"] == f"echo /deep/ >> {repo}/.git/info/exclude"
        go.touch()
        shown = process.communicate()[0]
    else:
        shown = holdfast(repo, "run", "--plain")
    assert shown.count("its setup made deep/, two, which git does not ignore: that becomes part of the work") == 1
    # It is true: the candidate has them, and what git ignores is not in it.
    assert git(repo, "ls-tree", "-r", "--name-only", "main").split() == [
        ".gitignore", "README.md", "a.txt", "deep/one", "two",
    ]  # fmt: skip
    first = journal(repo, "task_setup_confirmed")[0]
    assert first.output["unignored"] == ["deep/", "two"] and landed(repo) == ["a"]
    sound(repo)


@pytest.mark.heavy
@needs_bwrap
def test_the_git_that_looks_after_a_confined_setup_is_confined_before_any_agent_has_worked(repo: Path) -> None:
    settings(repo, worktree={"setup": ["echo x > two"]})
    # A git that sees the data root would find the file ignored.
    excluded = layout(repo).root / "config" / "excluded"
    excluded.write_text("/two\n")
    git(repo, "config", "core.excludesFile", str(excluded))
    add(repo, "a", "write a.txt x", sandbox="bwrap")
    assert "its setup made two, which git does not ignore" in holdfast(repo, "run", "--plain", code=None)


def turn_done(repo: Path) -> bool:
    turns = layout(repo).attempt_files("a.1").turns
    return turns.exists() and bool(turns.read_bytes())


@pytest.mark.heavy
@pytest.mark.repo(worktree={"setup": ["echo x > two; cat lock >> three"], "inputs": ["lock"]}, max_attempts=2)
def test_a_file_that_is_excluded_is_no_warning_and_one_of_the_agent_is_not_the_setups(repo: Path) -> None:
    (repo / "lock").write_text("1\n")
    ignore(repo)
    (repo / ".git/info").mkdir(exist_ok=True)
    (repo / ".git/info/exclude").write_text("/two\n/three\n")
    add(repo, "a", "attempt 1: write own.txt x\nattempt 1: write lock 2\nattempt 1: fail so\nattempt 2: write b.txt x")
    shown = holdfast(repo, "run", "--plain")
    # The second attempt begins with the agent's files, and its lock is another input: the setup runs again.
    assert shown.count("setting up its worktree") == 2 and "does not ignore" not in shown
    names = git(repo, "ls-tree", "-r", "--name-only", "main").split()
    assert names == [".gitignore", "README.md", "b.txt", "lock", "own.txt"]
    assert read_stamp(layout(repo).inside("cache", "snapshots", "a")) is None
    sound(repo)


def test_the_warning_names_a_few_files() -> None:
    assert "made a, b, c, which" in unignored_words(["a", "b", "c"])
    assert "made a, b, c and 1 more, which" in unignored_words(["a", "b", "c", "d"])
    many = [f"{number}" for number in range(UNIGNORED_MAX)]
    assert f"and at least {UNIGNORED_MAX - 3} more, which" in unignored_words(many)


@pytest.mark.heavy
def test_watch_shows_a_setup_while_it_runs_and_what_is_taken_of_the_disk(repo: Path) -> None:
    go = repo.parent / "go"
    settings(repo, worktree={"setup": ["true", shell_wait(go)]})
    add(repo, "a", "write a.txt x")
    process = begin(repo)
    now = layout(repo).attempt_files("a.1").hook_now
    wait_for(lambda: now.exists() and b"go" in now.read_bytes(), "the second command")
    with Terminal(repo, "watch", columns=160) as terminal:
        terminal.read_until("setting up its worktree: ")
        terminal.read_until("disk: ")
        terminal.read_until(" in 1 worktree, ")
        terminal.type("q")
        assert terminal.end() == 0
    follower = Terminal(repo, "watch", "--plain", columns=160)
    with follower:
        follower.read_until("a: setting up its worktree: ")
        go.touch()
        process.communicate()
        assert follower.end() == 0
    assert not now.exists() and landed(repo) == ["a"]


def test_watch_counts_what_is_taken_of_the_disk_once_a_minute(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looking, now = Looking(App.find(repo, environ={})), [100.0]
    monkeypatch.setattr("holdfast.cli.screen.picture.monotonic", lambda: now[0])
    first = looking.now().disk
    assert first is not None and looking.now().disk is first
    now[0] += DISK_LOOK_S
    assert looking.now().disk is not first


@pytest.mark.heavy
def test_watch_shows_no_setup_of_a_run_that_was_killed(repo: Path) -> None:
    go = repo.parent / "go"
    settings(repo, worktree={"setup": [shell_wait(go)]})
    add(repo, "a", "write a.txt x")
    process = begin(repo)
    files = layout(repo).attempt_files("a.1")
    now = files.hook_now
    wait_for(lambda: hooks.running_now(files) is not None, "the command")
    process.kill()
    process.communicate()
    # The next run lives, and this file is not its own.
    assert now.exists() and hooks.running_now(files) is None
    assert "setting up" not in type_in(repo, "watch", "--plain").stdout
    go.touch()
    holdfast(repo, "run")
    assert not now.exists() and landed(repo) == ["a"]
    sound(repo)
