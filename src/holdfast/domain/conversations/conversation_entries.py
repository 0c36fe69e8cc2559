"""The entries of messages, and of tasks that a person takes."""

from __future__ import annotations

import msgspec

# How a task is parked that a person has taken; the person follows.
TAKEN_BY = "taken by "


class TaskTold(msgspec.Struct, frozen=True):
    """A person's message to the agent, kept on the task until a start has been given it. `id` names it in the files of
    attempts, which say what was given."""

    task: str
    id: str
    message: str
    by: str = ""


class TaskTaken(msgspec.Struct, frozen=True, gc=False):
    """A person has the task's conversation and worktree in a terminal. `id` is the request's.

    `pid`, `start_ticks`, `boot_id`, `host`: the process that has it, and after whose end it is given back. 0: none.
    `park`: once it is given back it waits until a person says so.
    """

    task: str
    attempt: str
    id: str
    by: str = ""
    pid: int = 0
    start_ticks: int = 0
    boot_id: str = ""
    host: str = ""
    park: bool = False


class TaskGivenBack(msgspec.Struct, frozen=True):
    """`tree`: the snapshot of the worktree as the person left it, with which the attempt goes on. `park`: when a person
    says so. `died`: the process that had it is gone, and nobody gave it back."""

    task: str
    attempt: str
    tree: str = ""
    saved: str = ""
    park: bool = False
    died: bool = False
