"""What `doctor` says of triggers: a file that cannot be used, secrets that are missing, rules that were set aside."""

from __future__ import annotations

from pathlib import Path

from holdfast.checks.doctor import RUN, Finding, Part
from holdfast.config.secret_refs import read_secret
from holdfast.domain.triggers.trigger_records import TriggerFacts
from holdfast.domain.wording import plural
from holdfast.errors import SecretMissing, TriggersUnusable
from holdfast.integrations.triggers.trigger_file import read
from holdfast.layout import Layout


def triggers_part(repo: Path, layout: Layout, facts: TriggerFacts, is_run: bool) -> Part:
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
    if facts.unjudged and not is_run:
        findings.append(Finding(f"{plural(len(facts.unjudged), 'delivery', 'deliveries')} not judged yet", RUN))
    fact = f"{plural(len(config.sources), 'source')}, {plural(len(config.rules), 'rule')}"
    return Part("triggers", fact, findings)
