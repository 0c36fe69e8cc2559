"""Owning a data root in this process: for a moment, as a decision does where nobody runs, or for a whole run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from holdfast.app import App
from holdfast.backlog.folder import Backlog
from holdfast.config.settings import Config
from holdfast.engine.board import Board
from holdfast.engine.context import RunContext
from holdfast.ledgers.files import FileLedger
from holdfast.orchestrator.loop import Loop
from holdfast.storage.records.blobs import Blobs
from holdfast.wiring import PATIENCE_S, run_context


def short_run(
    app: App, *, say: Callable[[str], None] = lambda line: None, patience_s: float = PATIENCE_S
) -> contextlib.AbstractContextManager[RunContext]:
    """A short run: what people did to the files is taken in, what a crash left is closed, and nothing is started."""
    return run_context(app, lambda task, text: say(text), patience_s=patience_s, works=False)


def project(ledger: FileLedger, backlog: Backlog) -> None:
    """Puts every file where its task's state says, as a run does at its end; raises what a run would note."""
    board = Board(ledger, backlog, Blobs(ledger.layout.cas), Config())
    board.take_in()
    for error in board.project():
        raise error


def run_here(repo: Path) -> list[str]:
    """One run in this process; what it said."""
    said: list[str] = []
    with run_context(App.find(repo), lambda task, text: said.append(f"{task}: {text}")) as context:
        Loop(context).run()
    return said
