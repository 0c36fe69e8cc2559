"""Submodules in the worktrees (`submodules: init`): set up from the repository's own copies, moved, and never lost."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.worktrees.submodules import SUBMODULE_POINTS
from holdfast.worktrees.worktrees import Worktrees
from kit.clock import SetClock
from kit.git import git
from kit.program import begin, environment, holdfast
from kit.project import add, landed, layout, make_repo, settings, sound, state
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy

AS = ("-c", "user.name=A", "-c", "user.email=a@b")
FILE = ("-c", "protocol.file.allow=always")


def commit(repo: Path, name: str, text: str) -> str:
    (repo / name).write_text(text)
    git(repo, "add", name)
    git(repo, *AS, "commit", "-q", "-m", f"{name} {text.strip()}")
    return git(repo, "rev-parse", "HEAD")


def library(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    return folder


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """With the submodule `lib`, in which there is another, `deep`; both are initialised in the user's checkout."""
    deep = library(tmp_path / "deep")
    commit(deep, "d.txt", "deep\n")
    other = library(tmp_path / "other")
    commit(other, "inner.txt", "1\n")
    git(other, *FILE, "submodule", "add", "-q", str(deep), "deep")
    git(other, *AS, "commit", "-qm", "deep")
    repo = make_repo(tmp_path / "repo")
    git(repo, *FILE, "submodule", "add", "-q", str(other), "lib")
    git(repo, *FILE, "submodule", "update", "-q", "--init", "--recursive")
    git(repo, "commit", "-qm", "a submodule")
    settings(repo, submodules="init")
    return repo


def link(repo: Path, commit: str = "main") -> str:
    return git(repo, "rev-parse", f"{commit}:lib")


def worktree(repo: Path, task: str) -> Path:
    return layout(repo).worktree(task)


def newer(repo: Path, text: str = "2\n") -> str:
    """A commit of the submodule that the user has fetched, and not checked out."""
    found = commit(repo.parent / "other", "inner.txt", text)
    git(repo / "lib", *FILE, "fetch", "-q")
    return found


def test_agents_and_gates_find_the_submodules_at_the_commit_of_their_tree(repo: Path) -> None:
    settings(repo, submodules="init", gates=[{"name": "g", "command": "cat lib/inner.txt lib/deep/d.txt t.txt"}])
    see = "cat lib/inner.txt lib/deep/d.txt; git -C lib rev-parse HEAD; git submodule status --recursive | cut -c1"
    add(repo, "t", f"run ({see}; git status --porcelain) > t.txt")
    holdfast(repo, "run")
    assert landed(repo) == ["t"], holdfast(repo, "show", "t")
    assert git(repo, "show", "main:t.txt").split() == ["1", "deep", link(repo), "??", "t.txt"]
    assert not worktree(repo, "t").exists()
    sound(repo)


def test_a_submodule_moved_to_a_commit_that_the_repository_has_lands(repo: Path) -> None:
    settings(repo, submodules="init", gates=[{"name": "g", "command": "grep -q 2 lib/inner.txt"}])
    wanted = newer(repo)
    add(repo, "t", f"run git -C lib checkout -q {wanted}")
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and link(repo) == wanted
    # The user's checkout shows it as git does after a pull.
    assert git(repo, "status", "--porcelain", "lib") == "M lib" and (repo / "lib/inner.txt").read_text() == "1\n"
    assert not worktree(repo, "t").exists()
    sound(repo)


def test_a_submodule_that_the_repository_has_not_initialised_is_a_sentence(repo: Path) -> None:
    git(repo, "submodule", "deinit", "-q", "-f", "lib")
    shutil.rmtree(repo / ".git/modules/lib")
    add(repo, "t", "write t.txt x")
    said = holdfast(repo, "run", code=None)
    assert "The submodule lib cannot be set up" in said and "`git submodule update --init --recursive`" in said
    assert state(repo).tasks["t"].attempts == 0 and landed(repo) == []
    for command in (("doctor",), ("list",), ("status",), ("show", "t")):
        told = " ".join(holdfast(repo, *command, code=None).split())
        assert "The submodule lib cannot be set up" in told and "git submodule update --init --recursive" in told, told
    (row,) = json.loads(holdfast(repo, "list", "--json"))["tasks"]
    assert row["next_step"] == "git submodule update --init --recursive"
    assert json.loads(holdfast(repo, "status", "--json"))["ready"] == []
    git(repo, *FILE, "submodule", "update", "-q", "--init", "--recursive")
    holdfast(repo, "run")
    assert landed(repo) == ["t"]


def test_a_submodule_that_is_never_checked_out_needs_no_initialising(repo: Path) -> None:
    git(repo, "submodule", "deinit", "-q", "-f", "lib")
    shutil.rmtree(repo / ".git/modules/lib")
    git(repo, "config", "submodule.lib.update", "none")
    before = link(repo)
    add(repo, "t", "write t.txt x")
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and link(repo) == before


# -- what is made below one -------------------------------------------------------------------------------------------


def test_uncommitted_work_in_a_submodule_is_refused_and_kept(repo: Path) -> None:
    before = link(repo)
    script = "attempt 1: write lib/inner.txt mine\nattempt 1: write lib/deep/new.txt deep work"
    see = "attempt 2: run (cat lib/inner.txt; git -C lib status --porcelain; ls lib/deep) > t.txt"
    add(repo, "t", f"{script}\n{see}")
    said = holdfast(repo, "run")
    assert "it leaves work in the submodule lib (lib/deep, lib/deep/d.txt, lib/deep/new.txt, lib/inner.txt)" in said
    assert landed(repo) == ["t"] and link(repo) == before and state(repo).tasks["t"].attempts == 2
    assert git(repo, "show", "main:t.txt").split() == ["1", "d.txt"]
    turns = "refs/attempts/t.1/turn-2"
    store = layout(repo).snapshots
    assert git(store, "show", f"{turns}:lib/inner.txt") == "mine"
    assert git(store, "show", f"{turns}:lib/deep/new.txt") == "deep work"
    sound(repo)


def test_a_repository_without_a_commit_in_a_submodule_is_reported(repo: Path) -> None:
    add(
        repo,
        "t",
        "attempt 1: run mkdir lib/nest && cd lib/nest && git init -q && echo hi > f\nattempt 2+: write t.txt x",
    )
    assert "it leaves work in the submodule lib (lib/nest" in holdfast(repo, "run")
    assert landed(repo) == ["t"] and state(repo).tasks["t"].attempts == 2
    sound(repo)


COMMIT = "git -C lib -c user.name=x -c user.email=x@x commit -qam mine"


@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
def test_commits_that_only_the_worktree_has_are_refused_and_kept(repo: Path, sandbox: str) -> None:
    before = link(repo)
    script = f"attempt 1: write lib/inner.txt mine\nattempt 1: run {COMMIT} && git -C lib rev-parse HEAD > id"
    add(repo, "t", f"{script}\nattempt 2: write t.txt x\nattempt 2: delete id", sandbox=sandbox)
    said = holdfast(repo, "run")
    assert "it leaves work in the submodule lib (lib/inner.txt)" in said
    assert landed(repo) == ["t"] and link(repo) == before
    store = layout(repo).snapshots
    assert git(store, "show", "refs/attempts/t.1/turn-2:lib/inner.txt") == "mine"
    made = git(store, "show", "refs/attempts/t.1/turn-2:id")
    kept = [path for path in layout(repo).quarantine.glob("submodule-t-*/lib-*") if (path / "HEAD").exists()]
    own = list(layout(repo).inside("cache", "snapshots", "t").glob("own/t.1/git/modules/lib"))
    assert any(git(path, "--git-dir", str(path), "log", "-1", "--format=%s", made) == "mine" for path in (*kept, *own))
    sound(repo)


def test_a_confined_agent_moves_a_submodule(repo: Path) -> None:
    gate = "test $(git -C lib rev-parse HEAD) = $(git rev-parse HEAD:lib) && cat lib/deep/d.txt"
    settings(repo, submodules="init", sandbox="bwrap", gates=[{"name": "g", "command": gate}])
    wanted = newer(repo)
    add(repo, "t", f"run git -C lib checkout -q {wanted}\nrun git status --porcelain > t.txt")
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and link(repo) == wanted
    assert git(repo, "show", "main:t.txt").split() == ["M", "lib", "??", "t.txt"]
    assert not worktree(repo, "t").exists() and git(repo, "-C", "lib", "status", "--porcelain") == ""
    sound(repo)


@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
def test_no_git_of_ours_runs_inside_a_submodule(repo: Path, tmp_path: Path, sandbox: str) -> None:
    """What an agent or a gate puts into the settings of one is theirs alone."""
    mark = layout(repo).worktree("t") / "mark" if sandbox == "bwrap" else tmp_path / "mark"
    plant = f"git -C lib config filter.x.clean 'touch {mark}; cat'; git -C lib config core.fsmonitor 'touch {mark}'"
    plant += "; echo '* filter=x' > lib/.git-attributes; mkdir -p lib/n && git -C lib/n init -q"
    gates = [{"name": "g", "command": f"echo '* filter=x' > lib/.gitattributes; {plant}; rm {mark}; true"}]
    settings(repo, submodules="init", gates=gates)
    script = f"run {plant}; rm -f {mark}\nwrite t.txt x\nwrite lib/inner.txt longer than before"
    add(repo, "t", f"{script}\nrun echo 1 > lib/inner.txt; rm -rf lib/n lib/.git-attributes\nwrite u.txt x")
    add(repo, "u", "write v.txt x")
    holdfast(repo, "run", env={"HOLDFAST_SANDBOX": sandbox})
    assert sorted(landed(repo)) == ["t", "u"] and not mark.exists()


# -- every start makes the worktree equal to its tree -----------------------------------------------------------------


def test_a_start_puts_the_submodules_back(repo: Path, tmp_path: Path) -> None:
    """The worktree was deleted while the attempt was paused; at its last turn a submodule was moved."""
    wanted, see = newer(repo), "cat lib/inner.txt lib/deep/d.txt > t.txt; git -C lib status --porcelain >> t.txt"
    add(repo, "t", f"run git -C lib checkout -q {wanted}\nonce {repo.parent}/paused: rate-limit 900\nrun {see}")
    clock = SetClock(tmp_path)
    process = begin(repo, **clock.env)
    wait_for(lambda: "t" in (tasks := state(repo).tasks) and bool(tasks["t"].cause), "the pause")
    process.kill()
    process.wait()
    shutil.rmtree(worktree(repo, "t"))
    clock.later(1000)
    holdfast(repo, "run", env=clock.env)
    assert landed(repo) == ["t"] and link(repo) == wanted
    assert git(repo, "show", "main:t.txt").split() == ["2", "deep"]
    sound(repo)


def hold_to(repo: Path, base: str, tree: str) -> Worktrees:
    trees = Worktrees(repo, layout(repo), "init")
    trees.prepare("T", base)
    with trees.holding("T", base, tree):
        trees.reset("T", base, tree)
    return trees


def test_a_worktree_becomes_equal_whatever_stands_in_its_submodules(repo: Path) -> None:
    base, wanted = git(repo, "rev-parse", "HEAD"), newer(repo)
    trees = hold_to(repo, base, base)
    path = worktree(repo, "T")
    tree = trees.snapshots("T", base).standing()
    assert tree == git(repo, "rev-parse", f"{base}^{{tree}}")
    for spoil in (
        lambda: git(path / "lib", "checkout", "-q", wanted),
        lambda: (path / "lib/inner.txt").write_text("other"),
        lambda: (path / "lib/deep/new").write_text("other"),
        lambda: shutil.rmtree(path / "lib"),
        lambda: (path / "lib/.git").write_text("gitdir: /nowhere\n"),
        lambda: shutil.rmtree(git_dir(path)),
        lambda: (git_dir(path) / "HEAD").write_text("ref: refs/heads/none\n"),
        lambda: git(path, "rm", "-qf", "lib"),
        lambda: (shutil.rmtree(path / "lib"), (path / "lib").symlink_to(repo.parent)),
    ):
        spoil()
        hold_to(repo, base, base)
        assert trees.snapshots("T", base).standing() == tree
        assert git(path, "status", "--porcelain") == "" and (path / "lib/deep/d.txt").read_text() == "deep\n"
    assert git(path, "submodule", "status", "--recursive").count("-") == 0


def test_locks_that_a_killed_git_left_are_in_nobodys_way(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    trees = hold_to(repo, base, base)
    (worktree(repo, "T") / "lib/inner.txt").write_text("other")
    held = trees.snapshots("T", base).standing()
    private = trees.private("T")
    indexes = list(private.glob("modules-*/*/index-*"))
    assert len(indexes) >= 3
    for index in indexes:
        index.with_name(f"{index.name}.lock").touch()
    (git_dir(worktree(repo, "T")).parent.parent / "holdfast-module").mkdir()
    (git_dir(worktree(repo, "T")).parent.parent / "holdfast-module" / "index.lock").touch()
    assert trees.snapshots("T", base).standing() == held
    hold_to(repo, base, base)
    assert trees.snapshots("T", base).standing() == git(repo, "rev-parse", f"{base}^{{tree}}")


def git_dir(path: Path) -> Path:
    return Path(git(path, "rev-parse", "--absolute-git-dir")) / "modules" / "lib"


def test_line_ends_that_a_checkout_converts_are_no_work(repo: Path) -> None:
    git(repo.parent / "other", "checkout", "-q", "main")
    commit(repo.parent / "other", ".gitattributes", "*.txt text eol=crlf\n")
    git(repo / "lib", *FILE, "fetch", "-q")
    wanted = git(repo / "lib", "rev-parse", "origin/main")
    git(repo / "lib", "checkout", "-q", wanted)
    git(repo, "commit", "-qam", "newer")
    add(repo, "t", "run cp lib/inner.txt t.bin")
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and link(repo) == wanted and git(repo, "cat-file", "-s", "main:t.bin") == "3"
    assert not worktree(repo, "t").exists()


HOLD = """
import sys
from pathlib import Path
from holdfast.worktrees.worktrees import Worktrees
from holdfast.layout import Layout
repo, base = Path(sys.argv[1]), sys.argv[2]
trees = Worktrees(repo, Layout(repo / ".sdd"), "init")
trees.prepare("T", base)
with trees.holding("T", base, base):
    trees.reset("T", base, base)
"""


@pytest.mark.parametrize("point", SUBMODULE_POINTS)
def test_a_kill_while_a_submodule_is_set_up_ends_well(repo: Path, point: str) -> None:
    base, wanted = git(repo, "rev-parse", "HEAD"), newer(repo)
    path, killed = worktree(repo, "T"), 0
    for number in (1, 2):
        trees = hold_to(repo, base, base)
        git(path / "lib", "checkout", "-q", wanted)
        (path / "lib/deep/new").write_text("other")
        env = environment(repo, HOLDFAST_CRASH_AT=f"{point}:{number}")
        done = subprocess.run([sys.executable, "-c", HOLD, str(repo), base], env=env, check=False)
        assert done.returncode in (0, -9)
        killed += done.returncode == -9
        hold_to(repo, base, base)
        assert trees.snapshots("T", base).standing() == git(repo, "rev-parse", f"{base}^{{tree}}")
        assert git(path, "status", "--porcelain") == "" and (path / "lib/deep/d.txt").read_text() == "deep\n"
        assert list(layout(repo).worktrees.glob(".gone-*")) == []
    assert killed == (2 if "make" in point else 1)
