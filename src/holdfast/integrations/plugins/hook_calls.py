"""The hook calls that follow from an entry of the journal: a table by the entry's type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.domain.entries import MOVES
from holdfast.integrations.plugins.hookspecs import PluginEvent
from holdfast.storage.journal.entry import Entry, Ref

Arguments = dict[str, Any]


def _moved(event: PluginEvent) -> Arguments:
    return {"state": MOVES[event.kind].value, "reason": str(event.facts.get("reason", ""))}


def _judged(event: PluginEvent) -> Arguments:
    told = {"verdict": str(event.outcome.get("kind", "")), "detail": str(event.outcome.get("detail", ""))}
    return {"attempt": event.facts.get("attempt", ""), "passed": event.outcome.get("passed") is True, **told}


def _landed(event: PluginEvent) -> Arguments:
    names = {"branch": event.outcome.get("branch", ""), "commit": event.outcome.get("new", "")}
    return {"attempt": event.facts.get("attempt", ""), **names}


def _fact(**names: str) -> Callable[[PluginEvent], Arguments]:
    """Arguments that are facts of the entry, each by its own name and the entry's."""
    return lambda event: {name: event.facts.get(fact, "") for name, fact in names.items()}


# For an entry of each type the hook that is called, beside `entry`, and what makes its arguments.
HOOK_OF: dict[str, tuple[str, Callable[[PluginEvent], Arguments]]] = {
    "run_started": ("run_started", _fact()),
    "run_ended": ("run_ended", _fact(how="how")),
    "task_added": ("task_added", lambda event: {"state": event.facts.get("state", "OPEN")}),
    "task_spawn_confirmed": ("attempt_started", _fact(attempt="attempt")),
    "turn_completed": ("turn_completed", _fact(attempt="attempt", turn="turn")),
    "task_verify_confirmed": ("gate_judged", _judged),
    "task_land_confirmed": ("landed", _landed),
    "question_asked": ("question_asked", _fact(question="id")),
    "question_answered": ("question_answered", _fact(question="id", answer="answer")),
    **dict.fromkeys(MOVES, ("task_moved", _moved)),
}


def event_of(run: str, entry: Entry) -> PluginEvent:
    return PluginEvent(
        key=Ref(run, entry.seq, entry.entry_hash).name,
        run=run,
        seq=entry.seq,
        at=entry.timestamp,
        kind=entry.decision_type,
        task=str(entry.inputs.get("task", "")),
        facts=entry.inputs,
        outcome=entry.output,
    )


def hook_calls(run: str, entry: Entry) -> Iterator[tuple[str, Arguments]]:
    """The hooks to call for this entry, in order, each with its arguments."""
    event = event_of(run, entry)
    yield "entry", {"event": event}
    if entry.decision_type in HOOK_OF:
        name, arguments = HOOK_OF[entry.decision_type]
        yield name, {"event": event, **arguments(event)}


def ref_of(key: str) -> Ref | None:
    """The entry that a key names; None for what is no key."""
    run, _, rest = key.partition(":")
    seq, _, entry_hash = rest.partition(":")
    return Ref(run, int(seq), entry_hash) if run and entry_hash and seq.isascii() and seq.isdigit() else None
