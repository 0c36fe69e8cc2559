"""Looks at open pull requests, and carries out what follows from what it saw.

`look` asks the service, in a thread of its own, and changes nothing but our own ref of the base. `apply` runs in the
loop's thread: it journals what is new, and then does what is due, also what an earlier run had found due. So it makes
no difference how long nobody looked, nor who told that there is something to see.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.config.pull_requests import PullRequestSettings
from holdfast.domain.fsm import Reason
from holdfast.domain.messages.outbox_records import MessageQueued, Outgoing
from holdfast.domain.pull_requests.pull_decisions import PullStep, PullView, step, wants_logs
from holdfast.domain.pull_requests.pull_records import PULL_REQUEST, PullRequest
from holdfast.domain.task import AT_WORK, OVER, TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.domain.wording import plural
from holdfast.engine.context import RunContext
from holdfast.errors import HoldfastError, ServiceAway, is_fatal
from holdfast.git import command as git
from holdfast.integrations.outbox.sender import queue_messages
from holdfast.integrations.pull_requests.forge import Forge
from holdfast.integrations.pull_requests.landing import PULL, PUSH, STEER, LandingByPullRequest
from holdfast.landing.branch import find_rewritten, reaches
from holdfast.storage.journal.entry import Record
from holdfast.storage.records.redact import without_secrets

LOGS_MAX = 3
# The name of the job, by which it is poked.
POLL = "pull requests"
# How every sentence begins with which a task waits for a person because of its pull request.
PARKED = "Its pull request "


class Looked(msgspec.Struct, frozen=True):
    """What a look at the pull request of one task gave."""

    task: str
    view: PullView | None = None
    error: str = ""


class PullRequestPoll:
    """`only`: the tasks to look at; None: all that have an open pull request."""

    def __init__(
        self, context: RunContext, landing: LandingByPullRequest, forge: Callable[[], Forge],
        settings: PullRequestSettings,
    ) -> None:  # fmt: skip
        self._context, self._landing, self._forge, self._settings = context, landing, forge, settings
        self._told: dict[str, str] = {}

    # -- asking, in a thread of its own -------------------------------------------------------------------------------

    def look(self, only: Collection[str] | None = None) -> list[Looked]:
        state = self._context.ledger.state
        outbox, tasks = state.outbox.copy(), state.tasks.copy()
        found = [task for task in tasks.values() if is_followed(task, outbox) and (only is None or task.id in only)]
        return [self._look_at(task) for task in found]

    def _look_at(self, task: Task) -> Looked:
        pull = task.pull
        assert pull is not None
        try:
            forge = self._forge()
            view = forge.view(pull.number, is_whole=is_waiting(task))
            return Looked(task.id, self._completed(forge, task, pull, view))
        except HoldfastError as error:
            if is_fatal(error):
                raise
            return Looked(task.id, error=str(error))

    def _completed(self, forge: Forge, task: Task, pull: PullRequest, view: PullView) -> PullView:
        """With the base as it is now, the logs of failed checks, and the commit that a merge really came to."""
        if wants_logs(pull, view):
            failed = view.failed
            logs = {each.name: forge.log(each) for each in failed[:LOGS_MAX]}
            view = replace(view, checks=tuple(replace(each, log=logs.get(each.name, "")) for each in view.checks))
        is_stale = view.is_mergeable is False or view.is_behind or self._settings.update == "always"
        if view.state == "open" and not is_stale:
            return view
        base_at = self._landing.remote.fetch_base(pull.base)
        view = replace(view, base_at=base_at)
        ref = self._landing.remote.base_ref(pull.base)
        if view.state == "merged" and view.merged and reaches(self._context.repo, ref, view.merged):
            return view
        if view.state != "open" and (commit := self._merged_elsewhere(task, pull)):
            return replace(view, state="merged", merged=commit)
        if view.state == "merged":
            asked = f"git fetch {self._landing.remote.base_name}"
            reason = f"the pull request #{view.number} is merged, and {pull.base} does not have it yet"
            raise ServiceAway(service="The git remote", asked=asked, reason=reason)
        return view

    def _merged_elsewhere(self, task: Task, pull: PullRequest) -> str:
        """The commit of the base that has the work of a pull request which was closed: a person may have squashed it by
        hand."""
        repository, ref = git.discover(self._context.repo), self._landing.remote.base_ref(pull.base)
        for head in reversed(pull.heads):
            if commit := find_rewritten(repository, ref, head, task.id, task.attempt.id)[0]:
                return commit
        return ""

    # -- deciding, in the loop's thread -------------------------------------------------------------------------------

    def apply(self, looked: Sequence[Looked]) -> list[str]:
        changed = [each.task for each in looked if self._note(each)]
        tasks = self._context.ledger.state.tasks
        due = [task for task in list(tasks.values()) if task.pull is not None and task.pull.due]
        return [*changed, *(task.id for task in due if self._carry_out(task))]

    def _note(self, looked: Looked) -> bool:
        """Journals what is new."""
        context, task = self._context, self._context.ledger.state.tasks[looked.task]
        if looked.error or looked.view is None:
            if looked.error and self._told.get(task.id) != looked.error:
                self._told[task.id] = looked.error
                context.note(task.id, looked.error)
            return False
        self._told.pop(task.id, None)
        pull, outbox = task.pull, context.ledger.state.outbox
        if pull is None or not is_followed(task, outbox) or looked.view.number != pull.number:
            return False
        found = step(
            task.id, pull, looked.view, is_waiting=is_waiting(task), verified_on=task.landing.verified_on,
            always_renews=self._settings.update == "always",
        )  # fmt: skip
        if found is None:
            return False
        seen = replace(found.seen, feedback=self._feedback(pull, found) or found.seen.feedback)
        context.append(Record("pull_request_seen", msgspec.to_builtins(seen), actor="loop"))
        if seen.state == "open" and task.parked.startswith(PARKED) and seen.due != "ask":
            # A person has opened it again.
            context.append(context.flagged(task))
        return True

    def _feedback(self, pull: PullRequest, found: PullStep) -> str:
        """The blob with the words for the agent, behind those that it has not got yet."""
        if not found.feedback:
            return ""
        blobs = self._context.blobs
        before = blobs.get(pull.feedback).decode(errors="replace") if pull.feedback else ""
        text = "\n\n".join(filter(None, (before, without_secrets(found.feedback))))
        return blobs.put(text.encode(), content_type="text/plain")

    def _carry_out(self, task: Task) -> bool:
        """Does what is due, if the task is where it can be done."""
        context, pull = self._context, task.pull
        assert pull is not None
        is_ours = not task.parked or task.parked.startswith(PARKED)
        if not is_ours or task.state in OVER:
            return False
        if pull.due == "merged":
            return self._take_merged(task, pull)
        if not is_waiting(task):
            return False
        if pull.due == "ask":
            ways = f"`holdfast pr {task.id} --open` opens another, `holdfast cancel {task.id}` gives it up"
            return self._park(task, f"{PARKED}#{pull.number} was closed without a merge: {ways}")
        if pull.due == "renew":
            self._free(task)
            context.move(task, TaskEvent.APPROVAL_GRANTED, Reason.PULL_REQUEST_OUTDATED, agent=task.claim.agent)
            context.note(task.id, f"its pull request #{pull.number}: {pull.why}")
            return True
        most = pull.rounds_max or self._settings.rounds_max
        if pull.rounds >= most:
            told = f"{PARKED}#{pull.number} has had {plural(pull.rounds, 'round')} of changes, and there is more to do"
            way = f"`holdfast pr {task.id} --rounds {most + 1}` allows one more"
            return self._park(task, f"{told} ({pull.why}): {way}")
        self._free(task)
        context.move(task, TaskEvent.CHANGES_REQUESTED, Reason.PULL_REQUEST_CHANGES, feedback=pull.feedback)
        context.note(task.id, f"its pull request #{pull.number} goes back to its agent: {pull.why}")
        return True

    def _take_merged(self, task: Task, pull: PullRequest) -> bool:
        """Brings the task to DONE, where the landing thread closes it."""
        context, more = self._context, {"agent": task.claim.agent or task.claim.worked_by or "unknown"}
        if task.state in AT_WORK or task.state is TaskState.DONE:
            # Its agent ends first; then it is closed instead of verified.
            return False
        if task.state is TaskState.PENDING_APPROVAL:
            self._free(task)
            context.move(task, TaskEvent.APPROVAL_GRANTED, Reason.PULL_REQUEST_MERGED, **more)
        elif task.state is TaskState.OPEN and task.continues:
            self._free(task)
            why = "its pull request was merged"
            context.move(task, TaskEvent.AGENT_CLAIMS_TASK, Reason.SCHEDULED, why=why, **more)
            made = {"candidate": task.candidate or pull.head}
            context.move(task, TaskEvent.FAST_COMPLETION, Reason.PULL_REQUEST_MERGED, **more, **made)
        else:
            return False
        context.note(task.id, f"its pull request #{pull.number} was merged as {pull.merged[:12]}")
        if self._settings.delete_branch:
            content = {"branch": pull.branch, "head": pull.pushed, "delete": True}
            key = f"delete:{task.id}:{pull.pushed}"
            queue_messages(
                context.ledger, [MessageQueued(idempotency_key=key, channel=PUSH, task=task.id, content=content)]
            )
        return True

    def _park(self, task: Task, reason: str) -> bool:
        if task.parked == reason:
            return False
        self._context.append(self._context.flagged(task, parked=reason))
        self._context.note(task.id, reason)
        return True

    def _free(self, task: Task) -> None:
        if task.parked:
            self._context.append(self._context.flagged(task))


def is_waiting(task: Task) -> bool:
    """Whether the task waits for its pull request, and for nothing else."""
    return task.state is TaskState.PENDING_APPROVAL and task.outcome.get("kind") == PULL_REQUEST


def is_followed(task: Task, outbox: Mapping[str, Outgoing]) -> bool:
    """Whether its pull request is worth a look: it is there, and nothing of ours is still on its way to it."""
    if task.pull is None or not task.pull.number or task.pull.state == "merged" or task.state in OVER:
        return False
    channels = (PUSH, PULL, STEER)
    return all(each.task != task.id or each.channel not in channels or each.parked for each in outbox.values())
