"""The installed plugins: found by their entry points, loaded once, and asked for what they provide.

A plugin is code that runs with the rights of who runs Holdfast. Only packages that are installed beside Holdfast are
looked at, never the repository, a worktree or the data root. One that cannot be loaded is listed with the reason, and
breaks nothing.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.config.sections import PluginSettings

if TYPE_CHECKING:
    import pluggy

GROUP = "holdfast.plugins"
# Everything that plugins can provide, each kind with what its factories are called with and return. A part of Holdfast
# that takes more from plugins has one line here, and asks `provided` for it.
KINDS: dict[str, str] = {
    "agents": "factory() -> ports.Agent: an agent that tasks and settings can name",
    "gates": "factory(arguments) -> command: what `gate:NAME arguments` stands for in `gates:` and `verify:`",
}
PRINTED_MAX = 4000
Factory = Callable[..., Any]


class LoadedPlugin(msgspec.Struct, frozen=True):
    """One installed plugin. `problem`: why it cannot be used; empty where it can. `hooks`: those that it implements.
    `printed`: what it printed while it was loaded."""

    name: str
    problem: str = ""
    hooks: tuple[str, ...] = ()
    printed: str = ""
    manager: Any = None

    def call(self, hook: str, **arguments: Any) -> Any:
        return getattr(self.manager.hook, hook)(**arguments)


def is_enabled(name: str, settings: PluginSettings) -> bool:
    return (settings.enabled is None or name in settings.enabled) and name not in settings.disabled


def settings_of(name: str, settings: PluginSettings) -> Mapping[str, Any]:
    return settings.settings.get(name, {})


def names() -> list[str]:
    """The names of all installed plugins. Loads none of them."""
    return sorted({point.name for point in _points(tuple(sys.path))})


def origin(name: str) -> dict[str, Any]:
    """The name and package of an installed plugin, its version, and the module that is loaded."""
    point = next(point for point in _points(tuple(sys.path)) if point.name == name)
    package, version = (point.dist.name, point.dist.version) if point.dist is not None else ("", "")
    return {"name": name, "package": package, "version": version, "module": point.value}


def load(name: str) -> LoadedPlugin:
    """Loads a plugin that is installed. What is wrong with it is in its `problem`."""
    return _loaded(tuple(point for point in _points(tuple(sys.path)) if point.name == name))


def enabled(settings: PluginSettings) -> list[LoadedPlugin]:
    """Those that the settings want, loaded; also those with a problem."""
    return [load(name) for name in names() if is_enabled(name, settings)]


def provided(kind: str, settings: PluginSettings) -> dict[str, Factory]:
    """The factories of a kind, by name, of all enabled plugins. The first plugin, by name, that has one counts."""
    found: dict[str, Factory] = {}
    for plugin in enabled(settings):
        made, _ = provided_by(plugin, kind, settings)
        found = {**made, **found}
    return found


def provided_by(plugin: LoadedPlugin, kind: str, settings: PluginSettings) -> tuple[dict[str, Factory], str]:
    """The factories of one plugin, and what is wrong with them."""
    assert kind in KINDS, kind
    if plugin.problem or "provides" not in plugin.hooks:
        return {}, ""
    try:
        with silenced():
            given = plugin.call("provides", kind=kind, settings=settings_of(plugin.name, settings)) or {}
    except (Exception, SystemExit) as error:  # noqa: BLE001 (a plugin's code may raise anything, and is named with it)
        return {}, f"`provides` failed for {kind}: {described(error)}"
    if not isinstance(given, Mapping) or not all(isinstance(name, str) and callable(given[name]) for name in given):
        return {}, f"`provides` gave no mapping of names to factories for {kind}"
    return dict(given), ""


def made(what: str, factory: Factory, *arguments: Any) -> tuple[Any, str]:
    """What a factory makes, and why it does not."""
    try:
        with silenced():
            return factory(*arguments), ""
    except (Exception, SystemExit) as error:  # noqa: BLE001 (a plugin's code may raise anything, and is named with it)
        return None, f"the plugin's factory of {what} failed: {described(error)}"


def described(error: BaseException) -> str:
    """An error of foreign code on one line, cut."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


@contextlib.contextmanager
def silenced() -> Iterator[io.StringIO]:
    """Keeps what is printed here off the screen, where no other thread prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        yield printed


# -- loading ----------------------------------------------------------------------------------------------------------


@functools.cache
def _points(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The entry points of the packages that are installed on `path`; a package that is there twice counts once."""
    top = _repository_around(Path.cwd())
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for package in distributions(path=[folder for folder in path if _is_installed(folder, top)]):
        # What is left of a package that was removed by hand has no name, or files that cannot be read.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            if GROUP in (package.read_text("entry_points.txt") or ""):
                found.setdefault(package.name, tuple(package.entry_points.select(group=GROUP)))
    return tuple(point for points in found.values() for point in points)


def _repository_around(folder: Path) -> Path | None:
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def _is_installed(folder: str, repository: Path | None) -> bool:
    """False for a folder of the repository, which agents write: `python -m` and PYTHONPATH may put it on the path.
    An environment inside of it, from which Holdfast itself runs, is where a person installs."""
    place, prefix = Path(os.path.realpath(folder or ".")), Path(os.path.realpath(sys.prefix))
    if repository is None or not place.is_relative_to(top := repository.resolve()):
        return True
    return top in prefix.parents and place.is_relative_to(prefix)


@functools.cache
def _loaded(points: tuple[EntryPoint, ...]) -> LoadedPlugin:
    point = points[0]
    plugin = LoadedPlugin(point.name)
    if len({each.value for each in points}) > 1:
        return _with(plugin, f"several installed packages name it: {', '.join(sorted(each.value for each in points))}")
    with silenced() as printed:
        try:
            content = point.load()
            plugin = _registered(plugin, content)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a plugin's code may raise anything, and is named with it)
            plugin = _with(plugin, f"it cannot be loaded: {described(error)}")
    return msgspec.structs.replace(plugin, printed=printed.getvalue()[:PRINTED_MAX])


def _registered(plugin: LoadedPlugin, content: Any) -> LoadedPlugin:
    import pluggy

    from holdfast.integrations.plugins import hookspecs

    wanted = getattr(content, "holdfast_api", None)
    if wanted != hookspecs.API_VERSION:
        told = "it has no `holdfast_api`" if wanted is None else f"it is made for version {wanted} of the plugin API"
        return _with(plugin, f"{told}, and this Holdfast has version {hookspecs.API_VERSION}")
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs.HookSpecs)
    manager.register(content, plugin.name)
    # Raises where it implements a hook that there is not.
    manager.check_pending()
    return msgspec.structs.replace(plugin, manager=manager, hooks=_hooks(manager))


def _hooks(manager: pluggy.PluginManager) -> tuple[str, ...]:
    from holdfast.integrations.plugins.hookspecs import HookSpecs

    names = [name for name in vars(HookSpecs) if not name.startswith("_")]
    return tuple(name for name in names if getattr(manager.hook, name).get_hookimpls())


def _with(plugin: LoadedPlugin, problem: str) -> LoadedPlugin:
    return msgspec.structs.replace(plugin, problem=problem)
