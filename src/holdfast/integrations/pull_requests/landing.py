"""Hands a verified commit over to its pull request: the messages of the outbox, and the wait for what comes of it.

All keys follow from the task and the commit, so that doing it again after a kill queues nothing twice. The messages
come first: where a kill leaves a part of them, the task is still DONE, and the rest follows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.config.pull_requests import PullRequestSettings
from holdfast.domain.definition import Definition
from holdfast.domain.effect_entries import LandIntended
from holdfast.domain.fsm import Reason
from holdfast.domain.messages.outbox_records import MessageQueued
from holdfast.domain.pull_requests.pull_records import PULL_KEY, PULL_REQUEST, PullRequest, PullRequestPublished
from holdfast.domain.task import TaskEvent
from holdfast.domain.task_record import Task
from holdfast.engine.context import RunContext
from holdfast.engine.effects import acknowledge
from holdfast.errors import HoldfastError, LandingLost, LandingWaits
from holdfast.git import command as git
from holdfast.integrations.outbox.sender import queue_messages
from holdfast.integrations.pull_requests import body
from holdfast.integrations.pull_requests.remote import GitRemote
from holdfast.landing import gate_results
from holdfast.landing.branch import reaches
from holdfast.storage.journal import root_place
from holdfast.storage.journal.entry import Record
from holdfast.storage.records.redact import without_secrets
from holdfast.worktrees import merges

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

    # -- once it is merged --------------------------------------------------------------------------------------------

    def take_merged(self, context: RunContext, task: Task, land: Callable[..., list[str]]) -> list[str] | None:
        """Journals the landing of a task whose pull request was merged; returns what was left as the user has it.

        The branch here follows, by `land`, where it only has to move on. Where it has commits of its own, or a person
        has changed the same files in a checkout, it stays, and the landing is that on the base at the remote.
        """
        pull, branch, repo = task.pull, context.branch, context.repo
        assert pull is not None
        commit = pull.merged
        if pull.base == branch.removeprefix("refs/heads/"):
            at = merges.newest(repo, branch)
            if not reaches(repo, branch, commit) and reaches(repo, commit, at):
                with contextlib.suppress(LandingLost, LandingWaits):
                    return land(context, task, branch, is_noted=False, old=at, new=commit)
        # A person may have pulled it meanwhile, and then has the files, too.
        context.append(context.flagged(task, parked=task.parked, happened=["refresh"]))
        where = branch if reaches(repo, branch, commit) else self.base_ref(context, task)
        asked = ("rev-parse", "--verify", "--quiet", f"{commit}^")
        old = git.discover(repo).run(*asked, codes=(0, 1, 128)).line or "0" * len(commit)
        if not acknowledge(context, LandIntended(task.id, task.attempt.id, where, old, commit)):
            raise LandingLost(task=task.id, branch=where, old=old, found="does not lead to it")
        if where != branch:
            short = branch.removeprefix("refs/heads/")
            context.note(task.id, f"merged as {commit[:12]}; {short} here could not follow: `git pull` brings it there")
        return None

    def begin_ref(self, context: RunContext, task: Task) -> str:
        """The base at the remote, where an attempt is to begin with that: it has what the branch here has not."""
        base = self.base(context)
        known = self.remote.known_base(base) if self.is_for(context, task) else ""
        return self.remote.base_ref(base) if known and not reaches(context.repo, context.branch, known) else ""

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
        push, opened = f"push:{task.id}:{head}", f"{PULL_KEY}{task.id}:{head}{again}"
        root = root_place.id_of(context.layout) or "root"
        mark, head_mark = body.mark(f"{root}/{task.id}"), body.mark(f"{opened}")
        text = body.pull_body(
            made, task, self._gates(context, task), round_number=pull.rounds, marks=f"{mark}\n{head_mark}"
        )
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
