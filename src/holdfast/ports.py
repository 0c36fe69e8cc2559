"""The contracts between the parts, on one page. Adapters implement them; the engine knows nothing else of the world."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast.domain.agent_events import AgentEvent, PersonAsked
from holdfast.domain.attempt_records import Can, Launch, Permission
from holdfast.domain.claims import Claim
from holdfast.domain.definition import Definition
from holdfast.domain.effect_entries import EffectIntended
from holdfast.domain.file_problem import FileProblem
from holdfast.domain.messages.outbox_records import Outgoing
from holdfast.domain.state import State
from holdfast.domain.task import TaskEvent
from holdfast.domain.task_record import Task
from holdfast.errors import IllegalTransition, MoveRefused
from holdfast.questions.records import Verdict
from holdfast.questions.rules import PermissionPolicy
from holdfast.storage.journal.checkpoint import F
from holdfast.storage.journal.entry import Entry, Record, Ref
from holdfast.storage.journal.intents import OpenIntent, Pairing
from holdfast.storage.journal.pages import Cursor, Page, WantedPage
from holdfast.storage.journal.reader import TornEnd

# -- the ledger -------------------------------------------------------------------------------------------------------


class Observer(Protocol):
    """Follows the journal. `ledgers/observers.py:ORDER` has the name of each, its place and when it gets entries.

    `cursor` is the last entry that it has; None where it gets entries from now on, because it keeps nothing or reads by
    itself what came before.
    """

    @property
    def name(self) -> str: ...
    @property
    def cursor(self) -> Ref | None: ...
    def observe(self, run: str, entry: Entry) -> None:
        """Is called with each entry, in order, by whichever thread appended it."""


class LedgerReader(Protocol):
    """Reads the journal. A reader that is not the owner takes no lock and writes nothing, also during a run."""

    def read(self, after: Ref | None = None) -> Iterator[tuple[str, Entry]]:
        """Every entry with its run, verified, in order; or only those behind the one named."""

    @property
    def end(self) -> Ref | None:
        """The last entry of the last reading that came to its end."""

    @property
    def torn(self) -> Sequence[TornEnd]:
        """What crashes had torn there: never acknowledged, and passed over."""

    @property
    def place(self) -> Path | str:
        """Where the journal is, for sentences: a folder, or another kind of address."""

    def runs(self) -> list[str]:
        """The runs that there are, oldest first."""

    def has(self, ref: Ref) -> bool: ...
    def page(
        self, wanted: WantedPage, after: Cursor | None, limit: int, *, end: Cursor, is_backward: bool = False
    ) -> Page:
        """The wanted entries behind a cursor, or before it, at most so many, and none behind `end`."""

    def fold(self, new_fold: Callable[[], F], after: Cursor) -> F:
        """Every entry folded; from a saved state on where that stands at or before the cursor."""


class Ledger(LedgerReader, Protocol):
    """Writes decisions and hands out tasks. When a call returns, its work is on stable storage.

    `epoch` is the owner's: an append that names another is refused, so that an owner that was replaced while it slept
    can change nothing any more.
    """

    @property
    def epoch(self) -> int: ...
    @property
    def run(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def pairing(self) -> Pairing: ...
    @property
    def position(self) -> Ref:
        """The last entry that is on stable storage."""

    def find(self, kind: str, key: str) -> Entry | None:
        """The entry of this kind that was journalled under an idempotency key, once it is on stable storage."""

    @property
    def observers(self) -> Sequence[Observer]:
        """The observers, in the order in which they get entries."""

    def observe(self, observer: Observer) -> None:
        """Gives an observer the entries behind its cursor, and from then on each new one."""

    def stop_observing(self, observer: Observer) -> None: ...

    # Told how many seconds it took until so many entries were on stable storage.
    on_append: Callable[[float, int], None]

    def append(self, epoch: int, records: Sequence[Record]) -> list[Ref]:
        """Writes the records in this order. Raises StaleEpoch; raises EntryUnfit for what the state does not allow.

        One that is refused refuses all. A crash may keep a first part of them, which nobody acknowledged: each record
        must be good by itself, with those before it.
        """

    def expect_owned(self) -> None:
        """Raises StaleEpoch where somebody else may own the data root: for what an owner writes beside the journal."""

    def together(self) -> AbstractContextManager[None]:
        """Lets all appends inside share one sync, at its end."""

    def claim(
        self, worker: str, task: str, *, lease_s: float | None, model: str = "", why: str = "", **facts: Any
    ) -> Claim:
        """Hands out an open task, as a new attempt or continuing an orphaned one. Raises ClaimRefused.

        Without `lease_s` there is no lease: a runner of ours shows by its lock that it is alive.
        `model` and `why` are put on record with it: what the worker uses, and why it is this worker; and `facts`.
        """

    def heartbeat(self, claim: Claim, *, lease_s: float) -> Claim:
        """Extends the lease. Raises ClaimLost when the task is no longer this claim's."""

    def renew_all(self, lease_s: float) -> None:
        """Gives every task that is held through the API a lease, where nobody's heartbeat is known any more."""

    def lease(self, task: str) -> Claim | None:
        """The claim that holds a task, while its lease is known."""

    def expired(self) -> list[Claim]:
        """Claims whose lease has run out: nobody takes them back by itself.

        To be asked every second or so while there are any. Where nobody has asked for much longer, the owner itself was
        stopped, and every lease begins anew.
        """

    def complete(self, claim: Claim, event: TaskEvent, reason: str, outcome: Mapping[str, Any]) -> Ref:
        """Moves the task on, in the name of its claim. Raises ClaimLost when the task is no longer this claim's."""

    def refuse(self, task: Task, error: IllegalTransition, reason: str, actor: str = "holdfast") -> MoveRefused:
        """Puts a move that the table does not have on record; returns the error that says so, to be raised."""

    def watch(self, after: Ref | None, wait: Callable[[], bool]) -> Iterator[tuple[Ref, Entry]]:
        """Every entry behind the one named, then each new one as it comes; ends when `wait` answers False."""


# -- effects ----------------------------------------------------------------------------------------------------------


class Happened(msgspec.Struct, frozen=True):
    """The effect took place; `result` is what its outcome would have said."""

    result: dict[str, Any] = {}


class DidNotHappen(msgspec.Struct, frozen=True):
    """It did not, or may be performed again all the same; `reason` says why where that is not plain."""

    reason: str = ""


class InDoubt(msgspec.Struct, frozen=True):
    """Nobody can know whether it took place; a person must decide."""

    reason: str


Reconciled = Happened | DidNotHappen | InDoubt


class Effect(Protocol):
    """A side effect outside the journal, with its twin that finds out after a crash whether it took place."""

    def perform(self, intent: OpenIntent) -> dict[str, Any]: ...
    def reconcile(self, intent: OpenIntent) -> Reconciled: ...


class Publisher(Protocol):
    """Sends the messages of one channel. Each call is made in the outbox's own thread, and may take as long as it must.

    A message may have left before, in a try that nobody knows the end of. So where the receiver can be asked, `find` is
    called before each try but the first, and nothing is sent that it has. Where it cannot, such a message is parked.
    """

    @property
    def can_be_asked(self) -> bool: ...
    def find(self, message: Outgoing) -> dict[str, Any] | None:
        """What the receiver has under the message's key; None where it has nothing. Raises PublishFailed."""

    def send(self, message: Outgoing) -> dict[str, Any]:
        """Sends it, and returns what its outcome says. Raises PublishFailed, to be tried again, or PublishRefused."""


# An effect is found by the type of its intent.
Effects = Mapping[type[EffectIntended], Effect]


# -- agents -----------------------------------------------------------------------------------------------------------


class Stream(Protocol):
    """Reads one start's output. A line comes without its newline; what is no event of the agent's is its own output."""

    def read(self, line: bytes) -> Sequence[AgentEvent]: ...
    def end(self, code: int) -> Sequence[AgentEvent]:
        """The events that follow from the end of the process; the exit code is as a shell counts it."""


class AskingStream(Stream, Protocol):
    """Of an agent that asks before a call, by the event `PersonAsked`.

    The runner decides about each by the policy, by an answer that the journal has, or by asking a person, and then
    calls `reply`, once for each event; where a person is asked for a call that is not deferred, that may take days.
    """

    def reply(self, asked: PersonAsked, verdict: Verdict) -> bytes:
        """The reply for the agent, on the way by which it asked: its hook's output, or its standard input."""


class HookedStream(AskingStream, Protocol):
    """Of an agent that calls a hook before or after each tool."""

    def hook(self, said: bytes) -> Sequence[AgentEvent] | None:
        """The events of a hook call, which the stream does not repeat. None: not yet; the hook waits."""

    def answer(self, given: bytes, text: str) -> str:
        """The hook's output, by which a person's message reaches the agent."""


class TalkingStream(AskingStream, Protocol):
    """Of an agent that is spoken with on its standard input (`Launch.talks`)."""

    def outgoing(self) -> bytes:
        """What is to be written to it now, each part once. Asked after the start, and after all that was read.

        After the event `Finished` its standard input is closed.
        """

    def cancel(self) -> bytes:
        """What asks the agent to end its work; empty where it does none, or cannot be asked."""


class KeepingStream(Stream, Protocol):
    """Of an agent that tells of a tool's end before its own record has it (`Launch.writes_late`)."""

    def has_kept(self) -> bool:
        """Whether its record has the last tool that ended. What is not there its next start does not know."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The work that an agent is asked to do.

    `session`: the conversation to go on with, where the agent can. `counted`: tokens in and out that it has reported,
    and `counted_usd` what it cost.
    `policy`: what it may do without asking; None: as the settings of its agent say.
    `answers`: it is resumed because its last question was answered, and has nothing else to be told.
    `has_tools`: our own MCP server is there for it.
    """

    task: str
    attempt: str
    prompt: str
    definition: Definition
    model: str = ""
    session: str = ""
    turn: int = 0
    counted: tuple[int, int] = (0, 0)
    counted_usd: float = 0.0
    policy: PermissionPolicy | None = None
    answers: bool = False
    has_tools: bool = False


class Agent(Protocol):
    """A CLI that works on tasks. One object serves all attempts. `install` and `sign_in` are what to type."""

    @property
    def name(self) -> str: ...
    @property
    def can(self) -> Can: ...
    @property
    def permission(self) -> Permission | None:
        """What the settings' `agents` say that it may do; None where only the command itself decides."""

    @property
    def install(self) -> str: ...
    @property
    def sign_in(self) -> str: ...

    def find(self) -> str | None:
        """The path of its program; None where it is not installed."""

    def version(self, wait_s: float) -> str:
        """The program's version line; empty where it prints none, or not in time."""

    def is_signed_in(self) -> bool | None:
        """None where it cannot be told without asking the model."""

    def endpoint(self, model: str) -> str:
        """The endpoint of this model: a host, or a provider's name; empty where that is not known. Never a secret."""

    def missing(self, definition: Definition, policy: PermissionPolicy | None = None) -> str:
        """A sentence that says why it cannot work on such a task here, with what to type; empty when it can."""

    def launch(self, work: Work) -> Launch: ...
    def interactive(self, work: Work) -> Launch | None:
        """Its own conversation in a person's terminal; None where its program has none, or cannot resume it."""


# -- the backlog ------------------------------------------------------------------------------------------------------


class TaskFile(Protocol):
    """One task's file: its definition, the backlog folder it stands in, and the SHA-256 of its content.

    `written_ns`: when it was last written.
    """

    @property
    def definition(self) -> Definition: ...
    @property
    def folder(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def digest(self) -> str: ...
    @property
    def written_ns(self) -> int: ...


class BacklogScan(Protocol):
    """The whole backlog. `problems` name the tasks that they stop.

    `moved`: what a crash left in several folders; `doubled`: tasks that several files claim to be, with a problem each.
    `unread`: files and folders, with a problem each, that may be, or hold, the file of any task.
    """

    @property
    def tasks(self) -> Mapping[str, TaskFile]: ...
    @property
    def moved(self) -> Mapping[str, Sequence[TaskFile]]: ...
    @property
    def doubled(self) -> Mapping[str, Sequence[TaskFile]]: ...
    @property
    def problems(self) -> Sequence[FileProblem]: ...
    @property
    def unread(self) -> Sequence[str]: ...


class BacklogFolder(Protocol):
    """The files that people write. The folder a file stands in is a projection of the journal."""

    @property
    def folder(self) -> Path: ...

    def scan(self) -> BacklogScan: ...
    def keep(self, memory: Path) -> None:
        """Keeps what the last scan read for the next process."""

    def bare(self, file: Any) -> bytes:
        """The text of a file of the last scan, without the blocks that Holdfast writes: what a person wrote."""

    def add(self, text: bytes, name: str, folder: str = "open") -> TaskFile: ...
    def add_many(self, texts: Mapping[str, bytes], folder: str = "open") -> Mapping[str, TaskFile]:
        """Creates the files of new open tasks, by id, for one sync. One that is there stays as it is."""

    def change(self, task: str, make: Callable[[Any, bytes], bytes]) -> TaskFile:
        """Replaces a task's file by what `make` makes of it, as it is now. Our block stays as it is."""

    def move(self, task: str, folder: str, block: Mapping[str, Any] | None = None, file: Any | None = None) -> TaskFile:
        """Puts a task's file into a folder. `file`, of the last scan: the only one, as long as it is unchanged."""

    def is_own(self, path: Path) -> bool:
        """Whether a path is unchanged since we wrote it."""

    def settle(self, task: str, folder: str) -> TaskFile: ...
