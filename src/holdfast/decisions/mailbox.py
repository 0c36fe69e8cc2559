"""Brings decisions to the run that owns the data root, by the Unix socket `runtime/secret/decisions.sock`.

A run listens there from its first round to its last. An asker connects, sends a request and waits for the answer; each
is one line of JSON. Only our own user and root can connect: the folder has mode 0700, the socket 0600, and no sandbox
shows the folder.

A request names a decision and its values, and nothing else: it is read by type, and what does not fit is refused. If
the run dies before it has answered, the connection breaks, and the asker decides by itself, under the same id: the
journal knows what was done. What nobody waits for any more is not decided.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast import errors, identity
from holdfast.crashpoints import point
from holdfast.decisions.cancel_chain import finish_chains
from holdfast.decisions.connections.outbox import MessageChoice, decide_message
from holdfast.decisions.connections.plugins import PluginChoice, PluginRefusal, disable, enable
from holdfast.decisions.connections.pull_requests import PullSteering, steer_pull
from holdfast.decisions.connections.sources import SyncRequest, sync_now
from holdfast.decisions.connections.trigger_rules import DeliveryReplay, RuleChoice, rearm, replay
from holdfast.decisions.context import Answer, DecisionContext
from holdfast.decisions.conversations import Resumption, Telling, resume_told, tell
from holdfast.decisions.landings import LandingRetry, Settlement, retry, settle
from holdfast.decisions.promotion import Promotion, promote
from holdfast.decisions.questions import QuestionReply, answer
from holdfast.decisions.reassignment import Reassignment, reassign
from holdfast.decisions.reviews import Review, review
from holdfast.decisions.stops import stop
from holdfast.decisions.takeovers import GivingBack, Taking, give_back, take
from holdfast.decisions.tasks import One, Rejection, Resolution, Several, approve, cancel, reject, resolve
from holdfast.decisions.turns import Fork, Turn, fork, undo
from holdfast.domain.task import TaskState
from holdfast.engine.context import RunContext
from holdfast.errors import (
    AlreadyExists,
    DiskError,
    EntryUnfit,
    FileMissing,
    HoldfastError,
    InputError,
    JournalClosed,
    JournalCorrupt,
    RunStopped,
    StaleEpoch,
)
from holdfast.layout import Layout
from holdfast.storage.files import disk
from holdfast.storage.journal.lock import live_owner
from holdfast.worktrees import pins

BYTES_MAX = 16 << 20
# How long the other side may take to send or to read on, and how often an asker looks whether the run was stopped.
SILENT_S_MAX, LOOK_S = 10.0, 0.2
REQUEST_POINTS = ("request.seen", "request.decided", "request.answered")
# What ends the run, and not only the request.
FATAL = (JournalClosed, JournalCorrupt, StaleEpoch, DiskError)
REFUSED = (EntryUnfit, AlreadyExists, FileMissing)

# Each decision: the type of its values, and the function that makes it.
DECISIONS: dict[str, tuple[type[msgspec.Struct], Callable[[DecisionContext, Any], Answer]]] = {
    "cancel": (Several, cancel),
    "retry": (LandingRetry, retry),
    "resolve": (Resolution, resolve),
    "approve": (One, approve),
    "reject": (Rejection, reject),
    "review": (Review, review),
    "resume": (Resumption, resume_told),
    "promote": (Promotion, promote),
    "settle": (Settlement, settle),
    "reassign": (Reassignment, reassign),
    "undo": (Turn, undo),
    "fork": (Fork, fork),
    "stop": (Several, stop),
    "answer": (QuestionReply, answer),
    "tell": (Telling, tell),
    "take": (Taking, take),
    "give_back": (GivingBack, give_back),
    "outbox": (MessageChoice, decide_message),
    "pr": (PullSteering, steer_pull),
    "replay": (DeliveryReplay, replay),
    "rearm": (RuleChoice, rearm),
    "enable": (PluginChoice, enable),
    "disable": (PluginRefusal, disable),
    "sync": (SyncRequest, sync_now),
}
# Those that may have work to do: a short run makes itself ready for it.
WORKS = {"promote", "reassign", "undo", "stop", "take", "give_back"}


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    kind: str
    params: dict[str, Any]


class RequestRefusal(msgspec.Struct, frozen=True):
    """`code` is the name of the error's class."""

    code: str
    message: str
    exit_code: int


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    result: Answer | None = None
    error: RequestRefusal | None = None


def decide(decision: DecisionContext, kind: str, params: dict[str, Any]) -> Answer:
    if kind not in DECISIONS:
        raise InputError(detail=f"there is no decision {kind!r}; known are {', '.join(DECISIONS)}")
    shape, function = DECISIONS[kind]
    try:
        asked = msgspec.convert(params, shape)
    except msgspec.ValidationError as error:
        raise InputError(detail=f"{kind}: {error}") from error
    answer = function(dataclasses.replace(decision, kind=kind), asked)
    if not any(task.state is TaskState.CANCELLED for task in answer.tasks):
        return answer
    # At once, so that the answer has them, too. After a crash in between the next run does the rest.
    told = msgspec.structs.replace(answer, tasks=[*answer.tasks, *finish_chains(decision)])
    pins.release(decision.repo, decision.layout, [decision.task(each.id) for each in told.tasks])
    return told


# -- the run ----------------------------------------------------------------------------------------------------------


class Asked:
    """A request, and the connection on which somebody waits for its answer."""

    def __init__(self, connection: socket.socket) -> None:
        """Reads it; raises where it is none."""
        connection.settimeout(SILENT_S_MAX)
        self._request, self._connection = msgspec.json.decode(_read_line(connection), type=Request), connection
        uid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        self._by = identity.user(uid)

    def answer(self, context: RunContext, *, is_run: bool, is_busy: bool) -> list[str]:
        """Decides, in the loop's thread; returns the tasks that were decided about. Raises Later to be asked again."""
        given_up = select.poll()
        given_up.register(self._connection, select.POLLRDHUP)
        if given_up.poll(0):
            self._connection.close()
            return []
        point("request.seen")
        # What somebody added or edited just before is known when it is decided about.
        context.board.take_in()
        context.board.keep_up()
        asked = self._request
        decision = DecisionContext.of(context, asked.id, is_run=is_run, is_busy=is_busy, by=self._by)
        try:
            answer = decide(decision, asked.kind, asked.params)
        except HoldfastError as error:
            if isinstance(error, FATAL) and not isinstance(error, REFUSED):
                raise
            self.reply(Reply(error=RequestRefusal(type(error).__name__, str(error), error.exit_code)))
            return []
        point("request.decided")
        self.reply(Reply(answer))
        return [task.id for task in answer.tasks]

    def reply(self, reply: Reply) -> None:
        """Answers in a thread of its own: a client that does not read cannot block the loop."""

        def send() -> None:
            with self._connection, contextlib.suppress(OSError):
                self._connection.sendall(msgspec.json.encode(reply) + b"\n")
                point("request.answered")

        threading.Thread(target=send, name="reply", daemon=True).start()


class Mailbox:
    """The run's side, open while it is entered. `submit` has the loop's thread answer, and returns at once.

    One thread accepts, and each request is read in its own: a slow client delays no other.
    """

    def __init__(self, layout: Layout, submit: Callable[[Asked], None]) -> None:
        self._layout, self._submit = layout, submit

    def __enter__(self) -> Mailbox:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The file gets the mode that the socket has when it is bound.
        os.fchmod(self._listener.fileno(), 0o600)
        disk.mkdir(self._layout.secret, 0o700)
        # That of a run that was killed.
        disk.unlink(self._layout.decisions, missing_ok=True)
        with _address(self._layout) as address:
            self._listener.bind(address)
        self._listener.listen()
        threading.Thread(target=self._accept, name="decisions", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        disk.unlink(self._layout.decisions, missing_ok=True)
        # Ends `accept`, which closing alone would not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._receive, args=(connection,), name="request", daemon=True).start()

    def _receive(self, connection: socket.socket) -> None:
        try:
            asked = Asked(connection)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            connection.close()
        else:
            self._submit(asked)


# -- the client -------------------------------------------------------------------------------------------------------


def is_served(layout: Layout) -> bool:
    """Whether a run listens."""
    with _connected(layout) as connection:
        return connection is not None


def ask(layout: Layout, key: str, kind: str, params: dict[str, Any]) -> Answer | None:
    """The run's answer, or its error, raised; None: there is no run, or it ended before it had answered."""
    with _connected(layout) as connection:
        if connection is None:
            return None
        try:
            connection.sendall(msgspec.json.encode(Request(key, kind, params)) + b"\n")
            while not select.select([connection], [], [], LOOK_S)[0]:
                holder = live_owner(layout.lock)
                if holder is not None and identity.is_stopped(holder.pid):
                    raise RunStopped(pid=holder.pid)
            line = _read_line(connection)
        except (ConnectionError, TimeoutError):
            return None
    reply = msgspec.json.decode(line, type=Reply)
    if reply.error is not None:
        raise _revived(reply.error)
    return reply.result


def _revived(refusal: RequestRefusal) -> HoldfastError:
    """The error as the run raised it: its kind and its words."""
    kind = getattr(errors, refusal.code, HoldfastError)
    if not (isinstance(kind, type) and issubclass(kind, HoldfastError)):
        kind = HoldfastError
    error = kind.__new__(kind)
    Exception.__init__(error, refusal.message)
    error.facts = {}
    return error


# -- both -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _address(layout: Layout) -> Iterator[str]:
    """The socket's path by a descriptor of its folder: an address has 108 bytes at most, and a path may be longer."""
    folder = os.open(layout.secret, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{layout.decisions.name}"
    finally:
        os.close(folder)


@contextlib.contextmanager
def _connected(layout: Layout) -> Iterator[socket.socket | None]:
    """None: there is no run, or it was killed, or so many ask that the kernel lets nobody else wait."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(SILENT_S_MAX)
        try:
            with _address(layout) as address:
                connection.connect(address)
            is_there = True
        except (FileNotFoundError, ConnectionError, BlockingIOError):
            is_there = False
        yield connection if is_there else None


def _read_line(connection: socket.socket) -> bytes:
    """One whole line; raises ConnectionError where the other side ended before, or sends one without end."""
    with connection.makefile("rb") as file:
        line = file.readline(BYTES_MAX)
    if not line.endswith(b"\n"):
        raise ConnectionError("the line is cut")
    return line
