"""Tools where no run lives: each is the command that does the same, which reads files or makes a short run.

The answer is what the command prints with `--json`. A tool that is not in the table needs a server.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.mcp.tools import Tool, ToolAnswer

NEEDS_SERVER = (
    "No run lives here, and {tool} needs one. Nothing was changed. Type `holdfast serve`, which starts no agents, or "
    "`holdfast run`, in {repo}, and call it again."
)


class CommandLine(msgspec.Struct, frozen=True):
    """`options` stand before `--`, behind which nothing is taken for an option."""

    name: str
    options: Sequence[str] = ()
    words: Sequence[str] = ()
    stdin: bytes = b""


def _option(name: str, value: Any) -> list[str]:
    # In one word: a value may begin with a dash.
    return [f"--{name}={value}"] if value not in (None, "", False) else []


def _listed(given: Mapping[str, Any]) -> CommandLine | None:
    if given.keys() - {"state", "label"}:
        return None
    states = given.get("state") or []
    labels = _option("label", given.get("label"))
    return CommandLine("list", [*(each for state in states for each in _option("state", state)), *labels, "--all"])


def _answered(given: Mapping[str, Any]) -> CommandLine:
    words = given.get("words", "")
    kinds = {"allow": ["--always" if given.get("always") else "--allow"], "deny": [f"--deny={words}"]}
    options = kinds.get(str(given.get("answer")), [f"--say={words}"])
    return CommandLine("answer", options, [str(given.get("question"))])


def _of_task(name: str, *options: str) -> Callable[[Mapping[str, Any]], CommandLine]:
    def line(given: Mapping[str, Any]) -> CommandLine:
        found = [part for option in options for part in _option(option, given.get(option))]
        return CommandLine(name, found, [str(given.get("task"))])

    return line


COMMAND_LINES: dict[str, Callable[[Mapping[str, Any]], CommandLine | None]] = {
    "status": lambda given: CommandLine("status"),
    "list_tasks": _listed,
    "show_task": _of_task("show"),
    "task_history": _of_task("history"),
    "show_change": _of_task("diff"),
    "show_review": lambda given: None if given.keys() - {"task"} else CommandLine("review", (), [str(given["task"])]),
    "questions": lambda given: CommandLine("questions"),
    "add_task": lambda given: CommandLine("add", (), ["-"], msgspec.yaml.encode(given)),
    "answer_task": _answered,
    "approve_task": _of_task("approve"),
    "reject_task": _of_task("reject", "reason"),
    "retry_task": _of_task("retry", "reason", "message"),
    "resume_task": _of_task("resume", "message"),
    "cancel_task": _of_task("cancel"),
    "tell_task": lambda given: CommandLine("tell", (), [str(given.get("task")), str(given.get("message"))]),
}


def call(tool: Tool, arguments: Mapping[str, Any], repo: Path, data_root: str | None) -> ToolAnswer:
    """The command's answer. A call that it cannot make is refused with what to type."""
    given = {name: value for name, value in arguments.items() if name != "key"}
    made = COMMAND_LINES[tool.name](given) if tool.name in COMMAND_LINES else None
    if made is None:
        return ToolAnswer(NEEDS_SERVER.format(tool=tool.name, repo=repo), is_error=True)
    root = ["--data-root", data_root] if data_root else []
    argv = [sys.executable, "-m", "holdfast", *root, made.name, "--json", *made.options, "--", *made.words]
    done = subprocess.run(argv, cwd=repo, input=made.stdin, capture_output=True, check=False)
    if done.returncode == 0:
        return ToolAnswer(done.stdout.decode(errors="replace") or "{}")
    return ToolAnswer(_sentence(done.stdout or done.stderr), is_error=True)


def _sentence(printed: bytes) -> str:
    """The sentence of an error, which is a JSON object where a command was asked for JSON."""
    try:
        return str(msgspec.json.decode(printed)["error"]["message"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return printed.decode(errors="replace").strip()[-4000:] or "The command failed, and did not say why."
