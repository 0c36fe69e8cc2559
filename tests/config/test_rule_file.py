"""`--always`: the rule stands in the settings, beside everything that a person wrote there."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config.new_file import DEFAULT_SETTINGS
from holdfast.config.rule_file import add_rule, with_rule
from holdfast.domain.yaml_text import read_mapping
from holdfast.errors import InputError
from holdfast.layout import Layout

RULE = {"do": "allow", "tool": "Bash", "input": 'echo "\\*" # no comment: {x}', "agent": "claude"}
OTHER = {"do": "deny", "tool": "*", "input": "*rm*"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        "max_agents: 2  # as many as there are cores",
        DEFAULT_SETTINGS,
        "permissions: []\nmax_agents: 2\n",
        "permissions:\n# never\n- {do: deny, tool: '*', input: '*rm*'}  # whatever\nmax_agents: 2 # two\n",
        "permissions:\n  - do: deny\n    tool: '*'\n    input: '*rm*'\n\n# the rest\nmax_agents: 2\n",
    ],
)
def test_a_rule_is_added_and_all_else_stays(text: str) -> None:
    before = read_mapping(text.encode()) if any(line and line[0] != "#" for line in text.splitlines()) else {}
    made = with_rule(text.encode(), RULE)
    rules = [*(before.get("permissions") or []), RULE]
    assert read_mapping(made) == {**before, "permissions": rules}
    # Every comment is there still.
    assert [line.partition("#")[2] for line in text.splitlines() if "#" in line] == [
        line.partition("#")[2] for line in made.decode().splitlines() if "#" in line and "no comment" not in line
    ]


def test_a_rule_that_is_there_is_not_added_again(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.config.mkdir()
    assert add_rule(layout, RULE) and not add_rule(layout, RULE)
    assert read_mapping(layout.settings.read_bytes()) == {"permissions": [RULE]}


def test_settings_that_cannot_be_read_are_left_as_they_are(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.config.mkdir()
    layout.settings.write_text("permissions: [\n")
    with pytest.raises(InputError, match="no rule was added"):
        add_rule(layout, RULE)
    assert layout.settings.read_text() == "permissions: [\n"
