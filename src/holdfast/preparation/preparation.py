"""`prepare`: tree, included files, clones, ports, setup. Every worktree goes through it, an attempt's or one for gates.

Each step finds what an earlier one left and does the rest, so that a crash in between costs nothing but the time. No
process works in the worktree meanwhile: the caller guarantees that.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from holdfast.config.settings import Config
from holdfast.config.worktree import WorktreeSettings
from holdfast.domain.attempt_records import Resources
from holdfast.domain.effect_entries import SetupIntended
from holdfast.errors import SetupFailed
from holdfast.landing import gates as running
from holdfast.landing.gates import GatePlace
from holdfast.landing.judged_trees import JudgedTree
from holdfast.layout import Layout
from holdfast.preparation import clones, hooks, included_files, port_leases
from holdfast.preparation.included_files import IncludeFrom
from holdfast.preparation.port_leases import PortLease
from holdfast.preparation.setup import Setup, digest_of, inputs_of
from holdfast.storage.files import disk
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.blobs import Blobs
from holdfast.worktrees.stamps import read_stamp
from holdfast.worktrees.worktrees import Worktrees

CarryOut = Callable[[SetupIntended], dict[str, Any]]
# The sandbox, the paths that are open there for writing, and the network.
Confinement = tuple[str, Sequence[str], str]


def confinement_of(config: Config, kind: str) -> Confinement:
    return (kind, (), "open") if kind == "none" else (kind, config.sandbox_writable, config.sandbox_network)


class WorktreePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A worktree to prepare, and for whom. `target`: a commit of the target branch, which has the rules. `tree`: the
    commit that the worktree holds. `is_judged`: gates of one candidate after another run there. `is_wanted`: asked
    while commands run; once it is false they are ended."""

    task: str
    attempt: str
    folder: Path
    target: str
    tree: str
    confinement: Confinement = ("none", (), "open")
    is_judged: bool = False
    is_wanted: Callable[[], bool] = lambda: True


class Prepared(msgspec.Struct, frozen=True):
    """`variables`: for every process that works there. `lease`: of its ports, to be inherited by them. `notes`: what a
    person should know."""

    variables: dict[str, str] = {}
    lease: PortLease | None = None
    notes: tuple[str, ...] = ()

    @property
    def descriptors(self) -> tuple[int, ...]:
        return self.lease.descriptors if self.lease is not None else ()


@contextlib.contextmanager
def leased(settings: WorktreeSettings, folder: Path) -> Iterator[Prepared]:
    """The variables and ports of a worktree, as they are, without any preparation."""
    given = {name: os.path.expanduser(value) for name, value in settings.env.items()}
    if not settings.ports:
        yield Prepared(given)
        return
    lease = port_leases.take(port_leases.folder(), settings.ports, folder)
    try:
        yield Prepared({**given, **port_leases.variables(lease.first, lease.count)}, lease)
    finally:
        lease.close()


class Preparation:
    """`confine` wraps a command line into a sandbox, as for a gate."""

    def __init__(
        self,
        repo: Path,
        layout: Layout,
        config: Config,
        blobs: Blobs,
        *,
        worktrees: Worktrees,
        setup: Setup,
        confine: Callable[..., Sequence[str]],
        resources: Resources,
    ) -> None:
        self._repo, self._layout, self._config, self._blobs = repo, layout, config, blobs
        self._worktrees, self._setup, self._confine, self._resources = worktrees, setup, confine, resources

    @property
    def is_slow(self) -> bool:
        """Whether there are commands to run, so that a start is better prepared beside the loop."""
        settings = self._config.worktree
        return bool(settings.setup or settings.before_start or settings.clone)

    @contextlib.contextmanager
    def prepare(self, place: WorktreePlace, make_tree: Callable[[], object], carry_out: CarryOut) -> Iterator[Prepared]:
        """Makes the worktree ready, and holds its ports meanwhile. `make_tree` gives it its tree, `carry_out` performs
        the setup under an intent."""
        make_tree()
        self._include(place)
        notes = self._clone(place.folder)
        with self.leased(place.folder) as prepared:
            self._set_up(place, prepared, carry_out)
            yield msgspec.structs.replace(prepared, notes=notes)

    def leased(self, folder: Path) -> AbstractContextManager[Prepared]:
        return leased(self._config.worktree, folder)

    def for_gates(
        self, carry_out: CarryOut, judged: JudgedTree, make_tree: Callable[[], object]
    ) -> AbstractContextManager[Prepared]:
        """The same for a worktree in which gates run, as `Verify` asks for it."""
        place = WorktreePlace(
            task=judged.task,
            attempt=judged.attempt,
            folder=judged.folder,
            target=judged.target,
            tree=judged.merged,
            confinement=judged.confinement,
            is_judged=True,
            is_wanted=judged.is_wanted,
        )
        return self.prepare(place, make_tree, carry_out)

    def _include(self, place: WorktreePlace) -> None:
        apart = self._layout.within(self._repo)
        source = IncludeFrom(self._worktrees.store.seen, place.target, place.tree, apart)
        included_files.copy(source, place.folder, self._private(place.folder), anew=place.is_judged)

    def _clone(self, folder: Path) -> tuple[str, ...]:
        names = self._config.worktree.clone
        if not names:
            return ()
        staging = self._layout.worktrees / f".gone-clone-{disk.temp_name().strip('.')}"
        return tuple(clones.clone(self._worktrees.store.repository, folder, names, staging))

    def _set_up(self, place: WorktreePlace, prepared: Prepared, carry_out: CarryOut) -> None:
        settings = self._config.worktree
        if not settings.setup:
            return
        inputs = inputs_of(place.folder, settings.inputs)
        digest = digest_of(settings.setup, inputs, settings.env)
        found = read_stamp(self._private(place.folder))
        if found is not None and found.digest == digest:
            return
        self._setup.places[str(place.folder)] = self._hook_place(place, prepared)
        try:
            carry_out(
                SetupIntended(
                    task=place.task,
                    attempt=place.attempt,
                    worktree=str(place.folder),
                    digest=digest,
                    commands=digest_of(settings.setup, {}, {}),
                    inputs=inputs,
                )
            )
        finally:
            del self._setup.places[str(place.folder)]

    def _private(self, folder: Path) -> Path:
        return self._worktrees.private(folder.name)

    def commands(self, hook: str) -> tuple[str, ...]:
        """Those of one of the hooks, by the name of its setting."""
        found: tuple[str, ...] = getattr(self._config.worktree, hook)
        return found

    # -- hooks --------------------------------------------------------------------------------------------------------

    def run_hook(self, name: str, commands: Sequence[str], place: WorktreePlace, prepared: Prepared) -> None:
        """Runs the commands of one of the other hooks. Raises SetupFailed where one fails."""
        if not commands:
            return
        config = self._config
        hook = hooks.HookSet(name, tuple(commands), config.worktree.hook_timeout_s, config.gate_env)
        with running.locked(self._hook_place(place, prepared)) as ready:
            results = hooks.run(hook, ready, self._blobs)
        if (failed := hooks.broken(results)) is not None:
            what, lines = f"`worktree.{name}` {hooks.in_words(failed)}", hooks.last_lines(self._blobs, failed)
            raise SetupFailed(task=place.task, attempt=place.attempt, hook=name, what=what, lines=lines)

    def _hook_place(self, place: WorktreePlace, prepared: Prepared) -> GatePlace:
        files = self._layout.attempt_files(place.attempt)
        attempt_folder.make_folder(files)
        kind, writable, network = place.confinement
        confine, root = self._confine, self._layout.root
        return GatePlace(
            place.task,
            place.attempt,
            files,
            place.folder,
            grace_s=self._config.grace_s,
            confine=None if kind == "none" else lambda argv: confine(argv, place.folder, root, writable, network),
            resources=self._resources,
            variables=prepared.variables,
            leases=prepared.descriptors,
            is_hook=True,
            is_wanted=place.is_wanted,
        )
