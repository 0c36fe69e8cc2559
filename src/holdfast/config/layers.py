"""Checks every layer and puts them together: the later one wins, key by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import NODEFAULT

from holdfast.config.settings import (
    AGENT_KEYS,
    ENTRIES_MAX,
    ENV_NAME,
    FOLDERS,
    GATE_KEYS,
    KEYS,
    PREFIX,
    PRICE_KEYS,
    ROUTE_KEYS,
    SECTIONS,
    STEP_KEYS,
    Config,
    DeclaredAgent,
    GateSettings,
    ModelPrice,
    RouteSettings,
    SettingKey,
    StepSettings,
)
from holdfast.config.sources import Layer, command_line, environment, read_file, shown, unknown
from holdfast.domain.agent_events import mapping_problem
from holdfast.domain.reserved_paths import REPOSITORY_FILE
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
            values[key] = _ENTRIES[key](value, layer) if key in _ENTRIES else _checked(KEYS[key], key, value, layer)
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


def _checked(key: SettingKey, name: str, value: Any, layer: Layer) -> Any:
    """The value as the setting's type. Text from the environment or the command line is read as what it must be."""
    try:
        if layer.is_text and isinstance(value, str) and value.startswith("["):
            return msgspec.json.decode(value, type=key.kind)
        if layer.is_text and isinstance(value, str) and value != "null":
            return msgspec.convert(value, key.kind, strict=False)
        return msgspec.convert(None if layer.is_text and value == "null" else value, key.kind)
    except msgspec.DecodeError:
        raise _refused(name, value, key.allowed, layer) from None


def _refused(name: str, value: Any, allowed: str, layer: Layer) -> ConfigError:
    told = _without_values(value, name.endswith(".env"))
    return ConfigError(place=layer.place(name), key=name, value=shown(told), allowed=allowed)


def _without_values(value: Any, is_env: bool = False) -> Any:
    """Without the values of `env`, which may be secrets: what is wrong is told on terminals and in logs."""
    if isinstance(value, dict):
        return {key: "…" if is_env else _without_values(each, key == "env") for key, each in value.items()}
    return [_without_values(each) for each in value] if isinstance(value, list | tuple) else value


def _gates(value: Any, layer: Layer) -> tuple[GateSettings, ...]:
    return tuple(GateSettings(**each) for each in _named("gates", "gate", GATE_KEYS, value, layer))


def _agents(value: Any, layer: Layer) -> tuple[DeclaredAgent, ...]:
    found = tuple(DeclaredAgent(**each) for each in _named("agents", "agent", AGENT_KEYS, value, layer))
    for at, each in enumerate(found):
        if wrong := mapping_problem(each.events):
            raise _refused(f"agents[{at}].events", each.events, f"a mapping of events: {wrong}", layer)
        if each.resume and not ("session.id" in each.events and any("{session}" in part for part in each.resume)):
            allowed = "arguments with {session} among them, where its events have a session.id"
            raise _refused(f"agents[{at}].resume", each.resume, allowed, layer)
        _expect_fitting(each, f"agents[{at}]", layer)
    return found


def _expect_fitting(agent: DeclaredAgent, name: str, layer: Layer) -> None:
    """What is for a known CLI does not go with a command of one's own, and the other way round."""
    if agent.command:
        for key, default in (("permissions", "full"), ("args", ())):
            if (value := getattr(agent, key)) != default:
                raise _refused(f"{name}.{key}", value, "left out where there is a `command`: write it there", layer)
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


def _routes(value: Any, layer: Layer) -> tuple[RouteSettings, ...]:
    return tuple(RouteSettings(**each) for each in _entries("routes", ROUTE_KEYS, value, layer))


def _steps(value: Any, layer: Layer) -> tuple[StepSettings, ...]:
    return tuple(StepSettings(**each) for each in _entries("cascade", STEP_KEYS, value, layer))


def _prices(value: Any, layer: Layer) -> dict[str, ModelPrice]:
    value = _written("prices", value, layer)
    if not isinstance(value, dict) or len(value) > ENTRIES_MAX or not all(isinstance(name, str) for name in value):
        raise _refused("prices", value, KEYS["prices"].allowed, layer)
    return {name: ModelPrice(**_entry(PRICE_KEYS, each, f"prices.{name}", layer)) for name, each in value.items()}


_ENTRIES: dict[str, Callable[[Any, Layer], Any]] = {
    "gates": _gates,
    "agents": _agents,
    "routes": _routes,
    "cascade": _steps,
    "prices": _prices,
}


def _named(top: str, noun: str, keys: Mapping[str, SettingKey], value: Any, layer: Layer) -> list[dict[str, Any]]:
    entries = _entries(top, keys, value, layer)
    names: set[str] = set()
    for at, entry in enumerate(entries):
        if entry["name"] in names:
            raise _refused(f"{top}[{at}].name", entry["name"], f"a name that no other {noun} has", layer)
        names.add(entry["name"])
    return entries


def _entries(top: str, keys: Mapping[str, SettingKey], value: Any, layer: Layer) -> list[dict[str, Any]]:
    """A list of mappings, taken apart by hand, so that an error names the very line."""
    value = _written(top, value, layer)
    if not isinstance(value, list | tuple) or len(value) > ENTRIES_MAX:
        raise _refused(top, value, KEYS[top].allowed, layer)
    return [_entry(keys, each, f"{top}[{at}]", layer) for at, each in enumerate(value)]


def _written(top: str, value: Any, layer: Layer) -> Any:
    if not (layer.is_text and isinstance(value, str)):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        raise _refused(top, value, KEYS[top].allowed + ", written as JSON", layer) from None


def _entry(keys: Mapping[str, SettingKey], value: Any, name: str, layer: Layer) -> dict[str, Any]:
    needed = [key.name for key in keys.values() if key.default is NODEFAULT]
    if not isinstance(value, dict) or not value.keys() >= set(needed):
        raise _refused(name, value, f"a mapping of {', '.join(keys)}, with {' and '.join(needed)}", layer)
    for key, each in value.items():
        if key not in keys:
            place = layer.place(f"{name}.{key}")
            raise unknown(f"{name}.{key}", each, place, [f"{name}.{known}" for known in keys])
    return {key: _checked(keys[key], f"{name}.{key}", each, layer) for key, each in value.items()}
