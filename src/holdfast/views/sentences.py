"""The sentences of every type of entry: one table, `SENTENCES`.

Entries are told from their bare facts, not from typed payloads: a story must be readable also where an entry is odd, or
of a type that only a newer Holdfast knows.
"""

from __future__ import annotations

from typing import Any

from holdfast.domain.effect_entries import CLOSINGS, EFFECTS
from holdfast.domain.wording import is_setup_failure, moment, money, plural
from holdfast.views.connections import sentences as connections
from holdfast.views.phrases import Sentence, cut


def _turn(inputs: dict[str, Any]) -> str:
    usd, tokens = inputs.get("usd", 0.0), inputs.get("tokens", 0)
    spent = (f", {money(usd)}" if usd else "") + (f", {plural(tokens, 'token')}" if tokens else "")
    return f"Turn {inputs.get('turn', '?')}{spent}"


def _flagged(inputs: dict[str, Any]) -> str:
    cause = f": {cut(inputs['cause'])}" if inputs.get("cause") else ""
    if inputs.get("parked"):
        return f"Parked: {cut(inputs['parked'])}"
    if is_setup_failure(str(inputs.get("cause", ""))):
        # The sentence of the setup stands in the entry before.
        return "Held up by the failed setup; a run tries it again"
    if not (until := inputs.get("not_before")):
        return f"Held up{cause}" if cause else "Free to go on"
    return f"Put off {f'until {moment(until)}' if isinstance(until, int | float) else 'to later'}{cause}"


def _landing_waits(inputs: dict[str, Any]) -> str:
    given = inputs.get("paths")
    paths = ", ".join(map(str, given)) if isinstance(given, list) else given
    return f"Its landing waits: a person has changed {cut(paths)} in the checkout"


def _question(inputs: dict[str, Any]) -> str:
    if inputs.get("kind") == "words":
        return f"Asks a person: {cut(inputs.get('preview', ''))}"
    return f"Asks a person for leave to call {inputs.get('tool', '?')}: {cut(inputs.get('argument', ''))}"


_ANSWERS = {"allow": "allowed", "deny": "denied", "say": "answered"}


def _answer(inputs: dict[str, Any]) -> str:
    who, words = inputs.get("by", "?"), inputs.get("words")
    done = _ANSWERS.get(str(inputs.get("answer")), "answered")
    told = f"Nobody answered in time: {done}" if who == "timeout" else f"{who} {done} it"
    always = f"; from now on the settings say: {cut(inputs['rule'])}" if inputs.get("rule") else ""
    return told + (f": {cut(words)}" if words else "") + always


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
        "{attempt} says: {message}", lambda inputs: f"Says: {cut(inputs.get('message', ''))}"
    ),
    "task_told": Sentence(
        "told by {by}: {message}", lambda told: f"{told.get('by')} told it: {cut(told.get('message'))}"
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
        lambda inputs: f"Not done, because it did not fit any more: {cut(inputs.get('reason', ''))}",
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
    **connections.SENTENCES,
}  # fmt: skip
