"""The state that every operation can reach: tasks, definitions, tokens, the feed, and where changes are posted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future

from starlette.requests import Request

from holdfast.clock import wall
from holdfast.decisions.connections.deliveries import Intake
from holdfast.decisions.context import DecisionContext, Later, unknown
from holdfast.decisions.new_tasks import Catalogue
from holdfast.domain.definition import Definition
from holdfast.domain.task_record import Task
from holdfast.engine.context import RunContext
from holdfast.orchestrator.loop import Loop
from holdfast.server.access.auth import ROLES, Tokens
from holdfast.server.access.delivery_quotas import DeliveryQuotas
from holdfast.server.access.denials import Denials
from holdfast.server.access.host_check import Guard
from holdfast.server.access.quotas import Quotas
from holdfast.server.batch_writer import Answers, BatchWriter, Job, run_in_loop
from holdfast.server.event_feed import Feed, FeedRoom
from holdfast.server.observability.logs import ServerLog
from holdfast.server.observability.metrics import Metrics
from holdfast.server.operations import Principal
from holdfast.server.problems import Problem
from holdfast.server.repository import RepositoryStatus
from holdfast.views.history import Chronicle

ACTOR = "api"
STOPPING = "This server is ending. Nothing was changed; ask again when it is back."


class Api:
    """One per server."""

    def __init__(self, context: RunContext, loop: Loop) -> None:
        self.context, self.loop = context, loop
        self.layout, self.config, self.board = context.layout, context.config, context.board
        self.tokens = Tokens(context.layout, context.ledger.state)
        self.guard = Guard((context.config.server.host, *context.config.server.names))
        self.catalogue = Catalogue()
        self.chronicle = Chronicle(context.ledger)
        self.answers = Answers()
        self.feed = Feed(context.ledger, context.config.server.events_kept)
        self.room = FeedRoom(context.config.server.followers_max, context.config.server.followers_per_client_max)
        self.quotas = Quotas()
        self.intake, self.delivery_quotas = Intake(), DeliveryQuotas()
        self.repository = RepositoryStatus(context)
        self.began = wall()
        self.url = ""
        # True once the files are taken in and what a crash left is recovered; False where that failed.
        self.prepared: Future[bool] = Future()
        # So that no request that ends while it waits takes it with it.
        self.prepared.set_running_or_notify_cancel()
        self.denied = Denials(self.put_on_record)
        self.is_ending = False
        self.metrics = Metrics(context, loop, self.feed, self.denied, self.began)
        self.logs = ServerLog(
            context.layout.logs / "server.log",
            *(made(role) for role in ROLES for made in (self.tokens.of_role, self.tokens.key)),
        )
        self.feed.on_drop = lambda: self.logs.write("follower_dropped", "warning", dropped=self.feed.dropped)
        self.batch_writer = BatchWriter(self.decision, context.ledger, loop.wake, loop.fail)

    # -- principals ---------------------------------------------------------------------------------------------------

    def authenticate(self, request: Request) -> Principal:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token:
            if (principal := self.tokens.principal(token.strip())) is not None:
                return principal
            code, detail = "token_unknown", "This token is not, or no longer, valid."
        else:
            code = "token_missing"
            detail = "Send `Authorization: Bearer …`; runtime/secret/server.json has the operator's token."
        raise Problem(401, code, detail, WWW_Authenticate="Bearer")

    def deny(self, by: str, request: Request, problem: Problem) -> None:
        asked, code = f"{request.method} {request.url.path}", problem.document.code
        self.logs.write("access_denied", "warning", code=code, asked=asked, by=by)
        self.denied.add(by, code, asked)

    def put_on_record(self, event: str, details: dict[str, object]) -> None:
        """In the audit log, by the loop's thread: a record is synced, and requests do not wait for that.

        Code that is in that thread already calls the run context itself.
        """

        def work(loop: Loop) -> list[str]:
            self.context.auditor.record(event, details)
            return []

        self.loop.ask(work)

    # -- from the first request to the last ---------------------------------------------------------------------------

    async def until_prepared(self) -> None:
        """Returns when the files are read. No thread waits: all of the pool's would soon."""
        is_prepared = self.prepared.result() if self.prepared.done() else await asyncio.wrap_future(self.prepared)
        if not is_prepared:
            raise Problem(503, "stopping", STOPPING)

    def end(self) -> None:
        """Refuses changes from here on, and answers requests that wait for the backlog to be read."""
        self.is_ending = True
        if not self.prepared.done():
            self.prepared.set_result(False)
        self.batch_writer.close()

    # -- tasks --------------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> dict[str, Task]:
        return self.context.ledger.state.tasks

    def task(self, name: str) -> Task:
        found = self.tasks.get(name)
        if found is None:
            raise unknown(name, self.tasks)
        return found

    def definition(self, name: str) -> Definition | None:
        return self.board.definition(name)

    # -- changes ------------------------------------------------------------------------------------------------------

    def decision(self, key: str, by: str, kind: str = "") -> DecisionContext:
        busy = bool(self.loop.landing)
        return DecisionContext.of(
            self.context, key, is_run=self.loop.works, is_busy=busy, by=by, kind=kind, actor=ACTOR
        )

    def post(self, job: Job) -> None:
        if self.loop.stopping or self.is_ending:
            raise Problem(503, "stopping", STOPPING)
        if job.operation.lane == "batch":
            self.batch_writer.post(job)
        else:
            self.loop.ask(self._in_loop(job))

    def _in_loop(self, job: Job) -> Callable[[Loop], list[str]]:
        def work(loop: Loop) -> list[str]:
            # What came through the API has its file, and what somebody added just before is known.
            self.board.keep_up()
            self.board.file_new()
            name = job.ask.path.get("task") or job.ask.path.get("attempt", "").rpartition(".")[0]
            if name and name not in self.tasks:
                self.board.take_in()
                self.board.keep_up()
            try:
                run_in_loop(job, self.decision(job.ask.key, job.ask.principal.name, job.operation.name))
            except Later:
                if not loop.stopping:
                    raise
                job.give_up(Problem(503, "stopping", STOPPING))
            return [name] if name else []

        return work
