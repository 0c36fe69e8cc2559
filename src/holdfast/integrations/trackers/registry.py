"""The one list of trackers: each kind of the settings, and its adapter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.config.trackers import SourceSettings
from holdfast.integrations.trackers.github import GitHub
from holdfast.integrations.trackers.gitlab import GitLab
from holdfast.integrations.trackers.jira import Jira
from holdfast.integrations.trackers.linear import Linear
from holdfast.integrations.trackers.tracker import Tracker

Make = Callable[[SourceSettings, Path | None], Tracker]
TRACKERS: dict[str, Make] = {"github": GitHub, "gitlab": GitLab, "jira": Jira, "linear": Linear}


def tracker_of(source: SourceSettings, folder: Path | None = None) -> Tracker:
    """`folder`: where a relative path of its token counts from. Reads no secret and asks nobody."""
    return TRACKERS[source.tracker](source, folder)
