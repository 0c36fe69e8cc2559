"""What a confined CLI writes of its own folders: its conversations, and nothing that a later start of it would run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.agents import registry
from holdfast.agents.common.cli_base import Cli
from holdfast.config.settings import Config
from holdfast.domain.attempt_records import Ending, Launch, folder_name
from holdfast.domain.definition import Definition
from holdfast.ports import Work
from kit.confined import needs_bwrap
from kit.confined import place as place
from kit.runner import Bench

# Where each CLI takes a hook, a setting, a plugin, a program, an instruction or a key from; all of these are there.
SETTINGS = {
    "claude": (
        ".claude/settings.json", ".claude/CLAUDE.md", ".claude/hooks/x", ".claude/plugins/x", ".claude/agents/x",
        ".claude/commands/x", ".claude/skills/x/SKILL.md", ".claude/.credentials.json", ".claude.json",
        ".claude/projects/other/memory/MEMORY.md", ".claude/projects/other/1.jsonl",
    ),
    "codex": (
        ".codex/config.toml", ".codex/AGENTS.md", ".codex/rules/x", ".codex/hooks.json", ".codex/prompts/x",
        ".codex/skills/x/SKILL.md", ".codex/auth.json", ".codex/plugins/x", ".codex/sessions/2026/01/01/other.jsonl",
        ".codex/holdfast/other/2026/01/01/x.jsonl",
    ),
    "gemini": (
        ".gemini/settings.json", ".gemini/GEMINI.md", ".gemini/.env", ".gemini/extensions/x/gemini-extension.json",
        ".gemini/commands/x.toml", ".gemini/policies/x.toml", ".gemini/oauth_creds.json", ".gemini/trustedFolders.json",
        ".gemini/tmp/bin/rg", ".gemini/tmp/other/memory/MEMORY.md", ".gemini/tmp/other/.project_root",
        ".gemini/history/other/.git/config",
    ),
    "opencode": (
        ".config/opencode/opencode.json", ".config/opencode/plugin/x.js", ".config/opencode/node_modules/x.js",
        ".local/share/opencode/bin/rg", ".local/share/opencode/auth.json", ".local/share/opencode/opencode.db",
        ".local/share/opencode/snapshot/x/config", ".local/share/opencode/holdfast/other/opencode.db",
        ".cache/opencode/node_modules/x.js", ".cache/opencode/bin/x", ".local/state/opencode/kv.json",
    ),
    "aider": (".aider.conf.yml", ".aider/caches/x", ".env", ".aider.model.settings.yml"),
    "mini": (".config/mini-swe-agent/.env", ".config/mini-swe-agent/mini.yaml"),
}  # fmt: skip
# All that it may leave behind, {} for a name made of the worktree's path.
CONVERSATIONS = {
    "claude": (".claude/projects/{}/",),
    "codex": (".codex/holdfast/{}/",),
    "gemini": (".gemini/tmp/{}/",),
    "opencode": (".local/share/opencode/holdfast/{}/",),
    "aider": (),
    "mini": (),
}
# Where that has another name inside.
INSIDE = {"codex": (".codex/sessions/",)}
# In every folder and every file of the home that it can, by whatever way; and then where it could make the folder anew.
ATTACK = r"""
import os
top = os.path.expanduser("~")
def tried(what, *given):
    try:
        return what(*given)
    except OSError:
        pass
def write(path, how="a"):
    with open(path, how) as file:
        file.write("planted")
for folder, folders, files in os.walk(top):
    for name in files:
        path = os.path.join(folder, name)
        if "other" in path:
            print("seen", path)
        tried(write, path)
        tried(write, path + ".new", "w")
        tried(os.replace, path + ".new", path)
        tried(os.unlink, path)
    tried(os.rename, folder, folder + ".gone")
    tried(write, os.path.join(folder, "planted"))
for path in os.environ["PLACES"].split(":"):
    tried(os.makedirs, os.path.dirname(os.path.join(top, path)))
    tried(write, os.path.join(top, path))
"""


def home_of(place: Path, name: str) -> Path:
    """With all of the CLI's settings, as a person has them."""
    home = place / "home"
    for each in SETTINGS[name]:
        path = home / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("the user's")
    return home


def agent(name: str) -> Cli:
    found = registry.agents(Config())[name]
    assert isinstance(found, Cli)
    return found


@needs_bwrap
@pytest.mark.parametrize("name", SETTINGS)
def test_an_agent_writes_its_conversations_and_nothing_that_is_run_or_read_later(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    home = home_of(place, name)
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(home))
    bench = Bench(place)
    try:
        made = agent(name).launch(Work(task="T", attempt="T.1", prompt="x", definition=Definition(id="T", goal="x")))
        own = [path.format(folder_name(str(bench.worktree))) for path in CONVERSATIONS[name]]
        say = "".join(
            f'os.makedirs(p := os.path.expanduser("~/{path}"), exist_ok=True)\nwrite(p + "mine")\n'
            for path in INSIDE.get(name, own)
        )
        launch = Launch((sys.executable, "-c", ATTACK + say + 'print("tried")'), homes=made.homes, env={
            "PLACES": ":".join(SETTINGS[name]),
        })  # fmt: skip
        ended = bench.run(agent="command", launch=launch, sandbox="bwrap")
        said = bench.files.output.read_text()
        assert ended.ending is Ending.DONE and "tried" in said, said
        assert "seen" not in said, "it reads what is said elsewhere"
    finally:
        bench.end()
    for each in SETTINGS[name]:
        assert (home / each).read_text() == "the user's", each
    left = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()} - set(SETTINGS[name])
    assert {path for path in left if not path.startswith(tuple(own))} == set()
    assert {f"{path}mine" for path in own} <= left, "the conversations are not kept"
