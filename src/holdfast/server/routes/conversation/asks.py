"""An agent's question to a person, and its answer: what `holdfast ask` does, for an agent that has a token."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.concurrency import run_in_threadpool

from holdfast.agents.common import ask_files
from holdfast.clock import monotonic
from holdfast.questions.records import WORDS_CHARS_MAX
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, Operation
from holdfast.server.problems import Problem

LOOK_S = 0.2
# Clients give up a call after a minute.
WAIT_S_MAX = 50.0
_NOT_YET = "Nobody has answered yet, and the question waits. Ask the same again, or do something else meanwhile."


class QuestionToPerson(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`question`: in words. `wait_s`: how long to wait for the answer now; the same question, asked again, waits on."""

    question: Annotated[str, Meta(min_length=1, max_length=WORDS_CHARS_MAX)]
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_S_MAX)] = WAIT_S_MAX - 5


class PersonsAnswer(msgspec.Struct, frozen=True):
    """`answer`: `say`, with the answer in `words`; `deny`, with the reason in `words`; empty while nobody has answered,
    which `note` then says."""

    answer: Literal["", "say", "deny"]
    words: str = ""
    note: str = ""


async def ask_person(api: Api, ask: Ask) -> PersonsAnswer:
    """Waits without a thread: an agent may wait for hours, and the pool is for requests that have work to do."""
    body: QuestionToPerson = ask.body
    if ask.principal.role != "agent":
        detail = "Only an agent that Holdfast has started can ask; a person answers, by `holdfast answer`."
        raise Problem(403, "not_an_agent", f"{detail} Nothing was asked.")
    if not body.question.strip():
        raise Problem(422, "question_empty", "A question has words. Nothing was asked.")
    path = await run_in_threadpool(_put, api, ask, body.question)
    deadline = monotonic() + body.wait_s
    while (found := ask_files.read_answer(path)) is None and monotonic() < deadline and not api.is_ending:
        await asyncio.sleep(LOOK_S)
    if found is None:
        return PersonsAnswer("", note=_NOT_YET)
    return PersonsAnswer("say" if found.decision == "say" else "deny", found.words)


def _put(api: Api, ask: Ask, words: str) -> Path:
    """Leaves the question for the agent's runner, which journals it before a person sees it."""
    folder = api.layout.attempt_files(ask.principal.attempt).tool_asks
    if not folder.is_dir():
        detail = f"The runner of {ask.principal.attempt} takes no questions by the API. Nothing was asked; try "
        raise Problem(409, "runner_takes_no_questions", f"{detail}`holdfast-agent ask`, or go on without an answer.")
    if len(ask_files.waiting(folder)) >= ask_files.ASKS_MAX:
        detail = f"{ask_files.ASKS_MAX} questions of {ask.principal.attempt} wait already. Nothing was asked."
        raise Problem(429, "asks_too_much", detail)
    if not ask_files.is_put(folder, words):
        api.quotas.expect_room(ask, words)
    return ask_files.put(folder, words)


OPERATIONS = [
    Operation("POST", "/tasks/{task}/ask", "ask_task", "Ask a person, and wait for the answer.", ask_person,
              answer=PersonsAnswer, right="work", lane="aside", body=QuestionToPerson, problems=(404, 409, 429),
              tool="agent", hint="For what only a person can decide. The same question, asked again, waits on."),
]  # fmt: skip
