"""Hands a verified commit over to its pull request: the messages of the outbox, and the wait for what comes of it.

All keys follow from the task and the commit, so that doing it again after a kill queues nothing twice. The messages
come first: where a kill leaves a part of them, the task is still DONE, and the rest follows.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.config.pull_requests import PullRequestSettings
from holdfast.domain.definition import Definition
from holdfast.domain.fsm import Reason
from holdfast.domain.messages.outbox_records import MessageQueued
from holdfast.domain.pull_requests.pull_records import PULL_REQUEST, PullRequest, PullRequestPublished
from holdfast.domain.task import TaskEvent
from holdfast.domain.task_record import Task
from holdfast.engine.context import RunContext
from holdfast.errors import HoldfastError
from holdfast.integrations.outbox.sender import queue_messages
from holdfast.integrations.pull_requests import body
from holdfast.integrations.pull_requests.remote import GitRemote
from holdfast.landing import gate_results
from holdfast.storage.journal import root_place
from holdfast.storage.journal.entry import Record
from holdfast.storage.records.redact import without_secrets

PUSH, PULL, REPLY, STEER = "push", "pull_request", "pull_request_reply", "pull_request_steer"
# What a runner says where the agent ended without words of its own.
_WITHOUT_WORDS = ("", "The agent has finished.", "The command has finished.")


class LandingByPullRequest:
    """Implements `engine/context.py:PullLanding`."""

    def __init__(self, remote: GitRemote, settings: PullRequestSettings) -> None:
        self.remote, self._settings = remote, settings

    def is_for(self, context: RunContext, task: Task) -> bool:
        made = context.board.worked_on(task)
        return (made.land or context.config.land) == "pull_request"

    def base(self, context: RunContext) -> str:
        return self._settings.base or context.branch.removeprefix("refs/heads/")

    def base_ref(self, context: RunContext, task: Task) -> str:
        base = task.pull.base if task.pull is not None and task.pull.base else self.base(context)
        return self.remote.base_ref(base)

    def target(self, context: RunContext, task: Task) -> str:
        """The newest base. Without the network it is the one that was fetched last; empty where there is none."""
        base = self.base(context)
        try:
            return self.remote.fetch_base(base)
        except HoldfastError as error:
            context.note(task.id, f"the newest {base} could not be fetched: {error}")
            return self.remote.known_base(base)

    def publish(self, context: RunContext, task: Task) -> None:
        """Queues what there is to send, and lets the task wait."""
        made, pull = context.board.worked_on(task), task.pull or PullRequest()
        branch, base = f"{self._settings.branch_prefix}{task.id}", self.base(context)
        head = self._head(context, task, pull)
        messages = self._messages(context, task, made, pull, branch=branch, base=base, head=head)
        entry = PullRequestPublished(task=task.id, attempt=task.attempt.id, branch=branch, base=base, head=head)
        with context.ledger.together():
            queue_messages(context.ledger, messages)
            context.append(Record("pull_request_published", msgspec.to_builtins(entry), actor="loop"))
        self.wait(context, task)

    def wait(self, context: RunContext, task: Task) -> None:
        pull = task.pull
        assert pull is not None
        way = f"from {pull.branch} into {pull.base}"
        told = {"kind": PULL_REQUEST, "detail": f"it lands by pull request {way}", "attempt": task.attempt.id}
        told |= {"branch": pull.branch} | ({"url": pull.url} if pull.url else {})
        asked = (task, TaskEvent.APPROVAL_REQUESTED, Reason.PULL_REQUEST)
        context.move(*asked, agent=task.claim.agent, outcome=told)
        context.note(task.id, f"waits for its pull request {way}: `holdfast pr {task.id}`")

    def _head(self, context: RunContext, task: Task, pull: PullRequest) -> str:
        """The commit to push; the one that is there already where nothing of it has changed."""
        verified = task.landing.verified
        if not pull.head:
            return verified
        seen = context.worktrees.store.seen
        asked = [f"{name}{part}" for name in (pull.head, verified) for part in ("^{tree}", "^")]
        found = seen.run("rev-parse", *asked, codes=(0, 128))
        old = found.line.split() if not found.code else []
        return pull.head if len(old) == 4 and old[:2] == old[2:] else verified

    def _messages(
        self,
        context: RunContext,
        task: Task,
        made: Definition,
        pull: PullRequest,
        *,
        branch: str,
        base: str,
        head: str,
    ) -> list[MessageQueued]:
        # One that was closed is not opened again: another takes its place.
        again = f":after-{pull.number}" if pull.state == "closed" else ""
        push, opened = f"push:{task.id}:{head}", f"pr:{task.id}:{head}{again}"
        root = root_place.id_of(context.layout) or "root"
        mark, head_mark = body.mark(f"{root}/{task.id}"), body.mark(f"{opened}")
        text = body.pull_body(
            made, task.id, task.attempt.id, self._gates(context, task), task.spent, pull.rounds,
            marks=f"{mark}\n{head_mark}",
        )  # fmt: skip
        settings = self._settings
        content: dict[str, Any] = {
            "branch": branch,
            "base": base,
            "head": head,
            "title": without_secrets(body.pull_title(task.id, made)),
            "body": without_secrets(text),
            "mark": mark,
            "head_mark": head_mark,
            "closed": pull.number if again else 0,
            "draft": settings.draft,
            "labels": list(settings.labels),
            "reviewers": list(settings.reviewers),
        }
        ours = [each for each in pull.heads if each != head]
        pushed = {"branch": branch, "head": head, "known": task.landing.verified_on, "ours": ours}
        messages = [
            MessageQueued(idempotency_key=push, channel=PUSH, task=task.id, content=pushed),
            MessageQueued(idempotency_key=opened, channel=PULL, task=task.id, after=push, content=content),
        ]
        words = str(task.outcome.get("detail", "")).strip()
        said = "" if words in _WITHOUT_WORDS else without_secrets(words)
        for comment in pull.answering:
            key = f"reply:{task.id}:{comment}"
            told = {"number": pull.number, "comment": comment, "key": key}
            told["text"] = body.reply_text(head, pull.head, said, key)
            messages.append(MessageQueued(idempotency_key=key, channel=REPLY, task=task.id, after=opened, content=told))
        return messages

    def _gates(self, context: RunContext, task: Task) -> list[body.GateLine]:
        verdict = gate_results.verdict_of(context.layout, task.attempt.id)
        if verdict is None or verdict.merged != task.landing.verified:
            return []
        return [body.GateLine(each.name, each.outcome, each.seconds) for each in verdict.results]
