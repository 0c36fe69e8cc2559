"""Recognises a landed commit that was amended, rebased or squashed: by lines in a message, its tree or its patch."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.git import command as git

COMMITS_MAX = 5000


def find(repository: git.Repository, branch: str, landed: str, task: str, attempt: str) -> tuple[str, str]:
    """The commit on the branch that `landed` was rewritten as, and the evidence; empty where none is."""
    is_there = not repository.run("cat-file", "-e", f"{landed}^{{commit}}", codes=(0, 1, 128)).failure
    since = [f"^{landed}^@"] if is_there else []
    asked = ("log", f"--max-count={COMMITS_MAX}", "-z", "--format=%H%x01%T%x01%B", branch, *since, "--")
    found = repository.run(*asked, codes=(0, 128))
    if found.failure is not None:
        return "", ""
    commits = [field.strip("\n").split("\x01", 2) for field in found.fields() if field.strip()]
    ours = {f"Holdfast-Task: {task}", f"Holdfast-Attempt: {attempt}"}
    for commit, _, message in commits:
        # In a squash the lines are in the middle of the message, where git does not take them for trailers.
        if ours <= {line.strip() for line in message.splitlines()}:
            return commit, "its message names the task and the attempt"
    if not is_there:
        return "", ""
    tree = repository.run("rev-parse", f"{landed}^{{tree}}").line
    for commit, its_tree, _ in commits:
        if its_tree == tree:
            return commit, "it has the same tree"
    wanted = _patch_ids(repository, [landed])
    by_patch = {patch: commit for commit, patch in _patch_ids(repository, [each[0] for each in commits]).items()}
    commit = by_patch.get(wanted.get(landed, "-"), "")
    return commit, "it makes the same changes" if commit else ""


def _patch_ids(repository: git.Repository, commits: Iterable[str]) -> dict[str, str]:
    text = "".join(f"{commit}\n" for commit in commits).encode()
    if not text:
        return {}
    shown = repository.run("diff-tree", "--stdin", "--patch", "--no-ext-diff", "--no-textconv", "--root", stdin=text)
    lines = repository.run("patch-id", "--stable", stdin=shown.out).line.splitlines()
    return {commit: patch for patch, _, commit in (line.partition(" ") for line in lines)}
