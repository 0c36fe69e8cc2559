"""A task's definition: the YAML text of its file → a record, or every problem with its line.

`parse` looks at one file, `problems_of` at all of them together. A problem names the tasks that it stops: a missing
dependency stops the task that names it, a cycle its members, and nothing else.

The reader of YAML is loaded by what reads a text: `holdfast list` of unchanged files needs only the record.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec

from holdfast.domain.file_problem import FileProblem, Unreadable
from holdfast.domain.issues.issue_records import Origin
from holdfast.questions.rules import Mode, PermissionRule

ID_RULE = (
    "1 to 128 letters, digits, dots, dashes and underscores, a letter or digit first, "
    "without two dots in a row, and not ending in a dot or in .lock"
)
_ID = re.compile(r"(?!.*\.\.)(?!.*(\.|\.lock)$)[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)

# It is an argument of an agent's: one that begins with a dash would be an option.
MODEL_PATTERN = r"^[^\s\x00-\x1f\x7f-][^\x00-\x1f\x7f]{0,999}\Z"
MODEL_RULE = "a name of up to 1,000 characters, no dash or space first, no control characters"

# What Holdfast writes at the end of a file: it belongs to no person, and is no part of the definition proper.
BLOCKS = ("claim", "result", "error")

Text = Annotated[str, msgspec.Meta(min_length=1)]
Command = Text | Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A command that judges the work. One that must not run twice says `repeatable: false`."""

    command: Command
    name: Text | None = None
    timeout_s: Seconds | None = None
    repeatable: bool = True


class Definition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The content of a task file. None: not given, so the configuration decides."""

    id: str
    title: str | None = None
    goal: str | None = None
    role: Text | None = None
    priority: int | None = None
    depends_on: tuple[str, ...] = ()
    # What becomes of it when a task that it depends on fails for good or is cancelled; it waits unless it says.
    on_dependency_failed: Literal["wait", "cancel"] | None = None
    parent: str | None = None
    agent: Text | None = None
    model: Text | None = None
    command: Command | None = None
    script: Text | None = None
    sandbox: Text | None = None
    # What its agent may do unasked: a mode, or rules; with rules everything else is asked about.
    permissions: Mode | tuple[PermissionRule, ...] | None = None
    budget_usd: Annotated[float, msgspec.Meta(ge=0)] | None = None
    budget_tokens: Count | None = None
    budget_turns: Count | None = None
    budget_seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    max_attempts: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_resumes: Count | None = None
    timeout_s: Seconds | None = None
    subtask_timeout_s: Seconds | None = None
    paths: tuple[Text, ...] = ()
    verify: tuple[Check, ...] = ()
    approve: bool | None = None
    land: Literal["merge", "pull_request"] | None = None
    # A question or a review: it may end without a change, and its answer is kept.
    may_change_nothing: bool | None = None
    # Unix seconds; a file may give an ISO time instead, which is UTC where it names no zone.
    not_before: float | None = None
    labels: tuple[Text, ...] = ()
    forked_from: str | None = None
    context: Any = None
    # The issue of a tracker that it came from; written by the sync alone.
    origin: Origin | None = None
    claim: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


_FIELDS = {field.name: field.type for field in msgspec.structs.fields(Definition)}
_TURN = re.compile(r"[1-9][0-9]{0,8}")
_WORK = ("title", "goal", "command", "script")


def fork_source(made: Definition) -> tuple[str, int] | None:
    """The attempt and the turn whose tree the task begins with; None: it begins with the target."""
    attempt, _, turn = (made.forked_from or "").partition("@")
    return (attempt, int(turn)) if turn else None


def is_id(name: str) -> bool:
    """True for a task id. Such a name is safe as a file name and as a part of a git ref."""
    return _ID.fullmatch(name) is not None


def parse(text: bytes, stem: str) -> Definition | list[FileProblem]:
    """The definition in `text`; `stem` is the file's name without its ending, and the id where none is given."""
    from holdfast.domain.yaml_text import read_mapping

    try:
        values = read_mapping(text)
    except Unreadable as unreadable:
        return [unreadable.problem]
    values.setdefault("id", stem)
    try:
        made = from_mapping(values, text)
    except msgspec.ValidationError:
        return _wrong_fields(text, values)
    return made


def from_mapping(values: Mapping[str, Any], text: bytes = b"{}") -> Definition | list[FileProblem]:
    """The definition with these values; problems name their places in `text`."""
    made = msgspec.convert(_normal(values), Definition)
    return _wrong_values(text, made) or made


def render(definition: Definition) -> bytes:
    """The text of a file for `definition`: `parse` makes the same record of it."""
    from holdfast.domain.yaml_text import write_mapping

    return write_mapping(msgspec.to_builtins(definition))


def possible_ids(text: bytes, stem: str) -> tuple[str, ...]:
    """The ids that the task of a broken file may have: what could be meant by it is not gone."""
    written = re.search(rb"""^\s*id\s*:\s*["']?([A-Za-z0-9][A-Za-z0-9._-]*)""", text, re.MULTILINE)
    return tuple(dict.fromkeys(([written[1].decode()] if written else []) + [stem]))


def find(text: bytes, key: str) -> tuple[int, int]:
    """Line and column of a problem's `key` (such as `depends_on[1]`) in a text that `parse` took."""
    from holdfast.domain.yaml_text import locate

    path = [int(part[1:]) if part[0] == "[" else part for part in re.findall(r"\[\d+|[^.\[\]]+", key)]
    return locate(text, path)


# -- one file ---------------------------------------------------------------------------------------------------------


def _normal(values: Mapping[str, Any]) -> dict[str, Any]:
    """The short forms written out: a check that is only a command, a time in words."""
    normal = dict(values)
    verify = normal.get("verify")
    if verify is not None:
        checks = [verify] if isinstance(verify, str | dict) else verify
        if isinstance(checks, list):
            normal["verify"] = [{"command": check} if isinstance(check, str) else check for check in checks]
    if isinstance(not_before := normal.get("not_before"), str):
        normal["not_before"] = _unix_s(not_before)
    return normal


def _unix_s(written: str) -> float | str:
    try:
        time = datetime.fromisoformat(written)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return written


def _wrong_fields(text: bytes, values: dict[str, Any]) -> list[FileProblem]:
    """Every unknown key and every value of a wrong type, in the order of the file."""
    problems = []
    for key, value in _normal(values).items():
        if key not in _FIELDS:
            import difflib

            near = difflib.get_close_matches(key, _FIELDS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_FIELDS)}"
            problems.append(_problem(text, key, f"the key {key!r} is not known: {hint}"))
            continue
        try:
            msgspec.convert(value, _FIELDS[key])
        except msgspec.ValidationError as error:
            told, _, where = str(error).partition(" - at `$")
            place = key + where.rstrip("`").replace("[...]", "")
            problems.append(_problem(text, place, f"{place}: {_in_words(told, key)}"))
    return problems


def _in_words(told: str, key: str) -> str:
    if key == "not_before":
        return "expected Unix seconds or an ISO time such as 2026-01-31T12:00:00Z"
    told = re.sub(r"\b(int|float|bool|str|array|object|null)\b", lambda found: _WORDS[found[0]], told)
    told = told.replace("`", "").replace(" | ", " or ")
    hint = ": put it in quotes if it is text" if re.search("text.* got (a .*number|yes)", told) else ""
    return told[0].lower() + told[1:] + hint


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "yes or no",
    "str": "text",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}


def _wrong_values(text: bytes, made: Definition) -> list[FileProblem]:
    """The problems that the types alone do not show."""
    problems = [
        _problem(text, key, f"{key}: {name!r} cannot be a task id: {ID_RULE}")
        for key, name in _named_ids(made)
        if not is_id(name)
    ]
    _, at, turn = (made.forked_from or "").partition("@")
    if at and not _TURN.fullmatch(turn):
        told = f"forked_from: {made.forked_from!r} names no turn; write it as in fix-login.1@3"
        problems.append(_problem(text, "forked_from", told))
    if made.model is not None and not re.match(MODEL_PATTERN, made.model):
        problems.append(_problem(text, "model", f"model: {made.model!r} cannot be a model: {MODEL_RULE}"))
    if not any(getattr(made, key) for key in _WORK):
        problems.append(_problem(text, "", f"the task says nothing to do: give at least one of {', '.join(_WORK)}"))
    return problems


def _named_ids(made: Definition) -> Iterable[tuple[str, str]]:
    yield "id", made.id
    if made.parent is not None:
        yield "parent", made.parent
    if made.forked_from is not None:
        yield "forked_from", made.forked_from.partition("@")[0]
    for number, name in enumerate(made.depends_on):
        yield f"depends_on[{number}]", name


def _problem(text: bytes, key: str, message: str) -> FileProblem:
    return FileProblem(*find(text, key), message, key)


# -- all files together -----------------------------------------------------------------------------------------------


def problems_of(definitions: Iterable[tuple[str, Definition]], broken: Collection[str] = ()) -> list[FileProblem]:
    """The problems between files, given as (file, definition). `broken`: ids whose own file is reported already.

    The lines are not known here: `find` has them, for the file's text and the problem's key.
    """
    files: dict[str, list[str]] = {}
    known: dict[str, Definition] = {}
    for file, made in definitions:
        files.setdefault(made.id, []).append(file)
        known[made.id] = made
    problems = [
        FileProblem(
            0, 0, f"the id {name!r} is given by several files: {', '.join(sorted(found))}", "id", file, tasks=(name,)
        )
        for name, found in files.items()
        if len(found) > 1
        for file in found
    ]
    problems += _shadows(files)
    # Of several files with one id none is the task: nothing follows from what they name.
    clear = {name: made for name, made in known.items() if len(files[name]) == 1}
    for name, made in clear.items():
        for key, other in _named_ids(made):
            if key not in ("id", "forked_from") and other not in known:
                why = "whose own file cannot be used" if other in broken else "and there is no such task"
                problems.append(FileProblem(0, 0, f"{key} names {other!r}, {why}", key, files[name][0], tasks=(name,)))
    for key, edges in (
        ("depends_on", {name: list(made.depends_on) for name, made in clear.items() if made.depends_on}),
        ("parent", {name: [made.parent] for name, made in clear.items() if made.parent}),
    ):
        for members in _knots(edges):
            told = f"{key} goes round in a circle: {' → '.join(_circle(edges, members))}"
            problems.append(FileProblem(0, 0, told, key, files[members[0]][0], tasks=tuple(members)))
    return problems


def _shadows(files: Mapping[str, list[str]]) -> list[FileProblem]:
    """Of files whose names differ only by case, a disk that does not tell cases apart keeps one."""
    alike: dict[str, list[str]] = {}
    for name in files:
        alike.setdefault(name.casefold(), []).append(name)
    problems = []
    for names in alike.values():
        for name in names if len(names) > 1 else ():
            others = ", ".join(repr(other) for other in sorted(names) if other != name)
            told = f"the id {name!r} differs only by case from {others}, whose file it would replace on some disks"
            problems.append(FileProblem(0, 0, f"{told}: choose another", "id", files[name][0], tasks=(name,)))
    return problems


def _knots(edges: dict[str, list[str]]) -> list[list[str]]:
    """The groups whose members all reach each other (Tarjan, without recursion), sorted."""
    knots: list[list[str]] = []
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    open_names: list[str] = []
    is_open: set[str] = set()
    for root in edges:
        if root in order:
            continue
        work = [(root, iter(edges[root]))]
        while work:
            name, rest = work[-1]
            if name not in order:
                order[name] = low[name] = len(order)
                open_names.append(name)
                is_open.add(name)
            for other in rest:
                if other not in order and other in edges:
                    work.append((other, iter(edges[other])))
                    break
                if other in is_open:
                    low[name] = min(low[name], order[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == order[name]:
                    members = [open_names.pop()]
                    while members[-1] != name:
                        members.append(open_names.pop())
                    is_open.difference_update(members)
                    if len(members) > 1 or name in edges[name]:
                        knots.append(sorted(members))
    return knots


def _circle(edges: dict[str, list[str]], members: list[str]) -> list[str]:
    """The shortest way from the first member back to itself."""
    start, inside = members[0], set(members)
    came_from: dict[str, str] = {}
    front = [start]
    while start not in came_from:
        reached = [(other, name) for name in front for other in edges[name] if other in inside]
        front = []
        for other, name in reached:
            if other not in came_from:
                came_from[other] = name
                front.append(other)
    way = [start, came_from[start]]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    way.reverse()
    return way if len(way) <= 24 else [*way[:12], f"({len(way) - 23} more)", *way[-11:]]
