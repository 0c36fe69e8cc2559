"""Reads `config/triggers.yaml`: the sources, and the rules. What is wrong is named with its file, line and key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.config.pull_requests import BRANCH_PREFIX
from holdfast.domain.definition import find
from holdfast.domain.file_problem import Unreadable
from holdfast.domain.yaml_text import locate, read_mapping
from holdfast.errors import PatternInvalid, TriggersUnusable
from holdfast.integrations.triggers import template
from holdfast.integrations.triggers.event import TriggerSource
from holdfast.integrations.triggers.pattern import Pattern
from holdfast.integrations.triggers.registry import SOURCES
from holdfast.integrations.triggers.rules import BreakerSettings, TriggerRule

SOURCES_MAX, RULES_MAX = 100, 500
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_PATTERNS = ("title", "body", "text")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sources: dict[str, dict[str, Any] | None] = {}
    rules: list[dict[str, Any]] = []
    breaker: BreakerSettings = BreakerSettings()


class TriggerConfig(msgspec.Struct, frozen=True):
    """The file as it was read. `types`: the type of each source. `patterns`: the compiled ones, by their text."""

    path: str = ""
    sources: dict[str, TriggerSource] = {}
    types: dict[str, str] = {}
    rules: tuple[TriggerRule, ...] = ()
    breaker: BreakerSettings = BreakerSettings()
    patterns: dict[str, Pattern] = {}
    branch_prefix: str = BRANCH_PREFIX


def read(path: Path, branch_prefix: str = BRANCH_PREFIX) -> TriggerConfig:
    """What the file says; nothing where there is none. `branch_prefix`: of our branches, as the settings have it.

    Raises TriggersUnusable.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return TriggerConfig(str(path))
    except OSError as error:
        raise TriggersUnusable(place=path, reason=f"it cannot be read: {error.strerror}") from None
    if not any(line.strip() and not line.lstrip().startswith(b"#") for line in text.splitlines()):
        return TriggerConfig(str(path))
    return msgspec.structs.replace(_Reader(path, text).config(), branch_prefix=branch_prefix)


class _Reader:
    def __init__(self, path: Path, text: bytes) -> None:
        self._path, self._text = path, text

    def config(self) -> TriggerConfig:
        try:
            values = read_mapping(self._text)
        except Unreadable as unreadable:
            found = unreadable.problem
            raise TriggersUnusable(place=f"{self._path}, line {found.line}", reason=found.message) from None
        top = self._convert(values, _File, [])
        if len(top.sources) > SOURCES_MAX or len(top.rules) > RULES_MAX:
            raise self._wrong([], f"there are more than {SOURCES_MAX} sources, or {RULES_MAX} rules")
        types: dict[str, str] = {}
        sources = {name: self._source(name, given or {}, types) for name, given in top.sources.items()}
        patterns: dict[str, Pattern] = {}
        rules: dict[str, TriggerRule] = {}
        for number, given in enumerate(top.rules):
            rule = self._rule(number, given, sources, patterns)
            if rule.name in rules:
                raise self._wrong(["rules", number, "name"], f"there are two rules {rule.name}")
            rules[rule.name] = rule
        return TriggerConfig(
            str(self._path), sources, types, tuple(rules.values()), breaker=top.breaker, patterns=patterns
        )

    def _source(self, name: str, given: dict[str, Any], types: dict[str, str]) -> TriggerSource:
        if not _NAME.fullmatch(name):
            rule = "a name of small letters, digits, dashes and underscores"
            raise self._wrong(["sources", name], f"{name!r} cannot name a source: it is {rule}")
        kind = given.get("type", name)
        if kind not in SOURCES:
            at: list[str | int] = ["sources", name, *(["type"] if "type" in given else [])]
            raise self._wrong(at, f"there is no source of the type {kind!r}; `type` is one of {', '.join(SOURCES)}")
        types[name] = kind
        made = SOURCES[kind]
        source: TriggerSource = made(name, self._convert(given, made.settings_type, ["sources", name]))
        return source

    def _rule(
        self, number: int, given: dict[str, Any], sources: Mapping[str, TriggerSource], patterns: dict[str, Pattern]
    ) -> TriggerRule:
        at: list[str | int] = ["rules", number]
        rule: TriggerRule = self._convert(given, TriggerRule, at)
        if rule.on.source not in sources:
            known = ", ".join(sources) or "none"
            raise self._wrong([*at, "on", "source"], f"there is no source {rule.on.source!r}; `sources` has {known}")
        for name in _PATTERNS:
            if text := getattr(rule.condition, name):
                try:
                    patterns[text] = Pattern(text)
                except PatternInvalid as error:
                    raise self._wrong([*at, "if", name], str(error)) from None
        for path, said in template.problems(rule.task, rule.key):
            raise self._wrong([*at, *path], said)
        return rule

    def _convert(self, values: Any, kind: Any, at: list[str | int]) -> Any:
        try:
            return msgspec.convert(values, kind)
        except msgspec.ValidationError as error:
            said, _, where = str(error).partition(" - at `$")
            if unknown := re.search(r"unknown field `(.*?)`", said):
                where = f"{where.rstrip('`')}.{unknown[1]}"
            if "got `object`" in said:
                said += ": put a text that begins with { in quotes"
            if "matching regex" in said and "env:" in said:
                said = "expected a reference to a secret: env:NAME, file:PATH or command:WORDS"
            parts = re.findall(r"\[(\d+)\]|([^.\[\]`]+)", where.replace("[...]", ""))
            path = [*at, *(int(number) if number else name for number, name in parts)]
            raise self._wrong(path, f"{said[0].lower()}{said[1:]}".replace("`", "")) from None

    def _wrong(self, path: list[str | int], said: str) -> TriggersUnusable:
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
        line, _ = locate(self._text, path) if path else find(self._text, "")
        reason = f"{key}: {said}" if key and not said.startswith(key) else said
        return TriggersUnusable(place=f"{self._path}, line {line}", reason=reason.removesuffix("."))
