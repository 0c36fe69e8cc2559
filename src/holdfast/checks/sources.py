"""Looks at the settings' `sources`: whether their tokens are there, and what reads them is installed. Asks nobody."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
from pathlib import Path

from holdfast.checks.doctor import Finding, Part
from holdfast.config.secret_refs import read_secret
from holdfast.config.settings import Config
from holdfast.domain.wording import plural
from holdfast.errors import SecretMissing

NEEDS_URL = ("jira",)


def sources_part(config: Config, repo: Path, settings: Path) -> Part:
    findings = []
    if config.sources and importlib.util.find_spec("httpx") is None:
        findings.append(
            Finding("trackers are asked with httpx, which is not installed", "pip install 'holdfast[connect]'")
        )
    for source in config.sources:
        if why := _missing_token(source.token, repo):
            findings.append(Finding(f"the token of the source {source.name}: {why}", f"mend {settings}"))
        if source.tracker in NEEDS_URL and source.url is None:
            findings.append(Finding(f"the source {source.name} has no `url`", f"mend {settings}"))
    named = ", ".join(f"{each.name} ({each.tracker}, {each.project})" for each in config.sources)
    return Part("trackers", f"{plural(len(config.sources), 'source')}{': ' + named if named else ''}", findings)


def _missing_token(ref: str, repo: Path) -> str:
    """Why it cannot be read. A command is looked for and not run: it may ask for a passphrase."""
    kind, _, rest = ref.partition(":")
    if kind == "command":
        words = shlex.split(rest)
        return (
            "" if words and shutil.which(words[0], path=None) else f"there is no program {words[0] if words else ''!r}"
        )
    try:
        read_secret(ref, repo)
    except SecretMissing as error:
        return str(error)
    return ""
