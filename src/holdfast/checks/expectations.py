"""The files that must exist according to the journal: blobs, the files of every attempt, and its snapshots.

It is collected entry by entry, in a few words for each attempt, however many turns that had. The snapshots of a task
that has ended are only counted: its refs may be gone for good reason.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.checks.deliveries import RecordedDeliveries
from holdfast.checks.outbox import RecordedMessages
from holdfast.domain.entries import MOVES, EntryLike
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TaskEvent
from holdfast.storage.files.json_file import decode_json

DEFINITION, ORDER, GATES, VERDICT = "a definition", "the order for a start", "the pinned gates", "a verdict"
FEEDBACK, OUTPUT = "the feedback for an agent", "the output of a gate"
# The field of its inputs by which an entry names a blob.
_BLOB_FIELDS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(MOVES, ("feedback", FEEDBACK)),
    "attempt_forked": ("feedback", FEEDBACK),
    "pull_request_seen": ("feedback", FEEDBACK),
    "task_added": ("definition", DEFINITION),
    "task_edited": ("definition", DEFINITION),
    "task_spawn_intent": ("order", ORDER),
    "task_verify_intent": ("gates", GATES),
}
# A task moves by these events only after a runner wrote how the start ended, unless the start was given up.
_AFTER_EXIT = {TaskEvent.AGENT_REPORTS_SUCCESS, TaskEvent.AGENT_REPORTS_FAILURE, TaskEvent.REQUEUE}
# A landing that only a lost journal knew: the last ending belongs to a start that this one lacks, and is set aside.
_FOUND_DONE = {TaskEvent.FAST_COMPLETION, TaskEvent.PARTIAL_WORK_MERGED}
_UNKNOWN_HERE = {Reason.LANDED, Reason.RESOLVED_BY_PERSON}


def blob_named_by(entry: EntryLike) -> tuple[str, str]:
    """The blob that an entry names, and what it is; both empty where it names none.

    Such a blob is referenced: `check` requires it, and garbage collection keeps it.
    """
    if entry.decision_type == "task_verify_confirmed":
        return str(entry.output.get("verdict", "")), VERDICT
    field, what = _BLOB_FIELDS.get(entry.decision_type, ("", ""))
    return str(entry.inputs.get(field, "")), what


def outputs_in(verdict: bytes) -> list[str]:
    """The blobs that a verdict names."""
    found = decode_json(verdict, _Judged) or _Judged()
    return [result.output for result in found.results if result.output]


class _Ran(msgspec.Struct, frozen=True):
    output: str = ""


class _Judged(msgspec.Struct, frozen=True):
    results: list[_Ran] = []


class Attempted(msgspec.Struct):
    """One attempt. `start` is the last that took place, `ended` the last whose ending was applied, 0 where none was.

    `verdict` is the blob of the last one, unless judging has begun again. `pin` is a hash over all its `turns`, the
    last of which ends at `offset`. `trail` has a line for each snapshot, or is None where the task has ended.
    """

    task: str
    start: int = 0
    intended: int = 0
    ended: int = 0
    verdict: str = ""
    turns: int = 0
    offset: int = 0
    pin: int = 0
    snapshots: int = 0
    trail: bytearray | None = None
    # The hashes of the entries that its starts were intended with; "" where the files of a start name none.
    intents: set[str] = msgspec.field(default_factory=set)

    @property
    def has_begun(self) -> bool:
        return bool(self.start or self.turns)

    def is_own(self, intent: str) -> bool:
        """Whether a file that names this intent belongs to this attempt, and not to another of its name."""
        return intent.rpartition(":")[2] in self.intents

    def trailed(self) -> Iterator[tuple[int, str]]:
        """Each turn that has a snapshot, with its commit."""
        for line in bytes(self.trail or b"").splitlines():
            turn, _, commit = line.partition(b" ")
            yield int(turn), commit.decode()


def pinned(pin: int, turn: int, offset: int, snapshot: str, usd: float, tokens: int, seconds: float) -> int:
    """The hash with one more turn: differs, but for a collision, wherever any of it does. For this process only."""
    return hash((pin, turn, offset, snapshot, usd, tokens, seconds))


class Setups:
    """The setups of worktrees. `confirmed`: the digest of the last one of each worktree, by its name, unless another
    has begun since. `by_attempt`: the attempts for which one was confirmed."""

    def __init__(self) -> None:
        self.confirmed: dict[str, str] = {}
        self.by_attempt: set[str] = set()
        # Those without an outcome: worktree, digest and attempt, by the hash of the intent.
        self._open: dict[str, tuple[str, str, str]] = {}

    def intended_for(self, worktree: str) -> set[str]:
        """The digests of setups of a worktree that have no outcome yet."""
        return {digest for name, digest, _ in self._open.values() if name == worktree}

    def add(self, entry: EntryLike) -> None:
        if entry.decision_type == "task_setup_intent":
            # By its name: a data root that was moved has other paths.
            worktree = str(entry.inputs.get("worktree", "")).rpartition("/")[2]
            self.confirmed.pop(worktree, None)
            self._open[entry.entry_hash] = worktree, str(entry.inputs.get("digest", "")), entry.inputs["attempt"]
            return
        intent = entry.inputs.get("intent")
        found = self._open.pop(intent.get("entry_hash", ""), None) if isinstance(intent, dict) else None
        if found is not None and entry.decision_type == "task_setup_confirmed":
            worktree, digest, attempt = found
            self.confirmed[worktree] = digest
            self.by_attempt.add(attempt)


class Recorded:
    """Collects every entry, in order. `blobs`: each with what it is, and the first task that named it."""

    def __init__(self) -> None:
        self.blobs: dict[str, tuple[str, str]] = {}
        self.attempts: dict[str, Attempted] = {}
        # Questions of agents by id, each with its task; and the answers.
        self.asked: dict[str, str] = {}
        self.answered: list[str] = []
        self.setups = Setups()
        self.messages = RecordedMessages()
        self.deliveries = RecordedDeliveries()
        # Definitions that the journal itself holds until their files are written, by task.
        self._unfiled: dict[str, str] = {}

    def add(self, entry: EntryLike) -> None:
        kind, inputs = entry.decision_type, entry.inputs
        task, name = inputs.get("task", ""), inputs.get("attempt", "")
        if kind == "turn_completed":
            self._turn(self._attempt(task, name), entry)
            return
        if (kind == "turn_undone" and not inputs.get("saved")) or (kind == "task_flagged" and inputs.get("anew")):
            self._give_up_turns(task, name, inputs.get("turn", 0))
        if kind == "question_asked":
            self.asked[inputs["id"]] = task
        elif kind == "question_answered":
            self.answered.append(inputs["id"])
        elif kind.startswith("task_setup_"):
            self.setups.add(entry)
        else:
            self.messages.add(entry)
            self.deliveries.add(entry)
        digest, what = blob_named_by(entry)
        if digest and kind == "task_added" and inputs.get("text"):
            self._unfiled[task] = digest
        elif digest:
            self.blobs.setdefault(digest, (what, task))
        if kind == "tasks_filed":
            for filed in inputs["tasks"]:
                if filed in self._unfiled:
                    self.blobs.setdefault(self._unfiled.pop(filed), (_BLOB_FIELDS["task_added"][1], filed))
        if kind in MOVES:
            self._move(entry, task, name)
        elif name and kind.startswith(("task_spawn_", "task_verify_")):
            self._effect(self._attempt(task, name), entry)

    def _give_up_turns(self, task: str, name: str, after: int) -> None:
        """A person has acknowledged that later turns are lost; without an attempt's name, those of all attempts."""
        for attempt, known in self.attempts.items():
            if known.task == task and known.trail is not None and name in ("", attempt):
                kept = [(turn, commit) for turn, commit in known.trailed() if turn <= after]
                known.trail = bytearray("".join(f"{turn} {commit}\n" for turn, commit in kept).encode())

    def _attempt(self, task: str, name: str) -> Attempted:
        found = self.attempts.get(name)
        if found is None:
            found = self.attempts[name] = Attempted(task, trail=bytearray())
        return found

    def _turn(self, attempt: Attempted, entry: EntryLike) -> None:
        made = entry.inputs
        turn, snapshot = made["turn"], made.get("snapshot", "")
        attempt.turns, attempt.offset = attempt.turns + 1, made["end_offset"]
        spent = made.get("usd", 0.0), made.get("tokens", 0), made.get("seconds", 0.0)
        attempt.pin = pinned(attempt.pin, turn, attempt.offset, snapshot, *spent)
        if snapshot:
            attempt.snapshots += 1
            if attempt.trail is not None:
                attempt.trail += f"{turn} {snapshot}\n".encode()

    def _move(self, entry: EntryLike, task: str, name: str) -> None:
        if name and entry.inputs["event"] in _AFTER_EXIT and entry.inputs["reason"] != Reason.CRASHED:
            attempt = self._attempt(task, name)
            attempt.ended = attempt.start
        if name and entry.inputs["event"] in _FOUND_DONE and entry.inputs["reason"] in _UNKNOWN_HERE:
            self._attempt(task, name).ended = 0
        if entry.decision_type == "task_claimed":
            self._attempt(task, name)
        elif entry.decision_type in ("task_closed", "task_cancelled"):
            number = 1
            while (over := self.attempts.get(f"{task}.{number}")) is not None:
                over.trail, number = None, number + 1

    def _effect(self, attempt: Attempted, entry: EntryLike) -> None:
        match entry.decision_type:
            case "task_spawn_intent":
                attempt.intended = entry.inputs.get("start", 0)
                attempt.intents.add(entry.entry_hash if entry.inputs.get("names_files") else "")
            case "task_spawn_confirmed":
                attempt.start = attempt.intended
            case "task_verify_intent":
                attempt.verdict = ""
            case "task_verify_confirmed":
                attempt.verdict = str(entry.output.get("verdict", ""))
