"""The modes of `permissions`, and `args` and `env` of the settings, with the real programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.agents.registry import CLIS
from holdfast.domain.task import TaskState
from kit.confined import place as place
from kit.git import git
from kit.model_server import Step
from real_agents.kits import Kit
from real_agents.site import Site

MODES = {kind.name: kind.permissions for kind in CLIS}


def test_edits_changes_files_and_runs_no_command_unasked(kit: Kit, tmp_path: Path) -> None:
    if MODES[kit.name].edits is None:
        pytest.skip("it does not offer this mode")
    if kit.name == "codex":
        pytest.skip("it runs commands in this mode, in a sandbox of its own that needs its own namespaces")
    with Site(tmp_path, kit, agents=[{"name": kit.name, "permissions": "edits"}]) as site:
        file = site.add(verify=[{"command": "grep -q right a.txt"}])
        outside = tmp_path / "outside"
        steps = [Step("I write.", [kit.edit(file, "right\n")])]
        if kit.has_tools:
            steps += [Step("I run.", [kit.shell(f"touch {outside}; echo more > b.txt")]), Step("It is done.")]
        site.model.then(*steps)
        site.run()
        assert site.task.state is TaskState.CLOSED and site.landed() == "right"
        assert not outside.exists() and "b.txt" not in git(site.repo, "ls-tree", "--name-only", "main")


@pytest.mark.parametrize(("mode", "landed"), [("edits", True), ("own", False)])
def test_codex_runs_commands_in_a_sandbox_of_its_own(kit: Kit, place: Path, mode: str, landed: bool) -> None:
    """In the worktree alone; and without settings of its own it only reads."""
    if kit.name != "codex":
        pytest.skip("the others have no such sandbox")
    outside = place / "outside"
    with Site(place, kit, max_attempts=1, agents=[{"name": kit.name, "permissions": mode}]) as site:
        site.add()
        site.model.then(Step("I run.", [kit.shell(f"echo right > a.txt; touch {outside}; true")]), Step("It is done."))
        site.run(code=None)
        assert site.task.state is (TaskState.CLOSED if landed else TaskState.FAILED)
        assert not outside.exists() and (not landed or site.landed() == "right")


def test_a_key_of_the_settings_signs_it_in_and_is_kept_nowhere(kit: Kit, tmp_path: Path) -> None:
    if not kit.secrets:
        pytest.skip("its key is in a file of its own")
    extra = ["--append-system-prompt", "marker-of-args"] if kit.name == "claude" else []
    given = {name: f"${{TEAM_{number}}}" for number, name in enumerate(kit.secrets)}
    with Site(tmp_path, kit, agents=[{"name": kit.name, "env": given, "args": extra}]) as site:
        keys = [site.environ.pop(name, "") for name in kit.secrets]
        site.environ |= {f"TEAM_{number}": "quebec-romeo-4711" for number in range(len(keys))}
        file = site.add(verify=[{"command": "grep -q right a.txt"}])
        site.model.then(
            Step("I write.", [kit.edit(file, "right\n")]), *([Step("It is done.")] if kit.has_tools else [])
        )
        site.run()
        assert site.task.state is TaskState.CLOSED and site.landed() == "right"
        assert not extra or site.model.requests[0].has("marker-of-args")
        kept = [path for path in site.layout.root.rglob("*") if path.is_file()]
        assert [path for path in kept if b"quebec-romeo-4711" in path.read_bytes()] == []
