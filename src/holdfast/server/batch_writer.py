"""Changes that were asked for: each is a job, carried out with a `DecisionContext` and answered once its records are
on disk.

A job's function is safe to repeat under its key: what was journalled of it before is not done again. Where the asker
gave the key, the answer is journalled, too, so that the same question gets the same answer, also from the next run.

`BatchWriter` carries out what only appends. It takes all jobs that wait, one after the other, for one sync: while the
disk is busy with some, the next ones gather. What the run itself has to do goes to the loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgspec

from holdfast.decisions.context import DecisionContext, Later
from holdfast.decisions.mailbox import FATAL, REFUSED
from holdfast.domain.entries import RequestAnswered
from holdfast.errors import HoldfastError
from holdfast.ports import Ledger
from holdfast.server.operations import Ask, Operation
from holdfast.server.problems import Problem, problem_of
from holdfast.storage.journal.entry import Record

BATCH_MAX = 256
ANSWERS_MAX = 10_000
# What is journalled of an answer; a longer one is made anew from what the journal knows.
ANSWER_BYTES_MAX = 1 << 16


INTERNAL = "{kind}: this is a fault of Holdfast's. What happened is in runtime/logs/server.log."


class JobResult(msgspec.Struct, frozen=True):
    status: int
    body: Any


class Answers:
    """The answer to each key. The journal has all of it; the last ones are also here."""

    def __init__(self) -> None:
        self._recent: OrderedDict[str, RequestAnswered] = OrderedDict()

    def find(self, ledger: Ledger, key: str, request: str) -> JobResult | None:
        known = self._recent.get(key)
        if known is None:
            # Rare, because a repeated request mostly follows at once.
            entry = ledger.find("request_answered", key)
            if entry is None:
                return None
            known = msgspec.convert(entry.inputs, RequestAnswered)
        if known.request != request:
            detail = "This Idempotency-Key was used for another request. Nothing was changed; use a new key for each."
            raise Problem(422, "idempotency_key_reused", detail)
        return JobResult(known.status, known.body) if known.whole else None

    def keep(self, ledger: Ledger, key: str, request: str, answer: JobResult) -> None:
        made = RequestAnswered(key, request, answer.status, msgspec.to_builtins(answer.body))
        self._recent[key] = made
        while len(self._recent) > ANSWERS_MAX:
            self._recent.popitem(last=False)
        if ledger.pairing.find_executed("request_answered", key) is None:
            if len(msgspec.json.encode(made.body)) > ANSWER_BYTES_MAX:
                made = msgspec.structs.replace(made, body=None, whole=False)
            ledger.append(ledger.epoch, [Record("request_answered", msgspec.to_builtins(made), actor="api")])


class Job:
    """One change, from being asked to being answered. `request` is the fingerprint of what was asked."""

    def __init__(self, operation: Operation, ask: Ask, request: str, is_keyed: bool, answers: Answers) -> None:
        self.operation = operation
        self.ask = ask
        self.request = request
        self.is_keyed = is_keyed
        self.future: Future[JobResult] = Future()
        # A client that goes away cannot cancel it: setting its answer would raise.
        self.future.set_running_or_notify_cancel()
        self._answers = answers
        self._result: JobResult | Problem | None = None
        # What nobody expected. What was journalled before it is journalled; the state and the journal agree.
        self.fault: Exception | None = None

    def carry_out(self, decision: DecisionContext) -> None:
        """Does it, and holds the answer until `tell`. Raises Later, and errors that end the run."""
        try:
            known = self._answers.find(decision.ledger, self.ask.key, self.request) if self.is_keyed else None
            if known is None:
                known = JobResult(self.operation.status, self.operation.function(decision, self.ask))
                if self.is_keyed:
                    self._answers.keep(decision.ledger, self.ask.key, self.request, known)
            self._result = known
        except Problem as problem:
            self._result = problem
        except HoldfastError as error:
            if isinstance(error, FATAL) and not isinstance(error, REFUSED):
                raise
            self._result = problem_of(error)
        except Later:
            raise
        except Exception as error:  # noqa: BLE001 (told to its asker and to the log: a fault in one request ends no run)
            self.fault = error
            self._result = Problem(500, "internal_fault", INTERNAL.format(kind=type(error).__name__))

    def answer(self) -> None:
        if isinstance(self._result, Problem):
            self.future.set_exception(self._result)
        else:
            self.future.set_result(self._result or JobResult(204, None))

    def give_up(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class BatchWriter:
    """The thread that carries out what only appends. `done` is called after each batch: the loop has to look at it."""

    def __init__(
        self,
        decision: Callable[[str, str], DecisionContext],
        ledger: Ledger,
        done: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._decision = decision
        self._done = done
        self._ledger = ledger
        self._failed = failed
        # The batch whose sync has not returned yet. One that failed stays: nothing follows it.
        self._under_way: Future[None] | None = None
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="batch-writer", daemon=True)
        self._thread.start()

    def post(self, job: Job) -> None:
        self._jobs.put(job)

    def close(self) -> None:
        """Returns when all that was asked is answered."""
        self._jobs.put(None)
        self._thread.join()

    async def settled(self) -> None:
        """Returns when all that the state knew before this call is on disk: readers never see state that
        is not yet durable."""
        if (under_way := self._under_way) is not None:
            await asyncio.wrap_future(under_way)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            batch = [job]
            is_last = False
            with contextlib.suppress(queue.Empty):
                while len(batch) < BATCH_MAX:
                    more = self._jobs.get_nowait()
                    if more is None:
                        is_last = True
                        break
                    batch.append(more)
            under_way: Future[None] = Future()
            under_way.set_running_or_notify_cancel()
            self._under_way = under_way
            try:
                with self._ledger.together():
                    for each in batch:
                        each.carry_out(self._decision(each.ask.key, each.ask.principal.name))
            except BaseException as error:  # noqa: BLE001 (told to all who wait, and to the run, which ends)
                under_way.set_exception(error)
                for each in batch:
                    each.give_up(error)
                self._failed(error)
                return
            self._under_way = None
            under_way.set_result(None)
            for each in batch:
                each.answer()
            self._done()
            if is_last:
                return


def run_in_loop(job: Job, decision: DecisionContext) -> None:
    """In the loop's thread; raises Later when it must wait for a landing."""
    try:
        job.carry_out(decision)
    except Later:
        raise
    except BaseException as error:
        job.give_up(error)
        raise
    job.answer()


async def answer_of(job: Job) -> JobResult:
    return await asyncio.wrap_future(job.future)
