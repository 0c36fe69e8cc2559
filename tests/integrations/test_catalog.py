"""The installed plugins: found, loaded once, listed with what is wrong with them, and asked for what they provide."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from holdfast.agents.registry import agents
from holdfast.app import App
from holdfast.config.sections import GateSettings, PluginSettings
from holdfast.config.settings import Config
from holdfast.domain.definition import Definition
from holdfast.errors import ConfigError
from holdfast.integrations.plugins import catalog
from holdfast.landing import gate_kinds
from kit import TOP
from kit.plugins import install
from kit.program import holdfast, type_in
from kit.project import add, make_repo

SOUND = "holdfast_api = 1\n@hookimpl\ndef landed(commit): pass\n"
PROVIDER = """
holdfast_api = 1
from holdfast.agents.adapters.command import Declared
from holdfast.config.sections import DeclaredAgent

@hookimpl
def provides(kind, settings):
    if kind == "agents":
        named = lambda name: lambda: Declared(DeclaredAgent(name, command=("true",)))
        return {"helper": named("helper"), "claude": named("claude"), "liar": named("other"), "fails": lambda: 1 / 0}
    if kind == "gates":
        words = settings.get("words", "none")
        return {"say": lambda arguments: ("echo", words, *arguments), "empty": lambda arguments: ()}
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    catalog._points.cache_clear()
    before = set(sys.modules)
    yield folder
    catalog._points.cache_clear()
    catalog._loaded.cache_clear()
    for name in set(sys.modules) - before:
        if name.startswith("plugin_"):
            del sys.modules[name]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path / "repo")


def test_every_kind_is_asked_for_and_described_on_the_page() -> None:
    sources = "".join(path.read_text() for path in (TOP / "src").rglob("*.py"))
    assert set(re.findall(r'catalog\.provided\("(\w+)"', sources)) == set(catalog.KINDS)
    page = (TOP / "docs" / "plugins.md").read_text()
    assert all(f"| `{kind}` |" in page for kind in catalog.KINDS)


def test_a_plugin_is_listed_with_what_it_has(site: Path, repo: Path) -> None:
    install(site, "sound", SOUND)
    install(site, "giver", PROVIDER, version="2.1")
    told = json.loads(holdfast(repo, "plugins", "--json"))["plugins"]
    assert [(each["name"], each["version"], each["state"]) for each in told] == [
        ("giver", "2.1", "enabled"),
        ("sound", "1.0", "enabled"),
    ]
    assert told[0]["provides"] == {"agents": ["claude", "fails", "helper", "liar"], "gates": ["empty", "say"]}
    assert told[1]["hooks"] == ["landed"]
    assert "hooks: landed" in holdfast(repo, "plugins", "show", "sound")
    assert "giver 2.1 (enabled)" in holdfast(repo, "doctor", code=None)


BROKEN = {
    "import": ("import nothing_of_this_name", "cannot be loaded: ModuleNotFoundError"),
    "exit": ("raise SystemExit(3)", "cannot be loaded: SystemExit"),
    "prints": ("print('on the screen'); raise ValueError('a\\nb')", "cannot be loaded: ValueError: a b"),
    "no-version": ("", "it has no `holdfast_api`"),
    "newer": ("holdfast_api = 2", "made for version 2 of the plugin API, and this Holdfast has version 1"),
    "unknown-hook": ("holdfast_api = 1\n@hookimpl\ndef evolved(): pass", "unknown hook 'evolved'"),
    "arguments": ("holdfast_api = 1\n@hookimpl\ndef landed(nobody): pass", "nobody"),
    "provides": ("holdfast_api = 1\n@hookimpl\ndef provides(kind): return [kind]", "no mapping of names to factories"),
    "raises": ("holdfast_api = 1\n@hookimpl\ndef provides(kind): raise OSError(kind)", "failed for agents: OSError"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_is_named_and_breaks_no_command(site: Path, repo: Path, name: str) -> None:
    source, wanted = BROKEN[name]
    install(site, name, source)
    (told,) = json.loads(holdfast(repo, "plugins", "--json"))["plugins"]
    assert told["state"] == "broken" and wanted in told["reason"]
    looked = holdfast(repo, "doctor", code=20)
    assert f"holdfast plugins show {name}" in looked and "on the screen" not in looked
    add(repo, "one", "write x y")
    for command in ("list", "agents", "status", "run"):
        assert "on the screen" not in holdfast(repo, command)
    typed = type_in(repo.parent, "plugins")
    assert typed.returncode == 0 and "broken" in typed.stdout


def test_two_packages_of_one_name_are_refused(site: Path, repo: Path) -> None:
    install(site, "twin", SOUND, module="plugin_first")
    install(site, "twin", SOUND, module="plugin_second")
    assert "several installed packages name it: plugin_first, plugin_second" in holdfast(repo, "plugins")


def test_the_settings_say_which_plugins_are_loaded(site: Path, repo: Path) -> None:
    install(site, "loud", "raise ValueError('loaded')")
    install(site, "sound", SOUND)
    for settings in (PluginSettings(enabled=("sound",)), PluginSettings(disabled=("loud",))):
        assert [each.name for each in catalog.enabled(settings)] == ["sound"]
    (repo / ".sdd/config/settings.yaml").write_text("plugins: {disabled: [loud, gone], settings: {sound: {a: [1]}}}")
    assert "loud is disabled: the settings leave it out" in holdfast(repo, "plugins")
    assert "the settings name the plugin gone, which is not installed" in holdfast(repo, "doctor", code=20)


def test_a_package_of_the_repository_is_never_loaded(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m` puts the current folder first on the path, and agents write there."""
    marker = repo.parent / "loaded"
    install(repo, "planted", f"open({str(marker)!r}, 'w')\n{SOUND}")
    for environ in ({"PYTHONPATH": str(repo)}, {"PYTHONPATH": "."}, {"X": "1"}):
        told = json.loads(holdfast(repo, "plugins", "--json", env=environ))
        assert told == {"plugins": []}
    assert not marker.exists()
    monkeypatch.chdir(repo)
    assert not catalog._is_installed("", repo) and not catalog._is_installed(str(repo / "sub"), repo)
    assert catalog._is_installed(os.path.dirname(os.__file__), repo)
    # An environment in the repository is where a person installs; a repository in the system's is a repository.
    monkeypatch.setattr(sys, "prefix", str(repo / ".venv"))
    assert catalog._is_installed(str(repo / ".venv/lib"), repo) and not catalog._is_installed(str(repo / "lib"), repo)
    monkeypatch.setattr(sys, "prefix", str(repo.parent))
    assert not catalog._is_installed(str(repo / "lib"), repo)


def test_remains_of_a_package_break_nothing(site: Path, repo: Path) -> None:
    install(site, "sound", SOUND)
    for name, content in (("a", b"[holdfast.plugins]\nx = y\n"), ("b", b"[holdfast.plugins\n"), ("c", b"\xff\xfe")):
        (site / f"{name}-1.dist-info").mkdir()
        (site / f"{name}-1.dist-info" / "entry_points.txt").write_bytes(content)
    names = [each["name"] for each in json.loads(holdfast(repo, "plugins", "--json"))["plugins"]]
    assert "sound" in names and holdfast(repo, "list") is not None


def test_settings_of_a_plugin_can_stand_in_a_variable(site: Path, repo: Path) -> None:
    given = {"HOLDFAST_PLUGINS__SETTINGS": '{"giver": {"words": "hi"}}', "HOLDFAST_PLUGINS__ENABLED": '["giver"]'}
    loaded = App.find(repo, environ=given).config.plugins
    assert loaded.settings == {"giver": {"words": "hi"}} and loaded.enabled == ("giver",)
    with pytest.raises(ConfigError, match="a mapping of up to 100 mappings"):
        App.find(repo, environ={"HOLDFAST_PLUGINS__SETTINGS": '{"giver": 1}'})


def test_agents_of_a_plugin_replace_none_that_is_known(site: Path) -> None:
    install(site, "giver", PROVIDER)
    known = agents(Config())
    assert known["helper"].find() and type(known["claude"]).__name__ == "Claude"
    assert "liar" not in known and "fails" not in known
    assert "helper" not in agents(Config(plugins=PluginSettings(disabled=("giver",))))


def test_gates_of_a_plugin_become_commands(site: Path) -> None:
    install(site, "giver", PROVIDER)
    config = Config(
        plugins=PluginSettings(settings={"giver": {"words": "hello"}}),
        gates=(GateSettings("said", "gate:say 'two words' x"), GateSettings("plain", "true")),
    )
    made = Definition("one", goal="one")
    assert [gate.command for gate in gate_kinds.gates_of(made, config)] == [("echo", "hello", "two words", "x"), "true"]
    assert gate_kinds.missing(made, config) == ""


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("gate:nobody", "No plugin provides the gate 'nobody'; there are: empty, say."),
        ("gate:empty", "gave no command"),
        ("gate:say 'open", "cannot be read: No closing quotation"),
        ("gate:", "cannot be read"),
    ],
)
def test_a_gate_that_no_plugin_makes_fails_and_says_why(site: Path, command: str, why: str) -> None:
    install(site, "giver", PROVIDER)
    config = Config(gates=(GateSettings("said", command),))
    made = Definition("one", goal="one")
    (gate,) = gate_kinds.gates_of(made, config)
    assert "exit 127" in gate.command and why in gate_kinds.missing(made, config)


def test_a_task_whose_gate_is_missing_is_not_started(repo: Path) -> None:
    add(repo, "one", "write x y", verify=["gate:nobody"])
    told = holdfast(repo, "run", code=20)
    assert "No plugin provides the gate 'nobody'; there are: none." in told and "is at work" not in told
