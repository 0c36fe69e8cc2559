"""What an agent makes never becomes the next run's data root or settings: those say what runs unconfined."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from kit.git import git
from kit.program import holdfast
from kit.project import add, landed, layout, make_tracked_repo, settings, state

EVIL = "gates: [{name: evil, command: touch /nonexistent/evil}]"


@pytest.mark.parametrize(
    "path", ["holdfast.yaml", "Holdfast.YAML", ".SDD/config/settings.yaml", ".s\u200cdd/config/settings.yaml"]
)
def test_a_file_that_would_be_settings_does_not_land(repo: Path, path: str) -> None:
    script = f"run mkdir -p $(dirname {path}) && echo 'data_root: evil' > {path}\nwrite good 1"
    add(repo, "evil", script, max_attempts=1)
    told = holdfast(repo, "run", code=20)
    assert landed(repo) == [] and state(repo).tasks["evil"].state is TaskState.FAILED
    assert "decides what Holdfast runs here" in " ".join(told.split())
    assert git(repo, "ls-files") == ".gitignore\nREADME.md" and not (repo / "holdfast.yaml").exists()


def test_the_default_data_root_does_not_land_where_another_is_used(repo: Path, tmp_path: Path) -> None:
    """The next start without HOLDFAST_HOME would use it as its own."""
    (repo / ".gitignore").unlink()
    (repo / ".git/info/exclude").unlink()
    git(repo, "commit", "-qam", "ignore nothing")
    env = {"HOLDFAST_HOME": str(tmp_path / "home")}
    holdfast(repo, "init", env=env)
    script = f"run mkdir -p .sdd/config && echo '{EVIL}' > .sdd/config/settings.yaml"
    made = tmp_path / "evil.yaml"
    made.write_text(f"id: evil\ntitle: Do evil\nmax_attempts: 1\nscript: |\n  {script}\n")
    holdfast(repo, "add", str(made), env=env)
    told = holdfast(repo, "run", env=env, code=20)
    assert landed(repo) == [] and "decides what Holdfast runs here" in " ".join(told.split())


def test_files_of_the_data_root_that_a_team_keeps_in_git_stay_as_they_are(tmp_path: Path) -> None:
    repo = make_tracked_repo(tmp_path / "repo")
    git(repo, "add", "-f", ".sdd/config", ".sdd/backlog")
    git(repo, "commit", "-qm", "with settings")
    before = git(repo, "rev-parse", "HEAD:.sdd/config")
    lines = (
        f"echo '{EVIL}' > .sdd/config/settings.yaml",
        "mkdir -p .sdd/backlog/open && echo 'goal: evil' > .sdd/backlog/open/more.yaml",
        "echo 1 > good",
    )
    add(repo, "evil", "run " + " && ".join(lines))
    holdfast(repo, "run")
    assert landed(repo) == ["evil"] and git(repo, "show", "HEAD:good") == "1"
    assert git(repo, "rev-parse", "HEAD:.sdd/config") == before and "more" not in state(repo).tasks
    assert "more.yaml" not in git(repo, "ls-tree", "-r", "--name-only", "HEAD")


@pytest.mark.parametrize("name", ["format.json", "runtime/logs/x", "cas/x", "attempts/evil.1/exit.json"])
def test_a_data_root_that_came_with_git_is_refused(repo: Path, name: str) -> None:
    """A clone, or a merge of somebody's branch, brings one that was made elsewhere; its gates never ran here."""
    settings(repo, gates=[{"name": "evil", "command": f"touch {repo}/pwned"}])
    add(repo, "task", "write good 1")
    path = layout(repo).root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text("{}\n")
    git(repo, "add", "-f", str(path))
    told = " ".join(holdfast(repo, "run", code=2).split())
    assert f"git tracks {name} in it" in told and "rm -r --cached" in told
    assert not (repo / "pwned").exists() and landed(repo) == []


def test_a_data_root_inside_the_repository_that_its_settings_name_is_refused_the_same(repo: Path) -> None:
    (repo / "holdfast.yaml").write_text("data_root: state\n")
    holdfast(repo, "init")
    git(repo, "add", "-f", "holdfast.yaml", "state")
    git(repo, "commit", "-qm", "state")
    assert "git tracks format.json in it" in " ".join(holdfast(repo, "run", code=2).split())
