"""The other half of the composition root: what `holdfast run` needs beside the ledger. Loaded only by who needs it."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.agents import sandbox
from holdfast.agents.registry import agents
from holdfast.app import PATIENCE_S
from holdfast.config import mcp
from holdfast.durable.blobs import Blobs
from holdfast.engine.board import Board
from holdfast.engine.land import Land, lost_landings
from holdfast.engine.recover import recover
from holdfast.engine.refresh import Refresh
from holdfast.engine.spawn import Spawn
from holdfast.engine.turns import Follower
from holdfast.engine.verify import Verify
from holdfast.engine.workshop import Note, Workshop
from holdfast.engine.worktree import Worktrees
from holdfast.ports import Effect
from holdfast.stores.backlog import Backlog

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.config.settings import Config
    from holdfast.layout import Layout

RUNNER = (sys.executable, "-m", "holdfast.agents.runner")


def build_effects(repo: Path, layout: Layout, config: Config, blobs: Blobs) -> dict[str, Effect]:
    worktrees = Worktrees(repo, layout)
    return {
        "spawn": Spawn(layout, RUNNER),
        "verify": Verify(
            repo, layout, blobs, worktrees, passed_on=config.gate_env, grace_s=config.grace_s, confine=sandbox.gate
        ),
        "land": Land(repo),
        "refresh": Refresh(),
    }


@contextlib.contextmanager
def workshop(app: App, note: Note, *, take_over: bool = False, patience_s: float = PATIENCE_S) -> Iterator[Workshop]:
    """Owns the data root: recovered, and ready to work."""
    with app.owned(take_over=take_over, patience_s=patience_s, say=lambda line: note("", line)) as owned:
        layout, ledger, auditor = owned
        blobs = Blobs(layout.cas)
        effects = build_effects(app.repo, layout, app.config, blobs)
        lost = lost_landings(app.repo, ledger.state.tasks.values())
        for sentence in lost.values():
            note("", sentence)
        board = Board(ledger, Backlog(layout.backlog), blobs, app.config)
        ledger.on_change = board.note_change
        # First the files: one deleted while its task was claimed is put back, also when nobody has it any more.
        for task, words in board.take_in().told():
            note(task, words)
        ledger.renew_all(app.config.lease_s)
        began = time.perf_counter()
        recovered, closed = recover(ledger, effects, app.clock(), app.config.replay_age_max_s)
        recovery_s = time.perf_counter() - began
        for each in closed:
            note(each.task, f"after a crash: {each.intent} is {each.how} ({each.reason})")
        spawn = effects["spawn"]
        assert isinstance(spawn, Spawn)
        known = agents(app.config, mcp.read(layout.mcp_servers))
        shop = Workshop(
            app.repo, layout, app.config, board, blobs, known, effects, spawn,
            Worktrees(app.repo, layout), Follower(ledger, layout), sandbox.missing, lost, app.clock, note,
            recovered, recovery_s, auditor.record,
        )  # fmt: skip
        yield shop
        board.keep_up()
        board.file_new()
        for error in board.project():
            note("", str(error))
