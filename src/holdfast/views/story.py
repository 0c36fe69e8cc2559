"""Sentences for journal entries: one table, `SENTENCES`, for every type of entry.

`words` gives all facts of an entry, for `history --json` and the API. `plain_words` is for readers who do not know the
state machine, and is empty where another entry says the same: the closing of an intent tells of it. `log_words` is
`plain_words` for every entry, and with its reason: for `holdfast log` and `history`.

Entries are told from their bare facts, not from typed payloads: a story must be readable also where an entry is odd, or
of a type that only a newer Holdfast knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from holdfast.domain.effect_entries import CLOSINGS, EFFECTS
from holdfast.domain.wording import is_setup_failure, moment, money, plural
from holdfast.storage.journal.entry import Entry

TEXT_MAX = 400


class Sentence(NamedTuple):
    """The sentences for entries of one type: templates over their inputs.

    `plain`: empty where it need not be told; a function where a template does not do. `log`: what the log has instead
    of an empty `plain`.
    """

    words: str
    plain: str | Callable[[dict[str, Any]], str] = ""
    log: str = ""


def _turn(inputs: dict[str, Any]) -> str:
    usd, tokens = inputs.get("usd", 0.0), inputs.get("tokens", 0)
    spent = (f", {money(usd)}" if usd else "") + (f", {plural(tokens, 'token')}" if tokens else "")
    return f"Turn {inputs.get('turn', '?')}{spent}"


def _flagged(inputs: dict[str, Any]) -> str:
    cause = f": {_cut(inputs['cause'])}" if inputs.get("cause") else ""
    if inputs.get("parked"):
        return f"Parked: {_cut(inputs['parked'])}"
    if is_setup_failure(str(inputs.get("cause", ""))):
        # The sentence of the setup stands in the entry before.
        return "Held up by the failed setup; a run tries it again"
    if not (until := inputs.get("not_before")):
        return f"Held up{cause}" if cause else "Free to go on"
    return f"Put off {f'until {moment(until)}' if isinstance(until, int | float) else 'to later'}{cause}"


def _landing_waits(inputs: dict[str, Any]) -> str:
    given = inputs.get("paths")
    paths = ", ".join(map(str, given)) if isinstance(given, list) else given
    return f"Its landing waits: a person has changed {_cut(paths)} in the checkout"


def _question(inputs: dict[str, Any]) -> str:
    if inputs.get("kind") == "words":
        return f"Asks a person: {_cut(inputs.get('preview', ''))}"
    return f"Asks a person for leave to call {inputs.get('tool', '?')}: {_cut(inputs.get('argument', ''))}"


_ANSWERS = {"allow": "allowed", "deny": "denied", "say": "answered"}


def _answer(inputs: dict[str, Any]) -> str:
    who, words = inputs.get("by", "?"), inputs.get("words")
    done = _ANSWERS.get(str(inputs.get("answer")), "answered")
    told = f"Nobody answered in time: {done}" if who == "timeout" else f"{who} {done} it"
    always = f"; from now on the settings say: {_cut(inputs['rule'])}" if inputs.get("rule") else ""
    return told + (f": {_cut(words)}" if words else "") + always


# An effect that is about to be performed, that was, and that is being: the last is how its failure begins.
_EFFECTS = {
    "setup": ("Its worktree is about to be set up", "Its worktree was set up", "Setting up its worktree"),
    "spawn": ("Its agent is about to be started", "Its agent was started", "Starting its agent"),
    "verify": ("Its gates are about to be run", "Its gates were run", "Verifying it"),
    "land": ("It is about to be landed", "It is on its branch", "Landing it"),
    "refresh": (
        "The checkout is about to be brought up to date",
        "The checkout was brought up to date",
        "Bringing the checkout up to date",
    ),
    "publish": ("A message is about to be sent", "The message was sent", "Sending a message"),
}


def _effect_sentences() -> dict[str, Sentence]:
    """The sentences of an effect's intent, and of each way in which it is closed."""
    found = {}
    for effect in EFFECTS:
        soon, did, doing = _EFFECTS[effect]
        plain = {
            "confirmed": "Sent the message {key}" if effect == "publish" else "",
            "failed": f"{doing} failed",
            "abandoned": f"{doing} was given up",
            "parked": f"{doing} was cut off; only a person can know whether it happened",
        }
        found[f"task_{effect}_intent"] = Sentence(f"about to {effect}, attempt {{attempt}}", log=soon)
        for closing in CLOSINGS:
            full = f"{effect} {closing} (intent {{intent}})"
            found[f"task_{effect}_{closing}"] = Sentence(full, plain[closing], did)
    return found


def _reviewed(inputs: dict[str, Any]) -> str:
    comments = inputs.get("comments", ())
    count = plural(len(comments), "comment") if isinstance(comments, list | tuple) else "comments"
    verdict = {"approve": "approved", "send_back": "sent back"}.get(str(inputs.get("verdict")), "read")
    return f"Reviewed by {inputs.get('by', 'a person')} and {verdict}, with {count}"


_FLAGS = {
    "parked": "needs a person",
    "put_off": "is put off",
    "retry": "is sent again",
    "sent": "has left, a person says",
    "dropped": "is not sent, a person says",
}


def _message_flagged(inputs: dict[str, Any]) -> str:
    why = f": {_cut(inputs['reason'])}" if inputs.get("reason") else ""
    return f"The message {inputs.get('key', '?')} {_FLAGS.get(str(inputs.get('how')), 'is changed')}{why}"


SENTENCES: dict[str, Sentence] = {
    "run_started": Sentence(
        "run of Holdfast {holdfast} begins, epoch {epoch}", log="A run of Holdfast {holdfast} begins"
    ),
    "run_ended": Sentence("run ends: {how} {reason}", log="The run ends: {how} {reason}"),
    "audit_noted": Sentence(
        "the audit log reaches record {seq} of {file}", log="The audit log reaches record {seq} of {file}"
    ),
    "wal_replay_completed": Sentence(
        "recovery closed what was open: {confirmed} confirmed, {failed} failed, {abandoned} abandoned, {parked} "
        "parked; {released} given back",
        log="What an earlier run left open is settled",
    ),
    "task_added": Sentence(
        "added, {state}, definition {definition:.12}",
        lambda inputs: "Added" + (
            " as a plan, which a person has to approve" if inputs.get("state") == "PLANNED" else ""
        ),
    ),
    "task_edited": Sentence("edited, definition {definition:.12}", "Edited"),
    "tasks_filed": Sentence("written to the backlog: {tasks}", log="Written to the backlog: {tasks}"),
    "task_progressed": Sentence(
        "{attempt} says: {message}", lambda inputs: f"Says: {_cut(inputs.get('message', ''))}"
    ),
    "task_told": Sentence(
        "told by {by}: {message}", lambda told: f"{told.get('by')} told it: {_cut(told.get('message'))}"
    ),
    "task_taken": Sentence("taken by {by}, process {pid} on {host}", "{by} has taken it"),
    "task_given_back": Sentence(
        "given back; the worktree is saved as {saved}",
        lambda given: (
            "Given back"
            + (": the process that had it is gone" if given.get("died") else ", as it was left")
            + ("; it waits for `holdfast resume`" if given.get("park") else "")
        ),
    ),
    "request_answered": Sentence("a request was answered with {status}", log="A request was answered with {status}"),
    "task_move_refused": Sentence(
        "refused: {event} while {state}",
        lambda inputs: f"Not done, because it did not fit any more: {_cut(inputs.get('reason', ''))}",
    ),
    "task_flagged": Sentence("flags set: parked {parked}, not before {not_before}, cause {cause}", _flagged),
    "turn_completed": Sentence("turn {turn} of attempt {attempt} completed, {tokens}, {usd}", _turn),
    "turn_undone": Sentence(
        "worktree put back to turn {turn} of {attempt}; what stood there is {saved}",
        "Put back to how turn {turn} of {attempt} left it",
    ),
    "question_asked": Sentence("{attempt} asks a person: {tool} {argument} ({id})", _question),
    "question_answered": Sentence("question {id} answered by {by}: {answer} {words} {rule}", _answer),
    "attempt_forked": Sentence(
        "the next attempt begins with turn {turn} of {attempt}",
        "The next attempt begins with what turn {turn} of {attempt} left",
    ),
    "attempt_resumed": Sentence("the next start goes on with {attempt}", "Goes on with {attempt}"),
    "landing_waits": Sentence(
        "its landing on {branch} waits: you have changed {paths} in your checkout", _landing_waits
    ),
    "gate_warned": Sentence("{warning}", "Its gate {gate} may prove nothing: {warning}"),
    "landing_settled": Sentence(
        "its landing {commit:.12} left {branch}; it is there as {rewritten:.12} ({how})",
        "Its landing {commit} left the branch; now it is {rewritten} ({how})",
    ),
    "landing_promoted": Sentence(
        "to be landed again: {commit:.12} is not on {branch} any more",
        "To be landed again: it is not on {branch} any more",
    ),
    "review_drafted": Sentence("{by} drafts a review of {candidate:.12}", "{by} has saved a draft of a review"),
    "review_submitted": Sentence("{by} has reviewed {candidate:.12}: {verdict}", _reviewed),
    "message_queued": Sentence(
        "message {idempotency_key} queued for {channel}", "A message is to be sent by {channel}: {idempotency_key}"
    ),
    "pull_request_published": Sentence(
        "{head:.12} is to be pushed to {branch}, with a pull request into {base}", "Goes to {base} by pull request"
    ),
    "pull_request_seen": Sentence(
        "pull request #{number} is {state}, checks {checks}: {due} {why}",
        lambda seen: (
            f"Its pull request #{seen.get('number', '?')} is {seen.get('state', '?')}"
            + (f": {_cut(seen['why'])}" if seen.get("why") else "")
        ),
    ),
    "pull_request_steered": Sentence("its pull request may have {rounds_max} rounds", "May have {rounds_max} rounds"),
    "message_flagged": Sentence("message {key} is {how}: {reason}", _message_flagged),
    "task_opened": Sentence("open again ({event})", "Open again"),
    "task_claimed": Sentence(
        "claimed by {agent}, attempt {attempt}", "Given to {agent}, as attempt {attempt}"
    ),
    "task_started": Sentence("work begins ({event})", "Work begins"),
    "task_done": Sentence("done ({event})", "The agent says that it is done"),
    "task_closed": Sentence("closed ({event})", "Closed"),
    "task_failed": Sentence("failed ({event})", "The attempt failed"),
    "task_blocked": Sentence("blocked ({event})", "Blocked: something else has to come first"),
    "task_split": Sentence("split, waits for its subtasks ({event})", "Split; it waits for its subtasks"),
    "task_cancelled": Sentence("cancelled ({event})", "Cancelled"),
    "task_orphaned": Sentence("orphaned ({event})", "Its agent was lost"),
    "task_approval_requested": Sentence(
        "waits for a person's approval ({event})", "Verified; it waits for a person's word"
    ),
    **_effect_sentences(),
}  # fmt: skip
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


def words(entry: Entry) -> str:
    """An entry's sentence, with all facts. The text is as the journal has it: escape it before a terminal sees it."""
    kind, inputs = entry.decision_type, entry.inputs
    if kind not in SENTENCES:
        return f"{kind} {_compact(inputs)}"
    usual = {**USUAL, "parked": 0} if kind == "wal_replay_completed" else USUAL
    given = {**usual, **{name: each for name, each in inputs.items() if each not in ("", 0.0) or name not in usual}}
    if isinstance(until := given["not_before"], int | float):
        given["not_before"] = moment(until)
    if isinstance(spent := given["usd"], int | float):
        given["usd"] = money(spent)
    for name, noun in (("tokens", "token"), ("released", "claim")):
        given[name] = f"{_compact(given[name])} {noun if given[name] == 1 else f'{noun}s'}"
    made = SENTENCES[kind].words.format_map(_Facts({name: _fact(value) for name, value in given.items()}))
    made += f", model {_compact(inputs['model'])}" if inputs.get("model") else ""
    made += f" ({_compact(inputs['why'])})" if inputs.get("why") else ""
    return made + (f": {_cut(inputs['outcome'])}" if inputs.get("outcome") else "")


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
        return words(entry)
    made = plain_words(entry) or _filled(SENTENCES[kind].log, inputs)
    if kind == "task_claimed" and inputs.get("why"):
        # Such as `cascade step 2 after gate_failed`.
        before, after, failure = _compact(inputs["why"]).rpartition(" after ")
        plain = _FAILURES.get(failure, _REASONS.get(failure) or failure.replace("_", " ")) if after else failure
        made += f" ({before}{after}{plain})"
    given = _compact(inputs.get("reason") or "")
    why = _REASONS.get(given, given)
    # Where there is an outcome's detail, the sentence has it, and that says more.
    is_told = not why or why in made or (": " in made and given in _REASONS)
    return made if is_told else f"{made} ({_cut(why)})"


def _detail(entry: Entry) -> str:
    """The part of a sentence from the entry's outcome: the commit, the model, or why it failed."""
    kind, inputs = entry.decision_type, entry.inputs
    outcome = inputs["outcome"] if isinstance(inputs.get("outcome"), dict) else {}
    if kind == "task_closed":
        commit = str(outcome.get("commit", ""))
        return f" as {commit[:12]}" if commit else ""
    if kind == "task_claimed":
        return f", model {_compact(inputs['model'])}" if inputs.get("model") else ""
    if not kind.endswith(("_failed", "_abandoned", "_parked", "task_orphaned", "task_blocked")):
        return ""
    given = _compact(inputs.get("reason") or "")
    if (kind, given) == ("task_setup_failed", "not_started"):
        return ""
    why = _compact(outcome.get("detail") or entry.output.get("detail") or "") or _REASONS.get(given, given)
    again = "; another attempt follows" if inputs.get("again") else ""
    why = why.removesuffix(".") if again else why
    return (f": {_cut(why)}" if why else "") + again


def _filled(template: str, inputs: dict[str, Any]) -> str:
    return template.format_map(_Facts({name: _compact(value) for name, value in inputs.items()}))


def _fact(value: object) -> str:
    if isinstance(value, dict) and {"run", "seq"} <= value.keys():
        return f"{value['run']}:{value['seq']}"
    return _compact(value)


def _compact(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _cut(value: object) -> str:
    text = _compact(value)
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"


# -- facts of an entry ------------------------------------------------------------------------------------------------


def task_of(entry: Entry) -> str:
    return _compact(entry.inputs.get("task", ""))


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
        "what": words(entry),
        "actor": entry.actor,
        "reason": _compact(entry.inputs.get("reason") or ""),
        "inputs": entry.inputs,
        "output": entry.output,
        "entry_hash": entry.entry_hash,
    }
