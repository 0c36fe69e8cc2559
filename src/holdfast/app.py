"""The composition root: the only place that knows which adapter stands behind which port."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.backlog.folder import Backlog
from holdfast.clock import monotonic, wall
from holdfast.config.layers import Loaded, load
from holdfast.config.new_file import DEFAULT_SETTINGS
from holdfast.config.settings import Config
from holdfast.domain.state import State
from holdfast.errors import (
    BacklogAlone,
    GitUnusable,
    HoldfastError,
    Locked,
    NotInitialised,
    NotInRepository,
    RepositoryMoved,
)
from holdfast.layout import Layout
from holdfast.ledgers.files import FileLedger, Judge
from holdfast.ledgers.reader import FileLedgerReader, read_state
from holdfast.ports import Effects
from holdfast.storage.files import disk
from holdfast.storage.journal import root_place as place
from holdfast.storage.journal.checkpoint import Recovered
from holdfast.storage.journal.data_root import (
    create_root,
    expect_repository,
    has_journal,
    moved_from,
    note_root_commit,
    open_root,
    read_root,
)

# What only a session uses is loaded by it: looking is what people wait for.
if TYPE_CHECKING:
    from holdfast.backlog.sync import SyncReport
    from holdfast.decisions.context import Answer
    from holdfast.domain.entries import AuditNoted, ReplayCompleted
    from holdfast.engine.recover import Closed
    from holdfast.storage.audit.from_journal import Auditor
    from holdfast.storage.journal.entry import Ref
    from holdfast.storage.journal.lock import Holder
    from holdfast.storage.records.blobs import Blobs

# Git carries what people write. All else belongs to the journal, which stays on this machine: a checkout that took
# blobs or format.json away and left the journal would leave half a data root.
GITIGNORE = b"/*\n!/.gitignore\n!/backlog/\n!/config/\n.hf-*.tmp\n"
# What `init` wrote before that; where nobody changed it, it is replaced.
_GITIGNORES_BEFORE = (b"/runtime/\n/worktrees/\n/cache/\n.hf-*.tmp\n",)

Say = Callable[[str], None]
# How long a short session waits for another, and how often it looks.
PATIENCE_S, LOCK_POLL_S = 5.0, 0.02


class View(msgspec.Struct, frozen=True):
    """The data root as it is on disk, for who only looks."""

    layout: Layout
    state: State
    found: Recovered
    backlog: Backlog


class Session(msgspec.Struct, frozen=True):
    """A short run of its own: the ledger is ours until the session ends."""

    ledger: FileLedger
    backlog: Backlog
    blobs: Blobs
    config: Config
    recovered: ReplayCompleted
    closed: list[Closed]
    intake: SyncReport


class App:
    """One repository with its configuration and data root."""

    def __init__(self, repo: Path, loaded: Loaded, clock: Callable[[], float] = wall) -> None:
        self.repo = repo
        self.loaded = loaded
        self.config = loaded.config
        self.layout = loaded.layout
        self.clock = clock

    @classmethod
    def find(cls, folder: Path, *, environ: Mapping[str, str] = os.environ, options: Mapping[str, Any] = {}) -> App:
        """The repository that `folder` is in, and its settings."""
        repo = repository_of(folder)
        return cls(repo, load(repo, environ=environ, options=options))

    def init(self) -> list[Path]:
        """Makes the data root with its folders and first files; returns the files it wrote. Safe to repeat."""
        from holdfast.backlog.restore import hide_from_git

        create_root(self.layout.root, repo=self.repo)
        written = []
        for path, content in ((self.layout.settings, DEFAULT_SETTINGS.encode()), (self._gitignore, GITIGNORE)):
            if not path.exists():
                disk.create(path, content)
                written.append(path)
        if self._gitignore.read_bytes() in _GITIGNORES_BEFORE:
            disk.replace(self._gitignore, GITIGNORE)
            written.append(self._gitignore)
        hide_from_git(self.layout.root, self.repo)
        return written

    @property
    def _gitignore(self) -> Path:
        return self.layout.root / ".gitignore"

    def look(self) -> View:
        """Reads, takes no lock and writes nothing; also while somebody else runs."""
        self.expect_initialised()
        layout = read_root(self.layout.root)
        state, found = read_state(layout)
        return View(layout, state, found, Backlog(layout.backlog))

    def reader(self) -> FileLedgerReader:
        """Reads the journal without owning the data root."""
        return FileLedgerReader(self.layout)

    @contextlib.contextmanager
    def session(
        self, *, take_over: bool = False, patience_s: float = PATIENCE_S, say: Say = lambda line: None
    ) -> Iterator[Session]:
        """Owns the data root for a while: takes in what people did to the files, recovers, and projects at the end.

        While another short session has the lock, waits for it up to `patience_s`; then raises Locked, which names it.
        """
        from holdfast.backlog.sync import project, take_in
        from holdfast.engine.recover import recover
        from holdfast.engine.turns import catch_up
        from holdfast.landing.refresh import free_left
        from holdfast.storage.records.blobs import Blobs

        with self.owned(take_over=take_over, patience_s=patience_s, say=say) as (layout, ledger, _):
            backlog, blobs = Backlog(layout.backlog), Blobs(layout.cas)
            # First the files: one deleted while its task was claimed is put back, also when nobody has it any more.
            report = take_in(ledger, backlog, blobs)
            effects = self._effects(layout, blobs) if ledger.pairing.open_intents() else {}
            counts, closed = recover(ledger, effects, self.clock(), self.config.replay_age_max_s)
            catch_up(layout, list(ledger.state.tasks.values()))
            free_left(self.repo, ledger.state.tasks.values())
            yield Session(
                ledger=ledger,
                backlog=backlog,
                blobs=blobs,
                config=self.config,
                recovered=counts,
                closed=closed,
                intake=report,
            )
            project(ledger, backlog)

    def decide(self, kind: str, params: dict[str, Any], say: Say = lambda line: None) -> Answer:
        """What a person decides: through the run that owns the data root, or as a short session where nobody runs.

        `say` is told what a session finds on its way. If the run dies before it has answered, the decision is made
        here, under the same id: what the run had done of it is not done again.
        """
        import secrets

        from holdfast.decisions import mailbox

        self.expect_initialised()
        key, deadline = secrets.token_hex(16), monotonic() + PATIENCE_S
        while True:
            if (answer := mailbox.ask(self.layout, key, kind, params)) is not None:
                return answer
            try:
                return self._decide_here(key, kind, params, say)
            except Locked as held:
                is_late = monotonic() >= deadline or not _is_worth_waiting(held, PATIENCE_S)
                if is_late and not mailbox.is_served(self.layout):
                    raise
            time.sleep(LOCK_POLL_S)

    def _decide_here(self, key: str, kind: str, params: dict[str, Any], say: Say) -> Answer:
        from holdfast.decisions import mailbox
        from holdfast.decisions.context import DecisionContext

        if kind in mailbox.WORKS:
            from holdfast.wiring import run_context

            with run_context(
                self, lambda task, text: say(f"{task}: {text}" if task else text), patience_s=0.0
            ) as context:
                _tell(say, context.layout, [], context.board.take_in())
                context.board.keep_up()
                answer = mailbox.decide(DecisionContext.of(context, key), kind, params)
                context.board.keep_up()
                return answer
        with self.session(patience_s=0.0, say=say) as session:
            _tell(say, self.layout, session.closed, session.intake)
            decision = DecisionContext(
                repo=self.repo,
                layout=self.layout,
                config=self.config,
                ledger=session.ledger,
                backlog=session.backlog,
                blobs=session.blobs,
                clock=self.clock,
                key=key,
                problems=session.intake.problems,
            )
            return mailbox.decide(decision, kind, params)

    @contextlib.contextmanager
    def owned(
        self,
        *,
        take_over: bool = False,
        patience_s: float = PATIENCE_S,
        say: Say = lambda line: None,
        sweeps: bool = True,
        is_restored: bool = False,
        is_audit_lost: bool = False,
        seals_log: bool = False,
    ) -> Iterator[tuple[Layout, FileLedger, Auditor]]:
        """Owns the data root, and nothing more: what an earlier run left open is still open.

        `is_restored`: a person says that a newer journal is lost, and what only that knew is let go. `is_audit_lost`:
        so are records of the audit log. `seals_log`: that is sealed at the end, not only where it was not for a day.
        """
        from holdfast.backlog.restore import hide_from_git, keep_config
        from holdfast.checks import witnesses
        from holdfast.observers.metric_files import following
        from holdfast.storage.audit import noted as audit_noted
        from holdfast.storage.audit.from_journal import Auditor
        from holdfast.worktrees.migration import migrate_older

        self.expect_initialised()
        layout = open_root(self.layout.root, self.repo, sweeps=sweeps)
        noted: AuditNoted | None = None
        original = place.original_of(layout)

        def judge(state: State, end: Ref | None, before: Holder | None) -> dict[str, Any]:
            nonlocal noted
            noted, found = state.audit, audit_noted.to_note(layout, None if is_audit_lost else state.audit)
            facts: dict[str, Any] = {"audit": found} if found is not None else {}
            if is_restored:
                facts["restored"] = witnesses.contradictions(layout, state, end, before, self.repo)
            else:
                witnesses.expect_whole(layout, state, end, before, self.repo)
            if original is not None:
                facts["copied_from"] = str(original)
            return {**facts, "audit_lost": True} if is_audit_lost else facts

        with self._ledger(layout, take_over, patience_s, judge) as ledger:
            if original is not None:
                say(place.told(original))
            place.settle(layout, is_copy=original is not None)
            for moved in witnesses.set_unknown_aside(layout, ledger.state, self.repo) if is_restored else ():
                say(f"moved to {moved}")
            auditor = Auditor(layout, say, self.clock, ledger.expect_owned, self.audit_key)
            with following(layout, self.config.ledgers, ledger, say) as metric_files:
                with contextlib.ExitStack() as ending:
                    ending.callback(auditor.end, seals_it=seals_log)
                    auditor.open(ledger.found.end, noted, is_lost=is_audit_lost)
                    ledger.observe(auditor)
                    ledger.observe(metric_files)
                    ending.enter_context(ledger.end_journalled())
                    ledger.on_unsaved = lambda error: say(f"{error} Nothing is lost: the next start reads more.")
                    note_root_commit(layout, self.repo)
                    migrate_older(self.repo, layout, ledger, say)
                    hide_from_git(layout.root, self.repo)
                    keep_config(layout)
                    yield layout, ledger, auditor
                # Where that cannot be, the next run notes it when it begins.
                with contextlib.suppress(HoldfastError):
                    audit_noted.note_log(layout, ledger)

    @property
    def audit_key(self) -> Path | None:
        """Where the settings say that the audit key is; None: where it is by default."""
        from holdfast.storage.audit.key import configured_path

        return configured_path(self.repo, self.config.audit.key_path)

    def _effects(self, layout: Layout, blobs: Blobs) -> Effects:
        """What can tell whether an open intent took place."""
        from holdfast.wiring import build_effects

        return build_effects(self.repo, layout, self.config, blobs)

    def accept_journal(self, say: Say) -> list[str]:
        """A person says that a newer journal is lost; returns what bore witness to it."""
        with self.owned(say=say, is_restored=True) as (_, ledger, _):
            before = ledger.found.end.ref if ledger.found.end is not None else None
            _, started = next(ledger.read(before))
            return list(started.inputs["restored"])

    def accept_audit_loss(self, say: Say) -> None:
        """A person says that records of the audit log are lost."""
        with self.owned(say=say, is_audit_lost=True):
            pass

    def _ledger(self, layout: Layout, take_over: bool, patience_s: float, judge: Judge) -> FileLedger:
        deadline = monotonic() + patience_s
        while True:
            try:
                return FileLedger.open(layout, take_over=take_over, clock=self.clock, judge=judge)
            except Locked as held:
                if not _is_worth_waiting(held, patience_s) or monotonic() >= deadline:
                    raise
            time.sleep(LOCK_POLL_S)

    def expect_initialised(self) -> None:
        """Says what to type where there is no data root yet, or where a move of the repository left it behind."""
        layout = self.layout
        # One that lost its format.json has a sentence of its own, which reading it gives.
        if layout.format_file.exists() or has_journal(layout):
            return
        is_shared = layout.root.parent != self.repo
        if is_shared and (found := moved_from(layout, self.repo)) is not None:
            import shlex

            command = shlex.join(["mv", "-n", "-T", str(found), str(layout.root)])
            raise RepositoryMoved(path=layout.root, repo=self.repo, found=found, command=command)
        if any(layout.backlog.glob("*/*.y*ml")):
            raise BacklogAlone(path=layout.root, repo=self.repo)
        raise NotInitialised(path=layout.format_file if layout.root.exists() else layout.root, repo=self.repo)

    def expect_own(self) -> None:
        """Refuses the data root of another repository, for who writes there without a session."""
        expect_repository(self.layout, self.repo)


def _tell(say: Say, layout: Layout, closed: list[Closed], intake: SyncReport) -> None:
    """What a session found before it came to what it was begun for."""
    for problem in intake.problems:
        say(f"{layout.backlog}/{problem}")
    for each in closed:
        say(f"recovered: {each.intent} of {each.task} is {each.how} ({each.reason})")
    for task in intake.cancelled:
        say(f"{task} is cancelled: its file was deleted")
    for task in intake.put_back:
        say(f"{task}: {intake.put_back_words(task)}")


def _is_worth_waiting(held: Locked, patience_s: float) -> bool:
    """False for who has the lock longer than we would wait: that is no short session."""
    return type(held) is Locked and (held.identity is None or wall() - held.identity.since < patience_s)


def repository_of(folder: Path) -> Path:
    """The top of the main work tree that `folder` belongs to: all work trees of a repository share one data root."""
    import subprocess

    asked = ["git", "-C", str(folder), "rev-parse", "--path-format=absolute", "--git-common-dir", "--show-toplevel"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        from holdfast.git.command import MINIMUM

        raise GitUnusable(reason="there is no program `git` on PATH", minimum=f"{MINIMUM[0]}.{MINIMUM[1]}") from None
    if done.returncode != 0:
        raise NotInRepository(path=folder, reason=done.stderr.strip() or "git does not say why")
    common, top = map(Path, done.stdout.splitlines()[:2])
    return (common.parent if common.name == ".git" else top).resolve()
