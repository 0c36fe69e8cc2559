"""What a test must know of each CLI to run it against the model on loopback. One Kit for each; `KITS` has them all.

To add a CLI: its adapter in src/holdfast/agents/adapters, one line in agents/registry.py, and a Kit
here. The rows of the matrix in test_matrix.py are then run for it; `cannot` says why a row cannot work, by
the row's name, or why one of its tests cannot, by that one's: `test_name`, or `test_name[how]`.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kit.model_server import Call, ModelServer, Step

PAUSE_S = 12
# Far from each other, so that it is seen which of them was kept.
LONG_S = 1000


def _retry_after(reset: float) -> Step:
    return Step(status=429, headers={"retry-after": str(round(reset - time.time()))}, again=True)


@dataclass(frozen=True)
class Kit:
    """`edit(path, text)` and `shell(command)` are the calls by which the model has a file written and a command run.

    `environ(model)` reaches `holdfast run`, and by `settings` (agent_env) the CLI. `prepare(home, model)` writes the
    CLI's own files into the test's HOME. `secrets`: variables without which it is not signed in. `usd(in, out)`: what
    the tokens cost. `counts_aside`: its requests beside the work are in its own count. `mcp_tool(server, tool)`: a call
    of an MCP server's tool. `cannot_mend`: why it does not get over an answer that broke off. `ends`: the calls by
    which the model says that all is done. `keeps`: the CLI keeps its conversation, and goes on with it by itself.
    `program`: what is called, where that is not its name. `counts`: it reports its tokens "always", those of prompts
    that came to an end ("prompts"), or "never" all of them.
    `names_by_minute`: it loads no conversation within the minute, by its own clock, in which that was begun.
    `own`: rows, or tests, that are done otherwise, in a file test_NAME.py of its own. `tells_reset`: it passes on for
    how long the server wants to be left alone; for the others the settings say it. `usage_limit(reset)`: what its
    server answers when the account may use no more until then. `account`: what it is signed in with as an account that
    has such a limit, in place of `secrets`.
    """

    name: str
    edit: Callable[[Path, str], Call]
    shell: Callable[[str], Call]
    environ: Callable[[ModelServer], Mapping[str, str]]
    usd: Callable[[int, int], float]
    secrets: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[Path, ModelServer], None] = lambda home, model: None
    has_tools: bool = True
    ends: tuple[Call, ...] = ()
    keeps: bool = True
    tells_reset: bool = True
    own: tuple[str, ...] = ()
    counts_aside: bool = False
    mcp_tool: Callable[[str, str], Call] | None = None
    usage_limit: Callable[[float], Step] = lambda reset: _retry_after(reset)
    account: Mapping[str, str] = field(default_factory=dict)
    cannot_mend: str = ""
    program: str = ""
    counts: str = "always"
    names_by_minute: bool = False
    cannot: Mapping[str, str] = field(default_factory=dict)

    @property
    def command(self) -> str:
        return self.program or self.name

    @property
    def pause_s(self) -> float:
        """What the settings say."""
        return LONG_S if self.tells_reset else PAUSE_S

    @functools.cached_property
    def limit(self) -> Step:
        """A server that wants to be left alone."""
        wanted = PAUSE_S if self.tells_reset else LONG_S
        return Step(status=429, headers={"retry-after": str(wanted)}, again=True)


_NO_QUESTIONS = {"asked": "it cannot be made to ask"}


# -- Claude Code ------------------------------------------------------------------------------------------------------


def _claude_limit(reset: float) -> Step:
    """As the server answers an account whose five hours are used up."""
    claim = "anthropic-ratelimit-unified-"
    told = {"status": "rejected", "reset": f"{reset:.0f}", "representative-claim": "five_hour", "5h-status": "rejected"}
    headers = {f"{claim}{name}": value for name, value in told.items()} | {"x-should-retry": "false"}
    headers |= {f"{claim}5h-reset": f"{reset:.0f}", f"{claim}5h-utilization": "1.0"}
    headers |= {"retry-after": str(round(reset - time.time()))}
    return Step(status=429, headers=headers, error="This request would exceed your account's rate limit.", again=True)


CLAUDE = Kit(
    "claude",
    edit=lambda path, text: Call("Write", file_path=str(path), content=text),
    shell=lambda command: Call("Bash", command=command, description="a command"),
    environ=lambda model: {
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "key-of-the-test",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    },
    secrets=("ANTHROPIC_API_KEY",),
    usage_limit=_claude_limit,
    account={"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-key-of-the-test"},
    mcp_tool=lambda server, tool: Call(f"mcp__{server}__{tool}"),
    settings={"agent_env": ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"], "model": "claude-opus-4-8"},
    usd=lambda tokens_in, tokens_out: (5 * tokens_in + 25 * tokens_out) / 1e6,
)


# -- Codex ------------------------------------------------------------------------------------------------------------


def _codex_home(home: Path, model: ModelServer) -> None:
    (home / ".codex").mkdir(exist_ok=True)
    (home / ".codex" / "config.toml").write_text(
        f"""model_provider = "loopback"

[model_providers.loopback]
name = "loopback"
base_url = "{model.url}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
request_max_retries = 0
stream_max_retries = 1
"""
    )


def _patch(path: Path, text: str) -> Call:
    lines = "\n".join(f"+{line}" for line in text.splitlines())
    head = f"apply_patch <<'END'\n*** Begin Patch\n*** Add File: {path.name}\n"
    return Call("exec_command", cmd=f"{head}{lines}\n*** End Patch\nEND\n")


def _codex_limit(reset: float) -> Step:
    told = {"type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus"}
    times = {"resets_at": round(reset), "resets_in_seconds": round(reset - time.time())}
    return Step(status=429, body={"error": {**told, **times}}, again=True)


CODEX = Kit(
    "codex",
    edit=_patch,
    shell=lambda command: Call("exec_command", cmd=command),
    environ=lambda model: {"OPENAI_API_KEY": "key-of-the-test"},
    secrets=("OPENAI_API_KEY",),
    usage_limit=_codex_limit,
    mcp_tool=lambda server, tool: Call(f"mcp__{server}/{tool}"),
    settings={"model": "gpt-5.2-codex"},
    tells_reset=False,
    prepare=_codex_home,
    usd=lambda tokens_in, tokens_out: (1.75 * tokens_in + 14 * tokens_out) / 1e6,
)

# -- Gemini CLI -------------------------------------------------------------------------------------------------------


def _gemini_home(home: Path, model: ModelServer) -> None:
    (home / ".gemini").mkdir(exist_ok=True)
    auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    (home / ".gemini" / "settings.json").write_text(json.dumps(auth))


def _gemini_limit(reset: float) -> Step:
    """As the server answers an account whose capacity is used up."""
    google, seconds = "type.googleapis.com/google.rpc.", round(reset - time.time())
    info = {"reason": "QUOTA_EXHAUSTED", "domain": "cloudcode-pa.googleapis.com", "metadata": {}}
    details = [
        {"@type": f"{google}ErrorInfo", **info},
        {"@type": f"{google}RetryInfo", "retryDelay": f"{seconds}s"},
    ]
    after = f"{seconds // 3600}h{seconds % 3600 // 60}m{seconds % 60}s"
    told = f"You have exhausted your capacity on this model. Your quota will reset after {after}."
    error = {"code": 429, "message": told, "status": "RESOURCE_EXHAUSTED", "details": details}
    return Step(status=429, body={"error": error}, again=True)


GEMINI = Kit(
    "gemini",
    edit=lambda path, text: Call("write_file", file_path=str(path), content=text),
    shell=lambda command: Call("run_shell_command", command=command),
    environ=lambda model: {"GEMINI_API_KEY": "key-of-the-test", "GOOGLE_GEMINI_BASE_URL": model.url},
    secrets=("GEMINI_API_KEY",),
    usage_limit=_gemini_limit,
    mcp_tool=lambda server, tool: Call(f"mcp_{server}_{tool}"),
    settings={"model": "gemini-2.5-pro"},
    prepare=_gemini_home,
    cannot=_NO_QUESTIONS,
    usd=lambda tokens_in, tokens_out: (1.25 * tokens_in + 10 * tokens_out) / 1e6,
)


# -- opencode ---------------------------------------------------------------------------------------------------------


def _opencode_home(home: Path, model: ModelServer) -> None:
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True, exist_ok=True)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{model.url}/v1", "apiKey": "{env:OPENAI_API_KEY}"},
        "models": {"small": {"cost": {"input": 3, "output": 15}}},
    }
    (folder / "opencode.json").write_text(json.dumps({"provider": {"loopback": provider}}))


OPENCODE = Kit(
    "opencode",
    edit=lambda path, text: Call("write", filePath=str(path), content=text),
    shell=lambda command: Call("bash", command=command, description="a command"),
    environ=lambda model: {
        "OPENAI_API_KEY": "key-of-the-test",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    },
    secrets=("OPENAI_API_KEY",),
    mcp_tool=lambda server, tool: Call(f"{server}_{tool}"),
    settings={"agent_env": ["OPENCODE_DISABLE_*"], "model": "loopback/small"},
    prepare=_opencode_home,
    cannot=_NO_QUESTIONS,
    usd=lambda tokens_in, tokens_out: (3 * tokens_in + 15 * tokens_out) / 1e6,
)


# -- Aider ------------------------------------------------------------------------------------------------------------


def _litellm(model: ModelServer) -> Mapping[str, str]:
    """Its library looks for prices elsewhere, and several times, before it takes those that it has."""
    at = {"OPENAI_API_BASE": f"{model.url}/v1", "OPENAI_API_KEY": "key-of-the-test"}
    return at | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def _block(path: Path, text: str) -> Call:
    """An edit as Aider wants it: what is to be replaced (nothing: the file is new), and by what."""
    return Call("", text=f"{path.name}\n```\n<<<<<<< SEARCH\n=======\n{text}>>>>>>> REPLACE\n```\n")


def _aider_limit(reset: float) -> Step:
    minutes = round((reset - time.time()) / 60)
    return Step(status=429, error=f"Rate limit reached. Please try again in {minutes} minutes.", again=True)


AIDER = Kit(
    "aider",
    edit=_block,
    shell=lambda command: Call("", text=f"```bash\n{command}\n```"),
    environ=_litellm,
    secrets=("OPENAI_API_KEY",),
    settings={"agent_env": ["LITELLM_*"], "model": "openai/gpt-4.1"},
    usd=lambda tokens_in, tokens_out: (2 * tokens_in + 8 * tokens_out) / 1e6,
    usage_limit=_aider_limit,
    has_tools=False,
    keeps=False,
    cannot=_NO_QUESTIONS,
    tells_reset=False,
    own=(
        "lands",
        "turns",
        "spend",
        "adopted",
        "resumed",
        "woken",
        "limited",
        "suspended",
        "later",
        "told",
        "told_later",
        "sent_back",
        "test_a_refusal_is_a_failed_attempt",
    ),
)


# -- mini-swe-agent ---------------------------------------------------------------------------------------------------

MINI = Kit(
    "mini",
    edit=lambda path, text: Call("bash", command=f"cat > {path.name} <<'END'\n{text}END\n"),
    shell=lambda command: Call("bash", command=command),
    environ=_litellm,
    secrets=("OPENAI_API_KEY",),
    settings={"agent_env": ["LITELLM_*"], "model": "openai/gpt-4.1"},
    usd=lambda tokens_in, tokens_out: (2 * tokens_in + 8 * tokens_out) / 1e6,
    ends=(Call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),),
    keeps=False,
    cannot=_NO_QUESTIONS,
)

KITS = (CLAUDE, CODEX, GEMINI, OPENCODE, AIDER, MINI)

# -- agents by protocol -----------------------------------------------------------------------------------------------


def _by_protocol(kit: Kit, acp: list[str], **more: Any) -> Kit:
    """The same model and the same tools, called by the Agent Client Protocol."""
    name = f"{kit.name}-acp"
    entry = {"name": name, "acp": acp, "env": more.pop("env", {})}
    settings = {**kit.settings, "agents": [entry], **more.pop("settings", {})}
    return replace(kit, name=name, program=acp[0], settings=settings, own=(), **more)


GEMINI_ACP = _by_protocol(
    GEMINI,
    ["gemini", "--acp", "--model", "{model}"],
    counts="prompts",
    names_by_minute=True,
    cannot={
        "limited": "it waits for a short limit by itself, in silence; a long one pauses the task",
        "usage": "it falls silent when the account is used up; the time limits of the task end it",
    },
)
OPENCODE_ACP = _by_protocol(
    OPENCODE,
    ["opencode", "acp"],
    counts="never",
    tells_reset=False,
    cannot={
        "spend": "it reports the tokens of its last answer only, and no cost",
        "limited": "it retries in silence",
        "usage": "it retries in silence",
        "test_without_a_sign_in_the_task_fails_at_once": "it does not say that its model refuses a key",
        "test_a_key_that_is_refused_is_told": "it does not say that its model refuses a key",
        "test_a_malformed_answer_is_a_failed_attempt": "it asks again without end when an answer is garbage",
        **{
            f"test_an_unreachable_model_is_waited_for[{how}]": "it retries in silence when the server answers 503 or "
            "529, or resets"
            for how in ("reset", "503", "529")
        },
    },
)
CLAUDE_ACP = _by_protocol(
    CLAUDE,
    ["claude-agent-acp"],
    counts="prompts",
    tells_reset=False,
    env={"ANTHROPIC_MODEL": "claude-opus-4-8"},
    settings={"model": None},
)
PROTOCOL_KITS = (GEMINI_ACP, OPENCODE_ACP, CLAUDE_ACP)
ALL_KITS = KITS + PROTOCOL_KITS
