"""The entries of effects, which come in fives: `task_<effect>_intent`, written before, and one of `_confirmed`,
`_failed`, `_abandoned` and `_parked`, which closes it and carries `intent`, the reference to it.
"""

from __future__ import annotations

import msgspec

from holdfast.domain.spend import Caps


class Reference(msgspec.Struct, frozen=True):
    run: str
    seq: int
    entry_hash: str


def entry_name(run: str, seq: int, entry_hash: str) -> str:
    """Names one entry in one word: in the files of an attempt, and in what its runner is called with."""
    return f"{run}:{seq}:{entry_hash}"


class EffectIntended(msgspec.Struct, frozen=True):
    task: str
    attempt: str = ""


class SpawnIntended(EffectIntended, frozen=True, kw_only=True):
    """`order` is the blob with all that the runner needs; `reserved` what the start may spend.

    `names_files`: every file of this start names this entry. Files of starts from before that was so name none.
    `tree`: the commit with which the attempt begins, on top of `base`.
    """

    start: int = 0
    order: str = ""
    argv: list[str] = []
    worktree: str = ""
    base: str = ""
    reserved: Caps = Caps()
    names_files: bool = False
    tree: str = ""


class SetupIntended(EffectIntended, frozen=True, kw_only=True):
    """A worktree is made ready. `digest` is of the commands, of the content of `inputs`, and of the variables; the
    stamp of a worktree that was set up has the same. `worktree` is its path."""

    worktree: str = ""
    digest: str = ""
    commands: str = ""
    inputs: dict[str, str] = {}


class VerifyIntended(EffectIntended, frozen=True, kw_only=True):
    """`merged` is the candidate as it will land, on top of `target`; `gates` the digest of what judges it.

    `happened`: names of gates that have run for this candidate, as a person said, and do not run again. `place`: the
    number of the worktree in which the gates run. `behind`: the task before it in the queue, whose merged commit
    `target` is; then `branch_at` is the commit that the branch was at, whose rules count.
    """

    candidate: str = ""
    target: str = ""
    merged: str = ""
    gates: str = ""
    repeatable: bool = True
    happened: tuple[str, ...] = ()
    place: int = 0
    behind: str = ""
    branch_at: str = ""


class LandIntended(EffectIntended, frozen=True):
    branch: str = ""
    old: str = ""
    new: str = ""


class RefreshIntended(EffectIntended, frozen=True):
    checkout: str = ""
    old: str = ""
    new: str = ""


class PublishIntended(EffectIntended, frozen=True, kw_only=True):
    """A message is about to leave: `key` names it in the outbox, `channel` its publisher."""

    key: str = ""
    channel: str = ""


class EffectClosed(msgspec.Struct, frozen=True):
    intent: Reference
    task: str
    attempt: str = ""
    reason: str = ""
    # Of a message: its key.
    key: str = ""


# Each effect by the type of its intent, with the name that its entries carry.
EFFECT_OF: dict[type[EffectIntended], str] = {
    SetupIntended: "setup",
    SpawnIntended: "spawn",
    VerifyIntended: "verify",
    LandIntended: "land",
    RefreshIntended: "refresh",
    PublishIntended: "publish",
}
EFFECTS = tuple(EFFECT_OF.values())
# These are repeated at any age: of a setup nothing outside of a worktree follows, and the receiver of a message is
# asked for it first.
AGELESS = frozenset({"task_setup_intent", "task_publish_intent"})
CLOSINGS = ("confirmed", "failed", "abandoned", "parked")
# The effect that an entry closes, and how.
CLOSED_BY = {f"task_{effect}_{closing}": (effect, closing) for effect in EFFECTS for closing in CLOSINGS}


def effect_of(decision_type: str) -> str:
    """`spawn` of `task_spawn_intent`; empty for what is no intent of a known effect."""
    name = decision_type.removeprefix("task_").removesuffix("_intent")
    return name if decision_type == f"task_{name}_intent" and name in EFFECTS else ""
