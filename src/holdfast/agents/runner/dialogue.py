"""What people and the agent say to each other while it works: its questions, their answers, and messages.

`QuestionDesk` decides what an agent asks before a call: by its policy, by an answer that it was given, or by asking a
person. A question is a line of `questions.jsonl`, synced before the agent gets any reply; the orchestrator journals it.
The answer comes with the order of the next start or, for an agent that waits as a process, as a file in `answers/`. A
question that is equal to one with an answer is not asked again (`Question.is_equal`).

`Inbox` has what a person tells the agent: `inbox.json`, read at the end of each turn. An agent that waits in a hook
gets it as the hook's output. Any other one is ended there, before it begins another turn: its next start resumes the
conversation, with the message in the prompt.

`Dialogue` brings both to the agent: as the output of a hook that waits, on its standard input where it is spoken with,
or as a file where it asks by `holdfast ask` or the API.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from holdfast.agents.common import ask_files, hook
from holdfast.agents.common.json_fields import as_json
from holdfast.agents.runner.attempt_writer import AttemptWriter, step
from holdfast.agents.runner.child import Child
from holdfast.agents.runner.conversation import Conversation
from holdfast.agents.runner.limits import Stop
from holdfast.clock import monotonic, wall
from holdfast.domain.agent_events import AgentEvent, PersonAsked
from holdfast.domain.attempt_records import Ending, Order
from holdfast.domain.conversations.conversation_records import Message
from holdfast.layout import Attempt
from holdfast.questions import records, rules
from holdfast.questions.records import AnswerFile, Question, Verdict
from holdfast.storage.files import plain
from holdfast.storage.files.json_file import decode_json
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.attempt_folder import PRIVATE
from holdfast.storage.records.ledger import LineLedger
from holdfast.storage.records.redact import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.ports import AskingStream, HookedStream, KeepingStream, Stream, TalkingStream

# How often a runner looks for the answer that its agent waits for.
LOOK_S = 0.2
ANSWER_BYTES_MAX, TOOL_CHARS_MAX = 1 << 20, 200
# How long an agent may take to end its work by itself before it is ended.
CANCEL_S_MAX = 2.0
# How long an agent may take to write down the turn that it has told of, and how often that is looked at.
KEEP_S_MAX, KEEP_POLL_S = 10.0, 0.05
# How soon what the agent did not take at once is sent on.
SEND_S = 0.02


class QuestionDesk:
    """`is_deferred`: the agent was told to end, because a person is asked."""

    is_deferred = False

    def __init__(self, files: Attempt, order: Order) -> None:
        self._files, self._order = files, order
        self._answered = [(each, each.verdict) for each in order.answered]
        # What the agent waits for; several calls may ask the same.
        self._open: dict[str, tuple[Question, list[PersonAsked]]] = {}
        self._looked = 0.0

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def ask(self, asked: PersonAsked, turn: int) -> Verdict | None:
        """The answer to a call that the agent wants to make; None while it must wait for a person."""
        policy, argument = self._order.launch.policy, rules.argument_of(asked.input, self._order.worktree)
        decision, rule = policy.decide(asked.name, argument)
        if asked.kind == "permission" and decision != "ask":
            forbidden = f"The rules of this project forbid it ({rule}). Find another way, or do without."
            return Verdict(decision, forbidden if decision == "deny" else "")
        digest = records.digest_of(asked.input)
        tool = _shown(asked.name, TOOL_CHARS_MAX)
        known = (verdict for question, verdict in self._answered if question.is_equal(tool, digest, turn))
        if (found := next(known, None)) is not None:
            return found
        if asked.cannot:
            return Verdict("deny", asked.cannot)
        for question, waiting in self._open.values():
            if question.is_equal(tool, digest, turn):
                waiting.append(asked)
                return None
        question = self._question(asked, argument, digest, turn)
        with LineLedger(self._files.questions, mode=PRIVATE) as ledger, step("question"):
            ledger.append(msgspec.to_builtins(question))
        if asked.defers:
            self.is_deferred = True
            return Verdict("defer")
        self._open[question.id] = question, [asked]
        return None

    def answers(self) -> list[tuple[PersonAsked, Verdict]]:
        """The answers that have come since the last call, each once."""
        now = monotonic()
        if not self._open or now - self._looked < LOOK_S:
            return []
        self._looked = now
        found = []
        for name, (question, waiting) in list(self._open.items()):
            if (verdict := self._read(name)) is not None:
                del self._open[name]
                self._answered.append((question, verdict))
                found += [(asked, verdict) for asked in waiting]
        return found

    def _read(self, question: str) -> Verdict | None:
        try:
            content = plain.read(self._files.answers / f"{question}.json", ANSWER_BYTES_MAX)
        except OSError:
            return None
        found = decode_json(content, AnswerFile)
        return found.verdict if found is not None and found.id == question else None

    def _question(self, asked: PersonAsked, argument: str, digest: str, turn: int) -> Question:
        """Without secrets, and bounded: people see it, and the journal keeps it."""
        order = self._order
        return Question(
            id=records.id_of(order.attempt, self._count() + 1),
            task=order.task,
            attempt=order.attempt,
            start=order.start,
            turn=turn,
            tool=_shown(asked.name, TOOL_CHARS_MAX),
            input=_shown(asked.input, records.INPUT_CHARS_MAX),
            digest=digest,
            argument=_shown(argument, records.INPUT_CHARS_MAX),
            preview=_shown(asked.preview or records.preview_of(asked.input), records.PREVIEW_CHARS_MAX),
            kind=asked.kind,
            held=not asked.defers,
            asked_at=wall(),
        )

    def _count(self) -> int:
        if not self._files.questions.exists():
            return 0
        return sum(1 for _ in LineLedger(self._files.questions).read())


def _shown(text: str, most: int) -> str:
    # Secrets are removed first: half of one would not be recognised.
    return records.bounded(without_secrets(text[: most + 4096]), most)


class Inbox:
    """The messages for one start. Those that its prompt has are not new."""

    def __init__(self, files: Attempt, order: Order, writer: AttemptWriter) -> None:
        self._files, self._start, self._writer = files, order.start, writer
        self._known = {message.id for message in order.told}
        self._has_hook = order.launch.has_hook

    def answer(self, stream: HookedStream, given: bytes, talk: Conversation) -> str:
        """The output of the hook that ended the turn; empty where there is nothing new."""
        new = self._new()
        if not new:
            return ""
        self._writer.give(talk, new)
        self._known |= {message.id for message in new}
        told = "\n\n".join(message.text for message in new)
        return stream.answer(given, f"A person tells you, while you work:\n\n{told}")

    def interruption(self) -> Stop | None:
        """Ends an agent that has no hook, where there is something new."""
        if self._has_hook or not self._new():
            return None
        return Stop(Ending.TOLD, "The agent was ended after its turn, because a person has told it something.")

    def _new(self) -> list[Message]:
        found = attempt_folder.read_inbox(self._files)
        waiting = found.messages if found is not None and found.start == self._start else ()
        return [message for message in waiting if message.id not in self._known]


class Dialogue:
    def __init__(self, files: Attempt, order: Order, stream: Stream) -> None:
        self.desk = QuestionDesk(files, order)
        self._stream, self._launch, self._agent = stream, order.launch, files.agent
        self._reply = b""
        self._asks, self._files = (files.asks, files.tool_asks), dict[str, Path]()

    def ask(self, asked: PersonAsked, turn: int) -> bool:
        """Answers a call that the agent wants to make; False while it must wait for a person."""
        verdict = self.desk.ask(asked, turn)
        if verdict is not None:
            self._answer(asked, verdict)
        return verdict is not None

    def _answer(self, asked: PersonAsked, verdict: Verdict) -> None:
        if (file := self._files.pop(asked.call, None)) is not None:
            ask_files.answer(file, verdict)
        else:
            self._reply += cast("AskingStream", self._stream).reply(asked, verdict)

    def file_questions(self) -> list[PersonAsked]:
        """Questions by `holdfast ask` and by the API that are new."""
        found = [path for folder in self._asks for path in ask_files.waiting(folder)]
        new = {f"file {path.parent.name}/{path.name}": path for path in found}
        asked = []
        for call in new.keys() - self._files.keys():
            if len(self._files) < ask_files.ASKS_MAX and (words := ask_files.words_of(new[call])):
                self._files[call] = new[call]
                asked.append(PersonAsked(call, "ask", as_json({"questions": [{"question": words}]}), "words"))
        return asked

    def waiting_hooks(self) -> list[Path]:
        return hook.waiting(self._agent) if self._launch.has_hook else []

    def events_of(self, call: Path) -> Sequence[AgentEvent] | None:
        """The events of a hook's call; None: it has to wait."""
        return cast("HookedStream", self._stream).hook(hook.input_of(call))

    def answer_hook(self, call: Path, inbox: Inbox, talk: Conversation, *, has_turned: bool) -> None:
        """Lets a hook go on, with the decision about its call, or behind a turn with a person's message."""
        reply, self._reply = self._reply.decode(), b""
        if has_turned and not reply:
            reply = inbox.answer(cast("HookedStream", self._stream), hook.input_of(call), talk)
        hook.answer(call, reply)

    def pause_s(self, child: Child, is_in_tool: bool) -> float:
        """Seconds until there may be something to answer or to send."""
        if self._launch.has_hook and (is_in_tool or self._launch.policy.is_kept):
            return hook.POLL_S
        return SEND_S if child.is_sending else LOOK_S if self.desk.is_open else float("inf")

    def pump(self, child: Child) -> None:
        """Sends the agent what there is to tell it."""
        for asked, verdict in self.desk.answers():
            self._answer(asked, verdict)
        if self._launch.talks:
            reply, self._reply = self._reply, b""
            child.send(reply + cast("TalkingStream", self._stream).outgoing())

    def cancel(self, child: Child, read: Callable[[int], bool], verdict: Stop | None) -> None:
        """Asks the agent to end its work, and reads on for a moment, so that it can say how that ended."""
        if self._launch.writes_late and verdict is not None and verdict.ending is Ending.TOLD:
            self._let_it_keep(child)
        line = cast("TalkingStream", self._stream).cancel() if self._launch.talks else b""
        if not line:
            return
        child.send(line)
        deadline = monotonic() + CANCEL_S_MAX
        while cast("TalkingStream", self._stream).cancel() and monotonic() < deadline and not child.has_ended:
            while read(child.stdout):
                pass
            time.sleep(SEND_S)
            child.send(b"")

    def _let_it_keep(self, child: Child) -> None:
        """It was stopped as soon as it told of its turn, and its next start is to know of that. An answer for which it
        asks its model meanwhile is lost."""
        stream, deadline = cast("KeepingStream", self._stream), monotonic() + KEEP_S_MAX
        child.resume()
        while not stream.has_kept() and monotonic() < deadline and not child.has_ended:
            time.sleep(KEEP_POLL_S)
        child.stop()
