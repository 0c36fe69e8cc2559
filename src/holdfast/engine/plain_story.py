"""A journal entry as one would tell it to somebody who does not know the state machine; `story` tells all of it.

What says nothing that another entry does not say, is not told: an intent is told by what came of it.
"""

from __future__ import annotations

from typing import Any

from holdfast.domain.entries import EFFECTS
from holdfast.domain.wording import money, plural
from holdfast.durable.entry import Entry
from holdfast.engine.story import compact

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
    ("task_opened", "requeued_for_retry"): "Another attempt may begin",
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
         "refresh": "Bringing it up to date", "publish": "Publishing it"}  # fmt: skip
_CLOSED = {
    "confirmed": "",
    "failed": "{work} failed",
    "abandoned": "{work} was given up",
    "parked": "{work} was cut off; only a person can know whether it happened",
}


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
        return f" as {commit[:10]}" if commit else ""
    if kind == "task_claimed":
        return f", model {compact(inputs['model'])}" if inputs.get("model") else ""
    if kind in ("task_failed", "task_orphaned", "task_blocked") or kind.endswith(("_failed", "_abandoned", "_parked")):
        why = compact(outcome.get("detail") or entry.output.get("detail") or inputs.get("reason") or "")
        again = "; another attempt follows" if inputs.get("again") else ""
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
    return "Put off to later" + (f": {_cut(compact(inputs['cause']))}" if inputs.get("cause") else "")


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
