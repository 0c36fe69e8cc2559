"""The one table of sources: each type of source with its class. A new one is a module here and a row."""

from __future__ import annotations

from typing import Any

from holdfast.integrations.triggers.cron import CronSource
from holdfast.integrations.triggers.discord import DiscordSource
from holdfast.integrations.triggers.file_watch import FileWatchSource
from holdfast.integrations.triggers.github import GitHubSource
from holdfast.integrations.triggers.gitlab import GitLabSource
from holdfast.integrations.triggers.slack import SlackSource
from holdfast.integrations.triggers.webhook import WebhookSource

SOURCES: dict[str, Any] = {
    "github": GitHubSource,
    "gitlab": GitLabSource,
    "slack": SlackSource,
    "discord": DiscordSource,
    "webhook": WebhookSource,
    "file_watch": FileWatchSource,
    "cron": CronSource,
}
