"""Which events are sent to whom: the rules of the setting `notify`.

Its types are read when this module is loaded, so they are not postponed.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.config.secret_refs import SecretRef
from holdfast.config.sections import ENTRIES_MAX, Name, Seconds, Text

# What `integrations/notify/events.py:KINDS` finds in the journal.
NotifyKind = Literal["needs_you", "failed", "landed", "run_over", "budget", "agent_unreachable", "recovered"]
QUIET_PATTERN = r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d\Z"
QUIET_RULE = "two times of the day such as 22:00-07:00"
TO_RULE = (
    "references such as env:SLACK_URL, file:~/.config/ntfy-url or command:pass show slack-url. An address of Apprise "
    "is a secret: put it into a variable or a file, and name that here"
)
PAGE_PATTERN = r"^https?://[^\s/?#@]+(/[^\s?#]*)?\Z"
PAGE_RULE = "an address such as https://build.example.org:8443, without a user, a query or a fragment"


class NotifyRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[Name, Meta(description="what the rule is called; unique")]
    to: Annotated[
        tuple[SecretRef, ...],
        Meta(min_length=1, max_length=20, description="where the addresses of Apprise are: env:, file:, command:"),
    ]
    on: Annotated[
        tuple[NotifyKind, ...], Meta(min_length=1, max_length=20, description="the kinds of events that it tells of")
    ] = ("needs_you", "failed")
    labels: Annotated[
        tuple[Text, ...], Meta(max_length=ENTRIES_MAX, description="only of tasks with one of these labels")
    ] = ()
    roles: Annotated[
        tuple[Text, ...], Meta(max_length=ENTRIES_MAX, description="only of tasks with one of these roles")
    ] = ()
    quiet: Annotated[
        Annotated[str, Meta(pattern=QUIET_PATTERN)] | None,
        Meta(description="nothing leaves between these times of the day, and all of it afterwards; null: always"),
    ] = None
    time_zone: Annotated[
        Text | None, Meta(description="of the quiet hours, such as Europe/Vienna; null: the machine's")
    ] = None
    digest_s: Annotated[
        Seconds | None, Meta(description="gather the events of so many seconds into one message; null: one for each")
    ] = None
    repeat: Annotated[
        Literal["never", "after_crash"],
        Meta(description="a send cut off by a crash; never: it waits for a person; after_crash: it is sent again"),
    ] = "never"


def rule_problem(rules: Sequence[NotifyRule]) -> tuple[str, Any, str] | None:
    """The place below `notify`, the value, and what may stand there, of the first that cannot be used."""
    import zoneinfo

    for at, rule in enumerate(rules):
        if rule.name in [each.name for each in rules[:at]]:
            return f"[{at}].name", rule.name, "a name that no other rule has"
        if rule.quiet is not None and len(set(rule.quiet.split("-"))) == 1:
            return f"[{at}].quiet", rule.quiet, "two different times of the day"
        try:
            zoneinfo.ZoneInfo(rule.time_zone or "UTC")
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            return f"[{at}].time_zone", rule.time_zone, "a time zone that this machine knows, such as Europe/Vienna"
    return None


def without_addresses(value: Any) -> Any:
    """A value of `notify` for an error, which reaches terminals and logs: an address may hold a token."""
    if isinstance(value, dict):
        return {key: without_addresses(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_addresses(each) for each in value]
    is_reference = isinstance(value, str) and re.match(r"(env|file|command):(?!//)", value)
    return "…" if isinstance(value, str) and ":" in value and not is_reference else value
