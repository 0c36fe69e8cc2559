"""What schemathesis does not find in the document: which tasks, attempts, blobs and claims there are, and the token.

Most ids that it makes up are replaced by such that exist, because what is unknown is refused at once. It runs in a
venv of its own, without Holdfast.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import schemathesis

KNOWN: dict[str, list[str]] = json.loads(os.environ["HOLDFAST_API_KNOWN"])
ADDRESS = Path(os.environ["HOLDFAST_API_ADDRESS"])
STRANGE_SHARE = 5
IN_BODIES = {"claim": "claim", "parent": "task", "forked_from": "task"}
# `claim` tokens name their attempt, and that its task.
TASK_OF = {
    claim: {"task": claim.partition("/")[0].rpartition(".")[0], "attempt": claim.partition("/")[0]}
    for claim in KNOWN["claim"]
}


def known(kind: str, made_up: Any) -> Any:
    """One that exists, chosen by what was made up; now and then that itself."""
    number = zlib.crc32(repr(made_up).encode())
    return made_up if number % STRANGE_SHARE == 0 else KNOWN[kind][number // STRANGE_SHARE % len(KNOWN[kind])]


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    if isinstance(case.path_parameters, dict):
        case.path_parameters = {
            name: known(name, value) if name in KNOWN else value for name, value in case.path_parameters.items()
        }
    if isinstance(case.query, dict) and "follow" in case.query:
        # A stream has no end to wait for: those have tests of their own.
        case.query["follow"] = "false"
    if isinstance(case.body, dict):
        for name, kind in IN_BODIES.items():
            if isinstance(case.body.get(name), str):
                case.body[name] = known(kind, case.body[name])
        if isinstance(case.body.get("on"), list):
            case.body["on"] = [known("task", each) for each in case.body["on"]]
        claim = case.body.get("claim")
        if isinstance(claim, str) and isinstance(case.path_parameters, dict):
            # A claim is one task's: with another's it would be refused.
            own = TASK_OF.get(claim, {})
            case.path_parameters = {name: own.get(name, value) for name, value in case.path_parameters.items()}


@schemathesis.auth(refresh_interval=None)
class Token:
    """Read each time: one of the operations makes all tokens worthless, and the file has the new one."""

    def get(self, case: Any, context: Any) -> str:
        return str(json.loads(ADDRESS.read_bytes())["token"])

    def set(self, case: Any, data: str, context: Any) -> None:
        case.headers["Authorization"] = f"Bearer {data}"
