"""The other half of the composition root: what `holdfast run` needs beside the ledger. Loaded only by who needs it."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.agents.common import environment
from holdfast.agents.registry import agents
from holdfast.app import PATIENCE_S
from holdfast.backlog.folder import Backlog
from holdfast.config import mcp
from holdfast.domain.entries import EffectIntended, LandIntended, RefreshIntended, SpawnIntended, VerifyIntended
from holdfast.engine import landed_before
from holdfast.engine.board import Board
from holdfast.engine.context import Note, RunContext
from holdfast.engine.recover import recover
from holdfast.engine.spawn import Spawn
from holdfast.engine.turns import Follower, catch_up
from holdfast.landing.branch import Land
from holdfast.landing.lost_landings import settle_rewritten
from holdfast.landing.refresh import Refresh, free_left
from holdfast.landing.verify import Verify
from holdfast.ports import Effect
from holdfast.processes import cgroups, sandbox
from holdfast.processes.resources import of_machine
from holdfast.snapshots import after_boot
from holdfast.storage.audit.key import configured_path
from holdfast.storage.audit.noted import note_log
from holdfast.storage.journal.data_root import sweep
from holdfast.storage.records.blobs import Blobs
from holdfast.worktrees import pins
from holdfast.worktrees.confined import worktrees_of
from holdfast.worktrees.migration import migrate

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.config.settings import Config
    from holdfast.layout import Layout

RUNNER = (sys.executable, "-m", "holdfast.agents.runner.runner")


def build_effects(repo: Path, layout: Layout, config: Config, blobs: Blobs) -> dict[type[EffectIntended], Effect]:
    """The one registry of effects, each under the type of its intent."""
    key = str(configured_path(repo, config.audit.key_path) or "")
    confine = functools.partial(sandbox.gate, audit_key=key)
    return {
        SpawnIntended: Spawn(layout, RUNNER, {**os.environ, **environment.handed(config.agents, os.environ)}),
        VerifyIntended: Verify(
            repo,
            layout,
            blobs,
            worktrees_of(repo, layout, config),
            passed_on=config.gate_env,
            grace_s=config.grace_s,
            confine=confine,
            resources=of_machine(config.limits.resources),
        ),
        LandIntended: Land(repo, layout),
        RefreshIntended: Refresh(),
    }


@contextlib.contextmanager
def run_context(
    app: App, note: Note, *, take_over: bool = False, patience_s: float = PATIENCE_S, later: bool = False
) -> Iterator[RunContext]:
    """Owns the data root: recovered, and ready to work. `later`: not before `prepare` is called."""
    say = functools.partial(note, "")
    owned = app.owned(take_over=take_over, patience_s=patience_s, say=say, sweeps=False, seals_log=True)
    with owned as (layout, ledger, auditor):
        blobs, backlog = Blobs(layout.cas), Backlog(layout.backlog)
        effects = build_effects(app.repo, layout, app.config, blobs)
        migrate(app.repo, layout, ledger, say)
        pins.tidy(app.repo, layout, ledger.state.tasks)
        lost = settle_rewritten(app.repo, ledger, layout, note)
        for sentence in lost.values():
            say(sentence)
        board = Board(ledger, backlog, blobs, app.config)
        board.files.update(backlog.recall(layout.definitions))
        ledger.observe(board)
        spawn = effects[SpawnIntended]
        assert isinstance(spawn, Spawn)
        context = RunContext(
            repo=app.repo,
            layout=layout,
            config=app.config,
            board=board,
            blobs=blobs,
            agents=agents(app.config, mcp.read(layout.mcp_servers)),
            effects=effects,
            spawn=spawn,
            worktrees=worktrees_of(app.repo, layout, app.config),
            turns=Follower(ledger, layout),
            missing_sandbox=functools.partial(sandbox.missing, tries=True),
            resolve_sandbox=sandbox.resolved,
            lost=lost,
            clock=app.clock,
            note=note,
            put_on_record=auditor.record,
            unconfined=sandbox.unconfined(app.config.sandbox),
        )

        def seal_daily() -> None:
            if auditor.seal_daily():
                note_log(layout, ledger)

        context.seal_daily = seal_daily

        context.prepare = functools.partial(prepare, context)
        if not later:
            context.prepare()
        yield context
        board.keep_up()
        board.file_new()
        for error in board.project():
            note("", str(error))
        backlog.keep(layout.definitions)


def prepare(context: RunContext) -> None:
    """Takes in the backlog's files and recovers: before this nothing may be started, verified or landed."""
    ledger, layout, clock = context.ledger, context.layout, context.clock
    sweep(layout)
    cgroups.sweep(layout)
    for told in after_boot.set_damaged_aside(layout, context.repo, clock()):
        context.note("", told)
    context.worktrees.relink()
    # First the files: one deleted while its task was claimed is put back, also when nobody has it any more.
    context.tell(context.board.take_in())
    ledger.renew_all(context.config.lease_s)
    began = time.perf_counter()
    context.recovered, closed = recover(ledger, context.effects, clock(), context.config.replay_age_max_s)
    context.recovery_s = time.perf_counter() - began
    landed_before.settle(context)
    free_left(context.repo, list(ledger.state.tasks.values()))
    catch_up(layout, list(ledger.state.tasks.values()))
    for each in closed:
        context.note(each.task, f"after a crash: {each.intent} is {each.how} ({each.reason})")
    context.board.backlog.keep(layout.definitions)
