"""Decides what an agent asks before a call: by its policy, by an answer that it was given, or by asking a person.

A question is a line of `questions.jsonl`, synced before the agent gets any reply; the orchestrator journals it. The
answer comes with the order of the next start or, for an agent that waits as a process, as a file in `answers/`. A
question that is equal to one with an answer is not asked again (`Question.is_equal`).
"""

from __future__ import annotations

import msgspec

from holdfast.agents.runner.attempt_writer import step
from holdfast.clock import monotonic, wall
from holdfast.domain.agent_events import PersonAsked
from holdfast.domain.attempt_records import Order
from holdfast.layout import Attempt
from holdfast.questions import records, rules
from holdfast.questions.records import AnswerFile, Question, Verdict
from holdfast.storage.files import plain
from holdfast.storage.files.json_file import decode_json
from holdfast.storage.records.attempt_folder import PRIVATE
from holdfast.storage.records.ledger import LineLedger
from holdfast.storage.records.redact import without_secrets

# How often a runner looks for the answer that its agent waits for.
LOOK_S = 0.2
ANSWER_BYTES_MAX, TOOL_CHARS_MAX = 1 << 20, 200


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
