"""The sections and lists of the settings, and the types of their values. `config/settings.py` puts them together.

Types are read when the module is loaded, so they are not postponed: that would cost twice.
"""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.domain.definition import MODEL_PATTERN
from holdfast.domain.routing import PRIORITY_PATTERN

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
# `full` is what `skip` was called before.
Permissions = Literal["skip", "edits", "own", "ask", "full"]
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
        Permissions,
        Meta(description="of a known CLI: what it does unasked; skip: everything; own: what its own settings allow"),
    ] = "skip"
    args: Annotated[tuple[Text, ...], Meta(max_length=100, description="more arguments for a known CLI")] = ()
    env: Annotated[
        dict[str, str],
        Meta(max_length=100, description="variables for it; ${NAME} is one of who runs Holdfast"),
    ] = {}
    acp: Annotated[
        tuple[Text, ...],
        Meta(
            max_length=1000,
            description="program and arguments of an agent that speaks the Agent Client Protocol; {model}",
        ),
    ] = ()


class PermissionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    do: Annotated[
        Literal["allow", "deny", "ask", "skip", "edits", "own"],
        Meta(description="with a tool: what becomes of such a call; without: what its agent does unasked"),
    ]
    tool: Annotated[
        Text | None, Meta(description="the tool's name, as its agent calls it; * is any text; null: no rule, a mode")
    ] = None
    input: Annotated[Text, Meta(description="its command, path or address; * is any text; needs a tool")] = "*"
    role: Annotated[Text | None, Meta(description="for tasks of this role; null: any")] = None
    agent: Annotated[Name | None, Meta(description="for this agent; null: any")] = None


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


class ApprovalRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Annotated[Text | None, Meta(description="fits a task of this role; null: any")] = None
    path: Annotated[Text | None, Meta(description="fits a change of a file that this glob matches; null: any")] = None
    files: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        Meta(description="fits a change of so many files or more; null: any"),
    ] = None
    lines: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000)] | None,
        Meta(description="fits a change of so many lines or more, added and removed; null: any"),
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


class PluginSettings(msgspec.Struct, frozen=True):
    """Which of the installed plugins are used, and how long their hooks may take."""

    enabled: Annotated[
        Annotated[tuple[Name, ...], Meta(max_length=ENTRIES_MAX)] | None,
        Meta(description="installed plugins that are used; null: all"),
    ] = None
    disabled: Annotated[
        tuple[Name, ...], Meta(max_length=ENTRIES_MAX, description="installed plugins that are not used all the same")
    ] = ()
    timeout_s: Annotated[Seconds, Meta(description="a hook that takes longer has one strike for each such time")] = 30.0
    strikes_max: Annotated[
        int, Meta(ge=1, le=1000, description="calls in a row that fail or take too long; then the plugin is set aside")
    ] = 5
    settings: Annotated[
        dict[str, dict[str, Any]],
        Meta(max_length=ENTRIES_MAX, description="for each plugin by name: a mapping that it gets as it is"),
    ] = {}


class Audit(msgspec.Struct, frozen=True):
    key_path: Annotated[
        Text | None,
        Meta(description="file of the audit key; null: ~/.config/holdfast/audit.key, or under XDG_CONFIG_HOME"),
    ] = None
