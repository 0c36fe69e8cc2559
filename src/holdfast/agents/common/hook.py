"""The barrier of an agent that calls a hook before or after each tool: it waits there until its turn is on disk, or
until it is decided whether it may make the call.

The hook is a few lines of shell: it writes its input to `call-<pid>.json` in the folder of the agent's files, and waits
until the runner removes that file. Then it prints the answer, where there is one: `call-<pid>.out`, by which a person's
message reaches the agent, and the decision about a call. A hook that is never answered ends with its agent.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.storage.files import disk, plain

SCRIPT_NAME = "after-tool.sh"
SCRIPT = """\
call="$HOLDFAST_FILES/call-$$"
cat > "$call.part" && mv "$call.part" "$call.json" || exit 0
while [ -e "$call.json" ]; do sleep 0.02; done
if [ -e "$call.out" ]; then cat "$call.out"; rm -f "$call.out"; fi
"""
COMMAND = f'sh "$HOLDFAST_FILES/{SCRIPT_NAME}"'
# How long an agent may have to wait: a snapshot of a huge tree takes a while.
TIMEOUT_S = 3600
# More than any tool's output.
CALL_BYTES_MAX = 8 << 20
# How often the runner looks for calls while a tool runs.
POLL_S = 0.02


def waiting(folder: Path) -> list[Path]:
    """The calls. Ignores folders of such a name: nothing is removed below one while its agent lives."""
    return sorted(path for path in folder.glob("call-*.json") if path.is_symlink() or not path.is_dir())


def input_of(call: Path) -> bytes:
    """The hook's input; empty where the agent has put something else in its place, or far too much."""
    try:
        return plain.read(call, CALL_BYTES_MAX)
    except OSError:
        return b""


def answer(call: Path, text: str = "") -> None:
    """Lets its agent continue, unless it has put a folder in the call's place meanwhile. `text` is what it prints."""
    with contextlib.suppress(HoldfastError):
        if text:
            disk.replace(call.with_suffix(".out"), text.encode(), 0o600)
        disk.unlink(call, missing_ok=True)
