"""Says in the tracker what became of a task: a comment, labels, the issue closed, each a message of the outbox.

A follower of the journal queues them for each task that came from an issue and was closed, or has failed for good.
Their keys are made of the entry's hash, so that nobody can know one beforehand, and a second look at the same entry
queues nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.config.trackers import SourceSettings
from holdfast.crashpoints import point
from holdfast.domain.definition import Definition, parse
from holdfast.domain.issues.issue_records import Origin, is_task_of
from holdfast.domain.messages.outbox_records import MessageQueued
from holdfast.engine.context import RunContext
from holdfast.errors import BlobCorrupt, BlobMissing
from holdfast.integrations.outbox.sender import queue_messages
from holdfast.observers.journal_follower import JournalFollower
from holdfast.storage.journal.entry import Entry
from holdfast.storage.records.redact import without_secrets

FOLLOWER = "issue_results"
COMMENT, LABELS, CLOSE = "issue_comment", "issue_labels", "issue_close"
WRITE_BACK_POINTS = ("write_back.queued",)
DETAIL_CHARS_MAX = 4000
KEY_CHARS = 20


def results_follower(context: RunContext) -> JournalFollower:
    def say(line: str) -> None:
        context.note("", line)

    def handle(run: str, entry: Entry) -> None:
        if messages := messages_of(context, entry):
            queue_messages(context.ledger, messages)
            point("write_back.queued")

    return JournalFollower.on_file(FOLLOWER, handle, layout=context.layout, ledger=context.ledger, say=say)


def messages_of(context: RunContext, entry: Entry) -> list[MessageQueued]:
    """The messages that an entry asks for; none for nearly all."""
    kind, inputs = entry.decision_type, entry.inputs
    if kind not in ("task_closed", "task_failed") or (kind == "task_failed" and inputs.get("again")):
        return []
    name = inputs["task"]
    sources = {each.name: each for each in context.config.sources}
    source = sources.get(name.partition("-")[0])
    origin = _origin(context, name) if source is not None else None
    if source is None or origin is None or origin.source != source.name or not is_task_of(name, origin):
        return []
    return made_for(source, origin, entry)


def made_for(source: SourceSettings, origin: Origin, entry: Entry) -> list[MessageQueued]:
    task, kind, inputs = entry.inputs["task"], entry.decision_type, entry.inputs
    has_landed = kind == "task_closed"
    wanted: list[tuple[str, dict[str, Any]]] = []
    if source.comment:
        wanted.append((COMMENT, {"text": words_of(task, kind, inputs)}))
    add = source.labels_closed if has_landed else source.labels_failed
    if add or source.labels_off:
        wanted.append((LABELS, {"add": list(add), "remove": [each for each in source.labels_off if each not in add]}))
    if source.close and has_landed:
        wanted.append((CLOSE, {}))
    messages: list[MessageQueued] = []
    for channel, content in wanted:
        key = f"{channel}:{task}:{entry.entry_hash[:KEY_CHARS]}"
        # In order: an issue is not closed before it says why.
        after = messages[-1].idempotency_key if messages else ""
        about = {"source": source.name, "number": origin.number, **content}
        messages.append(MessageQueued(idempotency_key=key, channel=channel, task=task, after=after, content=about))
    return messages


def words_of(task: str, kind: str, inputs: Mapping[str, Any]) -> str:
    """The comment. What an agent or a program said is quoted, without what looks like a secret."""
    outcome = inputs.get("outcome") or {}
    detail = without_secrets(str(outcome.get("detail") or ""))[:DETAIL_CHARS_MAX].strip()
    quoted = "\n".join(f"> {line}".rstrip() for line in detail.split("\n")) if detail else ""
    if kind == "task_failed":
        head = f"The task `{task}` has failed, and is not tried again by itself."
        return f"{head}\n\n{quoted}".strip()
    if commit := outcome.get("commit"):
        branch = str(outcome.get("branch") or "").removeprefix("refs/heads/")
        head = f"Done: landed{f' on `{branch}`' if branch else ''} as {commit} (task `{task}`)."
    else:
        head = f"Done (task `{task}`), with nothing to land."
    if pull := outcome.get("pull_request"):
        head += f"\n\nPull request: {pull}"
    return f"{head}\n\n{quoted}".strip() if quoted and outcome.get("kind") == "answer" else head


def _origin(context: RunContext, name: str) -> Origin | None:
    """From the definition that was worked on, which nobody can have changed since."""
    task = context.ledger.state.tasks.get(name)
    if task is None:
        return None
    try:
        made = parse(context.blobs.get(task.attempt.worked_on or task.definition), name)
    except (BlobMissing, BlobCorrupt):
        return None
    return made.origin if isinstance(made, Definition) else None


class IssueMessage(msgspec.Struct, frozen=True):
    """The content of every message to an issue; `text` of a comment, `add` and `remove` of labels."""

    source: str
    number: str
    text: str = ""
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
