"""What an agent does unasked: the table of docs/agents.md, the settings for it, and the sentence that a person sees."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest

from holdfast.agents.registry import CLIS, agents
from holdfast.cli.preflight import permission_sentence
from holdfast.config.layers import load
from holdfast.config.sections import DeclaredAgent
from holdfast.config.settings import Config
from holdfast.domain.attempt_records import Modes, Permission
from holdfast.domain.definition import Definition
from holdfast.errors import ConfigError
from holdfast.ports import Work
from kit import TOP, recorded_streams
from kit.program import holdfast
from kit.project import landed, layout
from real_agents.kits import KITS

PAGE = TOP / "docs" / "agents.md"
NAMES = [kind.name for kind in CLIS]
SECRET = "tango-uniform-4711"


def launched(name: str, **settings: object) -> tuple[str, ...]:
    config = Config(agents=(DeclaredAgent(name, **settings),))  # type: ignore[arg-type]
    return (
        agents(config)[name]
        .launch(Work(task="T", attempt="T.1", prompt="Please.", definition=Definition("T", goal="do it")))
        .argv
    )


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_every_cli_has_its_stream_its_kit_and_its_recordings() -> None:
    assert all(recorded_streams.stream(name) for name in NAMES), "`stream` in the adapter's module"
    assert {kit.name for kit in KITS} == set(NAMES), "tests/real_agents/kits.py"
    assert set(recorded_streams.CLIS) == set(NAMES), "tests/real_agents/fixtures"


def test_the_table_of_the_page_is_what_the_adapters_have() -> None:
    def cell(flags: tuple[str, ...] | None) -> str:
        return "not offered" if flags is None else f"`{' '.join(flags)}`" if flags else "no argument"

    rows = [
        f"| {kind.name} | "
        + " | ".join(cell(getattr(kind.permissions, mode)) for mode in Modes.__struct_fields__)
        + " |"
        for kind in CLIS
    ]
    found = re.search(r"<!-- permissions: [^\n]*\n\|[^\n]*\n\|[^\n]*\n(.*?)\n<!-- end", PAGE.read_text(), re.DOTALL)
    assert found is not None and found[1].splitlines() == rows


@pytest.mark.parametrize("kind", CLIS, ids=NAMES)
def test_a_cli_is_called_with_the_arguments_of_its_mode_and_of_the_settings(kind: type) -> None:
    for mode, flags in kind.permissions.offered.items():
        argv = launched(kind.name, permissions=mode, args=("--one", "two"))
        at = argv.index("--one")
        assert argv[at - len(flags) : at + 2] == (*flags, "--one", "two")
        others = {each for other in kind.permissions.offered.values() for each in other} - set(flags)
        assert not others & set(argv)


def test_a_mode_that_a_cli_does_not_offer_is_reported_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "mini", "true")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    known = agents(Config(agents=(DeclaredAgent("mini", permissions="edits"), DeclaredAgent("cluade"))))
    made = Definition("T", goal="do it")
    assert "does not offer `permissions: edits`, only skip;" in known["mini"].missing(made)
    assert "Holdfast knows no CLI of that name" in known["cluade"].missing(made)
    unset = agents(Config(agents=(DeclaredAgent("mini", env={"A": "${NOT_SET_HERE}"}),)))
    assert "the variable NOT_SET_HERE, which is not set" in unset["mini"].missing(made)


def test_the_example_of_the_page_is_settings(repo: Path) -> None:
    found = re.search(r"<!-- example: permissions -->\n```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    layout(repo).settings.write_text(found[1])
    claude, codex = load(repo, environ={}).config.agents
    assert claude.permissions == "edits" and codex.env == {"OPENAI_API_KEY": "${TEAM_KEY}"}


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "claude", "env": {"HOLDFAST_TOKEN": SECRET}},
        {"name": "claude", "env": {"CODEX_HOME": SECRET}},
        {"name": "claude", "env": {"A B": SECRET}},
        {"name": "claude", "env": {"A": [SECRET]}},
        {"name": "claude", "env": [SECRET]},
        {"env": {"A_TOKEN": SECRET}},
        {"name": "mine", "command": ["true"], "permissions": "edits"},
        {"name": "mine", "command": ["true"], "args": ["--x"]},
        {"name": "claude", "resume": ["{session}"], "events": {"session.id": "s"}},
    ],
)
def test_invalid_permissions_are_refused_without_showing_a_value_of_env(repo: Path, entry: dict[str, object]) -> None:
    layout(repo).settings.write_bytes(msgspec.yaml.encode({"agents": [entry]}))
    with pytest.raises(ConfigError) as refused:
        load(repo, environ={})
    assert SECRET not in str(refused.value) or entry.get("env") == [SECRET]


@pytest.mark.heavy
def test_the_first_run_says_what_an_agent_may_do_and_the_next_one_does_not(repo: Path, tmp_path: Path) -> None:
    answer = '{"type":"item.completed","item":{"type":"agent_message","text":"Done."}}'
    lines = [answer, '{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":1}}']
    program(
        tmp_path / "bin", "codex", "cat > /dev/null; date +%N > $$; " + "; ".join(f"echo '{line}'" for line in lines)
    )
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "OPENAI_API_KEY": "k"}
    told = []
    for number, settings in enumerate(("", "", "agents: [{name: codex, permissions: edits}]\n")):
        layout(repo).settings.write_text(f"agent: codex\nserver: {{enabled: false}}\n{settings}")
        (layout(repo).backlog_open / f"t{number}.yaml").write_text("goal: do it\n")
        told.append(holdfast(repo, "run", "--plain", env=env))
    assert "codex works without asking you (`--dangerously-bypass-approvals-and-sandbox`)" in told[0]
    assert "asking you" not in told[1]
    assert "codex changes files without asking you (`--sandbox workspace-write`)" in told[2]
    assert landed(repo) == ["t0", "t1", "t2"]
    assert "codex changes files without asking you" in holdfast(repo, "agents", "--wait", "0", env=env)
    (found,) = (
        each
        for each in msgspec.json.decode(holdfast(repo, "agents", "--wait", "0", "--json", env=env))["agents"]
        if each["name"] == "codex"
    )
    assert found["permission"] == {"mode": "edits", "flags": ["--sandbox", "workspace-write"]}


def test_variables_of_the_settings_reach_their_agent_and_no_secret_is_kept(repo: Path, tmp_path: Path) -> None:
    """One is written into the settings, one comes from our environment; the agent even prints both."""
    other = "victor-whiskey-0815"
    program(tmp_path / "bin", "mycli", f'echo "$MY_TOKEN $DSN $LEVEL" | tee "{tmp_path}/seen"; echo done > made')
    layout(repo).settings.write_text(
        "server: {enabled: false}\nagent: mycli\nagents:\n"
        f"  - {{name: mycli, command: [mycli], env: {{MY_TOKEN: {SECRET}, DSN: 'db:${{DB_PASS}}', LEVEL: high}}}}\n"
        "  - {name: other, command: ['true'], env: {MY_TOKEN: none}}\n"
    )
    (layout(repo).backlog_open / "t.yaml").write_text("goal: do it\n")
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "DB_PASS": other}
    holdfast(repo, "run", "--plain", env=env)
    assert landed(repo) == ["t"]
    assert (tmp_path / "seen").read_text() == f"{SECRET} db:{other} high\n"
    kept = [path for path in layout(repo).root.rglob("*") if path.is_file() and path != layout(repo).settings]
    assert len(kept) > 10
    leaks = [
        path for path in kept if {SECRET.encode(), other.encode()} & set(re.findall(rb"[\w-]+", path.read_bytes()))
    ]
    # The settings have a copy beside them.
    assert {path.name for path in leaks} == {"settings.yaml"}


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no bwrap")
def test_a_program_that_the_sandbox_does_not_show_is_reported_before_it_starts(repo: Path) -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        program(folder, "bot", "true")
        layout(repo).settings.write_text(
            f"server: {{enabled: false}}\nagent: bot\nagents: [{{name: bot, command: [{folder}/bot]}}]\n"
        )
        (layout(repo).backlog_open / "t.yaml").write_text("goal: do it\nsandbox: bwrap\n")
        told = holdfast(repo, "run", "--plain", code=20)
        assert f"bot is {folder}/bot, and the sandbox has a /tmp of its own" in told
        assert "0 turns" in told
    finally:
        shutil.rmtree(folder)


def test_an_agent_by_protocol_has_no_arguments_to_name() -> None:
    told = permission_sentence("mine", Permission("skip"), is_confined=True)
    assert told.startswith("mine works without asking you, in a worktree")
