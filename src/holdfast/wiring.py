"""The composition root: who owns the data root, and which adapter stands behind which port.

`run_context` is the one way to own it, for a run of hours and for a single decision. It goes in steps, each a function:
`owned` takes the lock and opens the ledger with its observers, `wire` puts the parts together, `take_up` takes in the
backlog's files and closes what a crash left open, `prepare` does that and more for a run that starts agents, and at the
end `project_files` puts the files where they belong. Commands that only read use `app.py` and load nothing of this.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from holdfast.agents.common import environment
from holdfast.agents.registry import agents
from holdfast.app import App, Say
from holdfast.backlog.folder import Backlog
from holdfast.backlog.restore import hide_from_git, keep_config, put_back_config
from holdfast.checks import witnesses
from holdfast.clock import monotonic, wall
from holdfast.config import mcp
from holdfast.config.settings import Config
from holdfast.decisions.takeovers import return_abandoned
from holdfast.domain.effect_entries import (
    EffectIntended,
    LandIntended,
    PublishIntended,
    RefreshIntended,
    SetupIntended,
    SpawnIntended,
    VerifyIntended,
)
from holdfast.domain.entries import AuditNoted
from holdfast.domain.state import State
from holdfast.engine.board import Board
from holdfast.engine.context import Note, RunContext
from holdfast.engine.recovery import catch_up, free_left, recover, settle_landed
from holdfast.engine.spawn import Spawn
from holdfast.engine.starting.worktree_hooks import set_up
from holdfast.engine.turn_follower import Follower
from holdfast.errors import HoldfastError, Locked
from holdfast.integrations.notify.rule_followers import add_rules, publishers_of
from holdfast.integrations.outbox.publish import Publish
from holdfast.integrations.pull_requests.parts import pull_request_parts
from holdfast.integrations.pull_requests.poll import POLL
from holdfast.integrations.pull_requests.publishers import pull_request_publishers
from holdfast.integrations.pull_requests.remote import GitRemote
from holdfast.integrations.trackers.issue_publishers import issue_publishers
from holdfast.integrations.trackers.sync import sync_jobs
from holdfast.integrations.trackers.write_back import results_follower
from holdfast.integrations.triggers.holder import TriggersHolder
from holdfast.landing.branch import Land
from holdfast.landing.lost_landings import settle_rewritten
from holdfast.landing.refresh import Refresh
from holdfast.landing.verify import Verify
from holdfast.layout import Layout
from holdfast.ledgers.files import FileLedger, Judge
from holdfast.observers.metric_files import following
from holdfast.observers.plugin_hooks import calling_plugins
from holdfast.orchestrator.background import PeriodicJob
from holdfast.orchestrator.schedules import trigger_jobs
from holdfast.orchestrator.wakeup import SignalWatch
from holdfast.ports import Effect, Publisher
from holdfast.preparation.factory import preparation_of
from holdfast.preparation.setup import Setup
from holdfast.processes import cgroups, sandbox
from holdfast.processes.resources import of_machine
from holdfast.snapshots import after_boot
from holdfast.storage.audit import notes as audit_notes
from holdfast.storage.audit.from_journal import Auditor
from holdfast.storage.audit.key import configured_path
from holdfast.storage.journal import root_place as place
from holdfast.storage.journal.data_root import note_root_commit, open_root, sweep
from holdfast.storage.journal.entry import Ref
from holdfast.storage.journal.lock import Holder
from holdfast.storage.records.blobs import Blobs
from holdfast.worktrees import pins
from holdfast.worktrees.factory import worktrees_of
from holdfast.worktrees.migration import migrate, migrate_older

RUNNER = (sys.executable, "-m", "holdfast.agents.runner.runner")
# How long a decision waits for another short run to end, and how often it looks.
PATIENCE_S, LOCK_POLL_S = 5.0, 0.02


def _say_nothing(task: str, text: str) -> None:
    pass


def _nothing_beside(layout: Layout, ledger: FileLedger) -> AbstractContextManager[object]:
    return contextlib.nullcontext()


def _plugins(app: App, say: Say, layout: Layout, ledger: FileLedger) -> AbstractContextManager[object]:
    """The hooks of plugins: called by runs that work. What short runs journal, the next such run tells them."""
    return calling_plugins(layout, app.config.plugins, ledger=ledger, repo=app.repo, say=say)


# -- one way to own a data root ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def run_context(
    app: App,
    note: Note = _say_nothing,
    *,
    take_over: bool = False,
    patience_s: float = PATIENCE_S,
    works: bool = True,
    watches: bool = True,
    later: bool = False,
) -> Iterator[RunContext]:
    """Owns the data root until its end. `works`: tasks may be started, verified and landed, not only decided about.

    `watches`: a loop follows, which hears of changes below the backlog. `later`: the server calls `prepare` once it
    answers. While another short run has the lock, waits for it up to `patience_s`; then raises Locked, which names it.
    """
    say = functools.partial(note, "")
    beside = functools.partial(_plugins, app, say) if works and watches else _nothing_beside
    lock = owned(
        app,
        take_over=take_over,
        patience_s=patience_s,
        say=say,
        sweeps=not works,
        seals_log=works,
        beside=beside,
    )
    with lock as (layout, ledger, auditor):
        context = wire(app, layout, ledger, auditor, note, works=works)
        watch = SignalWatch([context.board.folder, layout.signals]) if works and watches else contextlib.nullcontext()
        # Before the files are read: the watch reports what changes from then on, so they need not be read again.
        with watch as context.watch:
            if not works:
                take_up(context)
            else:
                bring_up_to_date(context)
                if not later:
                    prepare(context)
            yield context
        project_files(context)


def wire(app: App, layout: Layout, ledger: FileLedger, auditor: Auditor, note: Note, *, works: bool) -> RunContext:
    """Puts the parts together, and does nothing. Where nothing is started, no agents and no sandbox are looked for."""
    blobs, backlog = Blobs(layout.cas), Backlog(layout.backlog)
    board = Board(ledger, backlog, blobs, app.config)
    board.files.update(backlog.recall(layout.definitions))
    ledger.observe(board)
    spawn = Spawn(layout, RUNNER, {**os.environ, **environment.handed(app.config.agents, os.environ)})
    trees = worktrees_of(app.repo, layout, app.config)
    effects = build_effects(app.repo, layout, app.config, blobs, spawn)
    remote = GitRemote(app.repo, layout, app.config.pull_requests)
    publishers = {
        **publishers_of(app.repo, layout, app.config, ledger, app.clock),
        **pull_request_publishers(remote, app.config.pull_requests),
        **build_publishers(app.config, app.repo),
    }
    effects[PublishIntended] = Publish(publishers, lambda: ledger.state.outbox)
    setup, verify = effects[SetupIntended], effects[VerifyIntended]
    assert isinstance(setup, Setup)
    assert isinstance(verify, Verify)
    preparation = preparation_of(app.repo, layout, app.config, blobs, worktrees=trees, setup=setup)
    context = RunContext(
        repo=app.repo,
        layout=layout,
        config=app.config,
        board=board,
        blobs=blobs,
        agents=agents(app.config, mcp.read(layout.mcp_servers)) if works else {},
        effects=effects,
        spawn=spawn,
        worktrees=trees,
        preparation=preparation,
        turns=Follower(ledger, layout, note),
        missing_sandbox=functools.partial(sandbox.missing, tries=True),
        resolve_sandbox=sandbox.resolved,
        clock=app.clock,
        auditor=auditor,
        triggers=TriggersHolder(layout.triggers, app.repo, branch_prefix=app.config.pull_requests.branch_prefix),
        note=note,
        unconfined=sandbox.unconfined(app.config.sandbox) if works else "",
    )
    verify.prepare = functools.partial(preparation.for_gates, functools.partial(set_up, context))
    context.pulls, context.pull_requests = pull_request_parts(context)
    if works:
        add_rules(context)
        every_s, poll = app.config.pull_requests.every_s, context.pull_requests
        job = PeriodicJob(name=POLL, every_s=every_s, fetch=poll.look, apply=poll.apply, comes_first=True)
        context.jobs += [*trigger_jobs(context), job]
        connect(context)
    return context


def connect(context: RunContext) -> None:
    """What a run asks of others beside its work, and what it makes messages of."""
    if context.config.sources:
        context.jobs += sync_jobs(context)
        context.followers += [results_follower(context)]


def build_effects(
    repo: Path, layout: Layout, config: Config, blobs: Blobs, spawn: Spawn
) -> dict[type[EffectIntended], Effect]:
    """The one registry of effects, each under the type of its intent."""
    trees = worktrees_of(repo, layout, config)
    verify = Verify(
        repo,
        layout,
        blobs,
        trees,
        passed_on=config.gate_env,
        grace_s=config.grace_s,
        confine=functools.partial(sandbox.gate, audit_key=_audit_key(repo, config)),
        resources=of_machine(config.limits.resources),
    )
    verify.inputs = config.worktree.inputs
    return {
        SetupIntended: Setup(layout, config, blobs, trees),
        SpawnIntended: spawn,
        VerifyIntended: verify,
        LandIntended: Land(repo, layout),
        RefreshIntended: Refresh(),
    }


def build_publishers(config: Config, repo: Path) -> dict[str, Publisher]:
    """The publishers that need only the settings, each under the name of its channel."""
    return {**issue_publishers(config.sources, repo)}


def _audit_key(repo: Path, config: Config) -> str:
    return str(configured_path(repo, config.audit.key_path) or "")


# -- its steps, in order ----------------------------------------------------------------------------------------------


def bring_up_to_date(context: RunContext) -> None:
    """Gives what an older version left its form of today, and finds landings that a person's git has rewritten."""
    repo, layout, tasks = context.repo, context.layout, context.ledger.state.tasks
    migrate(repo, layout, context.ledger, functools.partial(context.note, ""))
    pins.tidy(repo, layout, tasks)
    context.lost = settle_rewritten(repo, context.ledger, layout, context.note)
    for sentence in context.lost.values():
        context.note("", sentence)


def prepare(context: RunContext) -> None:
    """Makes ready for a run: before this nothing may be started, verified or landed."""
    layout = context.layout
    sweep(layout)
    cgroups.sweep(layout)
    for told in after_boot.set_damaged_aside(layout, context.repo, context.clock()):
        context.note("", told)
    context.worktrees.relink()
    context.ledger.renew_all(context.config.lease_s)
    if context.watch is not None:
        context.watch.await_open()
        put_back_config(layout, context.note)
    take_up(context, settles=True)
    return_abandoned(context)
    context.note_intake(context.intake)
    for each in context.closed:
        context.note(each.task, f"after a crash: {each.words}")
    context.board.backlog.keep(layout.definitions)


def take_up(context: RunContext, *, settles: bool = False) -> None:
    """Takes in the backlog's files, and closes what a crash left open. `settles`: landings of a lost journal, too."""
    # First the files: one deleted while its task was claimed is put back, also when nobody has it any more.
    context.intake = context.board.take_in()
    began, state, config = time.perf_counter(), context.ledger.state, context.config
    context.recovered, context.closed = recover(
        context.ledger, context.effects, context.clock(), config.replay_age_max_s
    )
    context.recovery_s = time.perf_counter() - began
    if settles:
        settle_landed(context)
    free_left(context.repo, list(state.tasks.values()))
    catch_up(context.layout, list(state.tasks.values()))


def project_files(context: RunContext) -> None:
    """Puts the backlog's files where the states of their tasks say."""
    context.board.keep_up()
    context.board.file_new()
    for error in context.board.project():
        context.note("", str(error))
    context.board.backlog.keep(context.layout.definitions)


# -- the lock, the ledger and its observers ---------------------------------------------------------------------------


@contextlib.contextmanager
def owned(
    app: App,
    *,
    take_over: bool = False,
    patience_s: float = PATIENCE_S,
    say: Say = lambda line: None,
    sweeps: bool = True,
    is_restored: bool = False,
    is_audit_lost: bool = False,
    seals_log: bool = False,
    beside: Callable[[Layout, FileLedger], AbstractContextManager[object]] = _nothing_beside,
) -> Iterator[tuple[Layout, FileLedger, Auditor]]:
    """Owns the data root, and nothing more: what an earlier run left open is still open.

    `is_restored`: a person says that a newer journal is lost, and what only that knew is let go. `is_audit_lost`:
    so are records of the audit log. `seals_log`: that is sealed at the end, not only where it was not for a day.
    `beside`: what follows the journal from here on, until the run has journalled its end.
    """
    app.expect_initialised()
    layout = open_root(app.layout.root, app.repo, sweeps=sweeps)
    noted: AuditNoted | None = None
    original = place.original_of(layout)

    def judge(state: State, end: Ref | None, before: Holder | None) -> dict[str, Any]:
        nonlocal noted
        noted, found = state.audit, audit_notes.to_note(layout, None if is_audit_lost else state.audit)
        facts: dict[str, Any] = {"audit": found} if found is not None else {}
        if is_restored:
            facts["restored"] = witnesses.contradictions(layout, state, end, before, app.repo)
        else:
            witnesses.expect_whole(layout, state, end, before, app.repo)
        if original is not None:
            facts["copied_from"] = str(original)
        return {**facts, "audit_lost": True} if is_audit_lost else facts

    with _ledger(app, layout, take_over, patience_s, judge) as ledger:
        if original is not None:
            say(place.copy_notice(original))
        place.settle(layout, is_copy=original is not None)
        for moved in witnesses.set_unknown_aside(layout, ledger.state, app.repo) if is_restored else ():
            say(f"moved to {moved}")
        auditor = Auditor(layout, say, app.clock, ledger.expect_owned, app.audit_key)
        before = ledger.found.end.ref if ledger.found.end is not None else None
        with following(layout, app.config.ledgers, ledger, before, say) as metric_files, beside(layout, ledger):
            with contextlib.ExitStack() as ending:
                ending.callback(auditor.end, seals_it=seals_log)
                auditor.open(ledger.found.end, noted, is_lost=is_audit_lost)
                ledger.observe(auditor)
                ledger.observe(metric_files)
                ending.enter_context(ledger.end_journalled())
                ledger.on_unsaved = lambda error: say(f"{error} Nothing is lost: the next start reads more.")
                note_root_commit(layout, app.repo)
                migrate_older(app.repo, layout, ledger, say)
                hide_from_git(layout.root, app.repo)
                keep_config(layout)
                yield layout, ledger, auditor
            # Where that cannot be, the next run notes it when it begins.
            with contextlib.suppress(HoldfastError):
                audit_notes.note_log(layout, ledger)


def _ledger(app: App, layout: Layout, take_over: bool, patience_s: float, judge: Judge) -> FileLedger:
    deadline = monotonic() + patience_s
    while True:
        try:
            return FileLedger.open(layout, take_over=take_over, clock=app.clock, judge=judge)
        except Locked as held:
            if not is_worth_waiting(held, patience_s) or monotonic() >= deadline:
                raise
        time.sleep(LOCK_POLL_S)


def is_worth_waiting(held: Locked, patience_s: float) -> bool:
    """False where the lock was taken longer ago than we would wait: its holder is no short run."""
    return type(held) is Locked and (held.identity is None or wall() - held.identity.since < patience_s)
