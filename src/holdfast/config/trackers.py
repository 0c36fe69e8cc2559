"""The issue trackers that tasks come from: the list `sources` of the settings.

Its types are read when this module is loaded, so they are not postponed.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.config.secret_refs import SecretRef
from holdfast.config.sections import ENTRIES_MAX, YEAR_S, Text
from holdfast.domain.issues.issue_records import SOURCE_PATTERN

TrackerKind = Literal["github", "gitlab", "jira", "linear"]


class SourceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[
        Annotated[str, Meta(pattern=SOURCE_PATTERN)],
        Meta(description="unique, small letters and digits; the ids of its tasks begin with it: gh-123"),
    ]
    tracker: Annotated[TrackerKind, Meta(description="what kind of tracker it is")]
    project: Annotated[
        Text,
        Meta(description="owner/name on GitHub, the path on GitLab, the project's key in Jira, the team's in Linear"),
    ]
    token: Annotated[SecretRef, Meta(description="where the token is: env:NAME, file:PATH or command:WORDS")]
    label: Annotated[Text | None, Meta(description="only issues with this label; null: every open one")] = None
    query: Annotated[Text | None, Meta(description="Jira: more JQL that an issue has to fit; null: none")] = None
    url: Annotated[
        Text | None, Meta(description="address of its API, where it is not the public one; Jira always needs it")
    ] = None
    user: Annotated[Text | None, Meta(description="Jira: the e-mail address that its token belongs to")] = None
    trusted: Annotated[
        tuple[Text, ...],
        Meta(max_length=ENTRIES_MAX, description="authors whose front matter counts, beside those with write rights"),
    ] = ()
    on_closed: Annotated[
        Literal["cancel", "ask"],
        Meta(description="an issue that was closed there; ask: its task waits for you"),
    ] = "cancel"
    comment: Annotated[bool, Meta(description="a comment there when its task is closed, or has failed for good")] = True
    close: Annotated[bool, Meta(description="the issue is closed there when its task has landed")] = False
    labels_closed: Annotated[
        tuple[Text, ...], Meta(max_length=ENTRIES_MAX, description="labels for an issue whose task has landed")
    ] = ()
    labels_failed: Annotated[
        tuple[Text, ...], Meta(max_length=ENTRIES_MAX, description="labels for one whose task has failed for good")
    ] = ()
    labels_off: Annotated[
        tuple[Text, ...], Meta(max_length=ENTRIES_MAX, description="labels that go from it in both cases")
    ] = ()
    every_s: Annotated[
        Annotated[float, Meta(ge=1, le=YEAR_S)], Meta(description="how often a run asks for changes")
    ] = 300.0
