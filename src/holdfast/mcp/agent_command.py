"""`holdfast-agent`: the tools of an agent at work as a command, for agents that take no MCP servers.

It asks the server that its environment names, for its own task only; `ask` goes by files, and needs no network. It is
small, because an agent may call it often: neither the API nor the SDK is imported.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from holdfast.errors import HoldfastError, InputError
from holdfast.mcp import http_client

# EX_TEMPFAIL and EX_UNAVAILABLE of sysexits.h: there is no answer yet; there is nobody to ask.
NOT_YET, UNAVAILABLE, REFUSED = 75, 69, 1
LOOK_S = 0.2
TRIES_MAX = 2
_EPILOG = """\
examples:
  holdfast-agent progress 'The parser is done; next are its tests.' --percent 50
  holdfast-agent ask 'Which of the two formats is the right one?'
  holdfast-agent split 'Write the parser' 'Write the printer'
  holdfast-agent block fix-login --reason 'Its table is needed first.'"""


def main(arguments: Sequence[str] | None = None) -> None:
    given = _parser().parse_args(arguments)
    try:
        code, told, facts = given.does(given)
    except HoldfastError as error:
        code, told, facts = (
            error.exit_code,
            str(error),
            {"error": {"message": str(error), "exit_code": error.exit_code}},
        )
    if given.as_json:
        sys.stdout.write(msgspec.json.encode(facts).decode() + "\n")
    else:
        (sys.stderr if code else sys.stdout).write(f"{told}\n")
    sys.exit(code)


def _parser() -> argparse.ArgumentParser:
    about = "For an agent that Holdfast has started: say how the task goes, ask a person, split it, or block it."
    parser = argparse.ArgumentParser(
        "holdfast-agent", description=about, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="progress|ask|split|block")
    progress = commands.add_parser("progress", help="say how it goes, for the person who watches")
    progress.add_argument("message")
    progress.add_argument("--percent", type=float, help="how much is done, 0 to 100")
    ask = commands.add_parser("ask", help="ask a person, and print the answer; 75: call it again to wait on")
    ask.add_argument("question")
    ask.add_argument("--wait", type=float, default=100.0, metavar="SECONDS", help="how long to wait now (100)")
    split = commands.add_parser("split", help="divide the task into subtasks; this attempt ends, and waits for them")
    split.add_argument(
        "goals", nargs="+", metavar="GOAL", help="what a subtask is to do; -: a JSON list of tasks on stdin"
    )
    block = commands.add_parser("block", help="say that other tasks come first; this attempt ends, and waits for them")
    block.add_argument("tasks", nargs="+", metavar="TASK")
    block.add_argument("--reason", default="", help="why")
    for each, does in ((progress, _progress), (ask, _ask), (split, _split), (block, _block)):
        each.add_argument("--json", dest="as_json", action="store_true", help="print JSON, for programs")
        each.set_defaults(does=does)
    return parser


Result = tuple[int, str, dict[str, Any]]


def _progress(given: argparse.Namespace) -> Result:
    body = {"message": given.message, **({"percent": given.percent} if given.percent is not None else {})}
    return _post("progress", body, "It is noted.")


def _split(given: argparse.Namespace) -> Result:
    tasks: Any = [{"goal": goal} for goal in given.goals]
    if given.goals == ["-"]:
        try:
            tasks = msgspec.json.decode(sys.stdin.buffer.read())
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(detail=f"standard input is no JSON: {error}") from None
    return _post("split", {"tasks": tasks}, "The task is split; this attempt ends now, and waits for its subtasks.")


def _block(given: argparse.Namespace) -> Result:
    body = {"on": given.tasks, "reason": given.reason}
    return _post("block", body, "The task waits for what comes first; this attempt ends now.")


def _ask(given: argparse.Namespace) -> Result:
    from holdfast.agents.common import ask_files
    from holdfast.clock import monotonic
    from holdfast.questions.records import WORDS_CHARS_MAX

    folder = os.environ.get(ask_files.FOLDER, "")
    if not folder or not Path(folder).is_dir():
        raise InputError(detail="only an agent that Holdfast has started can ask; a person types `holdfast answer`")
    if not given.question.strip() or len(given.question) > WORDS_CHARS_MAX:
        raise InputError(detail=f"a question has 1 to {WORDS_CHARS_MAX:,} characters")
    path, deadline = ask_files.put(Path(folder), given.question), monotonic() + given.wait
    while (found := ask_files.take_answer(path)) is None and monotonic() < deadline:
        time.sleep(LOOK_S)
    if found is None:
        told = "Nobody has answered yet. The question waits: call the same again, or do something else meanwhile."
        return NOT_YET, told, {"answer": "", "words": ""}
    return 0 if found.decision == "say" else REFUSED, found.words, {"answer": found.decision, "words": found.words}


def _post(verb: str, body: dict[str, Any], done: str) -> Result:
    """Asks under one key: where the answer was lost on the way, it is asked once more, and happens once."""
    url, token, task = (os.environ.get(f"HOLDFAST_{name}", "") for name in ("URL", "TOKEN", "TASK"))
    if not (url and token and task):
        raise InputError(detail="HOLDFAST_URL, HOLDFAST_TOKEN and HOLDFAST_TASK are not set: only an agent has them")
    headers = {"content-type": "application/json", "idempotency-key": secrets.token_hex(16)}
    content, target = msgspec.json.encode(body), f"/tasks/{quote(task, safe='')}/{verb}"
    for number in range(TRIES_MAX):
        try:
            status, answer = http_client.send(url, token, "POST", target, content=content, headers=headers)
            break
        except http_client.Unreachable as error:
            if number + 1 < TRIES_MAX:
                continue
            told = (
                f"Holdfast cannot be reached at {url}: {error}. Whether `{verb}` was done is not known; go on working."
            )
            return UNAVAILABLE, told, {"error": {"message": told, "exit_code": UNAVAILABLE}}
    try:
        facts = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        facts = {"detail": f"Holdfast answered with status {status}."}
    if status < 400:
        return 0, done, facts
    told = str(facts.get("detail", ""))
    return REFUSED, told, {"error": {"message": told, "code": facts.get("code", ""), "exit_code": REFUSED}}


if __name__ == "__main__":
    main()
