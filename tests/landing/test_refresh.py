"""A user's checkout after a landing, in all the ways in which it can be dirty."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import errors
from holdfast.git import command
from holdfast.landing.refresh import NAMED_MAX, REFRESH_POINTS, Refresh, blockers, checkouts, expect_not_reverted
from holdfast.ports import DidNotHappen, Happened
from holdfast.storage.files import disk
from holdfast.testing.recorder import Recorder
from kit.git import git, repository
from kit.landing import intent, killed, perform
from kit.snapshots import Tree, tree_of

MAIN = "refs/heads/main"
OLD = {
    "edit": "old\n", "keep": "kept\n", "gone": "gone\n", "deep/er/gone": "gone\n", "folder/file": "in a folder\n",
    "file": "a file\n", "tool": "tool\n", "link": "->keep", "plain": "plain\n", "lf.txt": "one\ntwo\n",
}  # fmt: skip
NEW = {
    "edit": "new\n", "keep": "kept\n", "folder": "now a file\n", "file/inside": "now a folder\n", "tool": "tool\n",
    "link": "->edit", "plain": "->edit", "lf.txt": "one\nthree\n", "added/deep": "added\n",
}  # fmt: skip
CHANGED = {*OLD, *NEW} - {"keep"}


def lay(top: Path, files: dict[str, str], *programs: str) -> None:
    for entry in top.iterdir():
        if entry.name != ".git":
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    for name, content in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("->"):
            path.symlink_to(content[2:])
        else:
            path.write_text(content)
        if name in programs:
            path.chmod(0o755)


def commit(repo: Path) -> str:
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "--allow-empty", "-m", "made")
    return git(repo, "rev-parse", "HEAD")


def landed(path: Path, old: dict[str, str] = OLD, new: dict[str, str] = NEW) -> tuple[Path, dict[str, str]]:
    """A repository whose branch is at the new commit and whose checkout and index are as the old one left them."""
    repo = repository(path)
    lay(repo, old)
    before = commit(repo)
    lay(repo, new, "tool")
    after = commit(repo)
    git(repo, "reset", "-q", "--hard", before)
    git(repo, "update-ref", MAIN, after)
    return repo, {"checkout": str(repo), "old": before, "new": after}


def status(repo: Path) -> list[str]:
    return git(repo, "status", "--porcelain", "--untracked-files=all").splitlines()


def blocked(repo: Path, inputs: dict[str, str]) -> list[str]:
    """What a landing would have waited for: the branch still is where it was."""
    git(repo, "update-ref", MAIN, inputs["old"])
    found = blockers(repo, MAIN, inputs["old"], inputs["new"])
    git(repo, "update-ref", MAIN, inputs["new"])
    return found


def refresh(inputs: dict[str, str]) -> dict[str, Any]:
    asked = intent("refresh", **inputs)
    result = Refresh().perform(asked)
    assert Refresh().reconcile(asked) == Happened(result)
    assert Refresh().perform(asked) == result, "again it changes nothing"
    return result


def leftovers(repo: Path) -> list[str]:
    return [str(path) for path in repo.rglob("*") if path.name.endswith((".tmp", "index.lock"))]


def test_a_clean_checkout_becomes_the_new_commit(tmp_path: Path) -> None:
    repo, inputs = landed(tmp_path / "repo")
    assert blocked(repo, inputs) == []
    assert Refresh().reconcile(intent("refresh", **inputs)) == DidNotHappen()
    assert refresh(inputs) == {"left": [], "updated": len(CHANGED)}
    assert status(repo) == [] and leftovers(repo) == []
    assert git(repo, "diff-files", "--name-only") == "", "the index knows the new files' times"
    assert os.access(repo / "tool", os.X_OK) and os.readlink(repo / "link") == os.readlink(repo / "plain") == "edit"
    assert (repo / "folder").is_file() and not (repo / "deep").exists()


def test_other_modified_staged_or_untracked_files_do_not_matter(tmp_path: Path) -> None:
    repo, inputs = landed(tmp_path / "repo")
    (repo / "keep").write_text("the user's\n")
    (repo / "staged").write_text("staged\n")
    git(repo, "add", "staged")
    (repo / ".sdd" / "runtime").mkdir(parents=True)
    (repo / ".sdd" / "runtime" / "lock").write_text("{}")
    assert blocked(repo, inputs) == []
    assert refresh(inputs)["left"] == []
    assert [line.split()[-1] for line in status(repo)] == ["keep", "staged", ".sdd/runtime/lock"]
    assert (repo / "keep").read_text() == "the user's\n"


def write(name: str, text: str) -> Callable[[Path], None]:
    def act(repo: Path) -> None:
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(text)

    return act


def staged(name: str, text: str) -> Callable[[Path], None]:
    def act(repo: Path) -> None:
        write(name, text)(repo)
        git(repo, "add", name)

    return act


def staged_then_reverted(repo: Path) -> None:
    staged("edit", "staged\n")(repo)
    (repo / "edit").write_text("old\n")


def ignored(repo: Path) -> None:
    (repo / ".git" / "info" / "exclude").write_text("added\n")
    write("added/deep", "ignored\n")(repo)


def relinked(repo: Path) -> None:
    (repo / "link").unlink()
    (repo / "link").symlink_to("elsewhere")


def linked_folder(repo: Path) -> None:
    """The folder of an added file leads out of the checkout."""
    (repo.parent / "outside").mkdir()
    (repo / "added").symlink_to(repo.parent / "outside")


def linked_away(repo: Path) -> None:
    """The folder of a deleted file leads to a copy of it elsewhere."""
    shutil.move(repo / "deep", repo.parent / "deep")
    (repo / "deep").symlink_to(repo.parent / "deep")


def untracked_by_user(repo: Path) -> None:
    git(repo, "rm", "-q", "--cached", "gone")


def replaced_by_folder(repo: Path) -> None:
    (repo / "edit").unlink()
    write("edit/mine", "mine\n")(repo)


def conflict(repo: Path) -> None:
    blob = git(repo, "rev-parse", "HEAD:keep")
    lines = "".join(f"100644 {blob} {stage}\tedit\n" for stage in (1, 2, 3))
    subprocess.run(["git", "rm", "-q", "--cached", "edit"], cwd=repo, check=True)
    subprocess.run(["git", "update-index", "--index-info"], input=lines.encode(), cwd=repo, check=True)


OWN: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "modified": (write("edit", "mine\n"), ["edit"]),
    "staged": (staged("edit", "mine\n"), ["edit"]),
    "staged, the file as it was": (staged_then_reverted, ["edit"]),
    "deleted": (lambda repo: (repo / "edit").unlink(), ["edit"]),
    "executable": (lambda repo: (repo / "edit").chmod(0o755), ["edit"]),
    "modified what is deleted": (write("gone", "mine\n"), ["gone"]),
    "no longer tracked, but kept": (untracked_by_user, ["gone"]),
    "untracked in the way": (write("added/deep", "mine\n"), ["added/deep"]),
    "ignored in the way": (ignored, ["added/deep"]),
    "a file where a folder comes": (write("added", "mine\n"), ["added/deep"]),
    "a file in a folder that becomes a file": (write("folder/mine", "mine\n"), ["folder"]),
    "modified what becomes a folder": (write("file", "mine\n"), ["file", "file/inside"]),
    "another link": (relinked, ["link"]),
    "a link for a folder": (linked_folder, ["added/deep"]),
    "a folder for a file": (replaced_by_folder, ["edit"]),
    "staged below what becomes a file": (staged("folder/mine", "mine\n"), ["folder"]),
    "conflict": (conflict, ["edit"]),
}  # fmt: skip


def own_part(tree: Tree, paths: list[str]) -> Tree:
    return {name: held for name, held in tree.items() if any(under(os.fsdecode(name), path) for path in paths)}


def under(name: str, path: str) -> bool:
    return name == path or name.startswith(path + "/") or path.startswith(name + "/")


@pytest.mark.parametrize("way", OWN)
def test_files_of_the_users_own_are_left_and_named(tmp_path: Path, way: str) -> None:
    repo, inputs = landed(tmp_path / "repo")
    do, paths = OWN[way]
    do(repo)
    before, entries = tree_of(repo), git(repo, "ls-files", "-s", "--", *paths)
    outside = tree_of(tmp_path)
    assert sorted(blocked(repo, inputs)) == paths
    result = refresh(inputs)
    assert sorted(result["left"]) == paths and result["updated"] == len(CHANGED) - len(paths)
    after = tree_of(repo)
    for name, held in own_part(before, paths).items():
        # What the landing deletes below a folder that becomes a file goes, though the folder stays.
        if name != b"folder/file":
            assert after.get(name) == held, name
    if "folder" not in paths:
        assert git(repo, "ls-files", "-s", "--", *paths) == entries
    assert {path: held for path, held in tree_of(tmp_path).items() if b"repo/" not in path} == {
        path: held for path, held in outside.items() if b"repo/" not in path
    }
    others = [line[3:] for line in status(repo) if not any(under(line[3:], path) for path in paths)]
    assert others == [], "all else is the new commit's"
    assert leftovers(repo) == []


def test_a_deleted_file_reached_through_a_link_is_not_removed(tmp_path: Path) -> None:
    repo, inputs = landed(tmp_path / "repo")
    linked_away(repo)
    refresh(inputs)
    assert (tmp_path / "deep" / "er" / "gone").read_text() == "gone\n"


def test_a_file_with_the_new_content_is_only_noted_in_the_index(tmp_path: Path) -> None:
    repo, inputs = landed(tmp_path / "repo")
    (repo / "edit").write_text("new\n")
    write("added/deep", "added\n")(repo)
    (repo / "gone").unlink()
    inode = (repo / "edit").stat().st_ino
    assert blocked(repo, inputs) == []
    assert refresh(inputs)["left"] == [] and status(repo) == []
    assert (repo / "edit").stat().st_ino == inode


def test_line_endings_and_filters_are_gits(tmp_path: Path) -> None:
    attributes = {".gitattributes": "*.txt text eol=crlf\n*.up filter=up\n"}
    old = {**attributes, "a.txt": "one\n", "b.txt": "mine\n", "c.up": "old\n"}
    new = {**attributes, "a.txt": "two\n", "b.txt": "other\n", "c.up": "new\n"}
    repo = repository(tmp_path / "repo")
    git(repo, "config", "filter.up.clean", "tr A-Z a-z")
    git(repo, "config", "filter.up.smudge", "tr a-z A-Z")
    lay(repo, old)
    before = commit(repo)
    lay(repo, new)
    after = commit(repo)
    git(repo, "reset", "-q", "--hard", before)
    lay(repo, {})
    git(repo, "reset", "-q", "--hard", before)
    assert (repo / "a.txt").read_bytes() == b"one\r\n" and (repo / "c.up").read_text() == "OLD\n"
    git(repo, "update-ref", MAIN, after)
    (repo / "b.txt").write_bytes(b"changed\r\n")
    inputs = {"checkout": str(repo), "old": before, "new": after}
    assert blocked(repo, inputs) == ["b.txt"]
    assert refresh(inputs) == {"left": ["b.txt"], "updated": 2}
    assert (repo / "a.txt").read_bytes() == b"two\r\n" and (repo / "c.up").read_text() == "NEW\n"
    assert (repo / "b.txt").read_bytes() == b"changed\r\n"


def crlf_landing(path: Path) -> tuple[Path, dict[str, str]]:
    """The landing itself changes the rule by which files are written."""
    names = ("a.txt", "z/b.txt")
    old = {".gitattributes": "*.txt text eol=crlf\n", **dict.fromkeys(names, "one\n")}
    new = {".gitattributes": "*.txt -text\n", **dict.fromkeys(names, "two\n")}
    repo, inputs = landed(path, old, new)
    lay(repo, {})
    git(repo, "update-ref", MAIN, inputs["old"])
    git(repo, "reset", "-q", "--hard")
    git(repo, "update-ref", MAIN, inputs["new"])
    assert (repo / "a.txt").read_bytes() == b"one\r\n"
    return repo, inputs


def test_a_kill_while_the_attributes_change_is_still_finished(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        repo, inputs = crlf_landing(tmp_path / str(number))
        killed("refresh", repo, inputs, "refresh.write.after", number)
        assert Refresh().reconcile(intent("refresh", **inputs)) == DidNotHappen()
        assert refresh(inputs) == {"left": [], "updated": 3}
        assert (repo / "z" / "b.txt").read_bytes() == b"two\n" and status(repo) == []


def test_a_sparse_checkout_stays_sparse(tmp_path: Path) -> None:
    old = {"in/a": "old\n", "out/a": "old\n", "out/gone": "gone\n", "top": "old\n"}
    new = {"in/a": "new\n", "out/a": "new\n", "out/added": "added\n", "in/added": "added\n", "top": "new\n"}
    repo, inputs = landed(tmp_path / "repo", old, new)
    git(repo, "update-ref", MAIN, inputs["old"])
    git(repo, "sparse-checkout", "set", "in")
    git(repo, "update-ref", MAIN, inputs["new"])
    assert not (repo / "out").exists()
    assert blocked(repo, inputs) == []
    assert refresh(inputs) == {"left": [], "updated": 6}
    assert status(repo) == [] and not (repo / "out").exists()
    assert (repo / "in" / "added").read_text() == "added\n" and (repo / "top").read_text() == "new\n"
    git(repo, "sparse-checkout", "disable")
    assert tree_of(repo).keys() == {os.fsencode(name) for name in new} and status(repo) == []


def test_the_folder_of_a_submodule_is_left_and_named(tmp_path: Path) -> None:
    library, _ = landed(tmp_path / "library", {"a": "old\n"}, {"a": "new\n"})
    repo = repository(tmp_path / "repo")
    lay(repo, {"edit": "old\n"})
    git(repo, "submodule", "--quiet", "add", str(library), "sub")
    at = git(repo / "sub", "rev-parse", "HEAD~1")
    git(repo / "sub", "checkout", "-q", at)
    before = commit(repo)
    git(repo / "sub", "checkout", "-q", "main")
    (repo / "edit").write_text("new\n")
    after = commit(repo)
    git(repo, "reset", "-q", "--hard", before)
    git(repo / "sub", "checkout", "-q", at)
    git(repo, "update-ref", MAIN, after)
    inputs = {"checkout": str(repo), "old": before, "new": after}
    assert blocked(repo, inputs) == []
    assert refresh(inputs) == {"left": ["sub"], "updated": 1}
    assert git(repo / "sub", "rev-parse", "HEAD") == at and git(repo, "diff", "--cached", "--name-only") == ""


def test_odd_names_are_names(tmp_path: Path) -> None:
    names = [" leading", "new\nline", 'quo"te', "star*", "-dash", "tab\there", os.fsdecode(b"b\xffyte"), "ünï/cödé"]
    repo, inputs = landed(tmp_path / "repo", dict.fromkeys(names, "old\n"), dict.fromkeys(names, "new\n"))
    (repo / "star*").write_text("mine\n")
    assert blocked(repo, inputs) == ["star*"]
    assert refresh(inputs) == {"left": ["star*"], "updated": len(names) - 1}
    assert all((repo / name).read_text() == "new\n" for name in names if name != "star*")


def test_every_worktree_that_has_the_branch_is_known_and_refreshed(tmp_path: Path) -> None:
    repo, inputs = landed(tmp_path / "repo")
    git(repo, "checkout", "-q", "-f", "--detach", inputs["old"])
    other = tmp_path / "other"
    git(repo, "update-ref", MAIN, inputs["old"])
    git(repo, "worktree", "add", "-q", str(other), "main")
    assert checkouts(repo, MAIN) == [other] and blockers(repo, MAIN, inputs["old"], inputs["new"]) == []
    git(repo, "update-ref", MAIN, inputs["new"])
    before = tree_of(repo)
    assert refresh({**inputs, "checkout": str(other)})["left"] == []
    assert status(other) == [] and tree_of(repo) == before
    assert refresh(inputs) == {"left": [], "updated": 0}, "there something else is checked out"
    assert tree_of(repo) == before
    assert refresh({**inputs, "checkout": str(tmp_path / "removed")}) == {"left": [], "updated": 0}


def test_a_commit_of_the_user_on_top_is_left(tmp_path: Path) -> None:
    repo, inputs = landed(tmp_path / "repo")
    (repo / "edit").write_text("mine\n")
    git(repo, "commit", "-q", "-m", "mine", "--only", "edit")
    assert refresh(inputs)["left"] == ["edit"]
    assert (repo / "edit").read_text() == "mine\n"


def test_an_index_that_a_living_git_holds_is_waited_for_and_kept(tmp_path: Path) -> None:
    repo, inputs = landed(tmp_path / "repo")
    lock, before = repo / ".git" / "index.lock", tree_of(repo)
    script = "import sys; held = open(sys.argv[1], 'x'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as living:
        assert living.stdout and living.stdout.readline()
        with pytest.raises(errors.GitLocked, match=f"process {living.pid}"):
            Refresh().perform(intent("refresh", **inputs))
        assert tree_of(repo) == before and lock.exists()
        assert Refresh().reconcile(intent("refresh", **inputs)) == DidNotHappen()
        living.communicate()
    assert refresh(inputs)["left"] == [], "what the dead one left is removed"
    assert status(repo) == []


def test_the_flags_of_an_entry_stay(tmp_path: Path) -> None:
    repo, inputs = landed(tmp_path / "repo")
    git(repo, "update-index", "--assume-unchanged", "edit")
    assert refresh(inputs)["left"] == []
    assert git(repo, "ls-files", "-v", "edit") == "h edit" and (repo / "edit").read_text() == "new\n"


def dirty(path: Path) -> tuple[Path, dict[str, str]]:
    repo, inputs = landed(path)
    (repo / "lf.txt").write_text("mine\n")
    (repo / "untracked").write_text("mine\n")
    return repo, inputs


def end_state(repo: Path) -> tuple[Tree, str, list[str]]:
    folders = sorted(
        str(path.relative_to(repo)) for path in repo.rglob("*") if path.is_dir() and ".git" not in path.parts
    )
    return tree_of(repo), git(repo, "ls-files", "-s"), folders


@pytest.mark.heavy
def test_every_point_is_reached_and_a_kill_there_ends_the_same(tmp_path: Path) -> None:
    repo, inputs = dirty(tmp_path / "whole")
    log = tmp_path / "log"
    result = perform("refresh", repo, inputs, log=log)
    expected, reached = end_state(repo), log.read_text().splitlines()
    assert result["left"] == ["lf.txt"] and set(reached) == set(REFRESH_POINTS)
    shutil.rmtree(repo)
    template, inputs = dirty(tmp_path / "repo")
    shutil.move(template, tmp_path / "template")
    for at in REFRESH_POINTS:
        # The middle one of several, so that some are done and some are not.
        number = (reached.count(at) + 1) // 2
        repo = Path(shutil.copytree(tmp_path / "template", template, symlinks=True))
        killed("refresh", repo, inputs, at, number)
        verdict = Refresh().reconcile(intent("refresh", **inputs))
        assert verdict == (Happened(result) if end_state(repo) == expected else DidNotHappen()), at
        if verdict == DidNotHappen():
            # The last time it dies where the files are done, whatever was done of them before.
            killed("refresh", repo, inputs, at if number == 1 else "refresh.index.before")
        assert perform("refresh", repo, inputs) == result
        assert end_state(repo) == expected and leftovers(repo) == [], at
        shutil.rmtree(repo)


def synced(repo: Path, act: Callable[[], object]) -> list[tuple[str, str]]:
    """Syncs and renames, in order, each with the place that is synced or that gets its content."""
    recorder = Recorder(repo)
    with disk.use_kernel(recorder):
        act()
    return [(call.kind, call.target or call.path) for call in recorder.calls if call.kind in ("sync", "rename")]


def test_files_then_their_folders_then_the_index_are_on_disk_before_the_outcome(tmp_path: Path) -> None:
    repo, inputs = landed(tmp_path / "repo", {"in/a": "old\n"}, {"in/a": "new\n"})
    calls = synced(repo, lambda: Refresh().perform(intent("refresh", **inputs)))
    file, index = calls.index(("rename", "in/a")), calls.index(("rename", ".git/index"))
    assert any(kind == "sync" and place.endswith(".tmp/in/a") for kind, place in calls[:file])
    assert calls[file + 1] == ("sync", "in") and file < index
    assert calls[index - 1][1].endswith("/index") and ("sync", ".git") in calls[index:]


def test_files_that_a_killed_process_left_unsynced_are_synced_before_they_count(tmp_path: Path) -> None:
    repo, inputs = landed(tmp_path / "repo", {"in/a": "old\n"}, {"in/a": "new\n"})
    Refresh().perform(intent("refresh", **inputs))
    calls = synced(repo, lambda: Refresh().reconcile(intent("refresh", **inputs)))
    assert {("sync", "in"), ("sync", "."), ("sync", ".git")} <= set(calls[-3:])


def test_a_file_that_a_stash_removes_before_the_index_knows_it_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`git stash -u` begins before, and cleans what its index does not know; its reset then finds the index locked."""
    repo, inputs = landed(tmp_path / "repo")
    cleaned: list[str] = []

    def clean(name: str) -> None:
        if name == "refresh.index.before":
            cleaned.extend(git(repo, "clean", "-f", "-d").splitlines())

    monkeypatch.setattr("holdfast.landing.refresh.point", clean)
    assert Refresh().perform(intent("refresh", **inputs)) == {"left": [], "updated": len(CHANGED)}
    assert "Removing added/" in cleaned, "the fault did not fire"
    assert status(repo) == [] and (repo / "added" / "deep").read_text() == "added\n"


def test_a_file_removed_after_a_kill_is_left_and_named(tmp_path: Path) -> None:
    repo, inputs = landed(tmp_path / "repo")
    killed("refresh", repo, inputs, "refresh.index.after")
    (repo / "added" / "deep").unlink()
    (repo / "edit").unlink()
    found = Refresh().reconcile(intent("refresh", **inputs))
    assert found == Happened({"left": ["added/deep", "edit"], "updated": len(CHANGED) - 2})
    (repo / ".git" / "index.lock").unlink()
    assert git(repo, "diff-files", "--name-only").splitlines() == ["added/deep", "edit"]


# -- commits from an index that has not followed ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_top", "reverted"),
    [
        ({}, []),
        ({"mine": "x"}, []),
        # Another change of the same file is the person's own.
        ({"edit": "theirs\n"}, []),
        ({"edit": "old\n", "mine": "x"}, ["edit"]),
        ({"gone": "gone\n", "[added]": None}, ["[added]", "gone"]),
    ],
)
def test_a_commit_that_puts_old_files_back_is_named_with_what_restores_them(
    tmp_path: Path, on_top: dict[str, str | None], reverted: list[str]
) -> None:
    repo = repository(tmp_path / "repo")
    lay(repo, {"edit": "old\n", "keep": "kept\n", "gone": "gone\n"})
    old = commit(repo)
    lay(repo, {"edit": "new\n", "keep": "kept\n", "[added]": "added\n"})
    new = commit(repo)
    for name, content in on_top.items():
        (repo / name).unlink() if content is None else (repo / name).write_text(content)
    top = commit(repo) if on_top else new
    found = command.discover(repo)
    if not reverted:
        expect_not_reverted(found, "t", MAIN, old, new)
        return
    with pytest.raises(errors.LandingReverted) as seen:
        expect_not_reverted(found, "t", MAIN, old, new)
    restore = shlex.join(["git", "restore", f"--source={new}", "--staged", "--worktree", "--", *reverted])
    assert str(seen.value) == str(
        errors.LandingReverted(
            task="t", commit=top[:12], branch="main", landed=new[:12], paths=", ".join(reverted), restore=restore
        )
    )


def test_of_many_files_that_were_put_back_the_first_are_named_and_the_commit_is_to_be_reverted(tmp_path: Path) -> None:
    repo, names = repository(tmp_path / "repo"), [f"f{number:02}" for number in range(NAMED_MAX + 2)]
    lay(repo, dict.fromkeys(names, "old\n"))
    old = commit(repo)
    lay(repo, dict.fromkeys(names, "new\n"))
    new = commit(repo)
    lay(repo, dict.fromkeys(names, "old\n"))
    top = commit(repo)
    with pytest.raises(errors.LandingReverted, match=f"f{NAMED_MAX - 1:02} and 2 more.*git revert {top}"):
        expect_not_reverted(command.discover(repo), "t", MAIN, old, new)
