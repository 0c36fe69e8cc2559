"""What every operation can reach: tasks and their definitions, tokens, the feed, and where changes are posted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from starlette.requests import Request

from holdfast.domain.definition import Definition
from holdfast.domain.state import Task
from holdfast.durable.chain import Chain
from holdfast.engine.chronicle import Chronicle
from holdfast.engine.creating import Catalogue
from holdfast.engine.decisions import Desk, Later, unknown
from holdfast.engine.loop import Loop
from holdfast.engine.workshop import Workshop
from holdfast.server.auth import ROLES, Tokens
from holdfast.server.guard import Guard
from holdfast.server.jobs import Answers, Counter, Job, run_in_loop
from holdfast.server.logs import Log
from holdfast.server.metrics import Metrics
from holdfast.server.operations import Principal
from holdfast.server.problems import Problem
from holdfast.server.stream import Feed, Room

ACTOR = "api"
STOPPING = "This server is ending. Nothing was changed; ask again when it is back."
# A stranger who guesses tokens fills no disk: beyond so many, denials are counted and not put on record one by one.
DENIALS_MAX = 1000


class Api:
    """One per server."""

    def __init__(self, shop: Workshop, loop: Loop) -> None:
        self.shop, self.loop = shop, loop
        self.layout, self.config, self.board = shop.layout, shop.config, shop.board
        self.tokens = Tokens(shop.layout, shop.ledger.state)
        self.guard = Guard(shop.config.server.names)
        self.catalogue = Catalogue()
        self.chronicle = Chronicle(shop.layout.wal)
        self.answers = Answers(Chain(shop.layout.wal))
        self.feed = Feed(lambda: Chain(shop.layout.wal), shop.config.server.events_kept)
        self.room = Room(shop.config.server.followers_max, shop.config.server.followers_per_client_max)
        self.began = time.time()
        self.url = ""
        # Set once the files are taken in and what a crash left is recovered.
        self.prepared = threading.Event()
        self.denials = 0
        self.is_ending = False
        self.metrics = Metrics(self)
        self.logs = Log(shop.layout.logs / "server.log", *(self.tokens.of_role(role) for role in ROLES))
        self.feed.on_drop = lambda: self.logs.write("follower_dropped", "warning", dropped=self.feed.dropped)
        self.counter = Counter(self.desk, shop.ledger, loop.wake, self.fail)

    # -- who asks -----------------------------------------------------------------------------------------------------

    def authenticate(self, request: Request) -> Principal:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            detail = "Send `Authorization: Bearer …`; the operator's token is in runtime/server.json of the data root."
            raise Problem(401, "token_missing", detail, WWW_Authenticate="Bearer")
        principal = self.tokens.principal(token.strip())
        if principal is None:
            problem = Problem(
                401, "token_unknown", "This token is not, or no longer, valid.", WWW_Authenticate="Bearer"
            )
            self.deny(None, request, problem)
            raise problem
        return principal

    def deny(self, principal: Principal | None, request: Request, problem: Problem) -> None:
        self.denials += 1
        who = principal.name if principal else "nobody"
        asked, code = f"{request.method} {request.url.path}", problem.document.code
        self.logs.write("access_denied", "warning", code=code, asked=asked, by=who)
        if self.denials <= DENIALS_MAX:
            self.put_on_record("access_denied", {"code": code, "asked": asked[:200], "by": who})

    def put_on_record(self, event: str, details: dict[str, object]) -> None:
        """In the audit log, by the loop's thread: a record is synced, and requests do not wait for that."""

        def work(loop: Loop) -> list[str]:
            self.shop.put_on_record(event, details)
            return []

        self.loop.ask(work)

    # -- tasks --------------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> dict[str, Task]:
        return self.shop.ledger.state.tasks

    def task(self, name: str) -> Task:
        found = self.tasks.get(name)
        if found is None:
            raise unknown(name, self.tasks)
        return found

    def definition(self, name: str) -> Definition | None:
        return self.board.definition(name)

    # -- changes ------------------------------------------------------------------------------------------------------

    def desk(self, key: str, by: str, kind: str = "") -> Desk:
        busy = bool(self.loop.finishing)
        return Desk.of(self.shop, key, is_run=self.loop.works, is_busy=busy, by=by, kind=kind, actor=ACTOR)

    def post(self, job: Job) -> None:
        if self.loop.stopping or self.is_ending:
            raise Problem(503, "stopping", STOPPING)
        if job.operation.lane == "counter":
            self.counter.post(job)
        else:
            self.loop.ask(self._in_loop(job))

    def _in_loop(self, job: Job) -> Callable[[Loop], list[str]]:
        def work(loop: Loop) -> list[str]:
            # What came through the API has its file, and what somebody added just before is known.
            self.board.keep_up()
            self.board.file_new()
            if job.ask.path.get("task", "") not in self.tasks:
                self.board.take_in()
                self.board.keep_up()
            try:
                run_in_loop(job, self.desk(job.ask.key, job.ask.principal.name, job.operation.name))
            except Later:
                if not loop.stopping:
                    raise
                job.give_up(Problem(503, "stopping", STOPPING))
            return [job.ask.path["task"]] if "task" in job.ask.path else []

        return work

    def fail(self, error: BaseException) -> None:
        """Somebody beside the loop met what leaves nothing to go on with: the run ends with it."""

        def work(loop: Loop) -> list[str]:
            raise error

        self.loop.ask(work)
