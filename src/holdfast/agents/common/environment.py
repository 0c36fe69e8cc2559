"""The variables that reach an agent: those on the list, and nothing else of the orchestrator's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast.agents.common import ask_files
from holdfast.domain.attempt_records import Launch, Order, folder_name
from holdfast.layout import Attempt

if TYPE_CHECKING:
    from holdfast.config.mcp import McpServer
    from holdfast.config.sections import DeclaredAgent

ALWAYS = (
    "PATH", "HOME", "LANG", "LC_*", "TERM", "TZ", "TMPDIR", "USER", "SHELL",
)  # fmt: skip
# What it takes to reach a model, for agents that call one.
MODELS = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR",
    "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "CODEX_HOME", "CODEX_API_KEY",
    "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GEMINI_CLI_HOME", "GOOGLE_GENAI_USE_*",
    "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_APPLICATION_CREDENTIALS",
    "OPENROUTER_API_KEY", "OPENCODE_API_KEY", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip
# What it takes to reach a cloud, where the named variable says that the model is there. Other clouds' keys stay here.
CLOUDS = {
    "CLAUDE_CODE_USE_BEDROCK": (
        "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_SKIP_BEDROCK_AUTH", "AWS_*", "ANTHROPIC_BEDROCK_BASE_URL",
        "ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_*", "ANTHROPIC_SMALL_FAST_MODEL*",
    ),
    "CLAUDE_CODE_USE_VERTEX": (
        "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_SKIP_VERTEX_AUTH", "ANTHROPIC_VERTEX_*", "CLOUD_ML_REGION",
        "VERTEX_REGION_*", "ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_*", "ANTHROPIC_SMALL_FAST_MODEL*", "CLOUDSDK_*",
    ),
    "CLAUDE_CODE_USE_FOUNDRY": ("CLAUDE_CODE_USE_FOUNDRY", "ANTHROPIC_FOUNDRY_*", "ANTHROPIC_DEFAULT_*", "AZURE_*"),
}  # fmt: skip
# The way back to the orchestrator. They differ from run to run, so they are not part of the order.
SET_BY_THE_SPAWNER = ("HOLDFAST_URL", "HOLDFAST_TOKEN")
OURS = "HOLDFAST_"


def of_agent(order: Order, files: Attempt, environ: Mapping[str, str]) -> dict[str, str]:
    own = {
        "HOLDFAST_TASK": order.task,
        "HOLDFAST_ATTEMPT": order.attempt,
        "HOLDFAST_START": str(order.start),
        "HOLDFAST_WORKTREE": order.worktree,
        "HOLDFAST_TURN": str(order.done),
        ask_files.FOLDER: str(files.asks),
    }
    if order.launch.prompt:
        own["HOLDFAST_PROMPT_FILE"] = str(files.prompt)
    if order.launch.files:
        own["HOLDFAST_FILES"] = str(files.agent)
    own |= {name: environ[name] for name in SET_BY_THE_SPAWNER if name in environ}
    places = {"{files}": str(files.agent), "{worktree}": folder_name(os.path.realpath(order.worktree))}
    given = {
        name: referred(_put_in(value, places), order.launch.references, environ)
        for name, value in order.launch.env.items()
        if not name.startswith(OURS)
    }
    clouds = (each for name, names in CLOUDS.items() if environ.get(name) for each in names)
    names = (*MODELS, *clouds, *order.passed_on) if order.launch.uses_model else order.passed_on
    return {**passed_on(names, environ), **order.variables, **given, **own}


def _put_in(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def with_settings(launch: Launch, settings: DeclaredAgent) -> Launch:
    """Adds the variables that the settings give it. Their values may be secrets, so they are not part of the order:
    the runner has them in its environment, under names of ours (`handed`)."""
    if not settings.env:
        return launch
    names = {name: _handed_name(settings, name) for name in settings.env}
    env = {**{name: f"${{{ours}}}" for name, ours in names.items()}, **launch.env}
    return msgspec.structs.replace(launch, env=env, references=(*launch.references, *names.values()))


def handed(settings: Iterable[DeclaredAgent], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a runner needs for those that the settings give to agents."""
    return {_handed_name(each, name): value for each in settings for name, value in resolved(each, environ).items()}


def resolved(settings: DeclaredAgent, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that the settings give it; `${NAME}` is replaced by our variable, or by nothing."""
    return {name: _references(value, lambda each: environ.get(each, "")) for name, value in settings.env.items()}


def unset_of_servers(servers: Iterable[McpServer], environ: Mapping[str, str]) -> str:
    """A sentence about the first variable that an MCP server needs and that is not set; empty where all are."""
    for server in servers:
        for name in server.references:
            if name not in environ:
                return (
                    f"The MCP server {server.name} needs the variable {name}, which is not set; set it, or take "
                    "the server out of config/mcp_servers.yaml."
                )
    return ""


def unset(settings: DeclaredAgent, environ: Mapping[str, str]) -> str:
    """The first variable that a value refers to and that is not set."""
    values = [value for value in settings.env.values() if "${" in value]
    if not values:
        return ""
    from holdfast.config.mcp import REFERENCE

    return next((name for value in values for name in REFERENCE.findall(value) if name not in environ), "")


def _references(value: str, found: Callable[[str], str]) -> str:
    if "${" not in value:
        return value
    from holdfast.config.mcp import REFERENCE

    return REFERENCE.sub(lambda each: found(each[1]), value)


def _handed_name(settings: DeclaredAgent, name: str) -> str:
    """Ends like the name of a secret where it refers to another variable, so that a runner redacts its value."""
    end = "_SECRET" if "${" in settings.env[name] else ""
    return f"{OURS}ENV_{settings.name.encode().hex()}_{name}{end}"


def referred(text: str, names: Iterable[str], environ: Mapping[str, str], *, is_json: bool = False) -> str:
    """Replaces `${NAME}` of each of these names by its value here, or by nothing.

    Values are not expanded again. `is_json`: the names are inside strings of a JSON text.
    """
    values = {name: environ.get(name, "") for name in names}
    if not values:
        return text
    # Slow to import, and most runners need neither.
    import json

    from holdfast.config.mcp import REFERENCE

    if is_json:
        values = {name: json.dumps(value, ensure_ascii=False)[1:-1] for name, value in values.items()}
    return REFERENCE.sub(lambda found: values.get(found[1], found[0]), text)


def passed_on(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables with these names. A trailing star matches any ending. Variables of Holdfast's own are left out."""
    wanted = (*ALWAYS, *names)
    plain = {name for name in wanted if not name.endswith("*")}
    beginnings = tuple(name[:-1] for name in wanted if name.endswith("*"))
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(OURS) and (name in plain or name.startswith(beginnings))
    }
