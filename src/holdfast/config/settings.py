"""The only list of settings.

Checks, the text of a new settings file, the names of variables and options and the table in the documentation are made
from these Structs. Their types are read when this module is loaded, so they are not postponed: that would cost twice.
"""

import re
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.config.resources import LimitSettings
from holdfast.domain.definition import MODEL_PATTERN, MODEL_RULE
from holdfast.domain.routing import PRIORITY_PATTERN
from holdfast.layout import HOME_VARIABLE

PREFIX = "HOLDFAST_"
YEAR_S = 366 * 86_400
ENTRIES_MAX = 100

Text = Annotated[str, Meta(min_length=1, max_length=4096)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")]
Model = Annotated[str, Meta(pattern=MODEL_PATTERN)]
NAME_RULE = "a name of up to 100 letters, digits, dots, dashes and underscores, a letter or digit first"
PRIORITY_RULE = "a whole number, or a text such as <=2, <2, >2 or >=2"
Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,199}\*?\Z")]
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
# Where a CLI keeps conversations and sign-in. Holdfast looks there, too, so they are the same for both.
FOLDERS = ("HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
Seconds = Annotated[float, Meta(gt=0, le=YEAR_S)]
Dollars = Annotated[float, Meta(gt=0, le=1_000_000)]
Tokens = Annotated[int, Meta(ge=1, le=1_000_000_000_000)]
Turns = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Bytes = Annotated[int, Meta(ge=4096, le=1 << 50)]
Price = Annotated[float, Meta(ge=0, le=1_000_000)]


OnOutage = Literal["wait", "next"]
Permissions = Literal["full", "edits", "own"]
CommitMessage = Literal["agent", "goal", "template"]


class GateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[Name, Meta(description="what the gate is called; unique")]
    command: Annotated[Text, Meta(description="the shell command; exit code 0 passes")]
    timeout_s: Annotated[Seconds, Meta(description="a gate that runs longer has failed")] = 600.0
    required: Annotated[bool, Meta(description="false: a failure is shown and does not stop the landing")] = True
    repeatable: Annotated[
        bool, Meta(description="false: after a crash in the middle it parks, and is not run again")
    ] = True


class DeclaredAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[Name, Meta(description="what tasks call it; unique")]
    command: Annotated[
        tuple[Text, ...],
        Meta(
            max_length=1000,
            description="program and arguments; {prompt}, {model}, {prompt_file}; empty: the CLI known by this name",
        ),
    ] = ()
    prompt: Annotated[
        Literal["argument", "stdin", "file"], Meta(description="how the prompt is passed; file: in {prompt_file}")
    ] = "argument"
    events: Annotated[
        dict[str, str],
        Meta(max_length=100, description="where its JSON lines have our events; empty: the command is one turn"),
    ] = {}
    resume: Annotated[
        tuple[Text, ...],
        Meta(max_length=100, description="arguments to go on with a conversation, {session}; empty: it cannot"),
    ] = ()
    on_outage: Annotated[
        OnOutage | None, Meta(description="as the setting of this name, for this agent; null: as that one says")
    ] = None
    permissions: Annotated[
        Permissions, Meta(description="of a known CLI: what it does unasked; own: what its own settings allow")
    ] = "full"
    args: Annotated[tuple[Text, ...], Meta(max_length=100, description="more arguments for a known CLI")] = ()
    env: Annotated[
        dict[str, str],
        Meta(max_length=100, description="variables for it; ${NAME} is one of who runs Holdfast"),
    ] = {}


class RouteSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    agent: Annotated[Name, Meta(description="the agent of a task that fits all the conditions")]
    model: Annotated[Model | None, Meta(description="with which model; null: the agent's choice")] = None
    role: Annotated[Text | None, Meta(description="fits a task of this role; null: any")] = None
    label: Annotated[Text | None, Meta(description="fits a task that has this label; null: any")] = None
    priority: Annotated[
        int | Annotated[str, Meta(pattern=PRIORITY_PATTERN)] | None,
        Meta(description="fits a task of this priority; null: any"),
    ] = None
    on_outage: Annotated[
        OnOutage | None, Meta(description="as the setting of this name, for this route; null: as that one says")
    ] = None


class StepSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    agent: Annotated[Name, Meta(description="the agent that works on it")]
    model: Annotated[Model | None, Meta(description="with which model; null: the agent's choice")] = None
    on_outage: Annotated[
        OnOutage | None, Meta(description="as the setting of this name, for this step; null: as that one says")
    ] = None


class ModelPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: Annotated[Price, Meta(description="dollars for a million tokens in")]
    output: Annotated[Price, Meta(description="dollars for a million tokens out")]
    cached: Annotated[
        Price | None, Meta(description="for a million tokens in that the model's cache had; null: as input")
    ] = None
    cache_written: Annotated[
        Price | None, Meta(description="for a million tokens in that its cache keeps; null: as input")
    ] = None

    @property
    def per_million(self) -> tuple[float, float, float, float]:
        """The prices as agents/common/prices.py has them."""
        read = self.input if self.cached is None else self.cached
        written = self.input if self.cache_written is None else self.cache_written
        return self.input, read, written, self.output


class Budgets(msgspec.Struct, frozen=True):
    usd_per_task: Annotated[Dollars | None, Meta(description="dollars that one task may cost; null: no limit")] = None
    usd_per_run: Annotated[Dollars | None, Meta(description="dollars that one run may cost; null: no limit")] = None
    usd_per_day: Annotated[Dollars | None, Meta(description="dollars in one UTC day; null: no limit")] = None
    tokens_per_task: Annotated[Tokens | None, Meta(description="tokens that one task may cost; null: no limit")] = None
    tokens_per_run: Annotated[Tokens | None, Meta(description="tokens that one run may cost; null: no limit")] = None
    tokens_per_day: Annotated[Tokens | None, Meta(description="tokens in one UTC day; null: no limit")] = None
    turns_per_task: Annotated[Turns | None, Meta(description="turns that one task may cost; null: no limit")] = None
    turns_per_run: Annotated[Turns | None, Meta(description="turns that one run may cost; null: no limit")] = None
    turns_per_day: Annotated[Turns | None, Meta(description="turns in one UTC day; null: no limit")] = None
    seconds_per_task: Annotated[
        Seconds | None, Meta(description="seconds at work that one task may cost; null: no limit")
    ] = None
    seconds_per_run: Annotated[
        Seconds | None, Meta(description="seconds at work that one run may cost; null: no limit")
    ] = None
    seconds_per_day: Annotated[Seconds | None, Meta(description="seconds at work in one UTC day; null: no limit")] = (
        None
    )


class Git(msgspec.Struct, frozen=True):
    author_name: Annotated[Text | None, Meta(description="author of what lands; null: git's own user.name")] = None
    author_email: Annotated[Text | None, Meta(description="its address; null: git's own user.email")] = None
    target_branch: Annotated[Text | None, Meta(description="where work lands; null: the branch checked out")] = None
    commit_message: Annotated[CommitMessage, Meta(description="agent: as it committed, else the goal")] = "agent"
    commit_template: Annotated[Text, Meta(description="for `template`: {{title}}, {{message}}, …")] = "{{title}}"


class LedgerSettings(msgspec.Struct, frozen=True):
    """Retention of `sessions.jsonl`, `metrics/` and, as `keep_runs`, the journal. An attempt's files are kept whole."""

    rotate_bytes_max: Annotated[
        Bytes, Meta(description="sessions.jsonl, or a file of metrics/, is archived at this size")
    ] = 1 << 26
    rotate_age_s_max: Annotated[Seconds | None, Meta(description="and at this age; null: never")] = None
    retain_bytes_max: Annotated[Bytes | None, Meta(description="archived files beyond this size go; null: none")] = None
    retain_age_s_max: Annotated[Seconds | None, Meta(description="archived files of this age go; null: none")] = None
    keep_runs: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="run files of the journal that `gc` leaves as they are; older: archived"),
    ] = 20


class Server(msgspec.Struct, frozen=True):
    enabled: Annotated[bool, Meta(description="false: `holdfast run` serves no API and no dashboard")] = True
    host: Annotated[Text, Meta(description="address to listen on; beyond loopback only with TLS, or when insisted")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(ge=0, le=65535, description="port to listen on; 0: the last one, or any")] = 0
    names: Annotated[
        tuple[Text, ...], Meta(max_length=ENTRIES_MAX, description="host names to answer to, beside loopback's")
    ] = ()
    tls_cert: Annotated[Text | None, Meta(description="file of the certificate; null: no TLS")] = None
    tls_key: Annotated[Text | None, Meta(description="file of its key")] = None
    plain_beyond_loopback: Annotated[
        bool, Meta(description="true: listen beyond loopback without TLS; an eavesdropper gets the token")
    ] = False
    followers_max: Annotated[int, Meta(ge=1, le=100_000, description="streams at the same time")] = 1000
    events_kept: Annotated[
        int, Meta(ge=100, le=10_000_000, description="events in memory; who falls further behind reads the journal")
    ] = 20_000
    followers_per_client_max: Annotated[
        int, Meta(ge=1, le=100_000, description="streams at the same time with one token from one address")
    ] = 100


class Audit(msgspec.Struct, frozen=True):
    key_path: Annotated[
        Text | None,
        Meta(description="file of the audit key; null: ~/.config/holdfast/audit.key, or under XDG_CONFIG_HOME"),
    ] = None


class Config(msgspec.Struct, frozen=True):
    data_root: Annotated[
        Text | None, Meta(description="folder that holds the state of many repositories; null: .sdd/ in this one")
    ] = None
    max_agents: Annotated[int, Meta(ge=1, le=1000, description="agents that work at the same time")] = 4
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
    replay_age_max_s: Annotated[
        Seconds, Meta(description="an open intent older than this is abandoned by recovery, and shown")
    ] = 3600.0
    limits: LimitSettings = LimitSettings()
    budgets: Budgets = Budgets()
    git: Git = Git()
    gates: Annotated[
        tuple[GateSettings, ...],
        Meta(max_length=ENTRIES_MAX, description="what every candidate must pass before it lands"),
    ] = ()
    agents: Annotated[
        tuple[DeclaredAgent, ...],
        Meta(max_length=ENTRIES_MAX, description="agents beside those known by name, and how those are called"),
    ] = ()
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
    ledgers: LedgerSettings = LedgerSettings()
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
        rule = MODEL_RULE if facts.get("pattern") == MODEL_PATTERN else NAME_RULE
        return rule if "pattern" in facts else f"a text of 1 to {facts['max_length']:,} characters"
    if typing.get_origin(kind) is dict and _is_struct(typing.get_args(kind)[1]):
        return f"a mapping of up to {facts['max_length']} {_elements(typing.get_args(kind)[1])}"
    if typing.get_origin(kind) is dict:
        return f"a mapping of up to {facts['max_length']} texts"
    return f"a list of up to {facts['max_length']:,} " + _elements(typing.get_args(kind)[0])


def _elements(kind: Any) -> str:
    if kind is Variable:
        return "names of variables; a star at the end stands for any ending"
    if not _is_struct(kind):
        return "texts"
    return f"{LISTS[kind]} with " + ", ".join(kind.__struct_fields__)


LISTS: dict[Any, str] = {
    GateSettings: "gates", DeclaredAgent: "agents", RouteSettings: "routes", StepSettings: "steps",
    ModelPrice: "models",
}  # fmt: skip


KEYS: dict[str, SettingKey] = {key.name: key for key in _keys(Config)}
# Of the settings that are lists or mappings of entries: the keys of one entry.
ENTRY_KEYS: dict[str, dict[str, SettingKey]] = {
    name: {key.name: key for key in _keys(kind)}
    for name, kind in zip(("gates", "agents", "routes", "cascade", "prices"), LISTS, strict=True)
}
SECTIONS: dict[str, Any] = {each.name: each.type for each in msgspec.structs.fields(Config) if _is_struct(each.type)}
VARIABLES: dict[str, str] = {key.variable: key.name for key in KEYS.values()}
