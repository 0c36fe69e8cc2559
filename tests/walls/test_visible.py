"""Of the data root a confined agent sees its own attempt and its worktree, and nothing else; nor do other users."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from holdfast.domain.attempt_records import Ending
from holdfast.storage.files import disk
from holdfast.storage.journal.data_root import create_root, open_root
from holdfast.storage.records.blobs import Blobs
from kit.confined import needs_bwrap, outputs
from kit.git import git
from kit.program import holdfast
from kit.project import add, layout, make_repo, state
from kit.runner import Bench


@needs_bwrap
def test_a_confined_agent_sees_nothing_of_other_attempts_nor_of_the_stores(bench: Bench) -> None:
    other = bench.layout.attempt_files("U.1")
    disk.mkdir(other.agent)
    (other.agent / "mcp.json").write_text("secret-of-another")
    Blobs(bench.layout.cas).put(b"secret-in-a-blob")
    bench.layout.wal.mkdir(parents=True)
    (bench.layout.wal / "1.wal.jsonl").write_text("secret-in-the-journal")
    (bench.layout.worktrees / "U").mkdir()
    (bench.layout.worktrees / "U" / "draft").write_text("secret-in-a-draft")
    sibling = bench.layout.root.parent / "+another"
    create_root(sibling)
    (sibling / "secret").write_text("secret-of-another-repository")
    root = bench.layout.root
    script = f"""
        run grep -rl secret[-] {root} {sibling}; true
        run ls {root} {root}/attempts {root}/worktrees
        run cat {root}/attempts/T.1/process.json > /dev/null && git show HEAD:a && git log --format=%s
        run (echo x > {root}/x; mkdir {root}/cas) 2>/dev/null; test -e {root}/x || test -e {root}/cas || echo shut
    """
    ended = bench.run(script, sandbox="bwrap")
    assert ended.ending is Ending.DONE
    found = outputs(bench)
    assert found[0] == "" and found[2] == "a\nbase\n" and found[3].endswith("shut\n")
    assert {"T", "T.1"} <= set(found[1].split()) and not {"U", "U.1", "cas", "runtime"} & set(found[1].split())


@needs_bwrap
def test_a_confined_gate_sees_nothing_of_the_data_root_but_its_worktree(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    root = layout(repo).root
    verify = [{"command": f'test -z "$(ls -A {root} | grep -v -e worktrees -e cache)" && git log -1 && test -e b'}]
    add(repo, "a", "write b b", sandbox="bwrap", verify=verify, max_attempts=1)
    told = holdfast(repo, "run")
    assert state(repo).tasks["a"].state == "CLOSED", told
    assert git(repo, "show", "main:b") == "b"


def _open_to_others(root: Path) -> list[str]:
    """All of ours that a group or others may touch. What git makes has the modes that it gives; people write the rest.

    The root itself keeps others from these, too.
    """
    names = ("worktrees", "snapshots.git", "cache/snapshots", "backlog", "config", ".gitignore")
    others = [root / name for name in names]
    found = [root] if stat.S_IMODE(root.stat().st_mode) != 0o700 else []
    for parent, folders, files in os.walk(root):
        folders[:] = [name for name in folders if Path(parent, name) not in others]
        for path in (Path(parent, name) for name in [*folders, *files]):
            if path not in others and not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077:
                found.append(path)
    return [str(path.relative_to(root)) for path in found]


def test_files_in_the_data_root_are_their_owners_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        repo = make_repo(tmp_path / "repo")
        add(repo, "a", "write b b", verify=["true"])
        told = holdfast(repo, "run")
    finally:
        os.umask(before)
    assert state(repo).tasks["a"].state == "CLOSED", told
    assert _open_to_others(layout(repo).root) == []


def test_a_root_of_an_earlier_version_is_closed_to_others_at_the_next_start(tmp_path: Path) -> None:
    place = create_root(tmp_path / "data")
    Blobs(place.cas).put(b"x")
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o644)
    (place.cas / "link").symlink_to(outside)
    for parent, folders, files in os.walk(place.root):
        for path in (Path(parent, name) for name in [*folders, *files]):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() else 0o644)
    place.root.chmod(0o755)
    draft = place.worktrees / "T" / "run.sh"
    draft.parent.mkdir()
    draft.write_text("x")
    draft.chmod(0o755)
    open_root(place.root)
    assert _open_to_others(place.root) == []
    assert stat.S_IMODE(draft.stat().st_mode) == 0o755 and stat.S_IMODE(outside.stat().st_mode) == 0o644
