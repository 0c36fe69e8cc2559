"""The only list of settings.

Checks, the text of a new settings file, the names of variables and options and the table in the documentation are made
from these Structs and those of `config/sections.py`. Their types are read when this module is loaded, so they are not
postponed: that would cost twice.
"""

import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.config.notify import PAGE_PATTERN, PAGE_RULE, QUIET_PATTERN, QUIET_RULE, TO_RULE, NotifyRule
from holdfast.config.pull_requests import LandBy, PullRequestSettings
from holdfast.config.resources import Least, LimitSettings
from holdfast.config.secret_refs import SECRET_PATTERN, SecretRef
from holdfast.config.sections import (
    ENTRIES_MAX,
    NAME_RULE,
    PRIORITY_RULE,
    ApprovalRule,
    Audit,
    Budgets,
    Bytes,
    DeclaredAgent,
    GateSettings,
    Git,
    LedgerSettings,
    Model,
    ModelPrice,
    Name,
    OnOutage,
    PermissionSettings,
    PluginSettings,
    RouteSettings,
    Seconds,
    Server,
    StepSettings,
    Text,
    Variable,
)
from holdfast.config.trackers import SourceSettings
from holdfast.config.worktree import WorktreeSettings
from holdfast.domain.definition import MODEL_PATTERN, MODEL_RULE
from holdfast.domain.issues.issue_records import SOURCE_PATTERN, SOURCE_RULE
from holdfast.layout import HOME_VARIABLE

PREFIX = "HOLDFAST_"


class Config(msgspec.Struct, frozen=True):
    data_root: Annotated[
        Text | None, Meta(description="folder that holds the state of many repositories; null: .sdd/ in this one")
    ] = None
    max_agents: Annotated[int, Meta(ge=1, le=1000, description="agents that work at the same time")] = 4
    judging: Annotated[
        int, Meta(ge=1, le=16, description="candidates that are judged at the same time; landing is one at a time")
    ] = 1
    agent: Annotated[Name, Meta(description="agent of a task that names none")] = "claude"
    model: Annotated[
        Model | None, Meta(description="model of a task that names none and no other agent; null: the agent's choice")
    ] = None
    sandbox: Annotated[
        Literal["auto", "none", "bwrap"],
        Meta(description="how agents and gates are confined: bwrap, not at all, or auto: bwrap where it works"),
    ] = "auto"
    sandbox_writable: Annotated[
        tuple[Text, ...],
        Meta(max_length=ENTRIES_MAX, description="paths that a sandbox leaves open for writing; ~ is the home"),
    ] = ()
    sandbox_network: Annotated[
        Literal["open", "none"],
        Meta(description="network in a sandbox; none: gates and agents without a model have none"),
    ] = "open"
    mcp_tools: Annotated[
        bool,
        Meta(description="agents that take MCP servers get Holdfast's own, where the extra `mcp` is and a run serves"),
    ] = True
    submodules: Annotated[
        Literal["keep", "init"],
        Meta(description="submodules in worktrees; keep: empty folders; init: checked out from .git/modules"),
    ] = "keep"
    max_attempts: Annotated[int, Meta(ge=1, le=100, description="tries that a task has in all")] = 3
    max_resumes: Annotated[
        int, Meta(ge=0, le=1000, description="times that one attempt is continued after a crash")
    ] = 5
    timeout_s: Annotated[Seconds, Meta(description="wall-clock time of one attempt")] = 7200.0
    grace_s: Annotated[Seconds, Meta(description="time that a process has to end when it is asked to")] = 5.0
    heartbeat_s: Annotated[Seconds, Meta(description="how often a runner shows that it is alive")] = 5.0
    heartbeat_timeout_s: Annotated[
        Seconds, Meta(description="a runner without a sign of life for so long is ended, and its attempt continued")
    ] = 120.0
    lease_s: Annotated[
        Seconds, Meta(description="a worker that holds a task through the API shows within so long that it is alive")
    ] = 300.0
    same_calls_max: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        Meta(description="calls of one tool with the same input in a row; null: no limit"),
    ] = 20
    idle_turns_max: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        Meta(description="turns in a row that change no file; null: no limit"),
    ] = 100
    stall_timeout_s: Annotated[Seconds, Meta(description="an agent without output for so long is ended")] = 900.0
    output_bytes_max: Annotated[Bytes, Meta(description="what is kept of one attempt's output")] = 256 << 20
    rate_limit_pause_s: Annotated[
        Seconds, Meta(description="pause after a rate limit of which the agent does not say how long it lasts")
    ] = 60.0
    retry_timeout_s: Annotated[
        Seconds, Meta(description="an agent that only tries to reach its model again for so long is ended, and pauses")
    ] = 120.0
    outage_pause_s: Annotated[
        Seconds,
        Meta(description="first pause after an agent could not reach its model; each next one is twice as long"),
    ] = 5.0
    outage_pause_max_s: Annotated[Seconds, Meta(description="the longest such pause")] = 300.0
    outage_after: Annotated[
        int,
        Meta(ge=1, le=1000, description="starts in a row that could not use the model: then one start goes first"),
    ] = 3
    on_outage: Annotated[
        OnOutage,
        Meta(description="an agent that cannot use its model; wait: its tasks wait; next: the cascade's next has them"),
    ] = "wait"
    memory_free_min: Annotated[
        Least | None,
        Meta(description="a start waits while the machine has fewer free bytes of memory; null: it never does"),
    ] = 256 << 20
    session_turns_max: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        Meta(description="turns of one conversation, then another begins with the history told; null: no limit"),
    ] = None
    session_tokens_max: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000_000)] | None,
        Meta(description="and its tokens, in and out; null: no limit"),
    ] = None
    replay_age_max_s: Annotated[
        Seconds, Meta(description="an open intent older than this is abandoned by recovery, and shown")
    ] = 3600.0
    limits: LimitSettings = LimitSettings()
    worktree: WorktreeSettings = WorktreeSettings()
    disk_free_min: Annotated[
        Least | None, Meta(description="a start waits while the disk has fewer free bytes; null: it never does")
    ] = None
    budgets: Budgets = Budgets()
    git: Git = Git()
    gates: Annotated[
        tuple[GateSettings, ...],
        Meta(max_length=ENTRIES_MAX, description="what every candidate must pass before it lands"),
    ] = ()
    approve: Annotated[
        tuple[ApprovalRule, ...],
        Meta(max_length=ENTRIES_MAX, description="results that wait for a person, beside tasks with `approve: true`"),
    ] = ()
    land: Annotated[
        LandBy, Meta(description="how results land: merge moves the target branch, pull_request opens one for each")
    ] = "merge"
    pull_requests: PullRequestSettings = PullRequestSettings()
    agents: Annotated[
        tuple[DeclaredAgent, ...],
        Meta(max_length=ENTRIES_MAX, description="agents beside those known by name, and how those are called"),
    ] = ()
    permissions: Annotated[
        tuple[PermissionSettings, ...],
        Meta(max_length=1000, description="what agents may do unasked: rules for calls of tools, and modes by role"),
    ] = ()
    question_timeout_s: Annotated[
        Seconds | None, Meta(description="a question nobody answers for so long is denied; null: it waits for ever")
    ] = None
    routes: Annotated[
        tuple[RouteSettings, ...],
        Meta(max_length=ENTRIES_MAX, description="the agent of a task that names none: the first route that fits"),
    ] = ()
    cascade: Annotated[
        tuple[StepSettings, ...],
        Meta(max_length=ENTRIES_MAX, description="cheapest first; after a failure the next one has the next attempt"),
    ] = ()
    prices: Annotated[
        dict[str, ModelPrice],
        Meta(max_length=ENTRIES_MAX, description="what models cost, by the beginning of their names"),
    ] = {}
    agent_env: Annotated[
        tuple[Variable, ...],
        Meta(max_length=200, description="more variables that reach agents, beside PATH, HOME and known models' keys"),
    ] = ()
    gate_env: Annotated[
        tuple[Variable, ...],
        Meta(max_length=200, description="more variables that reach gates, beside PATH, HOME and the like"),
    ] = ()
    notify: Annotated[
        tuple[NotifyRule, ...],
        Meta(
            max_length=ENTRIES_MAX,
            description="which events are sent to whom, by any service that Apprise knows",
        ),
    ] = ()
    page_url: Annotated[
        Annotated[str, Meta(pattern=PAGE_PATTERN)] | None,
        Meta(description="address of the page as people reach it, for links in messages; null: no links"),
    ] = None
    sources: Annotated[
        tuple[SourceSettings, ...],
        Meta(max_length=ENTRIES_MAX, description="issue trackers whose issues are tasks, see docs/trackers.md"),
    ] = ()
    ledgers: LedgerSettings = LedgerSettings()
    plugins: PluginSettings = PluginSettings()
    audit: Audit = Audit()
    server: Server = Server()


# -- keys -------------------------------------------------------------------------------------------------------------


class SettingKey(msgspec.Struct, frozen=True):
    """One setting: its dotted name and what may stand there."""

    name: str
    kind: Any
    default: Any
    description: str
    allowed: str

    @property
    def variable(self) -> str:
        """Sections and keys are joined by two underscores. The data root has the name that it has always had."""
        return HOME_VARIABLE if self.name == "data_root" else PREFIX + self.name.replace(".", "__").upper()

    @property
    def option(self) -> str:
        return "--" + self.name.replace(".", "-").replace("_", "-")


def _keys(struct: type[msgspec.Struct], prefix: str = "") -> Iterator[SettingKey]:
    for each in msgspec.structs.fields(struct):
        if _is_struct(each.type):
            yield from _keys(each.type, f"{prefix}{each.name}.")
            continue
        kind, facts = _bare(each.type)
        default = each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory()
        yield SettingKey(prefix + each.name, each.type, default, facts["description"], _allowed(kind, facts))


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _bare(kind: Any) -> tuple[Any, dict[str, Any]]:
    """An annotated type without its annotations, and all that they say."""
    metas = [meta for meta in getattr(kind, "__metadata__", ()) if isinstance(meta, Meta)]
    names = ("gt", "ge", "le", "pattern", "max_length", "description")
    facts = {name: value for meta in metas for name in names if (value := getattr(meta, name)) is not None}
    return typing.get_args(kind)[0] if metas else kind, facts


def _allowed(kind: Any, facts: dict[str, Any]) -> str:
    """The allowed values, in words."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(kind) if part is not type(None)]
        return (PRIORITY_RULE if len(parts) > 1 else _allowed(*_bare(parts[0]))) + ", or null"
    if typing.get_origin(kind) is Literal:
        return "one of " + ", ".join(typing.get_args(kind))
    if kind in (int, float):
        noun = "a whole number" if kind is int else "a number"
        low = f"above {facts['gt']:,}" if "gt" in facts else f"at least {facts['ge']:,}"
        return f"{noun} {low} and at most {facts['le']:,}"
    if kind is bool:
        return "true or false"
    if kind is str:
        rule = RULE_OF.get(facts.get("pattern", ""), NAME_RULE)
        return rule if "pattern" in facts else f"a text of 1 to {facts['max_length']:,} characters"
    if typing.get_origin(kind) is dict and _is_struct(typing.get_args(kind)[1]):
        return f"a mapping of up to {facts['max_length']} {_elements(typing.get_args(kind)[1])}"
    if typing.get_origin(kind) is dict and typing.get_origin(typing.get_args(kind)[1]) is dict:
        return f"a mapping of up to {facts['max_length']} mappings"
    if typing.get_origin(kind) is dict:
        return f"a mapping of up to {facts['max_length']} texts"
    return f"a list of up to {facts['max_length']:,} " + _elements(typing.get_args(kind)[0])


def _elements(kind: Any) -> str:
    if kind is SecretRef:
        return TO_RULE
    if typing.get_origin(kind) is Literal:
        return "of " + ", ".join(typing.get_args(kind))
    if kind is Variable:
        return "names of variables; a star at the end stands for any ending"
    if not _is_struct(kind):
        return "texts"
    names = ", ".join(kind.__struct_fields__)
    if len(names) > NAMES_CHARS_MAX:
        needed = [each.name for each in msgspec.structs.fields(kind) if each.required]
        names = f"{', '.join(needed)} and others"
    return f"{LISTS[kind]} with {names}"


RULE_OF = {
    MODEL_PATTERN: MODEL_RULE, SOURCE_PATTERN: SOURCE_RULE, SECRET_PATTERN: "env:NAME, file:PATH or command:WORDS",
    QUIET_PATTERN: QUIET_RULE, PAGE_PATTERN: PAGE_RULE,
}  # fmt: skip
NAMES_CHARS_MAX = 90
LISTS: dict[Any, str] = {
    GateSettings: "gates", DeclaredAgent: "agents", PermissionSettings: "rules", RouteSettings: "routes",
    StepSettings: "steps", ModelPrice: "models", ApprovalRule: "rules", SourceSettings: "sources",
    NotifyRule: "rules",
}  # fmt: skip


KEYS: dict[str, SettingKey] = {key.name: key for key in _keys(Config)}
# Of the settings that are lists or mappings of entries: the keys of one entry.
ENTRY_KEYS: dict[str, dict[str, SettingKey]] = {
    name: {key.name: key for key in _keys(kind)}
    for name, kind in zip(
        ("gates", "agents", "permissions", "routes", "cascade", "prices", "approve", "sources", "notify"),
        LISTS,
        strict=True,
    )
}
SECTIONS: dict[str, Any] = {each.name: each.type for each in msgspec.structs.fields(Config) if _is_struct(each.type)}
VARIABLES: dict[str, str] = {key.variable: key.name for key in KEYS.values()}
