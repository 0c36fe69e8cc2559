"""The records of one attempt's folder, the order by which its runner is started, and an attempt's state machine."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.domain.conversations.conversation_records import Message
from holdfast.domain.fsm import Machine, Transition
from holdfast.domain.spend import Caps, Spend
from holdfast.questions.records import Question
from holdfast.questions.rules import PermissionPolicy

_NAME_CHARS_MAX = 200


class Can(msgspec.Struct, frozen=True):
    """The capabilities of an agent.

    `resume`: a conversation can be resumed by its id; otherwise the prompt has its history.
    `cost`: "reported" by the agent, "estimated" from its tokens, or empty where it tells neither.
    `asks`: how it waits for a person's answer: "deferred", it ends and is resumed; "held", its process waits; or empty
    where it cannot be made to ask.
    """

    resume: bool = False
    cost: str = ""
    mcp: bool = False
    asks: str = ""


class Modes(msgspec.Struct, frozen=True):
    """By each mode of the setting `permissions`, the arguments that make a CLI work so; None: it does not offer it."""

    skip: tuple[str, ...]
    edits: tuple[str, ...] | None = None
    own: tuple[str, ...] | None = None
    ask: tuple[str, ...] | None = None

    @property
    def offered(self) -> dict[str, tuple[str, ...]]:
        return {name: flags for name, flags in msgspec.structs.asdict(self).items() if flags is not None}


class Permission(msgspec.Struct, frozen=True):
    """The permissions of a CLI that works unasked: the mode of the settings, and its arguments."""

    mode: str
    flags: tuple[str, ...] = ()


class Home(msgspec.Struct, frozen=True):
    """A folder of a CLI's own, as a sandbox shows it: read-only, but for `writable`, paths of folders in it, which are
    made where they are missing. What else is written there is gone with the start.

    `{worktree}` in `writable` is a name made of the worktree's path, so that it is a folder for this task alone.
    `forgotten`: patterns of names that are not shown, because the CLI writes them anew and cannot do so read-only.
    `marker`: a file in each of its folders that tells which worktree the folder is for. A folder that is marked so is
    the writable one; where there is none, it is made and marked.
    `seen_as`: what the one writable folder is called inside, where the CLI has one name for all worktrees.
    """

    folder: str
    writable: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    marker: str = ""
    seen_as: str = ""


def folder_name(worktree: str) -> str:
    """A worktree's path as one name, as Claude Code makes it: a long one is cut, and ends with a hash of the whole."""
    units = memoryview(worktree.encode("utf-16-le", "surrogatepass")).cast("H")
    plain = "".join(chr(unit) if unit < 128 and chr(unit).isalnum() else "-" for unit in units)
    if len(plain) <= _NAME_CHARS_MAX:
        return plain
    number = 0
    for unit in units:
        number = (number * 31 + unit) & 0xFFFFFFFF
    number, digits = abs(number - (number >> 31 << 32)), ""
    while number or not digits:
        number, rest = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
    return f"{plain[:_NAME_CHARS_MAX]}-{digits}"


class ProtocolCall(msgspec.Struct, frozen=True, kw_only=True):
    """What the runner tells an agent by the Agent Client Protocol, beside the prompt.

    `session`: the conversation to resume. `servers`: the MCP servers, as JSON, with `${NAME}` of `Launch.references`.
    `sets_model`: the model is asked for by the protocol, not by an argument.
    `load_after`: Unix seconds before which the conversation cannot be loaded.
    `meta`: what this program takes with a new conversation beside the protocol, as JSON.
    `program`: its name without a folder. `title` and `sign_in` are for messages.
    """

    title: str
    program: str = ""
    session: str = ""
    servers: str = "[]"
    meta: str = "{}"
    sets_model: bool = False
    load_after: float = 0.0
    sign_in: str = ""


class Launch(msgspec.Struct, frozen=True):
    """The call of an agent. `env` is set on top of what the allow-list lets through, and holds no secret.

    `prompt`: the text of a file that the runner writes, and names in HOLDFAST_PROMPT_FILE and for `{prompt_file}` in
    `argv`. `events`: of a declared agent, where the parts of an event stand in its JSON lines.
    `files`: name and text of files that the runner writes into a folder of the attempt's before the start, readable by
    nobody else. The agent finds that folder in HOLDFAST_FILES; `{files}` in `argv` and `env` stands for it, and
    `{worktree}` in `env` for the name that `folder_name` makes of the worktree's path.
    `links`: name and target of symbolic links there. One that ends in / is a folder, and made where it is missing.
    `references`: names of variables; where `files` and `env` have `${NAME}` of one of these, the runner puts the value
    of its own environment: so a secret is never part of the order.
    `has_hook`: the agent calls a hook after each tool, and the turn is saved while it waits (agents/common/hook.py).
    `reads_errors`: the stream is given the lines of the agent's standard error, too.
    `counted`: tokens in and out that this conversation has reported in earlier starts, for an agent that counts on;
    `counted_usd`: what it cost.
    `stream`: whose output it is, where Holdfast knows it by name, or `module:function` of a plugin (agents/streams.py).
    `model`: the one that was asked for, where the stream does not name it.
    `policy`: what it may do unasked; the runner decides by it about each `PersonAsked`.
    `talks`: it is spoken with: its standard input stays open, and the stream says what is written there
    (`ports.py:TalkingStream`). `stdin` is then the stream's to send, and `session` its to resume.
    `writes_late`: it tells of a tool's end before its own record has it (`ports.py:KeepingStream`).
    `homes`: the CLI's own folders, where its conversations and its settings are.
    `uses_model`: it talks to one, so the keys of known models and the way out to them reach it.
    `protocol`: it is spoken with by the Agent Client Protocol; `stdin` is the prompt then.
    """

    argv: tuple[str, ...]
    stdin: str = ""
    env: dict[str, str] = {}
    prompt: str = ""
    events: dict[str, str] = {}
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    references: tuple[str, ...] = ()
    has_hook: bool = False
    reads_errors: bool = False
    counted: tuple[int, int] = (0, 0)
    counted_usd: float = 0.0
    stream: str = ""
    model: str = ""
    uses_model: bool = True
    homes: tuple[Home, ...] = ()
    policy: PermissionPolicy = PermissionPolicy()
    talks: bool = False
    writes_late: bool = False
    session: str = ""
    protocol: ProtocolCall | None = None


class Resources(msgspec.Struct, frozen=True):
    """Limits on one attempt's use of the machine, named as in the section `limits` of the settings; None: no limit.

    `nice`: of the runner and all below it, and of gates: the journal's sync must not wait beside them.
    `written_bytes_max`: of one file that it writes, anywhere. The next three are of a snapshot, beyond what the attempt
    began with. `line_bytes_max`: a longer line of its output is no event.
    """

    memory_bytes_max: int | None = None
    pids_max: int | None = None
    cpus_max: float | None = None
    nice: int = 19
    written_bytes_max: int | None = None
    file_bytes_max: int | None = None
    snapshot_bytes_max: int | None = None
    snapshot_files_max: int | None = None
    line_bytes_max: int = 8 << 20


class AttemptLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that the runner enforces, with or without an orchestrator. `caps` are for this start alone.

    `output_bytes_max`: what is kept of the output in all; the agent goes on all the same.
    `retry_timeout_s`: how long it may do nothing but try to reach its model again.
    `session_turns`, `session_tokens`: what the conversation may still have; then the agent is ended behind a turn.
    """

    caps: Caps = Caps()
    timeout_s: float = 7200.0
    stall_timeout_s: float = 900.0
    grace_s: float = 5.0
    heartbeat_s: float = 5.0
    same_calls_max: int | None = None
    idle_turns_max: int | None = None
    output_bytes_max: int = 256 << 20
    retry_timeout_s: float = 120.0
    session_turns: int | None = None
    session_tokens: int | None = None
    resources: Resources = Resources()


class InboxFile(msgspec.Struct, frozen=True):
    """inbox.json: messages for the agent that is at work, which its prompt did not have."""

    start: int
    messages: tuple[Message, ...] = ()


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """All that a runner needs for one start. It is kept as a blob, which the intent names: no secret is in it.

    `turn`: the last turn that the attempt has completed, `done`: how many of its turns were not undone. `private`: the
    folder for the snapshots' own files. `passed_on`: names of variables that reach the agent. `exclude`: paths in the
    worktree that are never part of a snapshot.
    `prices`: of models, in place of those that are known, as in agents/common/prices.py.
    `audit_key`: the file of the audit key where the settings name one, which a confined agent must not see.
    `variables`: those that its worktree was prepared with, such as its ports.
    `intent`: the entry that the start was intended with. It names the order, so the runner gets it separately.
    `idle_turns`: the turns that changed no file at the end of the conversation that this one replaces.
    `told`: messages of a person that the prompt has.
    `answered`: questions of the attempt that have their answers: the agent may ask them again.
    """

    task: str
    attempt: str
    start: int
    agent: str
    launch: Launch
    worktree: str
    base: str
    private: str
    turn: int = 0
    done: int = 0
    limits: AttemptLimits = AttemptLimits()
    passed_on: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    sandbox: str = "none"
    prices: dict[str, tuple[float, float, float, float]] = {}
    sandbox_writable: tuple[str, ...] = ()
    sandbox_network: str = "open"
    intent: str = ""
    audit_key: str = ""
    idle_turns: int = 0
    told: tuple[Message, ...] = ()
    variables: dict[str, str] = {}
    answered: tuple[Question, ...] = ()


class Ending(StrEnum):
    """The ways in which a start ends, as the runner saw it."""

    DONE = "done"
    FAILED = "failed"
    CRASHED = "crashed"
    NOT_STARTED = "not_started"
    STOPPED = "stopped"
    TOLD = "told"
    LIMIT = "limit"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    CIRCUIT_OPEN = "circuit_open"
    RATE_LIMITED = "rate_limited"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    AUTH_MISSING = "auth_missing"
    QUOTA = "quota"
    RUNNER_FAILED = "runner_failed"
    WORKTREE_LOST = "worktree_lost"
    ENVIRONMENT = "environment"
    OVER_LIMIT = "over_limit"
    SESSION_FULL = "session_full"
    ASKING = "asking"


class Exit(msgspec.Struct, frozen=True):
    """exit.json: written once all processes of the start have ended and the last snapshot is on disk.

    `intent` names the entry that the start was intended with. `detail` is a sentence. `limit` names what was used up.
    `snapshot` is the commit of the tree at the end, empty where none could be taken. `told`: messages of a person that
    the agent has seen after its last turn.
    """

    attempt: str
    start: int
    ending: Ending
    detail: str
    at: float
    code: int | None = None
    signal: int | None = None
    limit: str = ""
    until: float = 0.0
    session: str = ""
    snapshot: str = ""
    turn: int = 0
    spent: Spend = Spend()
    intent: str = ""
    told: list[str] = []


class TurnLine(msgspec.Struct, frozen=True):
    """One line of turns.jsonl. The offsets are where the other ledgers, and the output, stood when the turn ended.

    `told`: messages of a person that the agent has seen since the turn before.
    """

    ts: float
    turn: int
    start: int
    tool: str
    snapshot: str
    changed: bool
    files: list[str]
    usd: float
    tokens: int
    seconds: float
    session: str
    traces: int
    spend: int
    provenance: int
    output: int
    intent: str = ""
    told: list[str] = []


# -- the state machine of an attempt: 10 states, run through once ------------------------------------------------------

# Two events have names that surprise, and are kept as the original diagram has them: COMPACTING returns to RUNNING on
# `verify_requested`, and VERIFYING on `compact_needed`.


class TurnState(StrEnum):
    IDLE = "IDLE"
    CLAIMING = "CLAIMING"
    SPAWNING = "SPAWNING"
    RUNNING = "RUNNING"
    TOOL_USE = "TOOL_USE"
    COMPACTING = "COMPACTING"
    VERIFYING = "VERIFYING"
    COMPLETING = "COMPLETING"
    FAILED = "FAILED"
    REAPED = "REAPED"


class TurnEvent(StrEnum):
    TASK_CLAIMED = "task_claimed"
    AGENT_SPAWNED = "agent_spawned"
    TOOL_STARTED = "tool_started"
    TOOL_COMPLETED = "tool_completed"
    COMPACT_NEEDED = "compact_needed"
    VERIFY_REQUESTED = "verify_requested"
    TASK_COMPLETED = "task_completed"
    TASK_FAILED = "task_failed"
    AGENT_REAPED = "agent_reaped"


_S, _E = TurnState, TurnEvent

TURN: Machine[TurnState, TurnEvent] = Machine(
    name="turn",
    states=TurnState,
    initial={_S.IDLE: ""},
    transitions=(
        Transition(_S.IDLE, _E.TASK_CLAIMED, _S.CLAIMING),
        Transition(_S.CLAIMING, _E.AGENT_SPAWNED, _S.SPAWNING),
        Transition(_S.CLAIMING, _E.TASK_FAILED, _S.FAILED),
        Transition(_S.SPAWNING, _E.AGENT_SPAWNED, _S.RUNNING),
        Transition(_S.SPAWNING, _E.TASK_FAILED, _S.FAILED),
        Transition(_S.RUNNING, _E.TOOL_STARTED, _S.TOOL_USE),
        Transition(_S.RUNNING, _E.COMPACT_NEEDED, _S.COMPACTING),
        Transition(_S.RUNNING, _E.VERIFY_REQUESTED, _S.VERIFYING),
        Transition(_S.RUNNING, _E.TASK_FAILED, _S.FAILED),
        Transition(_S.TOOL_USE, _E.TOOL_COMPLETED, _S.RUNNING),
        Transition(_S.TOOL_USE, _E.TASK_FAILED, _S.FAILED),
        Transition(_S.COMPACTING, _E.VERIFY_REQUESTED, _S.RUNNING),
        Transition(_S.COMPACTING, _E.TASK_FAILED, _S.FAILED),
        Transition(_S.VERIFYING, _E.TASK_COMPLETED, _S.COMPLETING),
        Transition(_S.VERIFYING, _E.COMPACT_NEEDED, _S.RUNNING),
        Transition(_S.VERIFYING, _E.TASK_FAILED, _S.FAILED),
        Transition(_S.COMPLETING, _E.AGENT_REAPED, _S.REAPED),
        Transition(_S.FAILED, _E.AGENT_REAPED, _S.REAPED),
    ),
)
