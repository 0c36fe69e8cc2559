"""What `doctor` says of triggers: a file that cannot be used, secrets that are missing, rules that were set aside, and
rules for issues that a tracker of the settings brings, too."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from holdfast.checks.doctor import RUN, Finding, Part
from holdfast.config.secret_refs import read_secret
from holdfast.config.trackers import SourceSettings
from holdfast.domain.triggers.trigger_records import TriggerFacts
from holdfast.domain.wording import plural
from holdfast.errors import SecretMissing, TriggersUnusable
from holdfast.integrations.triggers.rules import TriggerRule
from holdfast.integrations.triggers.trigger_file import read
from holdfast.layout import Layout

# By the kind of tracker, which is also a type of source: the kinds of events by which an issue may ask for a task.
ISSUE_KINDS = {
    "github": tuple(f"issues.{action}" for action in ("opened", "labeled", "reopened", "edited", "assigned")),
    "gitlab": tuple(f"issue.{action}" for action in ("open", "update", "reopen")),
}


def triggers_part(
    repo: Path, layout: Layout, facts: TriggerFacts, is_run: bool, trackers: Sequence[SourceSettings] = ()
) -> Part:
    try:
        config = read(layout.triggers)
    except TriggersUnusable as error:
        return Part("triggers", "the file cannot be used", [Finding(str(error), f"edit {layout.triggers}")])
    findings = []
    for ref in dict.fromkeys(ref for source in config.sources.values() for ref in source.secret_refs):
        # A variable may be there for the server and not for this shell, and a command may ask a person.
        if ref.startswith("file:"):
            try:
                read_secret(ref, repo)
            except SecretMissing as error:
                findings.append(Finding(str(error), f"ls -l {ref.removeprefix('file:')}"))
    for rule in config.rules:
        if (known := facts.rules.get(rule.name)) is not None and known.set_aside:
            said = f"the rule {rule.name} is set aside: {known.set_aside}"
            findings.append(Finding(said, f"holdfast triggers enable {rule.name}"))
    findings += [
        Finding(
            f"issues of {tracker.project} become tasks by the source {tracker.name} of the settings and by the rule "
            f"{rule.name} of the triggers: one issue may become two tasks, so keep one of them",
            f"edit {layout.triggers}",
        )
        for tracker in trackers
        for rule in config.rules
        if _takes_issues(rule, config.types[rule.on.source], tracker)
    ]
    if facts.unjudged and not is_run:
        findings.append(Finding(f"{plural(len(facts.unjudged), 'delivery', 'deliveries')} not judged yet", RUN))
    fact = f"{plural(len(config.sources), 'source')}, {plural(len(config.rules), 'rule')}"
    return Part("triggers", fact, findings)


def _takes_issues(rule: TriggerRule, type_of_source: str, tracker: SourceSettings) -> bool:
    """Whether a rule may fire on an issue that the tracker brings as a task, too."""
    if not rule.enabled or type_of_source != tracker.tracker:
        return False
    projects = rule.condition.repositories
    is_same = not projects or any(fnmatchcase(tracker.project, glob) for glob in projects)
    return is_same and any(fnmatchcase(kind, glob) for kind in ISSUE_KINDS[tracker.tracker] for glob in rule.on.kinds)
