"""A person's decision: asked of the run that owns the data root, or, without one, made by a short run of its own."""

from __future__ import annotations

import secrets
import time
from typing import Any

from holdfast.app import App, Say
from holdfast.clock import monotonic
from holdfast.decisions import mailbox
from holdfast.decisions.context import Answer, DecisionContext
from holdfast.engine.context import Note, RunContext
from holdfast.errors import Locked
from holdfast.wiring import LOCK_POLL_S, PATIENCE_S, is_worth_waiting, owned, run_context


def decide(app: App, kind: str, params: dict[str, Any], say: Say = lambda line: None) -> Answer:
    """Carries out a person's decision: through the run that owns the data root, or without one as a short run.

    `say` gets what is found on the way, line by line. If the run dies before it has answered, the decision is made
    here, under the same id: what the run had done of it is not done again.
    """
    app.expect_initialised()
    key, deadline = secrets.token_hex(16), monotonic() + PATIENCE_S
    while True:
        if (answer := mailbox.ask(app.layout, key, kind, params)) is not None:
            return answer
        try:
            return decide_here(app, key, kind, params, say)
        except Locked as held:
            is_late = monotonic() >= deadline or not is_worth_waiting(held, PATIENCE_S)
            if is_late and not mailbox.is_served(app.layout):
                raise
        time.sleep(LOCK_POLL_S)


def decide_here(app: App, key: str, kind: str, params: dict[str, Any], say: Say) -> Answer:
    """Owns the data root for this one decision. Only what works on tasks prepares as a run does."""
    note: Note = lambda task, text: say(f"{task}: {text}" if task else text)  # noqa: E731
    works = kind in mailbox.WORKS
    with run_context(app, note, patience_s=0.0, works=works, watches=False) as context:
        if not works:
            _print_findings(say, context)
        return mailbox.decide(DecisionContext.of(context, key), kind, params)


def _print_findings(say: Say, context: RunContext) -> None:
    """Prints what a short run found before it came to its decision."""
    for problem in context.intake.problems:
        say(f"{context.layout.backlog}/{problem}")
    for each in context.closed:
        say(f"recovered: {each.task}: {each.words}")
    for task in context.intake.cancelled:
        say(f"{task} is cancelled: its file was deleted")
    for task in context.intake.put_back:
        say(f"{task}: {context.intake.put_back_words(task)}")


def accept_journal(app: App, say: Say) -> list[str]:
    """A person says that a newer journal is lost; returns what bore witness to it."""
    with owned(app, say=say, is_restored=True) as (_, ledger, _):
        before = ledger.found.end.ref if ledger.found.end is not None else None
        _, started = next(ledger.read(before))
        return list(started.inputs["restored"])


def accept_audit_loss(app: App, say: Say) -> None:
    """A person says that records of the audit log are lost."""
    with owned(app, say=say, is_audit_lost=True):
        pass
