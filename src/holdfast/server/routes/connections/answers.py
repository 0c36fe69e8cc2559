"""One-time links that answer a question: a page that asks once more, and the answer itself.

No one signs in: the token in the address is the right, to this answer of this question and to nothing else. Looking at
the page changes nothing, because services fetch links to show a preview; only its button does.
"""

from __future__ import annotations

import dataclasses
from html import escape
from urllib.parse import parse_qs

from holdfast.clock import wall
from holdfast.decisions.context import DecisionContext
from holdfast.decisions.mailbox import decide
from holdfast.domain.task_record import Task
from holdfast.errors import InputError, QuestionClosed, code_of
from holdfast.integrations.notify.answer_links import LABELS, AnswerClaim, claim_of
from holdfast.layout import Layout
from holdfast.questions.records import WORDS_CHARS_MAX, Question
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, Operation, Raw
from holdfast.server.pages import html_page
from holdfast.server.problems import Problem

BY = "answer link"
SHOWN_CHARS_MAX = 2000


def show_answer(api: Api, ask: Ask) -> Raw:
    claim = _claim(api.layout, ask)
    question = _open_question(api.tasks, claim)
    label = LABELS[claim.answer]
    asked = question.preview or question.argument or question.input
    words = '<p><textarea name="words" rows="6" cols="60" required></textarea></p>' if claim.answer == "say" else ""
    # The address is its own target: no script, and nothing to fill in but words.
    return html_page(
        f"{label}?",
        f"<p>{escape(question.task)} asks: {escape(question.tool)}</p>"
        f"<pre>{escape(asked[:SHOWN_CHARS_MAX])}</pre>"
        f'<form method="post">{words}<button>{escape(label)}</button></form>'
        "<p>Nothing happens before you press the button. The first answer counts.</p>",
    )


def give_answer(decision: DecisionContext, ask: Ask) -> Raw:
    claim = _claim(decision.layout, ask)
    words = ""
    if claim.answer == "say":
        words = parse_qs(ask.body.decode(errors="replace")).get("words", [""])[0].strip()[:WORDS_CHARS_MAX]
        if not words:
            raise InputError(detail="an answer in words needs words; go back and write them")
    elif claim.answer == "deny":
        words = "by the link in a notification"
    asked = {"question": claim.question, "answer": claim.answer, "words": words}
    try:
        decide(dataclasses.replace(decision, by=BY), "answer", asked)
    except QuestionClosed as error:
        raise _over(error) from error
    told = f"{claim.question}: {LABELS[claim.answer]}. You can close this page."
    return html_page("Answered", f"<p>{escape(told)}</p>")


def _claim(layout: Layout, ask: Ask) -> AnswerClaim:
    return claim_of(layout, ask.path["token"], wall())


def _open_question(tasks: dict[str, Task], claim: AnswerClaim) -> Question:
    task = tasks.get(claim.question.rpartition(".q")[0].rpartition(".")[0])
    for each in task.questions if task is not None else ():
        if each.id == claim.question:
            if each.is_open:
                return each
            raise _over(QuestionClosed(question=each.id, how=f"was answered by {each.by} already ({each.answer})"))
    raise _over(QuestionClosed(question=claim.question, how="does not wait for an answer any more"))


def _over(error: QuestionClosed) -> Problem:
    return Problem(410, code_of(error), str(error))


OPERATIONS = [
    Operation("GET", "/answer/{token}", "show_answer", "A page that asks whether to give this answer.", show_answer,
              answer=str, right="public", tag="messages", problems=(404, 410), media_type="text/html", is_page=True),
    Operation("POST", "/answer/{token}", "give_answer", "Give the answer that a one-time link is for.", give_answer,
              answer=str, right="public", lane="loop", body=bytes, tag="messages", problems=(404, 409, 410),
              media_type="text/html", is_page=True),
]  # fmt: skip
