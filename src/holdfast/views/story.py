"""What a journal entry says, in words.

Entries are told from their bare facts, not from typed payloads: a story must be readable also where an entry is odd, or
of a type that only a newer Holdfast knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.domain.entries import CLOSINGS, EFFECTS
from holdfast.domain.moments import moment
from holdfast.domain.wording import money
from holdfast.storage.journal.entry import Entry

OUTCOME_CHARS_MAX = 400

SENTENCES: dict[str, str] = {
    "run_started": "run of Holdfast {holdfast} begins, epoch {epoch}",
    "audit_noted": "the audit log reaches record {seq} of {file}",
    "wal_replay_completed": "recovery closed what was open: {confirmed} confirmed, {failed} failed, "
    "{abandoned} abandoned, {parked} parked; {released} claims given back",
    "task_added": "added, {state}, definition {definition:.12}",
    "task_edited": "edited, definition {definition:.12}",
    "tasks_filed": "written to the backlog: {tasks}",
    "task_progressed": "{attempt} says: {message}",
    "request_answered": "a request was answered with {status}",
    "task_move_refused": "refused: {event} while {state}",
    "task_flagged": "flags set: parked {parked}, not before {not_before}, cause {cause}",
    "turn_completed": "turn {turn} of attempt {attempt} completed, {tokens} tokens, {usd}",
    "turn_undone": "worktree put back to turn {turn} of {attempt}; what stood there is {saved}",
    "attempt_forked": "the next attempt begins with turn {turn} of {attempt}",
    "attempt_resumed": "the next start goes on with {attempt}",
    "landing_waits": "its landing on {branch} waits: you have changed {paths} in your checkout",
    "landing_settled": "its landing {commit:.12} left {branch}; it is there as {rewritten:.12} ({how})",
    "landing_promoted": "to be landed again: {commit:.12} is not on {branch} any more",
    "task_opened": "open again ({event})",
    "task_claimed": "claimed by {agent}, attempt {attempt}",
    "task_started": "work begins ({event})",
    "task_done": "done ({event})",
    "task_closed": "closed ({event})",
    "task_failed": "failed ({event})",
    "task_blocked": "blocked ({event})",
    "task_split": "split, waits for its subtasks ({event})",
    "task_cancelled": "cancelled ({event})",
    "task_orphaned": "orphaned ({event})",
    "task_approval_requested": "waits for a person's approval ({event})",
    **{f"task_{effect}_intent": f"about to {effect}, attempt {{attempt}}" for effect in EFFECTS},
    **{
        f"task_{effect}_{closing}": f"{effect} {closing} (intent {{intent}})"
        for effect in EFFECTS
        for closing in CLOSINGS
    },
}
# What a payload leaves out when it is as usual.
USUAL = {
    "state": "OPEN", "attempt": "-", "agent": "-", "parked": "no", "not_before": "-", "cause": "-",
    "tokens": 0, "usd": 0, "confirmed": 0, "failed": 0, "abandoned": 0, "released": 0,
}  # fmt: skip


class _Facts(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "?"


def words(entry: Entry) -> str:
    """What happened. The text is as the journal has it: escape it before a terminal sees it."""
    template = SENTENCES.get(entry.decision_type)
    if template is None:
        return f"{entry.decision_type} {compact(entry.inputs)}"
    usual = {**USUAL, "parked": 0} if entry.decision_type == "wal_replay_completed" else USUAL
    given = {name: value for name, value in entry.inputs.items() if value not in ("", 0.0) or name not in usual}
    if isinstance(until := given.get("not_before"), int | float):
        given["not_before"] = moment(until)
    if isinstance(spent := {**usual, **given}.get("usd"), int | float):
        given["usd"] = money(spent)
    told = template.format_map(_Facts({name: _fact(value) for name, value in {**usual, **given}.items()}))
    return told + _chosen(entry.inputs) + _outcome(entry.inputs)


def reason(entry: Entry) -> str:
    given = entry.inputs.get("reason", "")
    return compact(given) if given else ""


def task_of(entry: Entry) -> str:
    named = entry.inputs.get("task", "")
    return named if isinstance(named, str) else compact(named)


class Concerns:
    """Whether entries, told one after the other, concern a task: they name it, or close an intent that did."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._intents: set[tuple[str, int]] = set()
        self.is_known = False

    def __call__(self, run: str, entry: Entry) -> bool:
        named = entry.inputs.get("task") == self._task
        self.is_known = self.is_known or named
        if named and not entry.committed:
            self._intents.add((run, entry.seq))
        closes = self._closed_by(entry)
        self._intents.difference_update(closes)
        return named or bool(closes)

    def _closed_by(self, entry: Entry) -> set[tuple[str, int]]:
        intent = entry.inputs.get("intent")
        if not self._intents or not isinstance(intent, dict):
            return set()
        return {(run, seq) for run, seq in self._intents if (run, seq) == (intent.get("run"), intent.get("seq"))}


def definition_of(entry: Entry) -> str:
    """The blob that an entry pins as the task's definition, or nothing."""
    pinned = entry.inputs.get("definition", "")
    return pinned if entry.decision_type in {"task_added", "task_edited"} and isinstance(pinned, str) else ""


def told(run: str, entry: Entry) -> Iterator[tuple[str, Any]]:
    """An entry's facts for programs, with what the raw line has not: its run and its words."""
    yield from (("run", run), ("seq", entry.seq), ("timestamp", entry.timestamp))
    yield from (("decision_type", entry.decision_type), ("what", words(entry)))
    yield from (("actor", entry.actor), ("reason", reason(entry)))
    yield from (("inputs", entry.inputs), ("output", entry.output), ("entry_hash", entry.entry_hash))


def _fact(value: object) -> str:
    if isinstance(value, dict) and {"run", "seq"} <= value.keys():
        return f"{value['run']}:{value['seq']}"
    return compact(value)


def _chosen(inputs: dict[str, Any]) -> str:
    """With which model, and why by this agent, where the entry says so."""
    model, why = inputs.get("model"), inputs.get("why")
    return (f", model {compact(model)}" if model else "") + (f" ({compact(why)})" if why else "")


def _outcome(inputs: dict[str, Any]) -> str:
    outcome = inputs.get("outcome")
    if not outcome:
        return ""
    text = compact(outcome)
    return ": " + (text if len(text) <= OUTCOME_CHARS_MAX else text[:OUTCOME_CHARS_MAX] + "…")


def compact(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
