"""The ref that a landing leaves in the user's repository: `refs/holdfast/landed/<data root>/<run>.<seq>.<hash of its
intent>`.

The ref points to the commit that landed, and moves with the branch in one transaction, so it proves how far the journal
once reached, also where the whole data root was restored from a backup. The trailers of a commit could not: they come
with every `git pull` from a colleague. The id of the data root is the random one of `runtime/root.json`. Only the
newest landing has a ref.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from holdfast.git import command as git
from holdfast.layout import Layout
from holdfast.storage.journal import root_place
from holdfast.storage.journal.entry import Ref
from holdfast.worktrees.pins import change

LANDED = "refs/holdfast/landed"


def ref_for(layout: Layout, intent: Ref) -> str:
    """The name of the ref; empty where the data root has no id yet."""
    root = root_place.id_of(layout)
    return f"{LANDED}/{root}/{intent.run}.{intent.seq}.{intent.entry_hash}" if root else ""


def found(repo: Path, layout: Layout) -> dict[str, Ref]:
    """The refs of this data root, each with the intent that it names. A copied root has none of its own yet."""
    root = root_place.id_of(layout)
    if not root or root_place.original_of(layout) is not None:
        return {}
    asked = ("for-each-ref", "--format=%(refname)", f"{LANDED}/{root}/")
    names = git.run(*asked, cwd=repo, env=git.environment({}), codes=(0, 128)).line.splitlines()
    parts = {name: name.rpartition("/")[2].split(".") for name in names}
    return {name: Ref(run, int(seq), digest) for name, (run, seq, digest) in parts.items()}


def forget(repo: Path, refs: Iterable[str]) -> None:
    names = list(refs)
    if names:
        change(git.discover(repo), [f"delete {name}" for name in names], names)
