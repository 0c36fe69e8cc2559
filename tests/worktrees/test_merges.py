"""Candidates and merges: what lands is what the agent made, in the repository's own terms, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.config.sections import Git
from holdfast.config.settings import Config
from holdfast.domain.definition import Definition
from holdfast.errors import NestedRepository, NoIdentity, NoTarget
from holdfast.git.command import discover
from holdfast.layout import Layout
from holdfast.worktrees import merges as merge
from holdfast.worktrees.merges import GitAuthor, Merged
from holdfast.worktrees.worktrees import Worktrees
from kit.git import git, plain, repository, with_files
from kit.snapshots import user_state

pytestmark = pytest.mark.repo(make=plain(a="1\n2\n3\n", b="b\n", c="c\n"))

WHO = GitAuthor("Ada", "ada@example.org")


class Bench:
    """A worktree of one task, and its candidates."""

    def __init__(self, repo: Path) -> None:
        self.repo = repo
        self.base = git(repo, "rev-parse", "HEAD")
        self.trees = Worktrees(repo, Layout(repo / ".sdd"))
        self.path = self.trees.prepare("T-1", self.base)

    def candidate(self) -> str | None:
        saved = self.trees.snapshots("T-1", self.base).take("T-1.1", "end-1")
        return merge.candidate(self.trees.store, self.base, saved.commit, "work\n", WHO, attempt="T-1.1")

    def made(self) -> str:
        made = self.candidate()
        assert made is not None
        return made

    def advance(self, message: str = "meanwhile") -> str:
        """Commits what stands in the user's checkout."""
        git(self.repo, "add", "-A", ":/", ":(exclude).sdd")
        git(self.repo, "commit", "-q", "-m", message)
        return git(self.repo, "rev-parse", "HEAD")

    def merge(self, target: str, candidate: str) -> Merged:
        merged = merge.merge(self.trees.store, target, candidate, "landing\n", WHO)
        if merged.commit:
            merge.keep(self.trees.store, "refs/merged", "T-1.1", merged.commit)
        return merged


def seen(repo: Path, *args: str) -> str:
    """Git in the store, where candidates are until they are judged."""
    return git(repo / ".sdd" / "snapshots.git", *args)


def show(repo: Path, commit: str, path: str) -> str:
    return seen(repo, "cat-file", "blob", f"{commit}:{path}")


def changes(repo: Path, old: str, new: str) -> str:
    return seen(repo, "diff", "--no-renames", "--name-status", old, new)


# -- candidates -------------------------------------------------------------------------------------------------------


def test_a_candidate_is_one_commit_on_its_base(repo: Path) -> None:
    bench = Bench(repo)
    before = user_state(repo)
    (bench.path / "a").write_text("1\n2\n4\n")
    (bench.path / "b").unlink()
    (bench.path / "run").write_text("#!/bin/sh\n")
    (bench.path / "run").chmod(0o755)
    (bench.path / "link").symlink_to("a")
    (bench.path / "folder").mkdir()
    (bench.path / "folder" / "\xfcml\u00e4ut").write_text("x")
    made = bench.made()
    assert seen(repo, "rev-parse", f"{made}^@") == bench.base
    assert changes(repo, bench.base, made).splitlines() == [
        "M\ta", "D\tb", 'A\t"folder/\\303\\274ml\\303\\244ut"', "A\tlink", "A\trun",
    ]  # fmt: skip
    modes = {line.split("\t")[1]: line[:6] for line in seen(repo, "ls-tree", "-r", made).splitlines()}
    assert (modes["run"], modes["link"], modes["a"]) == ("100755", "120000", "100644")
    who = seen(repo, "log", "-1", "--format=%an <%ae> %cn <%ce>", made)
    assert who == "Ada <ada@example.org> Ada <ada@example.org>"
    assert seen(repo, "rev-parse", "refs/candidates/T-1.1") == made
    assert user_state(repo) == before
    assert not any((bench.trees.store.path / "work").iterdir())
    assert not (repo / ".git" / "objects" / made[:2] / made[2:]).exists(), "nobody has judged it yet"


def test_nothing_changed_is_no_candidate(repo: Path) -> None:
    assert Bench(repo).candidate() is None


def test_the_agents_own_commits_become_one_candidate(repo: Path) -> None:
    bench = Bench(repo)
    for number in range(2):
        (bench.path / f"new-{number}").write_text("n")
        git(bench.path, "add", "-A")
        git(bench.path, "commit", "-q", "-m", "the agent's own")
    made = bench.made()
    assert seen(repo, "rev-parse", f"{made}^@") == bench.base
    assert changes(repo, bench.base, made) == "A\tnew-0\nA\tnew-1"


def test_the_data_root_stays_as_the_base_has_it(repo: Path) -> None:
    (repo / ".sdd" / "backlog").mkdir(parents=True)
    (repo / ".sdd" / "backlog" / "T-1.yaml").write_text("goal: x\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "backlog")
    bench = Bench(repo)
    (bench.path / ".sdd" / "backlog" / "T-1.yaml").write_text("the agent was here")
    (bench.path / ".sdd" / "more").write_text("and here")
    assert bench.candidate() is None
    (bench.path / "a").write_text("work\n")
    made = bench.made()
    assert changes(repo, bench.base, made) == "M\ta"
    assert show(repo, made, ".sdd/backlog/T-1.yaml") == "goal: x"
    # What the agent did there is nothing that could be lost.
    assert bench.trees.remove("T-1", landed=made)


def test_line_ends_and_filters_are_the_repositorys(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    git(repo, "config", "filter.shout.clean", "tr a-z A-Z")
    git(repo, "config", "filter.shout.smudge", "tr A-Z a-z")
    (repo / ".gitattributes").write_text("*.txt text eol=crlf\n*.loud filter=shout\n*.bin -text\n")
    (repo / "same.txt").write_bytes(b"one\r\ntwo\r\n")
    (repo / "a.txt").write_bytes(b"one\r\n")
    (repo / "a.loud").write_bytes(b"quiet\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "first")
    bench = Bench(repo)
    assert (bench.path / "same.txt").read_bytes() == b"one\r\ntwo\r\n"
    assert (bench.path / "a.loud").read_bytes() == b"quiet\n"
    assert bench.candidate() is None
    (bench.path / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    (bench.path / "b.bin").write_bytes(b"raw\r\n")
    (bench.path / "b.loud").write_bytes(b"hush\n")
    (bench.path / "late.md").write_bytes(b"x\r\n")
    (bench.path / "sub").mkdir()
    (bench.path / "sub" / ".gitattributes").write_text("*.md text\n")
    (bench.path / "sub" / "late.md").write_bytes(b"x\r\n")
    made = bench.made()
    names = ["a.txt", "b.bin", "b.loud", "late.md", "sub/.gitattributes", "sub/late.md"]
    assert [line.split("\t")[1] for line in changes(repo, bench.base, made).splitlines()] == names
    contents = {
        name: subprocess.check_output(["git", "cat-file", "blob", f"{made}:{name}"], cwd=bench.trees.store.path)
        for name in names
    }
    assert contents["a.txt"] == b"one\ntwo\n" and contents["b.bin"] == b"raw\r\n"
    assert contents["b.loud"] == b"HUSH\n"
    assert contents["late.md"] == b"x\r\n" and contents["sub/late.md"] == b"x\n"
    assert bench.trees.remove("T-1", landed=made)


def test_a_submodule_stays_untouched_and_a_nested_repository_is_refused(repo: Path, tmp_path: Path) -> None:
    inner = with_files(repository(tmp_path / "inner"), i="i")
    git(repo, "submodule", "add", "-q", str(inner), "sub")
    git(repo, "commit", "-q", "-m", "submodule")
    bench = Bench(repo)
    (bench.path / "a").write_text("work\n")
    with_files(repository(bench.path / "nested"), n="n")
    with pytest.raises(NestedRepository, match=r"of its own in nested, .* remove nested/\.git"):
        bench.made()
    shutil.rmtree(bench.path / "nested")
    made = bench.made()
    assert changes(repo, bench.base, made) == "M\ta"
    (repo / "c").write_text("theirs\n")
    target = bench.advance()
    merged = bench.merge(target, made)
    assert changes(repo, target, merged.commit) == "M\ta"
    assert seen(repo, "ls-tree", merged.commit, "sub").startswith("160000")


def test_a_file_becomes_a_folder_and_back(repo: Path) -> None:
    (repo / "d").mkdir()
    (repo / "d" / "x").write_text("x")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "folder")
    bench = Bench(repo)
    (bench.path / "a").unlink()
    (bench.path / "a").mkdir()
    (bench.path / "a" / "inner").write_text("i")
    (bench.path / "d" / "x").unlink()
    (bench.path / "d").rmdir()
    (bench.path / "d").write_text("file")
    made = bench.made()
    assert changes(repo, bench.base, made).splitlines() == ["D\ta", "A\ta/inner", "A\td", "D\td/x"]


# -- merging ----------------------------------------------------------------------------------------------------------


def test_onto_its_own_base_the_candidate_itself_lands(repo: Path) -> None:
    bench = Bench(repo)
    (bench.path / "a").write_text("work\n")
    made = bench.made()
    assert bench.merge(bench.base, made).commit == made


def test_a_target_that_moved_gets_the_change_on_top(repo: Path) -> None:
    bench = Bench(repo)
    (bench.path / "a").write_text("0\n1\n2\n3\n")
    made = bench.made()
    (repo / "a").write_text("1\n2\n3\n4\n")
    (repo / "b").unlink()
    target = bench.advance()
    merged = bench.merge(target, made)
    assert seen(repo, "rev-parse", f"{merged.commit}^@") == target
    assert show(repo, merged.commit, "a") == "0\n1\n2\n3\n4" and merged.conflicts == []
    assert changes(repo, target, merged.commit) == "M\ta"
    assert merged.tree == seen(repo, "rev-parse", f"{merged.commit}^{{tree}}")
    assert seen(repo, "rev-parse", "refs/merged/T-1.1") == merged.commit
    assert git(repo, "rev-parse", "HEAD") == target


def test_a_rewritten_history_brings_nothing_back(repo: Path) -> None:
    (repo / "regretted").write_text("secret\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "to be dropped")
    bench = Bench(repo)
    (bench.path / "a").write_text("work\n")
    made = bench.made()
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    target = git(repo, "rev-parse", "HEAD")
    assert changes(repo, target, bench.merge(target, made).commit) == "M\ta"


def test_a_landed_candidate_is_not_merged_again(repo: Path) -> None:
    bench = Bench(repo)
    (bench.path / "a").write_text("work\n")
    made = bench.made()
    bench.trees.store.hand_over(made, bench.base)
    git(repo, "reset", "-q", "--hard", made)
    (repo / "a").write_text("changed again\n")
    target = bench.advance()
    for commit in (made, bench.base):
        assert bench.merge(target, commit).commit == target


def mine_and_theirs(bench: Bench, kind: str) -> None:
    """Two changes that cannot both be."""
    mine, theirs = bench.path, bench.repo
    match kind:
        case "content":
            (mine / "a").write_text("mine\n")
            (theirs / "a").write_text("theirs\n")
        case "delete":
            (mine / "a").unlink()
            (theirs / "a").write_text("1\n2\n3\n4\n")
        case "rename":
            (mine / "a").rename(mine / "mine")
            (theirs / "a").rename(theirs / "theirs")
        case "symlink":
            for top, target in ((mine, "b"), (theirs, "c")):
                (top / "a").unlink()
                (top / "a").symlink_to(target)
        case "type":
            (mine / "a").unlink()
            (mine / "a").symlink_to("b")
            (theirs / "a").write_text("1\n2\n3\n4\n")
        case "folder":
            (mine / "new").write_text("file\n")
            (theirs / "new").mkdir()
            (theirs / "new" / "inner").write_text("inner\n")


@pytest.mark.parametrize("kind", ["content", "delete", "rename", "symlink", "type", "folder"])
def test_a_conflict_is_an_answer(repo: Path, kind: str) -> None:
    bench = Bench(repo)
    mine_and_theirs(bench, kind)
    made = bench.made()
    target = bench.advance()
    before = user_state(repo)
    merged = bench.merge(target, made)
    assert merged.commit == "" and merged.conflicts
    assert merged.conflicts == sorted(set(merged.conflicts))
    assert seen(repo, "cat-file", "-t", merged.tree) == "tree"
    assert user_state(repo) == before
    # The agent goes on from there: its worktree has the newest target, with its work and the marks in it.
    bench.trees.reset("T-1", target, merged.tree)
    assert git(bench.path, "rev-parse", "HEAD") == target
    if kind == "content":
        assert re.search("<<<<<<<.*theirs.*=======.*mine.*>>>>>>>", (bench.path / "a").read_text(), re.DOTALL)


def test_modes_are_merged(repo: Path) -> None:
    bench = Bench(repo)
    (bench.path / "a").chmod(0o755)
    made = bench.made()
    (repo / "a").write_text("1\n2\n3\n4\n")
    merged = bench.merge(bench.advance(), made)
    assert seen(repo, "ls-tree", merged.commit, "a").startswith("100755") and show(repo, merged.commit, "a")[-1] == "4"


def test_a_rename_is_followed(repo: Path) -> None:
    bench = Bench(repo)
    (bench.path / "a").rename(bench.path / "moved")
    made = bench.made()
    (repo / "a").write_text("1\n2\n3\n4\n")
    merged = bench.merge(bench.advance(), made)
    assert show(repo, merged.commit, "moved") == "1\n2\n3\n4"
    bench.trees.store.hand_over(merged.commit, git(repo, "rev-parse", "HEAD"))
    assert merge.changed(discover(repo), "HEAD", merged.commit) == ["a", "moved"]


def test_the_checkout_has_no_say_in_a_merge(repo: Path) -> None:
    bench = Bench(repo)
    (bench.path / "a").write_text("mine\n")
    made = bench.made()
    (repo / "a").write_text("theirs\n")
    target = bench.advance()
    (repo / ".gitattributes").write_text("* merge=union\n")
    assert bench.merge(target, made).conflicts == ["a"]


KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.storage.files import disk; from holdfast.git import command as git
from holdfast.worktrees import merges as merge
from holdfast.snapshots.store import Store
repo, base, snapshot, count = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
store = Store.of(repo / ".sdd" / "snapshots.git", repo)
real, calls = git.run, 0
def run(*args, **options):
    global calls
    calls += 1
    if calls == count:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **options)
git.run = run
made = merge.candidate(store, base, snapshot, "work", merge.GitAuthor("a", "b"), attempt="T-1.1")
merged = merge.merge(store, sys.argv[5], made, "landing", merge.GitAuthor("a", "b"))
merge.keep(store, "refs/merged", "T-1.1", merged.commit)
"""


def test_killed_before_any_git_it_can_be_done_again(repo: Path) -> None:
    bench = Bench(repo)
    (bench.path / "a").write_text("0\n1\n2\n3\n")
    saved = bench.trees.snapshots("T-1", bench.base).take("T-1.1", "end-1")
    (repo / "b").write_text("meanwhile")
    target = bench.advance()
    killed = 0
    for count in range(1, 1000, 4):
        ended = subprocess.run(
            [sys.executable, "-c", KILLED, str(repo), bench.base, saved.commit, str(count), target], check=False
        )
        if ended.returncode == 0:
            break
        killed += 1
    else:
        pytest.fail("it never came to its end")
    assert killed > 3
    merged = seen(repo, "rev-parse", "refs/merged/T-1.1")
    assert changes(repo, target, merged) == "M\ta"
    assert not any((repo / ".sdd" / "snapshots.git" / "work").iterdir())
    seen(repo, "fsck", "--strict")
    assert not git(repo, "for-each-ref", "refs/holdfast") and not (repo / ".git" / "holdfast").exists()


def test_nothing_is_taken_by_gc(repo: Path) -> None:
    bench = Bench(repo)
    (bench.path / "a").write_text("0\n1\n2\n3\n")
    made = bench.made()
    (repo / "b").write_text("meanwhile")
    merged = bench.merge(bench.advance(), made)
    git(repo, "gc", "-q", "--prune=now")
    assert show(repo, made, "a") == show(repo, merged.commit, "a") == "0\n1\n2\n3"


# -- who and where ----------------------------------------------------------------------------------------------------


@pytest.fixture
def no_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    for name in [name for name in os.environ if name.startswith("GIT_")] + ["XDG_CONFIG_HOME", "EMAIL"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return home


def settings(**values: str) -> Config:
    return Config(git=Git(**values))


def test_the_author_comes_from_the_settings_then_from_git(repo: Path, no_user: Path) -> None:
    with pytest.raises(NoIdentity, match=r"git config user\.name.*git config user\.email.*git\.author_name"):
        merge.identity(repo, Config())
    both = settings(author_name="S", author_email="s@x")
    assert merge.identity(repo, both) == GitAuthor("S", "s@x")
    (no_user / ".gitconfig").write_text("[user]\n\tname = Home <Body>\n\temail = h@x\n")
    assert merge.identity(repo, Config()) == GitAuthor("Home Body", "h@x")
    assert merge.identity(repo, settings(author_name="S")) == GitAuthor("S", "h@x")
    git(repo, "config", "user.email", "repo@x")
    assert merge.identity(repo, Config()).email == "repo@x"
    assert merge.identity(repo, both) == GitAuthor("S", "s@x")


def test_a_name_alone_is_not_enough(repo: Path, no_user: Path) -> None:
    (no_user / ".gitconfig").write_text("[user]\n\tname = Only\n")
    with pytest.raises(NoIdentity):
        merge.identity(repo, Config())
    assert merge.identity(repo, settings(author_email="s@x")) == GitAuthor("Only", "s@x")


def test_the_target_is_the_branch_of_the_settings_or_the_checked_out_one(repo: Path, tmp_path: Path) -> None:
    assert merge.target_branch(repo, Config()) == "refs/heads/main"
    assert merge.target_branch(repo, settings(target_branch="release/1")) == "refs/heads/release/1"
    assert merge.newest(repo, "refs/heads/main") == git(repo, "rev-parse", "HEAD")
    with pytest.raises(NoTarget, match="has no commit yet"):
        merge.newest(repo, "refs/heads/release/1")
    with pytest.raises(NoTarget, match="cannot be the name"):
        merge.target_branch(repo, settings(target_branch="a..b"))
    git(repo, "checkout", "-q", "--detach")
    with pytest.raises(NoTarget, match="no branch is checked out"):
        merge.target_branch(repo, Config())
    with pytest.raises(NoTarget):
        merge.newest(repository(tmp_path / "empty"), "refs/heads/main")


@pytest.mark.parametrize(
    ("made", "first"),
    [
        (Definition("T-1", title=" The  title ", goal="g"), "The title"),
        (Definition("T-1", goal="First line\nmore"), "First line"),
        (Definition("T-1", script="say x"), "T-1"),
        (Definition("T-1", title="x" * 100), "x" * 71 + "…"),
    ],
)
def test_the_message_leads_back(repo: Path, made: Definition, first: str) -> None:
    bench = Bench(repo)
    (bench.path / "a").write_text("work\n")
    saved = bench.trees.snapshots("T-1", bench.base).take("T-1.1", "end-1")
    text = merge.message("T-1", "T-1.1", made)
    commit = merge.candidate(bench.trees.store, bench.base, saved.commit, text, WHO)
    assert commit is not None and seen(repo, "log", "-1", "--format=%s", commit) == first
    asked = "--format=%(trailers:key=Holdfast-Task,valueonly)%(trailers:key=Holdfast-Attempt,valueonly)"
    assert seen(repo, "log", "-1", asked, commit) == "T-1\nT-1.1"


def test_sha256_repositories_and_linked_checkouts(tmp_path: Path) -> None:
    repo = with_files(repository(tmp_path / "repo", "--object-format=sha256"), a="1\n")
    (repo / ".gitattributes").write_text("* text=auto eol=crlf\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "attributes")
    git(repo, "worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"))
    bench = Bench(tmp_path / "linked")
    (bench.path / "a").write_bytes(b"1\r\n2\r\n")
    made = bench.made()
    assert len(made) == 64 and show(bench.repo, made, "a") == "1\n2"
    assert discover(repo).common_dir == discover(tmp_path / "linked").common_dir


def test_records_are_plain() -> None:
    assert msgspec.json.decode(msgspec.json.encode(Merged("", "t", ["a"])), type=Merged) == Merged("", "t", ["a"])
