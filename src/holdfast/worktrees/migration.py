"""Moves the snapshots of data roots of format 1 from the user's repository, below `refs/holdfast/`, to the store.

Every step can be repeated, in this order: the objects, the refs in the store, then `format.json`, which an older
Holdfast refuses from then on, and last the removal of the old refs. After a kill, the next owner does what is missing.

Only commits that the journal knows are taken. Two data roots on one repository wrote the same names: an old ref that is
not at this journal's commit for that turn belongs to the other root, and stays.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.crashpoints import point
from holdfast.domain.wording import plural
from holdfast.git import command as git
from holdfast.git import objects
from holdfast.layout import Layout
from holdfast.ports import Ledger
from holdfast.snapshots.store import ATTEMPTS, Store
from holdfast.storage.journal.data_root import FORMAT, raise_format, read_format
from holdfast.worktrees import pins

OLD = "refs/holdfast"
_KINDS = ("attempts", "candidates", "merged")
MIGRATE_POINTS = tuple(
    f"migrate.{step}.{when}" for step in ("objects", "refs", "format", "old") for when in ("before", "after")
)


class _Known(msgspec.Struct):
    """The journal's facts of each attempt: its turns' commits, and the commit that it began with."""

    turns: dict[str, dict[int, str]] = msgspec.field(default_factory=dict)
    bases: dict[str, str] = msgspec.field(default_factory=dict)


def migrate_older(repo: Path, layout: Layout, ledger: Ledger, say: Callable[[str], None]) -> None:
    """Migrates a root whose format file says that it is of an older format, without asking git first."""
    if read_format(layout).format < FORMAT:
        migrate(repo, layout, ledger, say)


def migrate(repo: Path, layout: Layout, ledger: Ledger, say: Callable[[str], None]) -> None:
    """Migrates what is left to migrate. Only for the owner of the root."""
    repository = git.discover(repo)
    asked = ("for-each-ref", "--format=%(refname) %(objectname)", *(f"{OLD}/{kind}/" for kind in _KINDS))
    old = dict(line.split(" ", 1) for line in repository.run(*asked).line.splitlines())
    mine: dict[str, str] = {}
    if old:
        known = _read(ledger)
        mine = {ref: commit for ref, commit in old.items() if _attempt(ref) in _own(known, old)}
        store = Store(layout.snapshots, repository).prepare()
        pins.tidy(repo, layout, ledger.state.tasks)
        _copy(store, repository, known, mine)
    if read_format(layout).format < FORMAT:
        point("migrate.format.before")
        raise_format(layout)
        point("migrate.format.after")
    if mine:
        point("migrate.old.before")
        pins.change(repository, [f"delete {ref} {commit}" for ref, commit in mine.items()], mine)
        point("migrate.old.after")
        count = plural(len(mine), "snapshot or candidate", "snapshots and candidates")
        say(f"{count} moved from {OLD} of the repository to {layout.snapshots}.")


def _read(ledger: Ledger) -> _Known:
    known = _Known()
    for _, entry in ledger.read():
        attempt = str(entry.inputs.get("attempt", ""))
        if entry.decision_type == "turn_completed" and entry.inputs.get("snapshot"):
            known.turns.setdefault(attempt, {})[int(entry.inputs["turn"])] = str(entry.inputs["snapshot"])
        elif entry.decision_type == "task_spawn_intent":
            known.bases[attempt] = str(entry.inputs.get("base", ""))
    return known


def _own(known: _Known, old: dict[str, str]) -> set[str]:
    """The attempts whose old refs belong to this journal."""
    foreign = {
        attempt
        for attempt, turns in known.turns.items()
        if any(old.get(f"{OLD}/attempts/{attempt}/turn-{turn}", commit) != commit for turn, commit in turns.items())
    }
    return (known.bases.keys() | known.turns.keys()) - foreign


def _attempt(ref: str) -> str:
    """The attempt in `refs/holdfast/attempts/<attempt>/<name>` or `refs/holdfast/candidates/<attempt>[-turn-<n>]`."""
    return ref.split("/")[3].partition("-turn-")[0]


def _copy(store: Store, repository: git.Repository, known: _Known, mine: dict[str, str]) -> None:
    turns = {
        f"{ATTEMPTS}/{name}/turn-{turn}": commit for name, each in known.turns.items() for turn, commit in each.items()
    }
    there = objects.present(repository, [*turns.values(), *known.bases.values()])
    named = {ref: commit for ref, commit in turns.items() if commit in there}
    named |= {f"refs/{ref.removeprefix(f'{OLD}/')}": commit for ref, commit in mine.items()}
    asked = [*sorted(set(named.values())), *(f"^{base}" for base in set(known.bases.values()) if base in there)]
    text = "".join(f"{name}\n" for name in asked).encode()
    names = store.run("rev-list", "--objects", "--no-object-names", "--stdin", stdin=text).line.split() if named else []
    point("migrate.objects.before")
    if missing := store.missing(names):
        with store.working() as folder:
            store.borrow(missing, folder / "objects")
            store.publish(folder / "objects")
    point("migrate.objects.after")
    point("migrate.refs.before")
    for ref, commit in named.items():
        store.name(ref, commit)
    point("migrate.refs.after")
