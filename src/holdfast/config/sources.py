"""The sources of settings: environment, command line and YAML files, each as one layer that knows its places."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.config.settings import KEYS, PREFIX, SECTIONS, VARIABLES
from holdfast.errors import ConfigError, ConfigUnreadable, SettingTwice, SettingUnknown

# Of a settings file, with the document itself; none needs more than a few.
DEPTH_MAX = 20
# Variables that begin like settings and are none: secrets, an agent's own, and the sizes of test campaigns.
NOT_SETTINGS = frozenset(
    PREFIX + name
    for name in (
        "AUDIT_KEY", "TASK", "ATTEMPT", "START", "WORKTREE", "URL", "TOKEN", "TURN", "PROMPT_FILE", "EXAMPLES", "KILLS",
        "CLOCK", "CRASH_AT", "CRASH_LOG", "CRASH_ONCE",
    )
)  # fmt: skip


class Layer(msgspec.Struct, frozen=True):
    """The settings of one source, by dotted key, and the place of each.

    `is_text`: a value may be text that stands for a number or the like, as in the environment.
    """

    values: Mapping[str, Any]
    place: Callable[[str], str]
    is_text: bool = False


def environment(environ: Mapping[str, str]) -> Layer:
    """The variables that begin with HOLDFAST_. One that is empty counts as not set."""
    values: dict[str, Any] = {}
    for variable, value in environ.items():
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS or not value:
            continue
        if variable not in VARIABLES:
            # A misspelt name may carry a secret, which must not reach a log.
            raise unknown(variable, "(hidden)", "The environment", [*VARIABLES, *sorted(NOT_SETTINGS)])
        values[VARIABLES[variable]] = value
    return Layer(values, lambda key: f"The environment variable {KEYS[_top(key)].variable}", is_text=True)


def command_line(options: Mapping[str, Any]) -> Layer:
    """The options by dotted key. One that is None was not given."""
    values = {key: value for key, value in options.items() if value is not None}
    return Layer(values, lambda key: f"The option {KEYS[_top(key)].option if _top(key) in KEYS else key}", is_text=True)


def _top(key: str) -> str:
    return key.partition("[")[0]


# -- files ------------------------------------------------------------------------------------------------------------


def read_file(path: Path, known: Collection[str], elsewhere: str) -> Layer:
    """The settings of a YAML file, of those that are `known` there; `elsewhere` says where the others belong."""
    lines: dict[str, int] = {}

    def place(key: str) -> str:
        return f"{path}, line {lines[key]}" if key in lines else str(path)

    values = dict(_read_yaml(path, lines, place))
    for key, value in values.items():
        if key not in KEYS:
            raise unknown(key, value, place(key), known)
        if key not in known:
            raise SettingUnknown(place=place(key), key=key, value=shown(value), allowed=elsewhere)
    return Layer(values, place)


def _read_yaml(path: Path, lines: dict[str, int], place: Callable[[str], str]) -> Iterator[tuple[str, Any]]:
    if not os.path.lexists(path):
        return
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise _unreadable(str(path), error.strerror or str(error)) from None
    except ValueError as error:
        raise _unreadable(str(path), str(error)) from None
    if _sets_nothing(text):
        return
    # Slow to import, so only a file that sets something pays for it.
    import yaml

    try:
        kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        _expect_shallow(path, yaml.parse(text, Loader=kind))
        loader = kind(text)
        top = loader.get_single_node()
        _number(top, "", lines, place)
        yield from _settings(top, "", loader, place)
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        where = f"{path}, line {at.line + 1}" if at else str(path)
        raise _unreadable(where, error.problem or error.context or "it is not YAML") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _unreadable(str(path), str(error)) from None


def _expect_shallow(path: Path, events: Iterator[Any]) -> None:
    """Refuses deep nesting first: building the nodes recurses once for each level."""
    depth = 0
    for event in events:
        name = type(event).__name__
        depth += name.endswith("StartEvent") - name.endswith("EndEvent")
        if depth > DEPTH_MAX:
            raise _unreadable(f"{path}, line {event.start_mark.line + 1}", f"it is nested more than {DEPTH_MAX} deep")


def _sets_nothing(text: str) -> bool:
    """True for a file as `init` makes it: comments, and each section's bare name once. False: YAML has to tell."""
    if not text.replace("\n", " ").isprintable():
        return False
    lines = [line for line in text.split("\n") if not line.lstrip(" ").startswith("#") and line.strip(" ")]
    names = {line.removesuffix(":") for line in lines if line.endswith(":")}
    return len(names) == len(lines) and names <= SECTIONS.keys()


def _unreadable(place: str, reason: str) -> ConfigUnreadable:
    return ConfigUnreadable(place=place, key="", value="", reason=reason, allowed="one YAML mapping of settings")


def _number(node: Any, key: str, lines: dict[str, int], place: Callable[[str], str], depth: int = 4) -> None:
    """Notes the line of every key, and refuses one that stands twice in its mapping: YAML would drop the first.

    No setting lies deeper than four levels; the bound also ends a list that contains itself.
    """
    if node is None or node.id == "scalar" or not depth:
        return
    for at, child in enumerate(node.value):
        if node.id == "sequence":
            name, line, below = f"{key}[{at}]", child.start_mark.line + 1, child
        else:
            name, line, below = _join(key, child[0].value), child[0].start_mark.line + 1, child[1]
        if name in lines:
            here, first = f"{place('')}, line {line}", f"line {lines[name]}"
            # A value of `env` may be a secret.
            value = "…" if ".env." in name else shown(below.value) if below.id == "scalar" else _KINDS[below.id]
            raise SettingTwice(place=here, key=name, value=value, first=first, allowed="one of them")
        lines[name] = line
        _number(below, name, lines, place, depth - 1)


_KINDS = {"mapping": "a mapping", "sequence": "a list"}


def _settings(node: Any, section: str, loader: Any, place: Callable[[str], str]) -> Iterator[tuple[str, Any]]:
    # A section of which every line is commented out is null.
    if node is None or (section and node.tag == "tag:yaml.org,2002:null"):
        return
    if node.id != "mapping":
        if not section:
            raise _unreadable(place(""), "it is not a mapping")
        value, allowed = shown(loader.construct_object(node, deep=True)), ", ".join(SECTIONS[section].__struct_fields__)
        raise ConfigError(place=place(section), key=section, value=value, allowed=f"a mapping of {allowed}")
    for key_node, below in node.value:
        key = _join(section, key_node.value)
        if key in SECTIONS:
            yield from _settings(below, key, loader, place)
        else:
            yield key, loader.construct_object(below, deep=True)


def _join(section: str, name: str) -> str:
    return f"{section}.{name}" if section else str(name)


# -- naming what is wrong ---------------------------------------------------------------------------------------------


def unknown(key: str, value: Any, place: str, known: Collection[str]) -> SettingUnknown:
    import difflib

    # Somebody may have left out the section, or put another one before it.
    ends = {name.rpartition(".")[2]: name for name in known}
    near = difflib.get_close_matches(key, known, 1) or [
        ends[end] for end in difflib.get_close_matches(key.rpartition(".")[2], ends, 1)
    ]
    allowed = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(sorted(known))}."
    return SettingUnknown(place=place, key=key, value=shown(value), allowed=allowed)


def shown(value: Any) -> str:
    """A value for an error, cut where it is long."""
    import reprlib

    short = reprlib.Repr()
    short.maxstring = short.maxother = 100
    return "null" if value is None else short.repr(value)
