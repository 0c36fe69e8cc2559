"""Answers to the questions of agents: a person's, and the one that is given where nobody answers in time.

The answer is journalled first. An agent that has ended is started again with it by the run; for one that waits as a
process it is also written where its runner looks.
"""

from __future__ import annotations

import msgspec

from holdfast.config.rule_file import add_rule
from holdfast.config.sections import PermissionSettings
from holdfast.crashpoints import point
from holdfast.decisions.context import Answer, DecisionContext
from holdfast.decisions.tasks import who_goes_on
from holdfast.domain.task_record import Task, open_questions
from holdfast.engine.context import RunContext
from holdfast.engine.turn_follower import deliver_answers
from holdfast.errors import InputError, QuestionClosed, QuestionUnknown
from holdfast.questions.records import INPUT_CHARS_MAX, TIMEOUT, WORDS_CHARS_MAX, AnswerKind, Question, bounded
from holdfast.questions.rules import exactly
from holdfast.storage.journal.entry import Record
from holdfast.storage.records.redact import REDACTED

# A kill between the rule of `--always` and the answer.
ANSWER_POINTS = ("answer.ruled",)


class QuestionReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`answer`: allow, deny or say; `words`: why not, or what is said. `always`: the settings allow it from now on.

    `task`: the one that the question is of, where that is known.
    """

    question: str
    answer: AnswerKind
    words: str = ""
    always: bool = False
    task: str = ""


def answer(decision: DecisionContext, asked: QuestionReply) -> Answer:
    task, question = find(decision, asked.question)
    if asked.task not in ("", task.id):
        raise QuestionUnknown(question=asked.question)
    if not decision.has_begun():
        if question is None or not question.is_open:
            raise _closed(decision, asked.question, task)
        if question.kind == "words" and asked.answer == "allow":
            raise InputError(
                detail=f"{asked.question} wants words: type `holdfast answer {asked.question} --say WORDS`"
            )
        if question.kind == "permission" and asked.answer == "say":
            raise InputError(
                detail=f"{asked.question} asks for leave to make a call, and words are no leave: "
                f"type `holdfast answer {asked.question} --allow`, or `--deny WHY` to tell its agent what to do instead"
            )
        inputs = {
            "id": asked.question,
            "task": task.id,
            "by": decision.by,
            "answer": asked.answer,
            "words": bounded(asked.words, WORDS_CHARS_MAX),
            "rule": _written_rule(decision, task, question) if asked.always else "",
        }
        decision.append([decision.record("question_answered", 0, inputs)])
    deliver_answers(decision.layout.attempt_files(task.attempt.id), task)
    return decision.answer(task, note=who_goes_on(decision, "tells its agent"))


def _written_rule(decision: DecisionContext, task: Task, question: Question) -> str:
    """Writes the rule that allows just this call of this agent from now on; returns it in words.

    Before the answer: a crash between the two leaves the rule that the person wanted, and a question still open.
    """
    argument = question.argument
    if question.kind == "words" or len(argument) >= INPUT_CHARS_MAX or REDACTED in argument:
        why = "it wants words" if question.kind == "words" else "its input is too long, or has a secret in it"
        raise InputError(
            detail=f"no rule can be made of {question.id}: {why}. Nothing was changed; answer it otherwise"
        )
    rule = exactly(question.tool, argument)
    values = {**msgspec.to_builtins(rule), "agent": task.claim.worked_by}
    add_rule(decision.layout, values)
    point("answer.ruled")
    kept = decision.context.config
    new = msgspec.convert(values, PermissionSettings)
    if new not in kept.permissions:
        # The run that is alive goes by it, too.
        decision.context.config = msgspec.structs.replace(kept, permissions=(*kept.permissions, new))
    return f"{rule} ({task.claim.worked_by})"


def find(decision: DecisionContext, name: str) -> tuple[Task, Question | None]:
    """The task of a question, and the question while its answer is of use."""
    attempt = name.rpartition(".q")[0]
    task = decision.tasks.get(attempt.rpartition(".")[0])
    if task is None:
        raise QuestionUnknown(question=name)
    return task, next((each for each in task.questions if each.id == name), None)


def _closed(decision: DecisionContext, name: str, task: Task) -> QuestionClosed:
    """Says who answered what, also where that is long ago."""
    found = None
    for _, entry in decision.ledger.read():
        if entry.decision_type in ("question_asked", "question_answered") and entry.inputs.get("id") == name:
            found = entry
    if found is None:
        raise QuestionUnknown(question=name)
    if found.decision_type == "question_asked":
        return QuestionClosed(question=name, how=f"was closed without an answer: {task.id} is {task.state}")
    given = found.inputs
    said = f': "{given["words"]}"' if given.get("words") else ""
    return QuestionClosed(question=name, how=f"was answered by {given['by']} already ({given['answer']}{said})")


def answer_overdue(context: RunContext, task: Task, name: str) -> None:
    """Denies a question that nobody has answered in time. The agent gets that as the reason."""
    if not any(each.id == name for each in open_questions(task)):
        return
    words = f"no answer came within {context.config.question_timeout_s:g} s."
    inputs = {"id": name, "task": task.id, "by": TIMEOUT, "answer": "deny", "words": words}
    context.append(Record("question_answered", inputs, actor="loop"))
    deliver_answers(context.layout.attempt_files(task.attempt.id), task)
    context.note(task.id, f"{name} was denied: {words}")
