"""Checks every layer and puts them together: the later one wins, key by key."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import NODEFAULT

from holdfast.config.sections import ENV_NAME, FOLDERS, DeclaredAgent, GateSettings, ModelPrice, PermissionSettings
from holdfast.config.settings import ENTRY_KEYS, KEYS, PREFIX, SECTIONS, Config
from holdfast.config.sources import Layer, command_line, environment, read_file, shown, unknown
from holdfast.config.trackers import SourceSettings
from holdfast.domain.agent_events import mapping_problem
from holdfast.domain.path_rules import REPOSITORY_FILE
from holdfast.domain.routing import twice
from holdfast.errors import ConfigError
from holdfast.layout import HOME_VARIABLE, Layout, locate


@dataclass(frozen=True)
class Loaded:
    """The configuration in effect, where each value came from, and the data root that it was found in."""

    config: Config
    layout: Layout
    origins: Mapping[str, str] = field(compare=False)


class Explained(msgspec.Struct, frozen=True):
    key: str
    value: Any
    origin: str
    description: str


def load(repo: Path, *, environ: Mapping[str, str], options: Mapping[str, Any] | None = None) -> Loaded:
    """Reads every source. `options` has dotted keys, from the command line; one that is None was not given."""
    repository = read_file(repo / REPOSITORY_FILE, {"data_root"}, _OTHERS_ELSEWHERE)
    chosen = command_line(options or {})
    layout = locate(
        repo, option=combine(chosen)[0].data_root, environ=environ, configured=combine(repository)[0].data_root
    )
    settings = read_file(layout.settings, KEYS.keys() - {"data_root"}, _ROOT_ELSEWHERE)
    config, origins = combine(repository, settings, environment(environ), chosen)
    return Loaded(config, layout, origins)


_OTHERS_ELSEWHERE = "Only data_root is set there; all else belongs in config/settings.yaml of the data root."
_ROOT_ELSEWHERE = (
    f"A file inside the data root cannot say where it is: use {REPOSITORY_FILE} at the top of the repository, "
    f"{HOME_VARIABLE} or --data-root."
)


def combine(*layers: Layer) -> tuple[Config, dict[str, str]]:
    """Checks every value of every layer, also one that a later layer covers. The later layer wins, key by key."""
    values: dict[str, Any] = {}
    origins = dict.fromkeys(KEYS, "default")
    for layer in layers:
        for key, value in layer.values.items():
            if key not in KEYS:
                raise unknown(key, value, layer.place(key), KEYS)
            values[key] = _checked(key, value, layer)
            if key in ("gates", "agents", "sources"):
                _expect_unique(key, values[key], layer)
            if key == "agents":
                _expect_usable(values[key], layer)
            if key == "permissions":
                _expect_sensible(values[key], layer)
            origins[key] = layer.place(key)
    tree: dict[str, Any] = {name: {} for name in SECTIONS}
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        (tree[section] if section else tree)[name] = value
    config = Config(**tree | {name: kind(**tree[name]) for name, kind in SECTIONS.items()})
    if (again := twice(config)) >= 0:
        layer = next(each for each in reversed(layers) if "cascade" in each.values)
        allowed = "an agent with a model that no step before it has"
        raise _refused(f"cascade[{again}]", msgspec.to_builtins(config.cascade[again]), allowed, layer)
    return config, origins


def explain(loaded: Loaded) -> list[Explained]:
    """Every setting with its value and the place that it came from."""
    return [
        Explained(key.name, value_of(loaded.config, key.name), loaded.origins[key.name], key.description)
        for key in KEYS.values()
    ]


def value_of(config: Config, key: str) -> Any:
    section, _, name = key.rpartition(".")
    return getattr(getattr(config, section) if section else config, name)


# -- checking ---------------------------------------------------------------------------------------------------------


def _checked(name: str, value: Any, layer: Layer) -> Any:
    """The value as the setting's type. Text from the environment or the command line is read as what it must be."""
    kind, given = KEYS[name].kind, value
    is_text = layer.is_text and isinstance(value, str)
    try:
        if is_text and (name in ENTRY_KEYS or name == "plugins.settings" or value.startswith("[")):
            value, is_text = msgspec.json.decode(value), False
        elif is_text and value == "null":
            value = None
    except msgspec.DecodeError:
        written = ", written as JSON" if name in ENTRY_KEYS else ""
        raise _refused(name, given, KEYS[name].allowed + written, layer) from None
    if name == "prices" and isinstance(value, dict):
        # An error's path does not name the key of a mapping, so each is converted by itself.
        for model, each in value.items():
            _converted(ModelPrice, f"prices.{model}", each, layer)
    return _converted(kind, name, value, layer, strict=not is_text)


def _converted(kind: Any, name: str, value: Any, layer: Layer, *, strict: bool = True) -> Any:
    """Converts a value; an error's own path says which part of it is wrong, and so on which line that stands."""
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        path = re.search(r"`\$(?P<entry>\[\d+\])?(?:\.(?P<field>\w+))?[^`]*`$", str(error))
    place, field = (path["entry"] or "", path["field"] or "") if path else ("", "")
    top = "prices" if kind is ModelPrice else name
    if top not in ENTRY_KEYS or (top == name and not place):
        raise _refused(name, value, KEYS[name].allowed, layer)
    keys = ENTRY_KEYS[top]
    entry, name = (value[int(place[1:-1])], name + place) if place else (value, name)
    if field:
        raise _refused(f"{name}.{field}", entry[field], keys[field].allowed, layer)
    needed = [key.name for key in keys.values() if key.default is NODEFAULT]
    if isinstance(entry, dict) and entry.keys() >= set(needed):
        field = next(key for key in entry if key not in keys)
        known = [f"{name}.{key}" for key in keys]
        raise unknown(f"{name}.{field}", entry[field], layer.place(f"{name}.{field}"), known)
    raise _refused(name, entry, f"a mapping of {', '.join(keys)}, with {' and '.join(needed)}", layer)


def _refused(name: str, value: Any, allowed: str, layer: Layer) -> ConfigError:
    told = _without_values(value, name.endswith(".env"))
    return ConfigError(place=layer.place(name), key=name, value=shown(told), allowed=allowed)


def _without_values(value: Any, is_env: bool = False) -> Any:
    """Without the values of `env`, which may be secrets: errors reach terminals and logs."""
    if isinstance(value, dict):
        return {key: "…" if is_env else _without_values(each, key == "env") for key, each in value.items()}
    return [_without_values(each) for each in value] if isinstance(value, list | tuple) else value


def _expect_unique(top: str, entries: Sequence[GateSettings | DeclaredAgent | SourceSettings], layer: Layer) -> None:
    names = [each.name for each in entries]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise _refused(f"{top}[{at}].name", name, f"a name that no other {top.removesuffix('s')} has", layer)


def _expect_usable(agents: Sequence[DeclaredAgent], layer: Layer) -> None:
    for at, each in enumerate(agents):
        if wrong := mapping_problem(each.events):
            raise _refused(f"agents[{at}].events", each.events, f"a mapping of events: {wrong}", layer)
        if each.resume and not ("session.id" in each.events and any("{session}" in part for part in each.resume)):
            allowed = "arguments with {session} among them, where its events have a session.id"
            raise _refused(f"agents[{at}].resume", each.resume, allowed, layer)
        _expect_fitting(each, f"agents[{at}]", layer)


def _expect_sensible(permissions: Sequence[PermissionSettings], layer: Layer) -> None:
    for at, each in enumerate(permissions):
        allowed = ("allow", "deny", "ask") if each.tool else ("skip", "edits", "own", "ask")
        if each.do not in allowed:
            told = f"one of {', '.join(allowed)} {'with' if each.tool else 'without'} a tool"
            raise _refused(f"permissions[{at}].do", each.do, told, layer)
        if each.input != "*" and not each.tool:
            raise _refused(f"permissions[{at}].input", each.input, "left out where there is no tool", layer)


def _expect_fitting(agent: DeclaredAgent, name: str, layer: Layer) -> None:
    """Refuses settings for a known CLI with a command of one's own, and the other way round."""
    if agent.command:
        for key, default in (("permissions", "skip"), ("args", ())):
            if (value := getattr(agent, key)) != default:
                raise _refused(f"{name}.{key}", value, "left out where there is a `command`: write it there", layer)
    if agent.acp:
        for key in ("command", "prompt", "events", "resume", "args"):
            if (value := getattr(agent, key)) != getattr(DeclaredAgent(agent.name), key):
                allowed = "left out where there is `acp`: the protocol says it, and arguments stand in `acp` itself"
                raise _refused(f"{name}.{key}", value, allowed, layer)
    for key in () if agent.command else ("events", "resume"):
        if value := getattr(agent, key):
            raise _refused(f"{name}.{key}", value, "left out where there is no `command`", layer)
    for variable, value in agent.env.items():
        if not ENV_NAME.fullmatch(variable) or variable.startswith(PREFIX) or variable in FOLDERS:
            allowed = (
                "a mapping of variables, none of them of Holdfast's own, nor one that says where a program keeps its "
                f"files ({', '.join(FOLDERS)}): set those where you type `holdfast run`"
            )
            # The value may be a secret.
            raise _refused(f"{name}.env", variable, allowed, layer)
        if "\0" in value:
            raise _refused(f"{name}.env.{variable}", "…", "a text without a zero byte", layer)
