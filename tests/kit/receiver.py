"""A receiver of messages that keeps what reaches it in a file, and a `holdfast` whose publishers lead there.

Called as a program it is `holdfast`, with the receiver's file as its first argument: so it can be killed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast import wiring
from holdfast.domain.messages import outbox_records
from holdfast.domain.messages.outbox_records import MessageQueued, Outgoing
from holdfast.errors import PublishFailed, PublishRefused, PublishUnclear
from holdfast.integrations.outbox.sender import queue_messages

ASKABLE, MUTE = "askable", "mute"
# Behind a failed try: the tests would wait for seconds otherwise.
PAUSE_S = 0.05


class FileReceiver:
    """A line for each message that reached it. What a message's content says under `trouble` happens in its first try,
    or in as many as `troubled_tries` says: `away`, `refuses`, `loses` the answer."""

    def __init__(self, path: Path, can_be_asked: bool = True) -> None:
        self.path, self.can_be_asked = path, can_be_asked
        self.asked: list[str] = []

    def find(self, message: Outgoing) -> dict[str, Any] | None:
        self.asked.append(message.key)
        return {"at": "receiver"} if received(self.path)[message.key] else None

    def send(self, message: Outgoing) -> dict[str, Any]:
        is_troubled = message.tries <= message.content.get("troubled_tries", 1)
        trouble = message.content.get("trouble", "") if is_troubled else ""
        if trouble == "away":
            raise PublishFailed(key=message.key, reason="nobody is there")
        if trouble == "refuses":
            raise PublishRefused(key=message.key, reason="not allowed")
        with self.path.open("a") as file:
            file.write(f"{message.key}\n")
        if trouble == "loses":
            raise PublishUnclear(key=message.key, reason="the line was cut")
        return {"at": "receiver"}


def received(path: Path) -> Counter[str]:
    return Counter(path.read_text().splitlines() if path.exists() else [])


def publishers(path: Path) -> dict[str, FileReceiver]:
    return {ASKABLE: FileReceiver(path), MUTE: FileReceiver(path, can_be_asked=False)}


def queue(context: Any, *keys: str, channel: str = ASKABLE, after: Mapping[str, str] = {}, **content: Any) -> list[str]:
    made = [
        MessageQueued(idempotency_key=key, channel=channel, after=after.get(key, ""), content=content) for key in keys
    ]
    return queue_messages(context.ledger, made)


if __name__ == "__main__":
    from holdfast.cli.main import main

    at = Path(sys.argv.pop(1))
    outbox_records.PAUSE_S = PAUSE_S
    wiring.build_publishers = lambda *_: publishers(at)  # type: ignore[assignment,return-value]
    sys.exit(main())
