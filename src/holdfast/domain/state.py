"""The fold: what the journal's entries amount to. Pure: the same entries always give the same state.

A task's state, attempts, claim and flags come from here and from nowhere else; its definition comes from its file. The
order of tasks is the order in which they were added. Where the journal says what cannot be (a move that the state
machine does not know, a task that was never added), the fold stops with an error that names the entry.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain import claims, effect_entries, entries, outage, task_record
from holdfast.domain.conversations.conversation_entries import TaskGivenBack, TaskTaken, TaskTold
from holdfast.domain.entries import EntryLike
from holdfast.domain.fsm import Reason
from holdfast.domain.messages import connection_state, outbox_records
from holdfast.domain.messages.outbox_records import Outbox
from holdfast.domain.outage import Outage
from holdfast.domain.pull_requests import pull_records
from holdfast.domain.reviews.review_records import ReviewDrafted, ReviewSubmitted, TaskReviews
from holdfast.domain.spend import Caps, Spend, SpendCounter
from holdfast.domain.task import AT_WORK, OVER, TASK, TaskEvent, TaskState
from holdfast.domain.task_record import Landing, Task
from holdfast.errors import EntryUnfit, IllegalTransition
from holdfast.questions.records import QuestionAsked


class _Head(msgspec.Struct, frozen=True):
    """The state beside its tasks."""

    epoch: int
    run: Spend = Spend()
    days: dict[int, Spend] = {}
    outages: list[Outage] = []
    audit: entries.AuditNoted | None = None
    connections: connection_state.ConnectionState = msgspec.field(default_factory=connection_state.ConnectionState)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Task).decode
_decode_head = msgspec.json.Decoder(_Head).decode
_NOTHING = Spend()
# Events after which the next claim goes on with the same attempt.
_GIVES_BACK = {TaskEvent.UNCLAIM, TaskEvent.REQUEUE, TaskEvent.FORCE_REASSIGN, TaskEvent.CHANGES_REQUESTED}
# In these nobody waits for an answer any more: an open question is closed.
_NO_QUESTIONS = OVER | {TaskState.DONE, TaskState.FAILED}
_HELD = AT_WORK | {TaskState.DONE, TaskState.PENDING_APPROVAL, TaskState.ORPHANED}


class Overlay(dict[str, Task]):
    """A view of the tasks to try entries on: a task is copied when it is first asked for, so a trial costs little."""

    def __init__(self, below: dict[str, Task]) -> None:
        super().__init__()
        self._below = below

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self.keys() and name in self._below:
            self[name] = copy.copy(self._below[name])
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._below


class _Contradiction(Exception):
    """The journal contradicts itself. Never leaves this module."""


class State:
    """Fold every entry in with `apply`, in order. `version` changes whenever the same entries would give another.

    `outages`: agents that cannot be used now.
    """

    version = 22

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.epoch = 0
        self.outages: outage.Outages = {}
        # Tasks with an open question.
        self.asking: set[str] = set()
        self.connections = connection_state.ConnectionState()
        # How far the audit log reached when the journal last noted it.
        self.audit: entries.AuditNoted | None = None
        self._spent = SpendCounter()
        self._applied_run = ""

    @property
    def run(self) -> Spend:
        return self._spent.run

    @property
    def days(self) -> dict[int, Spend]:
        return self._spent.days

    @property
    def outbox(self) -> Outbox:
        return self.connections.outbox

    def apply(self, run: str, entry: EntryLike) -> None:
        if entry.decision_type == "turn_completed" and self._count_turn(entry):
            return
        payload = entries.payload(run, entry)
        handler = _HANDLERS.get(type(payload))
        if handler is None:
            return
        self._applied_run = run
        try:
            handler(self, entry, payload)
        except (IllegalTransition, _Contradiction) as error:
            raise EntryUnfit(run=run, seq=entry.seq, decision_type=entry.decision_type, reason=error) from error

    def trial(self) -> State:
        """A state to try entries on: it begins as this one, and leaves this one as it is."""
        trial = State()
        # What was spent allows or forbids no entry.
        trial.tasks, trial.epoch, trial.outages = Overlay(self.tasks), self.epoch, self.outages.copy()
        trial.asking, trial.connections = self.asking.copy(), self.connections.trial()
        return trial

    def dump(self) -> Iterable[bytes]:
        outages, others = list(self.outages.values()), self.connections
        yield _encode(_Head(self.epoch, self.run, self.days, outages, self.audit, connections=others))
        for task in self.tasks.values():
            yield _encode(task)

    def load(self, lines: list[bytes]) -> None:
        head = _decode_head(lines[0])
        self.epoch, self.audit, self.connections = head.epoch, head.audit, head.connections
        self._spent = SpendCounter(head.run, head.days)
        self.outages = {(each.agent, each.endpoint): each for each in head.outages}
        self.tasks = {task.id: task for task in map(_decode, lines[1:])}
        self.asking = {task.id for task in self.tasks.values() if task_record.open_questions(task)}

    def known(self, name: str) -> Task:
        if (found := self.tasks.get(name)) is None:
            raise _Contradiction(f"there is no task {name!r}")
        return found

    # -- one method for each kind of entry that changes something -----------------------------------------------------

    def _start_run(self, entry: EntryLike, started: entries.RunStarted) -> None:
        self.epoch = started.epoch
        self._spent.begin_run()
        if started.audit is not None or started.audit_lost:
            self.audit = started.audit
        if started.restored:
            for task in self.tasks.values():
                task.restored = task.state not in OVER

    def _add(self, entry: EntryLike, added: entries.TaskAdded) -> None:
        if added.task in self.tasks:
            raise _Contradiction(f"the task {added.task} was added before")
        moment = entry.timestamp
        task = Task(added.task, added.state, added.definition, moment, moment, number=len(self.tasks))
        task.outcome, task.unfiled = added.outcome, added.text
        self.tasks[added.task] = task

    def _file(self, entry: EntryLike, filed: entries.TasksFiled) -> None:
        for name in filed.tasks:
            self.known(name).unfiled = ""

    def _progress(self, entry: EntryLike, said: entries.TaskProgressed) -> None:
        task = self.known(said.task)
        if said.attempt == task.attempt.id:
            task.claim = replace(task.claim, progress=said.message)

    def _edit(self, entry: EntryLike, edited: entries.TaskEdited) -> None:
        self.known(edited.task).definition = edited.definition

    def _move(self, entry: EntryLike, moved: entries.TaskMoved) -> None:
        task = self.known(moved.task)
        target = TASK.next(task.state, moved.event)
        if target is not entries.MOVES[entry.decision_type]:
            raise _Contradiction(f"the event {moved.event} leads from {task.state} to {target}")
        if target is TaskState.CLAIMED:
            claims.fold_claim(task, moved)
        elif target not in _HELD:
            task.claim = replace(task.claim, agent="", remote=False)
        if target not in AT_WORK:
            outage.fold_move(self.outages, task, moved, entry.timestamp)
            task.start = replace(task.start, began=0.0, reserved=Caps())
        self._approve(task, moved.event, target)
        is_continued = task.state is TaskState.ORPHANED or moved.event in _GIVES_BACK
        task.continues = is_continued and bool(task.attempt.id)
        task.assigned = (moved.agent, moved.model) if moved.event is TaskEvent.FORCE_REASSIGN else task.assigned
        resumes = task.attempt.resumes + (task.state is TaskState.ORPHANED and target is TaskState.OPEN)
        task.attempt = replace(task.attempt, resumes=resumes, tree=moved.tree or task.attempt.tree)
        task.state, task.changed_at, task.outcome = target, entry.timestamp, moved.outcome
        task.cause = task.cause if task.not_before else ""
        task.pull = pull_records.moved(task.pull, moved.reason)
        if task.landing.waits:
            task.landing = replace(task.landing, waits=())
        if moved.rest != _NOTHING:
            task.start = replace(task.start, used=task.start.used + moved.rest)
            self.spend(task, moved.rest, entry.timestamp)
        task_record.drop_messages(task, moved.told)
        task.session = "" if moved.forget else moved.session or task.session
        if moved.forget and task.continues and moved.reason != Reason.SESSION_FULL:
            task.lost_in = task.attempt.id
        task.again = target is TaskState.FAILED and moved.again
        task.feedback = (moved.feedback if target is TaskState.OPEN else "") or task.feedback
        if target is TaskState.DONE and moved.candidate:
            task.candidate, task.feedback, task.landing = moved.candidate, "", Landing()
            task.left, task.made, task.happened = None, task.attempt.at, ()
        elif target is TaskState.FAILED:
            task_record.fail(task, moved)
        if target in _NO_QUESTIONS:
            task.questions = ()
        self._note_asking(task)

    def _note_asking(self, task: Task) -> None:
        (self.asking.add if task_record.open_questions(task) else self.asking.discard)(task.id)

    def _approve(self, task: Task, event: TaskEvent, target: TaskState) -> None:
        """An approval is of the commit that was verified then, and ends where it is asked for again."""
        is_kept = task.approved and target in _HELD and event is not TaskEvent.APPROVAL_REQUESTED
        task.approved = event is TaskEvent.APPROVAL_GRANTED or is_kept
        if event is TaskEvent.APPROVAL_GRANTED:
            landing = task.landing
            task.landing = replace(landing, approved=landing.verified, approved_on=landing.verified_on)
        if target in OVER:
            task.reviews = TaskReviews()

    def _flag(self, entry: EntryLike, flagged: entries.TaskFlagged) -> None:
        task = self.known(flagged.task)
        if task.cause and task.not_before and not flagged.not_before:
            outage.fold_release(self.outages, task)
        task_record.flag(task, flagged)
        self._note_asking(task)

    def _count_turn(self, entry: EntryLike) -> bool:
        """By far the most frequent entry, so it is read as it stands; False where it is not what it should be."""
        turn = entry.inputs
        try:
            task = self.tasks.get(turn["task"])
            if task is None:
                return False
            usd, tokens, seconds = turn.get("usd", 0.0), turn.get("tokens", 0), turn.get("seconds", 0.0)
            attempt, start = task.attempt, task.start
            used = start.used
            now_used = Spend(used.usd + usd, used.tokens + tokens, used.turns + 1, used.seconds + seconds)
            if turn["attempt"] == attempt.id:
                if turn["turn"] <= attempt.turn:
                    return False
                tree = turn.get("snapshot") or attempt.tree
                task.attempt = replace(attempt, turn=turn["turn"], offset=turn["end_offset"], tree=tree)
                task.start = replace(start, used=now_used)
                if task.questions:
                    # Its agent has used the answers before this turn.
                    task.questions = tuple(each for each in task.questions if each.is_open or each.turn >= turn["turn"])
            task_record.drop_messages(task, turn.get("told", []))
        except (KeyError, TypeError):
            return False
        if self.outages:
            outage.fold_turn(self.outages, task)
        self._spend(task, usd, tokens, 1, seconds, moment=entry.timestamp)
        return True

    def spend(self, task: Task, spent: Spend, moment: float) -> None:
        """Counts what a task has cost, for it, for the run and for the day."""
        self._spend(task, spent.usd, spent.tokens, spent.turns, spent.seconds, moment=moment)

    def _spend(self, task: Task, usd: float, tokens: int, turns: int, seconds: float, moment: float) -> None:
        self._spent.count(usd, tokens, turns, seconds, moment)
        before = task.spent
        task.spent = Spend(before.usd + usd, before.tokens + tokens, before.turns + turns, before.seconds + seconds)

    def _expect_turn(self, entry: EntryLike, turn: entries.TurnCompleted) -> None:
        """A turn that was not counted."""
        task = self.known(turn.task)
        raise _Contradiction(f"turn {turn.turn} of {turn.attempt} comes after turn {task.attempt.turn}")

    def _fork(self, entry: EntryLike, forked: entries.AttemptForked) -> None:
        task = self._open_task(forked.task)
        task.candidate, task.feedback = forked.candidate, forked.feedback
        task.continues, task.session, task.questions = False, "", ()
        self._note_asking(task)
        task.left, task.made = None, task.attempt.at

    def _undo(self, entry: EntryLike, undone: entries.TurnUndone) -> None:
        task = self.known(undone.task)
        task_record.undo(task, undone)
        self._note_asking(task)

    def _ask(self, entry: EntryLike, asked: QuestionAsked) -> None:
        task = self.known(asked.task)
        if wrong := task_record.ask(task, asked, entry.timestamp):
            raise _Contradiction(wrong)
        self._note_asking(task)

    def _answer(self, entry: EntryLike, answered: entries.QuestionAnswered) -> None:
        task = self.known(answered.task)
        if wrong := task_record.answer(task, answered, entry.timestamp):
            raise _Contradiction(wrong)
        self._note_asking(task)

    def _resume(self, entry: EntryLike, resumed: entries.AttemptResumed) -> None:
        task = self._open_task(resumed.task)
        if resumed.attempt != task.attempt.id:
            raise _Contradiction(f"the last attempt is {task.attempt.id}, not {resumed.attempt}")
        task.continues, task.attempt = True, replace(task.attempt, resumes=0)

    def _open_task(self, name: str) -> Task:
        task = self.known(name)
        if task.state is not TaskState.OPEN:
            raise _Contradiction(f"the task {name} is {task.state}")
        return task

    def _intend_start(self, entry: EntryLike, spawn: effect_entries.SpawnIntended) -> None:
        task = self.known(spawn.task)
        intent = effect_entries.entry_name(self._applied_run, entry.seq, entry.entry_hash) if spawn.names_files else ""
        task_record.intend(task, spawn, intent, entry.timestamp)
        outage.fold_start(self.outages, task)

    def _intend_verdict(self, entry: EntryLike, intended: effect_entries.VerifyIntended) -> None:
        task = self.known(intended.task)
        task.landing = replace(task.landing, judged=intended.merged, judged_on=intended.target, behind=intended.behind)

    def _settle_landing(self, entry: EntryLike, settled: entries.LandingSettled) -> None:
        """From now on the rewritten commit is the landing; a dropped one is none any more."""
        task = self.known(settled.task)
        task.landing = replace(task.landing, commit=settled.rewritten)

    def _close_effect(self, entry: EntryLike, closed: effect_entries.EffectClosed) -> None:
        """Parks the task where the outcome could not be decided, or was too old to repeat; or the message."""
        effect, how = effect_entries.CLOSED_BY[entry.decision_type]
        if effect == "publish":
            task, sent = self.tasks.get(closed.task), self.outbox.get(closed.key)
            if how == "confirmed" and task is not None and sent is not None:
                task.pull = pull_records.sent(task.pull, sent.channel, sent.content, entry.output)
            outbox_records.close(self.outbox, closed.key, how, closed.reason, entry.timestamp)
            return
        task_record.close_effect(self.known(closed.task), entry.decision_type, closed.reason, entry.output)


def _among_connections(change: connection_state.ConnectionFold) -> Callable[[State, EntryLike, Any], None]:
    """A change of what is about others, as a handler."""

    def handler(state: State, entry: EntryLike, payload: Any) -> None:
        if contradiction := change(state.connections, payload, entry.timestamp):
            raise _Contradiction(contradiction)

    return handler


def _in_task(name: str, change: Callable[[Any, Any, float], Any]) -> Callable[[State, EntryLike, Any], None]:
    """A change of one of a task's records, as a handler."""

    def handler(state: State, entry: EntryLike, payload: Any) -> None:
        task = state.known(payload.task)
        setattr(task, name, change(getattr(task, name), payload, entry.timestamp))

    return handler


def fold(items: Iterable[tuple[str, EntryLike]]) -> State:
    state = State()
    for run, entry in items:
        state.apply(run, entry)
    return state


_HANDLERS: dict[type[msgspec.Struct], Callable[[State, EntryLike, Any], None]] = {
    entries.RunStarted: State._start_run,
    entries.AuditNoted: lambda state, entry, noted: setattr(state, "audit", noted),
    entries.TaskAdded: State._add,
    entries.TaskEdited: State._edit,
    entries.TasksFiled: State._file,
    TaskTold: lambda state, entry, told: task_record.add_message(state.known(told.task), told, entry.timestamp),
    TaskTaken: lambda state, entry, taken: task_record.take_over(state._open_task(taken.task), taken),
    TaskGivenBack: lambda state, entry, given: task_record.give_back(state._open_task(given.task), given),
    entries.TaskProgressed: State._progress,
    entries.TaskMoved: State._move,
    entries.TaskFlagged: State._flag,
    entries.TurnCompleted: State._expect_turn,
    entries.AttemptForked: State._fork,
    QuestionAsked: State._ask,
    entries.QuestionAnswered: State._answer,
    entries.TurnUndone: State._undo,
    entries.AttemptResumed: State._resume,
    effect_entries.SpawnIntended: State._intend_start,
    effect_entries.EffectClosed: State._close_effect,
    entries.LandingWaiting: _in_task("landing", lambda old, new, _: replace(old, waits=tuple(new.paths))),
    effect_entries.VerifyIntended: State._intend_verdict,
    effect_entries.LandIntended: _in_task("landing", lambda old, *_: replace(old, waits=())),
    entries.LandingSettled: State._settle_landing,
    ReviewDrafted: _in_task("reviews", TaskReviews.drafted),
    ReviewSubmitted: _in_task("reviews", TaskReviews.reviewed),
    **{kind: _among_connections(change) for kind, change in connection_state.FOLDS.items()},
    effect_entries.PublishIntended: _among_connections(connection_state.begin_publishing),
    **dict.fromkeys(pull_records.ENTRIES, _in_task("pull", pull_records.folded)),
}
