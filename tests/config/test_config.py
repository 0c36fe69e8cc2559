"""The configuration. Run as a program, this file writes the table of docs/configuration.md anew."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import config, errors
from holdfast.config.layers import combine, explain, load, value_of
from holdfast.config.new_file import DEFAULT_SETTINGS, as_yaml
from holdfast.config.sections import Budgets, DeclaredAgent, GateSettings
from holdfast.config.settings import ENTRY_KEYS, KEYS, Config, SettingKey
from holdfast.config.sources import NOT_SETTINGS, Layer, command_line, environment
from holdfast.layout import Layout, slug

DOCS = Path(__file__).parent.parent.parent / "docs" / "configuration.md"


def repo_with(folder: Path, settings: str | bytes | None = None, repository: str | None = None) -> Path:
    layout = Layout(folder / ".sdd")
    layout.config.mkdir(parents=True, exist_ok=True)
    if settings is not None:
        layout.settings.write_bytes(settings.encode() if isinstance(settings, str) else settings)
    if repository is not None:
        (folder / "holdfast.yaml").write_text(repository)
    return folder


# -- layers -----------------------------------------------------------------------------------------------------------


def test_without_any_source_the_defaults_hold(tmp_path: Path) -> None:
    loaded = load(tmp_path, environ={"PATH": "/bin"})
    assert loaded.config == Config() == combine()[0]
    assert loaded.layout == Layout(tmp_path / ".sdd")
    assert {each.origin for each in explain(loaded)} == {"default"}
    assert [each.key for each in explain(loaded)] == list(KEYS)
    with pytest.raises(AttributeError):
        loaded.config.max_agents = 1  # type: ignore[misc]


@pytest.mark.parametrize(("file", "variable", "option"), list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("with_others", [False, True])
def test_the_last_layer_that_sets_a_key_wins(
    tmp_path: Path, file: bool, variable: bool, option: bool, with_others: bool
) -> None:
    """The default is always there; `with_others` has each layer set other keys too, which must not matter."""
    lines = ["agent: codex"] * with_others + ["max_agents: 11"] * file
    environ = {"HOLDFAST_MAX_RESUMES": "7"} if with_others else {}
    options: dict[str, Any] = {"max_attempts": 9} if with_others else {}
    environ |= {"HOLDFAST_MAX_AGENTS": "12"} if variable else {}
    options |= {"max_agents": 13 if option else None}
    loaded = load(repo_with(tmp_path, "\n".join(lines)), environ=environ, options=options)
    expected, origin = (
        (13, "The option --max-agents")
        if option
        else (12, "The environment variable HOLDFAST_MAX_AGENTS")
        if variable
        else (11, f"{tmp_path}/.sdd/config/settings.yaml, line {len(lines)}")
        if file
        else (4, "default")
    )
    assert loaded.config.max_agents == expected
    assert loaded.origins["max_agents"] == origin
    others = (loaded.config.agent, loaded.config.max_resumes, loaded.config.max_attempts)
    assert others == (("codex", 7, 9) if with_others else ("claude", 5, 3))


@pytest.mark.parametrize(("option", "home", "file"), list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("is_decoy", [False, True])
def test_the_data_root_and_its_settings_file_follow_the_same_order(
    tmp_path: Path, option: bool, home: bool, file: bool, is_decoy: bool
) -> None:
    """`is_decoy`: the repository's own .sdd/ has settings, which count only where it is the data root."""
    repo = repo_with(tmp_path / "repo", "max_agents: 99" if is_decoy else None, "data_root: ../file" if file else "")
    roots = {name: tmp_path / name for name in ("option", "home", "file")}
    for number, root in enumerate([*roots.values(), roots["file"]], 20):
        settings = Layout(root / slug(str(repo))).settings
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(f"max_agents: {number}")
    loaded = load(
        repo,
        environ={"HOLDFAST_HOME": str(roots["home"])} if home else {},
        options={"data_root": str(roots["option"]) if option else None},
    )
    origin = "option --data-root" if option else "variable HOLDFAST_HOME" if home else "holdfast.yaml, line 1"
    shared = roots["option"] if option else roots["home"] if home else roots["file"] if file else None
    assert loaded.layout.root.resolve() == (shared / slug(str(repo)) if shared else repo / ".sdd")
    assert loaded.config.max_agents == (
        {"option": 20, "home": 21, "file": 23}[shared.name] if shared else 99 if is_decoy else 4
    )
    assert loaded.origins["data_root"].endswith(origin if shared else "default")
    assert (loaded.config.data_root is None) == (shared is None)


PLAIN = {"max_agents": st.integers(1, 1000), "budgets.usd_per_day": st.floats(0.01, 1e6) | st.none()}
PLAIN |= {"model": st.from_regex("[abc.][abc.-]{0,8}", fullmatch=True) | st.none(), "timeout_s": st.floats(0.01, 1e6)}
LAYER = st.fixed_dictionaries({}, optional=PLAIN)


def named(values: Mapping[str, Any], name: str) -> Layer:
    return Layer(values, lambda key: name)


@pytest.mark.fuzz
@given(st.lists(LAYER, max_size=5))
def test_any_layers_combine_key_by_key(layers: list[dict[str, Any]]) -> None:
    config, origins = combine(*(named(values, str(at)) for at, values in enumerate(layers)))
    for key in KEYS:
        setting = [(str(at), values[key]) for at, values in enumerate(layers) if key in values]
        origin, value = setting[-1] if setting else ("default", value_of(Config(), key))
        assert (origins[key], value_of(config, key)) == (origin, value)


@pytest.mark.fuzz
@given(LAYER)
def test_a_value_means_the_same_in_a_file_the_environment_and_an_option(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]
) -> None:
    as_text = {key: as_yaml(value).strip('"') for key, value in values.items()}
    repo = repo_with(tmp_path_factory.mktemp("repo"), "".join(f"{key}: {as_yaml(values[key])}\n" for key in values))
    from_file = load(repo, environ={}).config
    assert from_file == combine(named(values, ""))[0]
    assert from_file == combine(environment({KEYS[key].variable: text for key, text in as_text.items()}))[0]
    assert from_file == combine(command_line(as_text))[0] == combine(command_line(values))[0]


def test_sections_gates_and_notations(tmp_path: Path) -> None:
    text = """
budgets:
  usd_per_task: 2
git:
gates:
  - {name: test, command: make test}
  - name: lint
    command: make lint
    timeout_s: 60
    required: false
    repeatable: false
ledgers.rotate_bytes_max: 5000
"""
    config = load(repo_with(tmp_path, text), environ={"HOLDFAST_BUDGETS__USD_PER_RUN": "8.5"}).config
    assert config.budgets == Budgets(usd_per_task=2.0, usd_per_run=8.5)
    gates = (
        GateSettings("test", "make test"),
        GateSettings("lint", "make lint", 60.0, required=False, repeatable=False),
    )
    assert config.gates == gates and config.ledgers.rotate_bytes_max == 5000
    as_json = msgspec.json.encode(gates).decode()
    assert combine(environment({"HOLDFAST_GATES": as_json}))[0].gates == gates
    assert combine(command_line({"gates": as_json}))[0].gates == gates
    agents = (DeclaredAgent("mine", ("mine", "-p", "{prompt}"), "stdin", {"said.text": "text"}),)
    as_json = msgspec.json.encode(agents).decode()
    told = {"HOLDFAST_AGENTS": as_json, "HOLDFAST_AGENT_ENV": '["A", "B_*"]'}
    assert combine(environment(told))[0] == Config(agents=agents, agent_env=("A", "B_*"))
    assert combine(environment({"HOLDFAST_MODEL": "5", "HOLDFAST_MAX_AGENTS": ""}))[0] == Config(model="5")
    assert combine(environment(dict.fromkeys(NOT_SETTINGS, "secret")))[0] == Config()


# -- errors -----------------------------------------------------------------------------------------------------------

SETTINGS_ERRORS = [
    # text, class, key, line, in the message
    ("agent: codex\nmax_agents: 0", errors.ConfigError, "max_agents", 2, "to 0. Allowed is a whole number at least 1 "),
    ("max_agents: 1001", errors.ConfigError, "max_agents", 1, "at most 1,000"),
    ("max_agents: two", errors.ConfigError, "max_agents", 1, "'two'"),
    ("max_agents: '2'", errors.ConfigError, "max_agents", 1, "'2'"),
    ("max_agents: 2.5", errors.ConfigError, "max_agents", 1, "2.5"),
    ("max_agents: true", errors.ConfigError, "max_agents", 1, "True"),
    ("max_agents:", errors.ConfigError, "max_agents", 1, "null"),
    ("timeout_s: 0", errors.ConfigError, "timeout_s", 1, "a number above 0"),
    ("timeout_s: .nan", errors.ConfigError, "timeout_s", 1, "nan"),
    ("timeout_s: .inf", errors.ConfigError, "timeout_s", 1, "inf"),
    ("sandbox: docker", errors.ConfigError, "sandbox", 1, "one of auto, none, bwrap"),
    ("model: 2024-01-01", errors.ConfigError, "model", 1, "datetime.date"),
    ("model: ''", errors.ConfigError, "model", 1, "up to 1,000 characters, no dash or space first.* or null"),
    ("model: --resume", errors.ConfigError, "model", 1, "no dash"),
    ('cascade: [{agent: a, model: "a\\0b"}]', errors.ConfigError, "cascade[0].model", 1, "no control characters"),
    ('agent: "a\\n"', errors.ConfigError, "agent", 1, "a letter or digit first"),
    ("agent: ../x", errors.ConfigError, "agent", 1, "'../x'"),
    ("budgets:\n  usd_per_day: -1", errors.ConfigError, "budgets.usd_per_day", 2, "or null"),
    ("budgets: 5", errors.ConfigError, "budgets", 1, "a mapping of usd_per_task"),
    ("budgets: [[1]]", errors.ConfigError, "budgets", 1, "[[1]]"),
    ("gates: make test", errors.ConfigError, "gates", 1, "a list of up to 100 gates"),
    (f"gates: [{'{name: a, command: b},' * 101}]", errors.ConfigError, "gates", 1, "up to 100"),
    ("gates: &a [*a]", errors.ConfigUnreadable, "", 1, "recursive"),
    ("gates:\n- name: a", errors.ConfigError, "gates[0]", 2, "with name and command"),
    ("gates:\n- name: a\n  command: b\n  timeout_s: x", errors.ConfigError, "gates[0].timeout_s", 4, "'x'"),
    ("gates:\n- {name: a, command: b}\n- {name: a, command: c}", errors.ConfigError, "gates[1].name", 3, "no other"),
    (
        "gates:\n- {name: a, command: b, timeout: 3}",
        errors.SettingUnknown,
        "gates[0].timeout",
        2,
        "gates[0].timeout_s?",
    ),
    ("max_agent: 3", errors.SettingUnknown, "max_agent", 1, "to 3, and there is no such .* Did you mean max_agents?"),
    ("\nusd_per_task: 3", errors.SettingUnknown, "usd_per_task", 2, "Did you mean budgets.usd_per_task?"),
    ("git:\n  author: me", errors.SettingUnknown, "git.author", 2, "Did you mean git.author_"),
    ("zzzzzz: 1", errors.SettingUnknown, "zzzzzz", 1, "Known are agent, agent_env, agents, approve, audit.key_path"),
    ("5: 1", errors.SettingUnknown, "5", 1, "Known are"),
    ("on: 1", errors.SettingUnknown, "on", 1, "no such setting"),
    ("<<: {max_agents: 3}", errors.SettingUnknown, "<<", 1, "no such setting"),
    (".max_agents: 3", errors.SettingUnknown, ".max_agents", 1, "max_agents?"),
    ("data_root: /x", errors.SettingUnknown, "data_root", 1, "cannot say where it is: use holdfast.yaml"),
    ("max_agents: 1\n\nmax_agents: 2", errors.SettingTwice, "max_agents", 3, "to '2', but line 1 sets it too"),
    ("git: {}\ngit: {}", errors.SettingTwice, "git", 2, "line 1"),
    (
        "git: {author_name: a}\ngit: {author_name: b}",
        errors.SettingTwice,
        "git",
        2,
        "sets git to a mapping, but line 1 sets it too",
    ),
    (
        "agents:\n- name: a\n  env:\n    KEY: one\n    KEY: secret",
        errors.SettingTwice,
        "agents[0].env.KEY",
        5,
        "sets agents[0].env.KEY to …, but line 4",
    ),
    ("gates: [{name: a}]\ngates: [x]", errors.SettingTwice, "gates", 2, "sets gates to a list, but line 1 sets it too"),
    ("agents:\n- {name: a, command: b}", errors.ConfigError, "agents[0].command", 2, "a list of up to 1,000 texts"),
    (
        "agents:\n- {name: a, command: [b], events: {said.text: x}, resume: ['-r', '{session}']}",
        errors.ConfigError,
        "agents[0].resume",
        2,
        "where its events have a session.id",
    ),
    (
        "agents:\n- name: a\n  command: [b]\n  events:\n    said.word: x",
        errors.ConfigError,
        "agents[0].events",
        4,
        "said.word is no part of said",
    ),
    ("agents:\n- {name: a, command: [b], events: {5: x}}", errors.ConfigError, "agents[0].events", 2, "texts"),
    (
        "prices:\n  a: {input: 1, output: 2}\n  b: {input: 1}",
        errors.ConfigError,
        "prices.b",
        3,
        "with input and output",
    ),
    ("prices:\n  a: {input: 1, output: -2}", errors.ConfigError, "prices.a.output", 2, "at least 0"),
    ("agents:\n- {name: a, command: [b], prompt: mail}", errors.ConfigError, "agents[0].prompt", 2, "stdin"),
    ("agents:\n- {name: a, acp: b}", errors.ConfigError, "agents[0].acp", 2, "a list of up to 1,000 texts"),
    (
        "agents:\n- {name: a, acp: [b], command: [c]}",
        errors.ConfigError,
        "agents[0].command",
        2,
        "where there is `acp`",
    ),
    ("agents:\n- {name: a, acp: [b], args: [c]}", errors.ConfigError, "agents[0].args", 2, "stand in `acp` itself"),
    ("agent_env: [A B]", errors.ConfigError, "agent_env", 1, "names of variables"),
    ("agent_env: HOME", errors.ConfigError, "agent_env", 1, "a list of up to 200"),
    ("gates:\n- {name: a, name: b, command: c}", errors.SettingTwice, "gates[0].name", 2, "line 2"),
    ("budgets: {usd_per_day: 1}\nbudgets.usd_per_day: 2", errors.SettingTwice, "budgets.usd_per_day", 2, "line 1"),
    ("agent: codex\n  max: [", errors.ConfigUnreadable, "", 2, "cannot be read as configuration"),
    ("a: 1\n---\nb: 2", errors.ConfigUnreadable, "", 2, "single document|another document"),
    ("- max_agents", errors.ConfigUnreadable, "", None, "it is not a mapping"),
    ("max_agents", errors.ConfigUnreadable, "", None, "it is not a mapping"),
    ("? [a]\n: 1", errors.SettingUnknown, None, None, "no such setting"),
    ("agent: !!python/name:os.system ''", errors.ConfigUnreadable, "", 1, "could not determine a constructor"),
    ("model: 2024-13-45", errors.ConfigUnreadable, "", None, "month must be"),
    ("model: *nobody", errors.ConfigUnreadable, "", 1, "undefined alias"),
    (b"model: \xff", errors.ConfigUnreadable, "", None, "can't decode"),
    (b"model: \x00", errors.ConfigUnreadable, "", None, "cannot be read|control characters"),
    ("a: " + "[" * 5000, errors.ConfigUnreadable, "", None, "cannot be read"),
]


@pytest.mark.parametrize(("text", "kind", "key", "line", "says"), SETTINGS_ERRORS)
def test_a_mistake_in_the_settings_file_names_key_value_what_is_allowed_and_the_line(
    tmp_path: Path, text: str | bytes, kind: type[errors.ConfigError], key: str | None, line: int | None, says: str
) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        load(repo_with(tmp_path, text), environ={})
    error, place = caught.value, f"{tmp_path}/.sdd/config/settings.yaml"
    assert type(error) is kind and error.exit_code == 2
    assert key is None or error.key == key
    assert str(error).startswith(f"{place}, line {line} " if line else place)
    says = says.replace("?", r"\?").replace("[", r"\[").replace("(", r"\(")
    assert re.search(says, str(error)), str(error)
    assert "Nothing was changed" in str(error) and (key or "") in str(error)


def test_a_settings_file_that_is_none_is_named(tmp_path: Path) -> None:
    repo_with(tmp_path)
    settings = Layout(tmp_path / ".sdd").settings
    settings.symlink_to("nowhere")
    with pytest.raises(errors.ConfigUnreadable, match="No such file"):
        load(tmp_path, environ={})
    settings.unlink()
    settings.mkdir()
    with pytest.raises(errors.ConfigUnreadable, match="Is a directory"):
        load(tmp_path, environ={})


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("data_root: 5", errors.ConfigError, "line 1 sets data_root to 5. Allowed is a text"),
        ("data_root: ''", errors.ConfigError, "''"),
        ("max_agents: 3", errors.SettingUnknown, r"holdfast.yaml, line 1 .* Only data_root is set there; all else"),
        ("dataroot: x", errors.SettingUnknown, r"Did you mean data_root\?"),
        ("data_root: a\ndata_root: b", errors.SettingTwice, "line 2"),
    ],
)
def test_the_repository_file_holds_the_data_root_only(
    tmp_path: Path, text: str, kind: type[errors.ConfigError], says: str
) -> None:
    with pytest.raises(kind, match=says):
        load(repo_with(tmp_path, repository=text), environ={})


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("HOLDFAST_MAX_AGENTS", "0", "The environment variable HOLDFAST_MAX_AGENTS sets max_agents to '0'. Allowed"),
        ("HOLDFAST_MAX_AGENTS", "many", "'many'"),
        ("HOLDFAST_MAX_AGENTS", " 3", "' 3'"),
        ("HOLDFAST_TIMEOUT_S", "nan", "'nan'"),
        ("HOLDFAST_BUDGETS__USD_PER_DAY", "-1", "HOLDFAST_BUDGETS__USD_PER_DAY sets budgets.usd_per_day to '-1'"),
        ("HOLDFAST_GATES", "make test", "written as JSON"),
        ("HOLDFAST_GATES", '[{"name":"a"}]', r"HOLDFAST_GATES sets gates\[0\] .* with name and command"),
        ("HOLDFAST_HOME", "relative", "The data root of HOLDFAST_HOME 'relative'"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(tmp_path: Path, variable: str, value: str, says: str) -> None:
    with pytest.raises(errors.InputError, match=says):
        load(tmp_path, environ={variable: value})


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("HOLDFAST_MAX_AGENT", "HOLDFAST_MAX_AGENTS"),
        ("HOLDFAST_BUDGETS_USD_PER_DAY", "HOLDFAST_BUDGETS__USD_PER_DAY"),
        ("HOLDFAST_AUDIT_KEYS", "HOLDFAST_AUDIT_KEY"),
    ],
)
def test_an_unknown_variable_is_named_and_its_value_hidden(tmp_path: Path, variable: str, near: str) -> None:
    with pytest.raises(errors.SettingUnknown, match=rf"sets {variable} to .* Did you mean {near}\?") as caught:
        load(tmp_path, environ={variable: "very-secret"})
    assert "very-secret" not in str(caught.value) + repr(caught.value.facts)


def test_a_mistake_in_an_option_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match=r"The option --budgets-usd-per-day sets budgets\.usd_per_day to 0"):
        load(tmp_path, environ={}, options={"budgets.usd_per_day": 0})
    with pytest.raises(errors.SettingUnknown, match=r"The option max_agent .* Did you mean max_agents\?"):
        load(tmp_path, environ={}, options={"max_agent": 3})
    with pytest.raises(errors.InvalidName, match="The data root of --data-root"):
        load(tmp_path, environ={}, options={"data_root": "relative"})


def test_a_mistake_is_reported_also_where_a_later_layer_covers_it(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="line 1"):
        load(repo_with(tmp_path, "max_agents: 0"), environ={}, options={"max_agents": 2})


@pytest.mark.fuzz
@given(st.text("agents_max: \n-[]{}&*!'\"#0159.", max_size=40) | st.binary(max_size=20))
def test_any_file_is_a_configuration_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, text: str | bytes
) -> None:
    repo = repo_with(tmp_path_factory.getbasetemp() / "any", text)
    try:
        config = load(repo, environ={}).config
    except errors.ConfigError:
        return
    assert msgspec.convert(msgspec.to_builtins(config), Config) == config


# -- the settings file and the documentation --------------------------------------------------------------------------


def test_a_new_settings_file_says_the_defaults(tmp_path: Path) -> None:
    assert load(repo_with(tmp_path, DEFAULT_SETTINGS), environ={}).config == Config()
    active = re.sub(r"^( *)#(?=\S)", r"\1", DEFAULT_SETTINGS, flags=re.MULTILINE)
    loaded = load(repo_with(tmp_path, active), environ={})
    assert loaded.config == Config()
    assert [key for key, origin in loaded.origins.items() if origin == "default"] == ["data_root"]
    assert max(map(len, DEFAULT_SETTINGS.splitlines())) <= 120


@pytest.mark.heavy
def test_every_setting_is_read_by_something() -> None:
    """By an attribute or by a name in a string, outside of the settings' own modules."""
    source = Path(config.__file__).parent
    files = [path for path in source.parent.rglob("*.py") if path.name not in ("settings.py", "new_file.py")]
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text()))]
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    read |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names = [*KEYS, *(f"{entry}.{key}" for entry, keys in ENTRY_KEYS.items() for key in keys)]
    # The names of the budgets are put together from what is counted and for whom.
    by_name = [name for name in names if not name.startswith("budgets.")]
    assert [name for name in by_name if name.rpartition(".")[2] not in read] == []


def test_the_defaults_are_allowed_by_the_rules() -> None:
    assert msgspec.convert(msgspec.to_builtins(Config()), Config) == Config()
    assert len({key.variable for key in KEYS.values()} | NOT_SETTINGS) == len(KEYS) + len(NOT_SETTINGS)
    assert len({key.option for key in KEYS.values()}) == len(KEYS)


def test_importing_and_a_start_without_files_do_not_pay_for_yaml(tmp_path: Path) -> None:
    script = "import sys; from pathlib import Path; from holdfast.config.layers import load; "
    script += "load(Path(sys.argv[1]), environ={}); sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == 0


def row(name: str, key: SettingKey, *cells: str) -> str:
    default = "needed" if key.default is msgspec.NODEFAULT else f"`{as_yaml(key.default)}`"
    return "| " + " | ".join([f"`{name}`", default, key.allowed, key.description, *cells]) + " |"


def reference() -> str:
    """The tables of the documentation, from the Structs."""
    lines = ["| key | default | allowed | meaning | variable |", "|---|---|---|---|---|"]
    lines += [row(key.name, key, f"`{key.variable}`") for key in KEYS.values()]
    for name, keys in ENTRY_KEYS.items():
        lines += ["", f"Each entry of `{name}`:", "", "| key | default | allowed | meaning |", "|---|---|---|---|"]
        lines += [row(key.name, key) for key in keys.values()]
    return "\n".join(lines)


BEGIN, END = "<!-- settings: begin -->\n", "\n<!-- settings: end -->"


def test_the_documentation_lists_every_setting_as_it_is() -> None:
    found = DOCS.read_text().partition(BEGIN)[2].partition(END)[0]
    assert found == reference(), "stale: run `make docs`"
    for name in NOT_SETTINGS:
        assert name in DOCS.read_text()


if __name__ == "__main__":
    before, _, rest = DOCS.read_text().partition(BEGIN)
    DOCS.write_text(before + BEGIN + reference() + END + rest.partition(END)[2])
