"""Git of ours over files that a confined agent or gate wrote runs nothing of theirs outside the sandbox."""

from __future__ import annotations

from pathlib import Path

from holdfast.domain.attempt_records import Ending
from holdfast.worktrees import merges
from holdfast.worktrees.worktrees import Worktrees
from kit.confined import needs_bwrap
from kit.git import git
from kit.runner import Bench

pytestmark = needs_bwrap


def with_a_filter_of_the_tree(repo: Path) -> None:
    """A user's filter that is a program of the repository, which an agent can change."""
    for name in ("clean", "smudge"):
        git(repo, "config", f"filter.x.{name}", "sh ./filter.sh")
    (repo / "filter.sh").write_text("cat\n")
    (repo / ".gitattributes").write_text("*.txt filter=x\n")
    (repo / "z.txt").write_text("z\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "with a filter")


def test_a_filter_that_a_confined_agent_changed_runs_in_the_sandbox(bench: Bench, tmp_path: Path) -> None:
    with_a_filter_of_the_tree(bench.repo)
    base = git(bench.repo, "rev-parse", "HEAD")
    git(bench.worktree, "checkout", "-q", "--detach", base)
    outside = tmp_path / "ran-outside"
    script = f"""
        run printf 'touch %s 2>/dev/null; touch %s/ran; cat' {outside} "$PWD" > filter.sh
        write z.txt changed
    """
    ended = bench.run(script, sandbox="bwrap")
    assert ended.ending is Ending.DONE
    worktrees = Worktrees(bench.repo, bench.layout)
    worktrees._mark("T", b"")
    worktrees.is_spent("T", landed=ended.snapshot)
    assert (bench.worktree / "ran").exists(), "the filter did not run at all"
    worktrees.prepare("T", base)
    worktrees.reset("T", base, ended.snapshot)
    worktrees.reset("T", base)
    worktrees.remove("T", landed=base)
    assert not outside.exists()


def test_a_filter_of_the_candidate_runs_in_the_sandbox_where_it_is_judged(bench: Bench, tmp_path: Path) -> None:
    """When the worktree to judge in is made, and when it is made another commit after a gate has been at work there."""
    with_a_filter_of_the_tree(bench.repo)
    base, outside = git(bench.repo, "rev-parse", "HEAD"), tmp_path / "ran-outside"
    planted = f"touch {outside} 2>/dev/null; touch ran; cat\n"
    (bench.repo / "filter.sh").write_text(planted)
    git(bench.repo, "commit", "-q", "-m", "candidate", "filter.sh")
    candidate = git(bench.repo, "rev-parse", "HEAD")
    git(bench.repo, "reset", "-q", "--hard", base)
    outside.unlink(missing_ok=True)
    worktrees = Worktrees(bench.repo, bench.layout)
    path = worktrees.scratch(candidate, is_confined=True)
    assert (path / "ran").exists() and not outside.exists()
    (path / "z.txt").write_text("a gate's")
    assert worktrees.scratch(base, is_confined=True) == path and (path / "z.txt").read_text() == "z\n"
    assert not outside.exists()
    (path / "filter.sh").write_text(planted)
    (path / "z.txt").write_text("a gate's")
    assert not (worktrees.scratch(base) / "ran").exists(), "what a confined gate wrote was not made anew"
    assert not outside.exists()


NESTED = """
    run git init -q nested && cd nested && git config user.name x && git config user.email x@x && echo '* filter=x' \
        > .gitattributes && echo 1 > f && git add . && git commit -qm x && git config filter.x.clean 'touch {0}; cat'
    run cd nested && echo 2 > f
    write b 1
    run cd nested && echo 3 > f
"""


def test_no_git_runs_inside_a_nested_repository(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "ran-outside"
    ended = bench.run(NESTED.format(outside), sandbox="bwrap")
    assert ended.ending is Ending.DONE and "b" in bench.tree(ended.snapshot)
    worktrees = Worktrees(bench.repo, bench.layout)
    worktrees._mark("T", b"")
    worktrees.is_spent("T", landed=ended.snapshot)
    worktrees.reset("T", bench.base, ended.snapshot)
    assert not outside.exists()


def test_a_filter_of_a_snapshot_runs_in_the_sandbox_where_it_becomes_a_candidate(bench: Bench, tmp_path: Path) -> None:
    """The agent has its own program be one of the files that git converts, so that it stands where filters run."""
    with_a_filter_of_the_tree(bench.repo)
    base = git(bench.repo, "rev-parse", "HEAD")
    git(bench.worktree, "checkout", "-q", "--detach", base)
    outside, seen = tmp_path / "ran-outside", tmp_path / "seen"
    seen.mkdir()
    script = f"""
        run printf 'touch %s 2>/dev/null; touch %s/ran 2>/dev/null; echo ran; cat' {outside} "$PWD" > filter.sh
        run printf '*.txt filter=x\\nfilter.sh text\\n' > .gitattributes
        write z.txt changed
    """
    ended = bench.run(script, sandbox="bwrap")
    worktrees = Worktrees(bench.repo, bench.layout)
    who = merges.GitAuthor("a", "b")
    made = merges.candidate(worktrees.store, base, ended.snapshot, "work", who, exclude=worktrees.exclude)
    assert made is not None
    assert git(bench.repo, "--git-dir", str(bench.layout.snapshots), "show", f"{made}:z.txt").startswith("ran")
    assert not outside.exists()
