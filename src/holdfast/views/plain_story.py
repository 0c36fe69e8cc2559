"""A journal entry as one would tell it to somebody who does not know the state machine; `story` tells all of it.

What says nothing that another entry does not say, is not told: an intent is told by what came of it.
"""

from __future__ import annotations

from typing import Any

from holdfast.domain.entries import EFFECTS
from holdfast.domain.moments import moment
from holdfast.domain.wording import money, plural
from holdfast.storage.journal.entry import Entry
from holdfast.views.story import SENTENCES, compact, words

TEXT_MAX = 400
_UNTOLD = {"run_started", "wal_replay_completed", "audit_noted", "request_answered", "tasks_filed"}
_SENTENCES = {
    "task_edited": "Edited",
    "turn_undone": "Put back to how turn {turn} of {attempt} left it",
    "attempt_forked": "The next attempt begins with what turn {turn} of {attempt} left",
    "attempt_resumed": "Goes on with {attempt}",
    "landing_promoted": "To be landed again: it is not on {branch} any more",
    "landing_settled": "Its landing {commit} left the branch; now it is {rewritten} ({how})",
    "task_opened": "Open again",
    "task_claimed": "Given to {agent}, as attempt {attempt}",
    "task_started": "Work begins",
    "task_done": "The agent says that it is done",
    "task_closed": "Closed",
    "task_failed": "The attempt failed",
    "task_blocked": "Blocked: something else has to come first",
    "task_split": "Split; it waits for its subtasks",
    "task_cancelled": "Cancelled",
    "task_orphaned": "Its agent was lost",
    "task_approval_requested": "Verified; it waits for a person's word",
    "task_publish_confirmed": "Published",
}
# Where what the state machine was told says more than the state that it led to.
_EVENTS = {
    ("task_opened", "approved"): "The plan is approved",
    ("task_opened", "unclaim"): "Given back, for another to take",
    ("task_opened", "force_reassign"): "Taken away, for another to take",
    ("task_opened", "requeue"): "Put back; it can be gone on with",
    ("task_opened", "requeued_for_retry"): "To be gone on with, from its last turn",
    ("task_opened", "retry"): "Opened again for another attempt",
    ("task_opened", "dependency_resolved"): "What it waited for has come",
    ("task_done", "all_subtasks_completed"): "All its subtasks are done",
    ("task_closed", "janitor_verified_and_merged"): "Verified and landed",
    ("task_closed", "approval_granted"): "Approved and landed",
    ("task_failed", "verification_rejected"): "What it made did not pass",
    ("task_failed", "approval_rejected"): "Rejected by a person",
    ("task_failed", "subtask_timeout_escalation"): "Its subtasks took too long",
    ("task_cancelled", "rejected"): "The plan was rejected",
    ("task_orphaned", "crash"): "Its agent died",
    ("task_orphaned", "heartbeat_timeout"): "Its agent gave no sign of life any more",
}
_WORK = {"spawn": "Starting its agent", "verify": "Verifying it", "land": "Landing it",
         "refresh": "Bringing the checkout up to date", "publish": "Publishing it"}  # fmt: skip
_CLOSED = {
    "confirmed": "",
    "failed": "{work} failed",
    "abandoned": "{work} was given up",
    "parked": "{work} was cut off; only a person can know whether it happened",
}


# What `fully` tells of the rest.
_REST = {
    "run_started": "A run of Holdfast {holdfast} begins",
    "audit_noted": "The audit log reaches record {seq} of {file}",
    "wal_replay_completed": "What an earlier run left open is settled",
    "request_answered": "A request was answered with {status}",
    "tasks_filed": "Written to the backlog: {tasks}",
}
_ABOUT_TO = {"spawn": "Its agent is about to be started", "verify": "Its gates are about to be run",
             "land": "It is about to be landed", "refresh": "The checkout is about to be brought up to date",
             "publish": "It is about to be published"}  # fmt: skip
_DID = {"spawn": "Its agent was started", "verify": "Its gates were run", "land": "It is on its branch",
        "refresh": "The checkout was brought up to date", "publish": "It was published"}  # fmt: skip
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
    "not_started": "it could not be started",
    "crashed": "",
    "heartbeat_lost": "",
    "conversation_lost": "its conversation is gone",
    "rate_limited": "the model's limit is reached",
    "unreachable": "the model cannot be reached",
    "circuit_open": "it went in circles",
    "worktree_lost": "its worktree is gone",
    "environment": "a fault of the machine",
    "shutdown": "the run ended",
    "agent_failed": "the agent says that it has failed",
    "agent_refused": "the model refused",
    "auth_missing": "the agent is not signed in",
    "quota_exhausted": "the account's quota is used up",
    "verification_failed": "",
    "landing_conflict": "it conflicts with what has landed meanwhile",
    "resumes_exhausted": "it was continued too often",
    "parked": "",
    "claim_released": "",
    **dict.fromkeys(("scheduled", "requested_by_person", "resolved_by_person", "agent_reported", "approval_required",
                     "approved", "dependency_found", "dependency_met", "subtasks_completed", "attempts_left", "resumed",
                     "salvaged", "landed", "cancelled", "rejected"), ""),
}  # fmt: skip
_FAILURES = {"gate_failed": "a failed gate", "gate_timed_out": "a gate that took too long", "conflict": "a conflict"}


class _Facts(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "?"


def plainly(entry: Entry) -> str:
    """Nothing where it need not be told."""
    kind, inputs = entry.decision_type, entry.inputs
    if kind in _UNTOLD:
        return ""
    if kind in _OWN:
        return _OWN[kind](inputs)
    template = _EVENTS.get((kind, str(inputs.get("event")))) or _SENTENCES.get(kind)
    if template is None:
        template = _effect(kind)
    if template is None:
        # Of a newer Holdfast, maybe: its name is better than nothing.
        template = kind.replace("_", " ").capitalize().replace("{", "{{").replace("}", "}}")
    if not template:
        return ""
    return template.format_map(_Facts({name: compact(value) for name, value in inputs.items()})) + _more(entry)


def fully(entry: Entry) -> str:
    """The same for every entry, and with its reason: for who reads the journal itself."""
    kind, inputs = entry.decision_type, entry.inputs
    if kind not in SENTENCES:
        return words(entry)
    told = plainly(entry)
    if not told:
        template = _REST.get(kind, "")
        for effect in EFFECTS:
            template = {f"task_{effect}_intent": _ABOUT_TO[effect], f"task_{effect}_confirmed": _DID[effect]}.get(
                kind, template
            )
        told = template.format_map(_Facts({name: compact(value) for name, value in inputs.items()}))
    if kind == "task_claimed" and inputs.get("why"):
        told += f" ({_plain_choice(compact(inputs['why']))})"
    given = compact(inputs.get("reason") or "")
    why = _REASONS.get(given, given)
    # Where there is an outcome's detail, the sentence has it, and that says more.
    is_told = not why or why in told or (": " in told and given in _REASONS)
    return told if is_told else f"{told} ({_cut(why)})"


def _plain_choice(why: str) -> str:
    """Why an agent has it, such as `cascade step 2 after gate_failed`."""
    before, after, kind = why.rpartition(" after ")
    return f"{before}{after}{_FAILURES.get(kind, _REASONS.get(kind) or kind.replace('_', ' '))}" if after else why


def _effect(kind: str) -> str | None:
    """What came of one; None where it is none."""
    for effect in EFFECTS:
        if kind == f"task_{effect}_intent":
            return ""
        closing = kind.removeprefix(f"task_{effect}_")
        if closing in _CLOSED:
            return _CLOSED[closing].format(work=_WORK[effect])
    return None


def _more(entry: Entry) -> str:
    kind, inputs = entry.decision_type, entry.inputs
    given = inputs.get("outcome")
    outcome: dict[str, Any] = given if isinstance(given, dict) else {}
    if kind == "task_closed":
        commit = str(outcome.get("commit", ""))
        return f" as {commit[:12]}" if commit else ""
    if kind == "task_claimed":
        return f", model {compact(inputs['model'])}" if inputs.get("model") else ""
    if kind in ("task_failed", "task_orphaned", "task_blocked") or kind.endswith(("_failed", "_abandoned", "_parked")):
        why = compact(outcome.get("detail") or entry.output.get("detail") or "")
        given = compact(inputs.get("reason") or "")
        why = why or _REASONS.get(given, given)
        again = "; another attempt follows" if inputs.get("again") else ""
        why = why.removesuffix(".") if again else why
        return (f": {_cut(why)}" if why else "") + again
    return ""


def _added(inputs: dict[str, Any]) -> str:
    return "Added as a plan, which a person has to approve" if inputs.get("state") == "PLANNED" else "Added"


def _turn(inputs: dict[str, Any]) -> str:
    usd, tokens = inputs.get("usd", 0.0), inputs.get("tokens", 0)
    spent = (f", {money(usd)}" if usd else "") + (f", {plural(tokens, 'token')}" if tokens else "")
    return f"Turn {inputs.get('turn', '?')}{spent}"


def _flagged(inputs: dict[str, Any]) -> str:
    if inputs.get("parked"):
        return f"Parked: {_cut(compact(inputs['parked']))}"
    if not inputs.get("not_before"):
        return f"Held up: {_cut(compact(inputs['cause']))}" if inputs.get("cause") else "Free to go on"
    until = inputs["not_before"]
    when = f"until {moment(until)}" if isinstance(until, int | float) else "to later"
    return f"Put off {when}" + (f": {_cut(compact(inputs['cause']))}" if inputs.get("cause") else "")


def _landing_waits(inputs: dict[str, Any]) -> str:
    given = inputs.get("paths")
    paths = ", ".join(map(str, given)) if isinstance(given, list) else compact(given)
    return f"Its landing waits: a person has changed {_cut(paths)} in the checkout"


def _refused(inputs: dict[str, Any]) -> str:
    return f"Not done, because it did not fit any more: {_cut(compact(inputs.get('reason', '')))}"


def _progress(inputs: dict[str, Any]) -> str:
    return f"Says: {_cut(compact(inputs.get('message', '')))}"


_OWN = {
    "task_added": _added,
    "turn_completed": _turn,
    "task_flagged": _flagged,
    "task_move_refused": _refused,
    "task_progressed": _progress,
    "landing_waits": _landing_waits,
}


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"
