"""Sentences for journal entries, from the table `views/sentences.py:SENTENCES`.

`words` gives all facts of an entry, for `history --json` and the API. `plain_words` is for readers who do not know the
state machine, and is empty where another entry says the same: the closing of an intent tells of it. `log_words` is
`plain_words` for every entry, and with its reason: for `holdfast log` and `history`.
"""

from __future__ import annotations

from typing import Any

from holdfast.domain.wording import moment, money
from holdfast.storage.journal.entry import Entry
from holdfast.views.phrases import compact, cut
from holdfast.views.sentences import SENTENCES

# Where the event that the state machine had, or the reason for it, says more than the state that it led to.
_EVENTS = {
    ("task_opened", "approved"): "The plan is approved",
    ("task_opened", "unclaim"): "Given back, for another to take",
    ("task_opened", "force_reassign"): "Taken away, for another to take",
    ("task_opened", "requeue"): "Put back; it can be continued",
    ("task_opened", "session_full"): "Put back, for another conversation with the history in its prompt",
    ("task_opened", "requeued_for_retry"): "To be continued from its last turn",
    ("task_opened", "retry"): "Opened again for another attempt",
    ("task_opened", "changes_requested"): "Sent back by a person, with comments; the same conversation goes on",
    ("task_opened", "dependency_resolved"): "What it waited for has come",
    ("task_done", "all_subtasks_completed"): "All its subtasks are done",
    ("task_done", "requested_by_person"): "A person says that it is done",
    ("task_closed", "janitor_verified_and_merged"): "Verified and landed",
    ("task_closed", "approval_granted"): "Approved and landed",
    ("task_setup_failed", "not_started"): "Setting up its worktree was interrupted, and is done again",
    ("task_failed", "verification_rejected"): "What it made did not pass",
    ("task_failed", "approval_rejected"): "Rejected by a person",
    ("task_failed", "subtask_timeout_escalation"): "Its subtasks took too long",
    ("task_cancelled", "rejected"): "The plan was rejected",
    ("task_orphaned", "crash"): "Its agent died",
    ("task_orphaned", "heartbeat_timeout"): "Its agent gave no sign of life any more",
}
# A reason of the state machine's, in words; empty: the sentence says it already.
_REASONS = {
    "definition_deleted": "its file was deleted",
    "dependency_failed": "what it depends on has failed",
    "parent_cancelled": "the task that it is a part of was cancelled",
    "subtask_timeout": "its subtasks took too long",
    "budget_exhausted": "its budget is used up",
    "tokens_exhausted": "its tokens are used up",
    "turns_exhausted": "its turns are used up",
    "timeout": "it took too long",
    "stalled": "it gave no output for too long",
    "session_full": "its conversation was long or dear enough",
    "told": "a person has told it something",
    "not_started": "it could not be started",
    "conversation_lost": "its conversation is gone",
    "rate_limited": "the model's limit is reached",
    "unreachable": "the model cannot be reached",
    "circuit_open": "it went in circles",
    "worktree_lost": "its worktree is gone",
    "environment": "a fault of the machine",
    "setup_failed": "its worktree could not be set up",
    "shutdown": "the run ended",
    "agent_failed": "the agent says that it has failed",
    "agent_refused": "the model refused",
    "auth_missing": "the agent is not signed in",
    "quota_exhausted": "the account's quota is used up",
    "landing_conflict": "it conflicts with what has landed meanwhile",
    "resumes_exhausted": "it was continued too often",
    **dict.fromkeys(
        ("scheduled", "requested_by_person", "resolved_by_person", "agent_reported", "approval_required", "approved",
         "dependency_found", "dependency_met", "subtasks_completed", "attempts_left", "resumed", "salvaged", "landed",
         "cancelled", "rejected", "changes_requested", "crashed", "heartbeat_lost", "verification_failed", "parked",
         "claim_released"), ""
    ),
}  # fmt: skip
_FAILURES = {"gate_failed": "a failed gate", "gate_timed_out": "a gate that took too long", "conflict": "a conflict"}
# What a payload leaves out when it is as usual.
USUAL = {
    "state": "OPEN", "attempt": "-", "agent": "-", "parked": "no", "not_before": "-", "cause": "-",
    "tokens": 0, "usd": 0, "confirmed": 0, "failed": 0, "abandoned": 0, "released": 0,
}  # fmt: skip


class _Facts(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "?"


def full_words(entry: Entry) -> str:
    """An entry's sentence, with all facts. The text is as the journal has it: escape it before a terminal sees it."""
    kind, inputs = entry.decision_type, entry.inputs
    if kind not in SENTENCES:
        return f"{kind} {compact(inputs)}"
    usual = {**USUAL, "parked": 0} if kind == "wal_replay_completed" else USUAL
    given = {**usual, **{name: each for name, each in inputs.items() if each not in ("", 0.0) or name not in usual}}
    if isinstance(until := given["not_before"], int | float):
        given["not_before"] = moment(until)
    if isinstance(spent := given["usd"], int | float):
        given["usd"] = money(spent)
    for name, noun in (("tokens", "token"), ("released", "claim")):
        given[name] = f"{compact(given[name])} {noun if given[name] == 1 else f'{noun}s'}"
    made = SENTENCES[kind].words.format_map(_Facts({name: _fact(value) for name, value in given.items()}))
    made += f", model {compact(inputs['model'])}" if inputs.get("model") else ""
    made += f" ({compact(inputs['why'])})" if inputs.get("why") else ""
    return made + (f": {cut(inputs['outcome'])}" if inputs.get("outcome") else "")


def plain_words(entry: Entry) -> str:
    """The sentence for readers who do not know the state machine; empty where none is needed."""
    kind, inputs = entry.decision_type, entry.inputs
    if kind in SENTENCES:
        template = SENTENCES[kind].plain
        if callable(template):
            return template(inputs)
        told = (_EVENTS.get((kind, str(inputs.get(name)))) for name in ("reason", "event"))
        template = next(filter(None, told), template)
        made = _filled(template, inputs)
    else:
        # Of a newer Holdfast, maybe: its name is better than nothing.
        made = kind.replace("_", " ").capitalize()
    return made + _detail(entry) if made else ""


def log_words(entry: Entry) -> str:
    """Plain words for every entry, and with its reason: for readers of the journal itself."""
    kind, inputs = entry.decision_type, entry.inputs
    if kind not in SENTENCES:
        return full_words(entry)
    made = plain_words(entry) or _filled(SENTENCES[kind].log, inputs)
    if kind == "task_claimed" and inputs.get("why"):
        # Such as `cascade step 2 after gate_failed`.
        before, after, failure = compact(inputs["why"]).rpartition(" after ")
        plain = _FAILURES.get(failure, _REASONS.get(failure) or failure.replace("_", " ")) if after else failure
        made += f" ({before}{after}{plain})"
    given = compact(inputs.get("reason") or "")
    why = _REASONS.get(given, given)
    # Where there is an outcome's detail, the sentence has it, and that says more.
    is_told = not why or why in made or (": " in made and given in _REASONS)
    return made if is_told else f"{made} ({cut(why)})"


def _detail(entry: Entry) -> str:
    """The part of a sentence from the entry's outcome: the commit, the model, or why it failed."""
    kind, inputs = entry.decision_type, entry.inputs
    outcome = inputs["outcome"] if isinstance(inputs.get("outcome"), dict) else {}
    if kind == "task_closed":
        commit = str(outcome.get("commit", ""))
        return f" as {commit[:12]}" if commit else ""
    if kind == "task_claimed":
        return f", model {compact(inputs['model'])}" if inputs.get("model") else ""
    if not kind.endswith(("_failed", "_abandoned", "_parked", "task_orphaned", "task_blocked")):
        return ""
    given = compact(inputs.get("reason") or "")
    if (kind, given) == ("task_setup_failed", "not_started"):
        return ""
    why = compact(outcome.get("detail") or entry.output.get("detail") or "") or _REASONS.get(given, given)
    again = "; another attempt follows" if inputs.get("again") else ""
    why = why.removesuffix(".") if again else why
    return (f": {cut(why)}" if why else "") + again


def _filled(template: str, inputs: dict[str, Any]) -> str:
    return template.format_map(_Facts({name: compact(value) for name, value in inputs.items()}))


def _fact(value: object) -> str:
    if isinstance(value, dict) and {"run", "seq"} <= value.keys():
        return f"{value['run']}:{value['seq']}"
    return compact(value)


# -- facts of an entry ------------------------------------------------------------------------------------------------


def task_of(entry: Entry) -> str:
    return compact(entry.inputs.get("task", ""))


def definition_of(entry: Entry) -> str:
    """The blob that an entry pins as the task's definition, or nothing."""
    pinned = entry.inputs.get("definition", "")
    return pinned if entry.decision_type in {"task_added", "task_edited"} and isinstance(pinned, str) else ""


def facts_of(run: str, entry: Entry) -> dict[str, Any]:
    """An entry's facts for programs, with what the raw line has not: its run and its words."""
    return {
        "run": run,
        "seq": entry.seq,
        "timestamp": entry.timestamp,
        "decision_type": entry.decision_type,
        "what": full_words(entry),
        "actor": entry.actor,
        "reason": compact(entry.inputs.get("reason") or ""),
        "inputs": entry.inputs,
        "output": entry.output,
        "entry_hash": entry.entry_hash,
    }
