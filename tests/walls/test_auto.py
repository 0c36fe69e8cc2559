"""`sandbox: auto`, which is the default: confined where bubblewrap works, and a loud word where it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.config.settings import Config
from holdfast.domain.task import TaskState
from holdfast.processes import bwrap
from kit.confined import needs_bwrap
from kit.confined import place as place
from kit.git import git
from kit.program import holdfast
from kit.project import add, make_repo, state

AUTO = {"HOLDFAST_SANDBOX": "auto"}


def without_bwrap(folder: Path, instead: str = "") -> dict[str, str]:
    """Every program of this machine but bwrap, or another one in its place."""
    programs = folder / "programs"
    programs.mkdir()
    for top in filter(os.path.isdir, os.environ["PATH"].split(":")):
        for found in Path(top).iterdir():
            if found.name != "bwrap" and not os.path.lexists(programs / found.name):
                (programs / found.name).symlink_to(found)
    if instead:
        (programs / "bwrap").write_text(f"#!/bin/sh\n{instead}\n")
        (programs / "bwrap").chmod(0o755)
    return {**AUTO, "PATH": str(programs)}


def test_auto_is_the_default() -> None:
    assert Config().sandbox == "auto"


@needs_bwrap
def test_agent_and_gate_are_confined_where_bubblewrap_works(place: Path) -> None:
    """In a home outside of /tmp; and what they need of the home is there to read."""
    repo, escaped = make_repo(place / "repo"), place / "escaped"
    (place / "plain").write_text("readable")
    (place / ".cache" / "old").mkdir(parents=True)
    (place / ".cache" / "old" / "kept").write_text("old")
    caches = "cat ~/.cache/old/kept && mkdir ~/.cache/new && echo 1 > ~/.cache/new/x && ! (echo 2 > ~/.cache/old/kept)"
    script = f"run touch {escaped}; cat ~/plain > a.txt && {caches}\nwrite b.txt x"
    add(
        repo, "a", script, verify=[{"command": f"! touch {escaped} && grep readable a.txt && {caches}"}], max_attempts=1
    )
    told = holdfast(repo, "run", env=AUTO)
    assert state(repo).tasks["a"].state is TaskState.CLOSED, told
    assert git(repo, "show", "main:a.txt") == "readable"
    assert not escaped.exists() and "NO SANDBOX" not in told
    assert [path.name for path in (place / ".cache").iterdir()] == ["old"]


@needs_bwrap
def test_a_repository_a_home_and_programs_below_tmp_are_there_to_read(tmp_path: Path) -> None:
    repo, escaped = make_repo(tmp_path / "repo"), tmp_path / "escaped"
    programs = tmp_path / "tools" / "bin"
    programs.mkdir(parents=True)
    (tmp_path / "tools" / "words").write_text("beside")
    (programs / "mytool").write_text('#!/bin/sh\ncat "$(dirname "$0")/../words"\n')
    (programs / "mytool").chmod(0o755)
    script = f"run touch {escaped}; mytool > a.txt\nwrite b.txt x"
    verify = [{"command": f"mytool | grep beside && ! touch {escaped} && cat {repo}/README.md && ! ls {repo}/.sdd/cas"}]
    add(repo, "a", script, verify=verify, max_attempts=1)
    told = holdfast(repo, "run", env={**AUTO, "PATH": f"{programs}:{os.environ['PATH']}"})
    assert state(repo).tasks["a"].state is TaskState.CLOSED, told
    assert git(repo, "show", "main:a.txt") == "beside" and not escaped.exists()


REFUSED = "echo 'bwrap: No permissions to create new namespace' >&2; exit 1"


@pytest.mark.parametrize(("instead", "why"), [("", "there is no program"), (REFUSED, "No permissions to create")])
def test_without_bubblewrap_the_work_goes_on_with_a_loud_word(tmp_path: Path, instead: str, why: str) -> None:
    repo = make_repo(tmp_path / "repo")
    add(repo, "a", "write a.txt x", verify=[{"command": "cat a.txt"}])
    env = without_bwrap(tmp_path, instead)
    told = holdfast(repo, "run", env=env)
    assert "NO SANDBOX" in told and why in told and "install bubblewrap" in told.lower()
    assert state(repo).tasks["a"].state is TaskState.CLOSED
    told = holdfast(repo, "doctor", env=env, code=None)
    assert "NO SANDBOX" in told and why in told


def test_a_sandbox_asked_for_by_name_is_a_condition_of_every_start(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    add(repo, "a", "write a.txt x")
    told = holdfast(repo, "run", env={**without_bwrap(tmp_path, REFUSED), "HOLDFAST_SANDBOX": "bwrap"}, code=20)
    assert "There can be no sandbox" in told and state(repo).tasks["a"].start.number == 0


def test_a_machine_that_is_out_of_namespaces_for_now_is_no_reason_to_do_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent could use them up, so that the next one is not confined."""
    full = "echo 'bwrap: Creating new namespace failed: No space left on device' >&2; exit 1"
    monkeypatch.setenv("PATH", without_bwrap(tmp_path, full)["PATH"])
    tried = bwrap.trouble.__wrapped__
    assert tried() == ""
    (tmp_path / "programs" / "bwrap").write_text(f"#!/bin/sh\n{REFUSED}\n")
    assert "No permissions" in tried()
