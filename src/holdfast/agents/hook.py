"""The barrier of an agent that calls a hook after each tool: it waits there until its turn is on disk.

The hook is a few lines of shell: it writes what it is given to `call-<pid>.json` in the folder of the agent's files,
and waits until the runner takes that file away. A hook that nobody answers ends with its agent.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.durable import disk

SCRIPT_NAME = "after-tool.sh"
SCRIPT = """\
call="$HOLDFAST_FILES/call-$$"
cat > "$call.part" && mv "$call.part" "$call.json" || exit 0
while [ -e "$call.json" ]; do sleep 0.02; done
"""
COMMAND = f'sh "$HOLDFAST_FILES/{SCRIPT_NAME}"'
# How long an agent may have to wait: a snapshot of a huge tree takes its time.
TIMEOUT_S = 3600
# How often the runner looks, while a tool is at work.
POLL_S = 0.02


def waiting(folder: Path) -> list[Path]:
    return sorted(folder.glob("call-*.json"))


def answer(call: Path) -> None:
    disk.unlink(call, missing_ok=True)
