"""Brings answers to the agent: as the output of a hook that waits, on its standard input where it is spoken with, or as
a file where it asks by `holdfast ask`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from holdfast.agents.common import ask_files, hook
from holdfast.agents.common.json_fields import as_json
from holdfast.agents.runner.child import Child
from holdfast.agents.runner.conversation import Conversation
from holdfast.agents.runner.inbox import Inbox
from holdfast.agents.runner.questions import LOOK_S, QuestionDesk
from holdfast.clock import monotonic
from holdfast.domain.agent_events import AgentEvent, PersonAsked
from holdfast.domain.attempt_records import Ending, Order
from holdfast.layout import Attempt
from holdfast.questions.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.agents.runner.limits import Stop
    from holdfast.ports import AskingStream, HookedStream, KeepingStream, Stream, TalkingStream

# How long an agent may take to end its work by itself before it is ended.
CANCEL_S_MAX = 2.0
# How long an agent may take to write down the turn that it has told of, and how often that is looked at.
KEEP_S_MAX, KEEP_POLL_S = 10.0, 0.05
# How soon what the agent did not take at once is sent on.
SEND_S = 0.02


class Dialogue:
    def __init__(self, files: Attempt, order: Order, stream: Stream) -> None:
        self.desk = QuestionDesk(files, order)
        self._stream, self._launch, self._agent = stream, order.launch, files.agent
        self._reply = b""
        self._asks, self._files = files.asks, dict[str, Path]()

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
        """Questions by `holdfast ask` that are new."""
        new = {f"file {path.name}": path for path in ask_files.waiting(self._asks)}
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
