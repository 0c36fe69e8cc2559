"""How a decision reaches the run that owns the data root: by two files in `runtime/signals/`.

    request-<id>.json   who asks for what; written by the asker, and removed by it once it has the answer
    reply-<id>.json     the answer, or the error; written by the run, once the decision is in the journal
    serving.json        which process answers

A request names a decision and its values, and nothing else: it is read by type, and what does not fit is refused. If
the run dies before it has answered, the asker decides by itself, under the same id: the journal knows what was done.
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast import errors, identity
from holdfast.crashpoints import point
from holdfast.decisions.cancel_chain import finish_chains
from holdfast.decisions.context import Answer, DecisionContext, Later
from holdfast.decisions.landings import LandingRetry, Settlement, retry, settle
from holdfast.decisions.promote import Promotion, promote
from holdfast.decisions.reassign import Reassignment, reassign
from holdfast.decisions.stop import stop
from holdfast.decisions.tasks import One, Rejection, Resolution, Several, approve, cancel, reject, resolve, resume
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
from holdfast.storage.journal.lock import is_held_by, read_holder
from holdfast.worktrees import pins

POLL_S = 0.02
BYTES_MAX = 1 << 20
REQUEST_POINTS = ("request.seen", "request.decided", "request.answered")
_NAME = re.compile(r"request-([0-9a-f]{32})\.json")
T = TypeVar("T", bound=msgspec.Struct)
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
    "resume": (One, resume),
    "promote": (Promotion, promote),
    "settle": (Settlement, settle),
    "reassign": (Reassignment, reassign),
    "undo": (Turn, undo),
    "fork": (Fork, fork),
    "stop": (Several, stop),
}
# Those that may have work to do: a short session makes itself ready for it.
WORKS = {"promote", "reassign", "undo", "stop"}


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    kind: str
    params: dict[str, Any]
    asker: identity.Identity


class RequestRefusal(msgspec.Struct, frozen=True):
    """`code` is the name of the error's class."""

    code: str
    message: str
    exit_code: int


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    asker: identity.Identity
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
    # At once, so that whoever asked is told of them, too. After a crash in between the next start does the rest.
    told = msgspec.structs.replace(answer, tasks=[*answer.tasks, *finish_chains(decision)])
    pins.release(decision.repo, decision.layout, [decision.task(each.id) for each in told.tasks])
    return told


# -- the run ----------------------------------------------------------------------------------------------------------


class Requests:
    """The run's side."""

    def __init__(self, layout: Layout) -> None:
        self._folder = layout.signals
        self._is_known = False

    def answer(self, context: RunContext, *, is_run: bool = True, is_busy: bool = False) -> list[str]:
        """Answers what is asked, in the caller's thread; returns the tasks that were decided about."""
        if not self._is_known:
            disk.replace(self._folder / "serving.json", msgspec.json.encode(identity.current()))
            self._is_known = True
        decided = []
        for request in self._pending():
            point("request.seen")
            # What somebody added or edited just before is known when it is decided about.
            context.board.take_in()
            context.board.keep_up()
            decision = DecisionContext.of(
                context, request.id, is_run=is_run, is_busy=is_busy, by=self._owner_of(request)
            )
            try:
                answer = decide(decision, request.kind, request.params)
            except Later:
                continue
            except HoldfastError as error:
                if isinstance(error, FATAL) and not isinstance(error, REFUSED):
                    raise
                self._reply(request, None, error)
                continue
            decided += [task.id for task in answer.tasks]
            point("request.decided")
            self._reply(request, answer, None)
            point("request.answered")
        return decided

    def _pending(self) -> Iterator[Request]:
        """What living processes ask, in the order of their asking. What the dead have left goes."""
        names = os.listdir(self._folder)
        for name in names:
            if name.startswith("reply-") and _asker_is_gone(_read(self._folder / name, Reply)):
                disk.unlink(self._folder / name, missing_ok=True)
        found = [(_age(self._folder / name), name) for name in names if name.startswith("request-")]
        for _, name in sorted(found):
            request, match = _read(self._folder / name, Request), _NAME.fullmatch(name)
            if request is None or match is None or match[1] != request.id or _asker_is_gone(request):
                disk.unlink(self._folder / name, missing_ok=True)
            # In this order: an asker that has its reply removes its request first, so one that is still there has none.
            elif not os.path.lexists(self._folder / f"reply-{request.id}.json") and os.path.lexists(
                self._folder / name
            ):
                yield request

    def _owner_of(self, request: Request) -> str:
        """Who asks, as the system knows it. Nobody but our own user may have taken the file away."""
        try:
            return identity.user(os.lstat(self._folder / f"request-{request.id}.json").st_uid)
        except FileNotFoundError:
            return identity.user()

    def _reply(self, request: Request, answer: Answer | None, error: HoldfastError | None) -> None:
        refusal = RequestRefusal(type(error).__name__, str(error), error.exit_code) if error is not None else None
        reply = msgspec.json.encode(Reply(request.asker, answer, refusal))
        disk.replace(self._folder / f"reply-{request.id}.json", reply, 0o600)


# -- who asks ---------------------------------------------------------------------------------------------------------


def is_served(layout: Layout) -> bool:
    """Whether the process that owns the data root is one that answers."""
    holder, serving = read_holder(layout.lock), _read(layout.signals / "serving.json", identity.Identity)
    if holder is None or serving is None:
        return False
    same = (holder.pid, holder.start_ticks, holder.boot_id) == (serving.pid, serving.start_ticks, serving.boot_id)
    return same and is_held_by(layout.lock, holder)


def ask(layout: Layout, key: str, kind: str, params: dict[str, Any]) -> Answer | None:
    """The run's answer, or its error, raised; None: it ended before it had answered."""
    request = layout.signals / f"request-{key}.json"
    reply = layout.signals / f"reply-{key}.json"
    disk.replace(request, msgspec.json.encode(Request(key, kind, params, identity.current())), 0o600)
    try:
        while not reply.exists() and is_served(layout):
            holder = read_holder(layout.lock)
            if holder is not None and identity.is_stopped(holder.pid):
                raise RunStopped(pid=holder.pid)
            time.sleep(POLL_S)
        found = _read(reply, Reply)
    finally:
        # In this order: a request without a reply would be answered once more.
        disk.unlink(request, missing_ok=True)
        disk.unlink(reply, missing_ok=True)
    if found is None:
        return None
    if found.error is not None:
        raise _revived(found.error)
    return found.result


def _revived(refusal: RequestRefusal) -> HoldfastError:
    """The error as the run raised it: its kind and its words."""
    kind = getattr(errors, refusal.code, HoldfastError)
    if not (isinstance(kind, type) and issubclass(kind, HoldfastError)):
        kind = HoldfastError
    error = kind.__new__(kind)
    Exception.__init__(error, refusal.message)
    error.facts = {}
    return error


def _read(path: Path, kind: type[T]) -> T | None:
    """These files appear whole or not at all; one that does not fit was written by somebody else."""
    try:
        if path.is_symlink() or path.stat().st_size > BYTES_MAX:
            return None
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _asker_is_gone(found: Request | Reply | None) -> bool:
    return found is None or not found.asker.is_alive()


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
