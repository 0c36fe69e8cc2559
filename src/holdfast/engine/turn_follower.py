"""Follows attempts: journals their turns, and measures how long their runners have given no sign of life.

Each line of an attempt's `turns.jsonl`, durable already, becomes one `turn_completed`. The journal's own offset says
where to continue, and a turn that it knows is passed over: following again from anywhere doubles nothing. A line that
names another intent than the start that the journal has was left by a journal that is gone, and is passed over. A line
is settled before it is journalled, so the journal never names what a power cut could take.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.clock import Awake, gap_of
from holdfast.domain.attempt_records import TurnLine
from holdfast.domain.task import OVER
from holdfast.domain.task_record import Task
from holdfast.layout import Attempt, Layout
from holdfast.ports import Ledger
from holdfast.questions.records import AnswerFile, Question, QuestionAsked
from holdfast.storage.files import disk
from holdfast.storage.journal.entry import Record
from holdfast.storage.records import attempt_folder
from holdfast.storage.records import ledger as jsonl

# While somebody works, the loop looks as often as this: the death of a runner that an earlier orchestrator began, for
# one, comes without a sign.
LOOK_S = 1.0
# Of what an agent asks, in a note of the run.
ASKED_CHARS_MAX = 120


class AttemptState(msgspec.Struct, frozen=True, kw_only=True):
    """state.json: how far an attempt has come, made from the journal alone.

    Nothing is in it that changes after the attempt has ended: so it is up to date, for good, before its task moves on.
    """

    task: str
    attempt: str
    start: int
    turn: int
    end_offset: int
    base: str


class Follower:
    """Follows all attempts of a loop; remembers what it has written, so that a look at an idle one costs little."""

    def __init__(self, ledger: Ledger, layout: Layout, note: Callable[[str, str], None]) -> None:
        self._ledger, self._layout, self._note = ledger, layout, note
        self._written: dict[str, bytes] = {}

    def follow(self, task: Task) -> int:
        """Journals what the attempt has completed since last time, and projects it; returns how many turns."""
        files = self._layout.attempt_files(task.attempt.id)
        new = new_turns(files, task.attempt.offset, task.attempt.turn, task.start.intent)
        if new:
            jsonl.LineLedger(files.turns).settle()
            self._ledger.append(self._ledger.epoch, [_completed(task, line, end) for end, line in new])
        self._follow_questions(task, files)
        content = as_file(task)
        if files.root.is_dir() and self._written.get(task.attempt.id) != content:
            project(files, content)
            self._written[task.attempt.id] = content
        return len(new)

    def _follow_questions(self, task: Task, files: Attempt) -> None:
        """Journals what the agent has asked, each once; and brings answers to a runner that waits for them."""
        new = new_questions(files, task)
        if new:
            jsonl.LineLedger(files.questions).settle()
            self._ledger.append(self._ledger.epoch, [_asked(each) for each in new])
            for each in new:
                self._note(task.id, _asking_words(each))
        deliver_answers(files, task)


class Silence:
    """Takes signs of life, and counts by the observer's clock since when the last one has been the same.

    So an attempt counts as silent only after a whole interval that this process was awake for: not because it was
    continued a day after its last sign, runs under another clock, or was stopped together with this process.
    """

    def __init__(self, timeout_s: float) -> None:
        self._awake = Awake(LOOK_S + gap_of(timeout_s))
        self._now = self._awake.now()
        self._since: dict[str, tuple[tuple[int, int | None], float]] = {}

    def update(self, attempt: str, start: int, sign: int | None) -> float:
        """Takes the last sign of life of a start, None while it has shown none; the seconds since it was new."""
        gaps = self._awake.gaps
        self._now = self._awake.now()
        if self._awake.gaps > gaps:
            self._since.clear()
        known = self._since.get(attempt)
        if known is None or known[0] != (start, sign):
            self._since[attempt] = (start, sign), self._now
            return 0.0
        return self._now - known[1]

    def forget(self, attempt: str) -> None:
        self._since.pop(attempt, None)

    def seconds(self, attempt: str) -> float:
        """As of the last look."""
        known = self._since.get(attempt)
        return self._now - known[1] if known is not None else 0.0


def new_turns(files: Attempt, offset: int, turn: int, intent: str = "") -> list[tuple[int, TurnLine]]:
    """The turns behind `offset`, each with the offset of its end, but for those up to number `turn`.

    `intent`: only those of the start that was intended with this entry. The turns of every start before it are in the
    journal, because a start is intended only once the one before was followed to its end.
    """
    if not files.turns.exists() or files.turns.stat().st_size <= offset:
        return []
    found = []
    for line in jsonl.LineLedger(files.turns).read(offset):
        made = msgspec.convert(line.record, TurnLine)
        if made.turn > turn and intent in ("", made.intent):
            turn = made.turn
            found.append((line.cursor, made))
    return found


def new_questions(files: Attempt, task: Task) -> list[Question]:
    """The questions of the attempt that the journal does not have."""
    if not files.questions.exists():
        return []
    found = (msgspec.convert(line.record, Question) for line in jsonl.LineLedger(files.questions).read())
    return [each for each in found if each.number > task.attempt.asked]


def deliver_answers(files: Attempt, task: Task) -> None:
    """Writes the answers for which a living agent waits. Written again, each is the same."""
    for each in task.questions:
        path = files.answers / f"{each.id}.json"
        if each.held and not each.is_open and each.start == task.start.number and not path.exists():
            disk.mkdir(files.answers, 0o700)
            disk.replace(path, msgspec.json.encode(AnswerFile(each.id, each.verdict)) + b"\n", attempt_folder.PRIVATE)


def _asking_words(question: Question) -> str:
    """What the agent asks, on one line, and what to type."""
    is_words = question.kind == "words"
    asked = question.preview.partition("\n")[0] if is_words else f"{question.tool} {question.argument}"
    asked = asked if len(asked) <= ASKED_CHARS_MAX else asked[:ASKED_CHARS_MAX] + "…"
    ways = "--say WORDS`" if is_words else "--allow`, or --deny WHY"
    return f"its agent asks: {asked}: `holdfast answer {question.id} {ways}"


def _asked(question: Question) -> Record:
    fields = msgspec.structs.asdict(question)
    return Record("question_asked", {name: fields[name] for name in QuestionAsked.__struct_fields__}, actor="runner")


def all_turns(files: Attempt) -> list[TurnLine]:
    return [line for _, line in new_turns(files, 0, 0)]


def project(files: Attempt, content: bytes) -> bool:
    """Writes state.json where it is not so already."""
    if files.state.exists() and files.state.read_bytes() == content:
        return False
    attempt_folder.make_folder(files)
    disk.replace(files.state, content, attempt_folder.PRIVATE)
    return True


def is_final(task: Task) -> bool:
    """Whether nothing of the task's attempts changes any more."""
    return task.state in OVER


def as_file(task: Task) -> bytes:
    """The content of state.json for the attempt that the task is in, or was in last."""
    attempt, start = task.attempt, task.start.number
    state = AttemptState(
        task=task.id, attempt=attempt.id, start=start, turn=attempt.turn, end_offset=attempt.offset, base=attempt.base
    )
    return msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n"


def _completed(task: Task, line: TurnLine, end: int) -> Record:
    inputs = {
        "task": task.id,
        "attempt": task.attempt.id,
        "turn": line.turn,
        "end_offset": end,
        "snapshot": line.snapshot,
        "usd": line.usd,
        "tokens": line.tokens,
        "seconds": line.seconds,
        **({"told": line.told} if line.told else {}),
    }
    return Record("turn_completed", inputs, actor="runner")
