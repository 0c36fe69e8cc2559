"""Decides whether a verified result has to wait for a person, and says why: for the task's file, a rule, or a change.

A task waits where its definition says `approve: true`, or where a rule of the settings fits. An approval is of what the
person saw: where the target has moved meanwhile, and the change itself has become another, it is asked for again.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.config.sections import ApprovalRule
from holdfast.domain import path_rules
from holdfast.domain.definition import Definition
from holdfast.domain.task_record import Landing, Task
from holdfast.domain.wording import plural
from holdfast.git import command as git
from holdfast.snapshots.store import Store
from holdfast.worktrees import landing_diffs
from holdfast.worktrees.landing_diffs import ChangedFile

_NAMED_MAX = 5


def reason_to_ask(store: Store, task: Task, made: Definition, rules: Sequence[ApprovalRule]) -> str:
    """The reason why the verified result waits for a person; empty where it may land."""
    landing = task.landing
    wanted = "the task says `approve: true`" if made.approve else _by_rule(store, landing, made, rules)
    if not wanted or not task.approved:
        return wanted
    return changed_since(store, landing)


def changed_since(store: Store, landing: Landing) -> str:
    """The reason why an approval does not count any more; empty where what lands is what was approved."""
    if landing.approved in ("", landing.verified):
        return ""
    seen, now = (landing.approved_on, landing.approved), (landing.verified_on, landing.verified)
    names = list(landing_diffs.differing(store, seen, now))
    if not names:
        return ""
    return (
        f"it was approved as {landing.approved[:12]}, and the target has moved since: merged with the newer one, its "
        f"change is another in {_listed(names)}"
    )


def _by_rule(store: Store, landing: Landing, made: Definition, rules: Sequence[ApprovalRule]) -> str:
    fitting = [rule for rule in rules if rule.role is None or rule.role == made.role]
    if not fitting:
        return ""
    files = landing_diffs.changed_files(store, landing.verified_on, landing.verified)
    return next(
        (f"a rule of `approve:` in the settings fits: {why}" for rule in fitting if (why := fits(rule, files))), ""
    )


def fits(rule: ApprovalRule, files: Sequence[ChangedFile]) -> str:
    """What of the rule fits the change, in words; empty where something of it does not. The role was compared."""
    told = [f"role {rule.role}"] if rule.role is not None else []
    if rule.path is not None:
        names = [name for each in files for name in (each.path, each.old_path) if name]
        found = [name for name in names if not path_rules.outside([name], [rule.path])]
        if not found:
            return ""
        told.append(f"{_listed([git.readable(name) for name in found])} matches {rule.path}")
    if rule.files is not None:
        if len(files) < rule.files:
            return ""
        told.append(f"{plural(len(files), 'file')} changed, {rule.files} or more")
    if rule.lines is not None:
        lines = sum((each.added or 0) + (each.removed or 0) for each in files)
        if lines < rule.lines:
            return ""
        told.append(f"{plural(lines, 'line')} changed, {rule.lines} or more")
    return "; ".join(told) or "it is for every result"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
