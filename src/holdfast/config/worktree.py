"""How a worktree is made ready for work: the section `worktree` of the settings.

Its types are read when this module is loaded, so they are not postponed.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.config.sections import ENTRIES_MAX, YEAR_S, Seconds, Text

PORTS_MAX = 100


class WorktreeSettings(msgspec.Struct, frozen=True):
    setup: Annotated[
        tuple[Text, ...],
        Meta(max_length=ENTRIES_MAX, description="shell commands that make a new worktree ready, such as `npm ci`"),
    ] = ()
    inputs: Annotated[
        tuple[Text, ...],
        Meta(max_length=ENTRIES_MAX, description="files of the tree; when one has changed, setup runs again"),
    ] = ()
    setup_timeout_s: Annotated[Seconds, Meta(description="a command of setup that runs longer has failed")] = 1800.0
    before_start: Annotated[
        tuple[Text, ...], Meta(max_length=ENTRIES_MAX, description="shell commands before each start of an agent")
    ] = ()
    after_start: Annotated[
        tuple[Text, ...], Meta(max_length=ENTRIES_MAX, description="shell commands once the agent was started")
    ] = ()
    before_remove: Annotated[
        tuple[Text, ...], Meta(max_length=ENTRIES_MAX, description="shell commands before a worktree is removed")
    ] = ()
    hook_timeout_s: Annotated[Seconds, Meta(description="a command of these three that runs longer has failed")] = 300.0
    ports: Annotated[
        int, Meta(ge=0, le=PORTS_MAX, description="ports that each worktree has for itself: HOLDFAST_PORT, …_PORT_0")
    ] = 0
    clone: Annotated[
        tuple[Text, ...],
        Meta(max_length=ENTRIES_MAX, description="paths cloned from your checkout, where the filesystem has reflinks"),
    ] = ()
    env: Annotated[
        dict[str, str],
        Meta(max_length=ENTRIES_MAX, description="variables for agents, gates and hooks; no secrets; ~/ is the home"),
    ] = {}
    warm: Annotated[
        bool, Meta(description="false: the gates' worktree is set up anew for each candidate, not kept as it is")
    ] = True
    keep_s: Annotated[
        Annotated[float, Meta(ge=0, le=YEAR_S)],
        Meta(description="how long the worktree of a task stays once the task has landed"),
    ] = 0.0
