"""The queue of candidates: which one lands next, and which are judged ahead of their turn, and on what.

The first candidate is merged with the target, judged and landed. With `judging: 2` or more, the next ones are judged
meanwhile, each on top of the merged commit of the one before it, as it will land if that one lands. Where that one does
not, what was judged on it is withdrawn and judged anew. Nothing here is kept: the queue is computed from the journal's
tasks and from what is under way in this process.

    queue    A (judged on the target)   B (judged ahead, on A)   C (judged ahead, on B)
    A lands:      B's verdict counts, and B lands without being judged again
    A fails:      B and C are withdrawn; B is judged on the target

A candidate that needs a person's approval is judged like any other, but nothing is built on it, and the ones behind it
do not wait for it. One with a gate that must not run twice is judged only in its turn.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task


class VerifyAndLand(msgspec.Struct, frozen=True, tag=True):
    """It is done, and first in the queue: verify and land it."""

    task: str


class JudgeAhead(msgspec.Struct, frozen=True, tag=True):
    """It is done, and its turn has not come: judge it on top of `on`, the merged commit of the task `behind`, or, where
    that is empty, a commit of the target."""

    task: str
    on: str
    behind: str = ""


class Withdraw(msgspec.Struct, frozen=True, tag=True):
    """It is being judged on top of a commit that will not land: end that."""

    task: str


class JudgedMerge(msgspec.Struct, frozen=True):
    """The commit that is being judged or landed, and the target on which it would land."""

    target: str
    commit: str


class CandidateKind(msgspec.Struct, frozen=True, kw_only=True):
    """`asks`: it needs the approval of a person. `is_once`: it has a gate that must not run twice. `by_request`: it
    lands by pull request, and so not here."""

    asks: bool
    is_once: bool
    by_request: bool = False


class QueueView(msgspec.Struct, frozen=True):
    """What is under way in this process. `landing`: the task in the landing thread. `merged`: the commits of it and of
    those judged `ahead`, as far as they are made. `withdrawn`: those of `ahead` that are being ended. `refused`: judged
    ahead and not passed, each with the commit that it was judged on.

    `apart` are tasks that will wait for a person once they are verified, `once` those with a gate that must not run
    twice. `most`: how many are judged at the same time.
    """

    landing: str = ""
    merged: Mapping[str, JudgedMerge] = {}
    ahead: Mapping[str, JudgeAhead] = {}
    withdrawn: Collection[str] = ()
    refused: Mapping[str, str] = {}
    apart: Collection[str] = ()
    once: Collection[str] = ()
    most: int = 1


NOTHING_QUEUED = QueueView()
QueueStep = VerifyAndLand | JudgeAhead | Withdraw


def queue_steps(done: Sequence[Task], tasks: Mapping[str, Task], view: QueueView) -> list[QueueStep]:
    """What to begin and what to withdraw. `done`: the tasks to be landed, in their order."""
    waiting = {task.id for task in done}
    walk = _Walk(tasks, view, waiting)
    # Cancelled, parked or held up meanwhile.
    walk.withdraw(*(name for name in view.ahead if name not in waiting))
    for task in done:
        if task.id in view.ahead:
            walk.pass_judged(task)
        elif task.id != view.landing:
            walk.place(task)
    return walk.steps


class _Walk:
    """From the head of the queue to its end. `on` is the commit that the next candidate would be merged with; None
    where that is not known yet, so that nothing behind can begin."""

    def __init__(self, tasks: Mapping[str, Task], view: QueueView, waiting: Collection[str]) -> None:
        self.steps: list[QueueStep] = []
        self._tasks, self._view, self._waiting = tasks, view, waiting
        self._void = set(view.withdrawn)
        self._room = view.most - len(view.ahead) - bool(view.landing)
        # Whether somebody before is still to land.
        self._is_taken = bool(view.landing)
        self._on: JudgeAhead | None = None
        head = tasks.get(view.landing)
        if head is not None and (made := view.merged.get(head.id)) is not None:
            is_to_land = head.state is TaskState.DONE and head.id not in view.apart and not head.landing.waits
            is_built_on = is_to_land or head.landing.commit == made.commit
            self._on = JudgeAhead("", made.commit, head.id) if is_built_on else JudgeAhead("", made.target)

    def pass_judged(self, task: Task) -> None:
        is_valid = task.id not in self._void and self._is_valid(self._view.ahead[task.id])
        if not is_valid:
            self.withdraw(task.id)
            self._on = None
        # It keeps its turn also where it is judged anew.
        self._is_taken = self._is_taken or task.id not in self._view.apart
        if is_valid and task.id not in self._view.apart:
            made = self._view.merged.get(task.id)
            self._on = JudgeAhead("", made.commit, task.id) if made is not None else None

    def place(self, task: Task) -> None:
        view, landing = self._view, task.landing
        if not self._is_taken:
            self.steps.append(VerifyAndLand(task.id))
            self._is_taken, self._on = True, None
        elif self._on is None or task.id in view.once:
            self._on = None
        elif landing.verified and landing.verified_on == self._on.on:
            self._on = self._on if task.id in view.apart else JudgeAhead("", landing.verified, task.id)
        elif view.refused.get(task.id) == self._on.on:
            # It will not land where that one does: those behind are judged without it.
            pass
        elif self._room > 0:
            self.steps.append(msgspec.structs.replace(self._on, task=task.id))
            self._room -= 1
            self._on = self._on if task.id in view.apart else None
        else:
            self._on = None

    def withdraw(self, *names: str) -> None:
        self.steps += [Withdraw(name) for name in names if name not in self._view.withdrawn]
        self._void.update(names)

    def _is_valid(self, judged: JudgeAhead) -> bool:
        """Whether the one before has landed as that commit, or still may."""
        before = self._tasks.get(judged.behind)
        if before is None:
            return not judged.behind
        if before.id in self._void:
            return False
        if before.landing.commit == judged.on:
            return True
        if (made := self._view.merged.get(before.id)) is not None:
            return made.commit == judged.on
        return before.id in self._waiting and before.landing.verified == judged.on
