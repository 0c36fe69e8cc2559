"""The message of what lands: the agent's own, the goal, or a template."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.git import git
from kit.program import type_in
from kit.project import add, make_repo

SCRIPT = """write x hi
run git add x
run git -c user.name=a -c user.email=a@b commit -qm 'Sort once' -m 'Twice was too slow.' -m 'Holdfast-Task: forged'
"""


def message(repo: Path) -> str:
    return git(repo, "log", "-1", "--format=%B", "main")


def worked(top: Path, script: str, settings: str = "") -> Path:
    repo = make_repo(top / "repo")
    (repo / ".sdd/config/settings.yaml").write_text(settings)
    add(repo, "sorts", script)
    done = type_in(repo, "run")
    assert done.returncode == 0, done
    return repo


TRAILERS = "Holdfast-Task: sorts\nHoldfast-Attempt: sorts.1"


def test_the_agents_own_message_is_kept_with_our_trailers(tmp_path: Path) -> None:
    repo = worked(tmp_path, SCRIPT)
    assert message(repo) == f"Sort once\n\nTwice was too slow.\n\n{TRAILERS}"
    assert git(repo, "log", "-1", "--format=%an", "main") == "Ada"


def test_the_agents_message_is_kept_where_the_target_moved_meanwhile(tmp_path: Path) -> None:
    repo = worked(tmp_path, SCRIPT + f"run git -C {tmp_path}/repo commit -q --allow-empty -m meanwhile\n")
    assert git(repo, "log", "-2", "--format=%s", "main").split("\n") == ["Sort once", "meanwhile"]
    assert message(repo).endswith(TRAILERS)


@pytest.mark.heavy
def test_of_several_commits_the_last_speaks_and_the_others_are_listed(tmp_path: Path) -> None:
    more = "write y hi\nrun git add y\nrun git -c user.name=a -c user.email=a@b commit -qm 'Test it'\n"
    repo = worked(tmp_path, SCRIPT + more)
    assert message(repo) == f"Test it\n\nBefore that:\n- Sort once\n\n{TRAILERS}"


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ("git: {commit_message: goal}\n", "sorts"),
        ("git: {commit_message: template, commit_template: '[{{task}}] {{title}} ({{message}})'}\n",
         "[sorts] sorts (Sort once\n\nTwice was too slow.)"),
    ],
)  # fmt: skip
def test_the_settings_choose_another(tmp_path: Path, settings: str, wanted: str) -> None:
    assert message(worked(tmp_path, SCRIPT, settings)) == f"{wanted}\n\n{TRAILERS}"


@pytest.mark.heavy
def test_without_a_commit_of_its_own_the_goal_speaks(tmp_path: Path) -> None:
    assert message(worked(tmp_path, "write x hi")) == f"sorts\n\n{TRAILERS}"


# -- a result that a person has mended --------------------------------------------------------------------------------


@pytest.mark.heavy
def test_promote_judges_what_a_person_mended_in_the_worktree(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    add(repo, "sorts", SCRIPT, max_attempts=1, verify=["grep -q right x"])
    assert type_in(repo, "run").returncode == 20
    (repo / ".sdd/worktrees/sorts/x").write_text("right\n")
    done = type_in(repo, "promote", "sorts")
    assert done.returncode == 0 and "with your changes there, is what was judged" in done.stdout, done
    assert git(repo, "show", "main:x") == "right" and message(repo).startswith("Sort once\n")
    assert type_in(repo, "check").returncode == 0


@pytest.mark.heavy
def test_promote_of_what_nobody_touched_judges_the_candidate(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    flag = tmp_path / "flag"
    add(repo, "sorts", SCRIPT, max_attempts=1, verify=[f"test -e {flag}"])
    assert type_in(repo, "run").returncode == 20
    flag.touch()
    done = type_in(repo, "promote", "sorts")
    assert done.returncode == 0 and "your changes" not in done.stdout, done
    assert git(repo, "show", "main:x") == "hi"


@pytest.mark.heavy
def test_a_task_that_failed_without_work_can_be_corrected_and_promoted(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    add(repo, "sorts", "write x hi\nfail no", max_attempts=1)
    assert type_in(repo, "run").returncode == 20
    (repo / ".sdd/worktrees/sorts/x").write_text("by hand\n")
    assert type_in(repo, "promote", "sorts").returncode == 0
    assert git(repo, "show", "main:x") == "by hand"
