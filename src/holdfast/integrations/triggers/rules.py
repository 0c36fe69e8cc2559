"""Rules: which events ask for which task. Pure: plain data, an event and what the journal knows give the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holdfast.domain.path_rules import outside
from holdfast.domain.triggers.trigger_records import FIRINGS_KEPT, HOUR_S, RuleFacts
from holdfast.domain.wording import moment
from holdfast.integrations.triggers.event import TriggerEvent, dig, text_at
from holdfast.integrations.triggers.pattern import Pattern, PatternTooSlow

MARK = "<!-- holdfast:"
_TRAILER = re.compile(r"^Holdfast-[A-Za-z]+:", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{3,127}")
# An id that says less may stand in a text by chance.
ECHO_CHARS_MIN = 6
# Of an event, for names of our tasks in it.
ECHO_TEXT_MAX = 20_000
Globs = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=500)], ...], Meta(max_length=200)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]


class TriggerOn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`source`: the name of a source. `kind`: globs, one of which the event's kind has to match."""

    source: str
    kind: Annotated[str, Meta(max_length=200)] | Globs = "*"

    @property
    def kinds(self) -> tuple[str, ...]:
        return (self.kind,) if isinstance(self.kind, str) else self.kind


class TriggerCondition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that are given must hold. Lists are globs, one of which must match; of `authors_not` none may.

    `label` is the one that was just added, `labels` any of the subject. `title`, `body` and `text` (both) are patterns;
    `fields` are globs for values of the payload, by keys with dots between them.
    """

    labels: Globs = ()
    label: Globs = ()
    authors: Globs = ()
    authors_not: Globs = ()
    branches: Globs = ()
    repositories: Globs = ()
    paths: Globs = ()
    title: str = ""
    body: str = ""
    text: str = ""
    fields: Annotated[dict[str, str], Meta(max_length=50)] = {}


class BreakerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule that fires more often than this on what it has made itself is set aside."""

    fires: Annotated[int, Meta(ge=1, le=100)] = 3
    minutes: Annotated[float, Meta(gt=0, le=60)] = 10.0


class TriggerRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`key`: of events with the same one, only the first makes a task; it is a template, as `task` is. `cooldown_s`: so
    long after it fired, it does not. `approve_first`: a person has to approve the task before it is worked on."""

    name: Name
    on: TriggerOn
    task: dict[str, Any]
    condition: TriggerCondition = msgspec.field(name="if", default=TriggerCondition())
    key: Annotated[str, Meta(min_length=1, max_length=500)] = "{event.id}"
    cooldown_s: Annotated[float, Meta(ge=0)] = 0.0
    max_per_hour: Annotated[int, Meta(ge=0, le=FIRINGS_KEPT)] | None = None
    approve_first: bool = False
    enabled: bool = True


class Match(msgspec.Struct, frozen=True):
    """What a rule says of an event, before it is asked how often it has fired. `reason`: why it does not match."""

    rule: TriggerRule
    reason: str = ""


def matches(rules: Sequence[TriggerRule], event: TriggerEvent, patterns: Mapping[str, Pattern]) -> list[Match]:
    return [Match(rule, mismatch(rule, event, patterns)) for rule in rules]


def mismatch(rule: TriggerRule, event: TriggerEvent, patterns: Mapping[str, Pattern]) -> str:
    """Why a rule does not match an event; empty where it does."""
    asked = rule.condition
    if not rule.enabled:
        return "it is switched off (enabled: false)"
    if rule.on.source != event.source:
        return f"it is for the source {rule.on.source}"
    if not _is_any(event.kind, rule.on.kinds):
        return f"it is for {' or '.join(rule.on.kinds)}, and this is {event.kind}"
    for name, globs, found in (
        ("labels", asked.labels, event.labels),
        ("label", asked.label, (event.label,)),
        ("authors", asked.authors, (event.actor,)),
        ("branches", asked.branches, (event.branch,)),
        ("repositories", asked.repositories, (event.repository,)),
    ):
        if globs and not any(_is_any(each, globs) for each in found):
            return f"{name}: none of {_listed(globs)} matches {_listed(found)}"
    if asked.authors_not and _is_any(event.actor, asked.authors_not):
        return f"authors_not: {event.actor} is excepted"
    if asked.paths and len(outside(event.paths, asked.paths)) == len(set(event.paths)):
        return f"paths: none of {_listed(asked.paths)} matches {_listed(event.paths)}"
    return _other_text(asked, event, patterns) or _other_field(asked, event)


def _other_text(asked: TriggerCondition, event: TriggerEvent, patterns: Mapping[str, Pattern]) -> str:
    texts = {"title": event.title, "body": event.body, "text": f"{event.title}\n{event.body}"}
    for name, text in texts.items():
        pattern = getattr(asked, name)
        try:
            if pattern and not patterns[pattern].is_in(text):
                return f"{name}: {pattern} is not in it"
        except PatternTooSlow:
            return f"{name}: looking for {pattern} took too many steps, and was given up"
    return ""


def _other_field(asked: TriggerCondition, event: TriggerEvent) -> str:
    for path, glob in asked.fields.items():
        found = dig(event.payload, *path.split("."))
        # JSON has `true` where Python has `True`.
        text = str(found).lower() if isinstance(found, bool) else text_at({"x": found}, "x")
        if isinstance(found, list | dict) or not fnmatchcase(text, glob):
            return f"fields: {path} is {_listed((str(found),))}, not {glob}"
    return ""


def _is_any(text: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(text, glob) for glob in globs)


def _listed(values: Sequence[str]) -> str:
    shown = ", ".join(each[:60] for each in values[:5] if each) or "nothing"
    return shown if len(values) <= 5 else f"{shown} and {len(values) - 5} more"


# -- ours, and how often ----------------------------------------------------------------------------------------------


def own_reason(event: TriggerEvent, ours: Sequence[str], branch_prefix: str) -> str:
    """Why an event is one of ours, which fires nothing; empty where it is not. What people say of our pull requests is
    seen to where these are."""
    if event.actor and any(event.actor.casefold() == each.casefold() for each in ours):
        return f"{event.actor} is ours"
    if MARK in event.body:
        return "it has our mark"
    if head := next((each for each in event.heads if each.startswith(branch_prefix)), ""):
        return f"the branch {head} is ours"
    if any(MARK in text for text in event.marks):
        return "its pull request has our mark"
    if any(_TRAILER.search(text) for text in event.marks):
        return "its newest commit is ours"
    return ""


def is_echo(event: TriggerEvent, facts: RuleFacts) -> bool:
    """Whether an event names a task that the rule has made."""
    made = {each for each in facts.tasks if len(each) >= ECHO_CHARS_MIN}
    if not made:
        return False
    text = "\n".join((event.branch, *event.heads, event.title, event.url, event.body, *event.marks, *event.paths))[
        :ECHO_TEXT_MAX
    ]
    words = set(_WORD.findall(text))
    return not made.isdisjoint(words | {part for word in words for part in re.split(r"[._]", word)})


def refusal(rule: TriggerRule, facts: RuleFacts, now: float) -> str:
    """Why a rule that matches does not fire now; empty where it does. A clock that was set back holds up no rule."""
    if facts.set_aside:
        return f"it is set aside: {facts.set_aside}; `holdfast triggers enable {rule.name}` lets it fire again"
    past = [each for each in facts.fired if each <= now]
    if rule.cooldown_s and past and now - past[-1] < rule.cooldown_s:
        return f"it fired at {moment(past[-1])}, and rests for {rule.cooldown_s:g} s"
    if rule.max_per_hour is not None and sum(each > now - HOUR_S for each in past) >= rule.max_per_hour:
        return f"it has fired {rule.max_per_hour} times within an hour"
    return ""


def breaks(facts: RuleFacts, breaker: BreakerSettings, now: float) -> str:
    """Why a rule that fires once more on what it has made is to be set aside; empty where it is not."""
    recent = sum(now - breaker.minutes * 60.0 < each <= now for each in facts.echoes)
    if recent < breaker.fires:
        return ""
    return f"it fired {recent} times within {breaker.minutes:g} minutes on what it had made itself"
