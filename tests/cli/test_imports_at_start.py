"""What people wait for loads little: the slow libraries come only with what needs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.config.layers import load
from holdfast.config.new_file import DEFAULT_SETTINGS
from holdfast.config.settings import Config
from holdfast.config.sources import _sets_nothing
from holdfast.errors import ConfigUnreadable, SettingTwice, SettingUnknown
from kit.program import SLOW_LIBRARIES, loaded_by


@pytest.mark.parametrize("command", ["list", "status"])
def test_looking_loads_no_slow_library(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    loaded_by(tmp_path, "init")
    assert not loaded_by(tmp_path, command) & SLOW_LIBRARIES
    (tmp_path / ".sdd" / "backlog" / "open" / "a.yaml").write_text("goal: x\n")
    assert "yaml" in loaded_by(tmp_path, command)


@pytest.mark.parametrize("closed", [1, 2])
def test_a_closed_stream_is_no_failure(closed: int, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    loaded_by(tmp_path, "init")
    asked = f'exec {closed}>&-; exec "{sys.executable}" -m holdfast status'
    done = subprocess.run(["sh", "-c", asked], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "ready" in done.stdout, done.stderr) == (0, closed == 2, "")


def test_a_settings_file_that_sets_nothing_needs_no_yaml() -> None:
    for text in ("", "\n  \n", "# only\n   # this\n", "git:\n  # nothing\nbudgets:\n", DEFAULT_SETTINGS):
        assert _sets_nothing(text), text
    for text in ("max_agents: 3\n", "git: {}\n", "git:\n  x\n", "# \x07\n", "\tgit:\n", " git:\n", "%x\n", "---\n"):
        assert not _sets_nothing(text), text


@pytest.mark.parametrize(
    ("text", "error"),
    [("git:\ngit:\n", SettingTwice), ("gti:\n", SettingUnknown), ("# \x07\n", ConfigUnreadable)],
)
def test_an_import_inside_a_function_is_still_checked(text: str, error: type[Exception], tmp_path: Path) -> None:
    settings = tmp_path / ".sdd" / "config" / "settings.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text(text)
    with pytest.raises(error):
        load(tmp_path, environ={})
    settings.write_text("git:\n# nothing\n")
    assert load(tmp_path, environ={}).config == Config()
