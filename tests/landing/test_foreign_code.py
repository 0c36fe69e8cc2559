"""Gates that test another checkout: found by reading, whatever form they have; and nothing found where all is well."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.landing.foreign_code import Checkouts, ForeignCode, foreign_code
from holdfast.landing.gates import Gate
from kit.git import git, repository, with_files

Make = Callable[[Path, Path], str | tuple[str, ...]]


class Project:
    """A main checkout, the gates' worktree beside it, and a folder outside of both."""

    def __init__(self, folder: Path) -> None:
        self.main = with_files(repository(folder / "main"), **{"a.py": "1\n"})
        self.work, self.outside = folder / "scratch", folder / "outside"
        git(self.main, "worktree", "add", "-q", "--detach", str(self.work), "HEAD")
        self.outside.mkdir()

    def find(self, command: str | tuple[str, ...], path: str = "/usr/bin:/bin") -> ForeignCode | None:
        found = foreign_code(
            [Gate("unit", command)], Checkouts(self.main, [self.work]), self.work, {"PATH": path, "HOME": "/home/ada"}
        )
        return found[0] if found else None


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def script(path: Path, first: str = "#!/bin/sh") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{first}\n")
    path.chmod(0o755)
    return path


def venv(top: Path) -> Path:
    """An environment as `python -m venv` leaves it: a link to the interpreter, and scripts that name that link."""
    (top / "bin").mkdir(parents=True)
    (top / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (top / "bin" / "python").symlink_to(sys.executable)
    script(top / "bin" / "pytest", f"#!{top}/bin/python")
    site = top / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    return site


def with_pth(site: Path, source: Path) -> None:
    (site / "__editable__.click-8.pth").write_text(f"{source}\n")


def with_finder(site: Path, source: Path) -> None:
    (site / "__editable__.click-8.pth").write_text("import __editable___click_finder; ...install()\n")
    (site / "__editable___click_finder.py").write_text(f"MAPPING = {{'click': '{source}/src/click'}}\n")


def with_direct_url(site: Path, source: Path) -> None:
    (site / "click-8.dist-info").mkdir()
    record = f'{{"dir_info": {{"editable": true}}, "url": "file://{source}"}}'
    (site / "click-8.dist-info" / "direct_url.json").write_text(record)


def with_egg_link(site: Path, source: Path) -> None:
    (site / "click.egg-link").write_text(f"{source}\n.\n")


@pytest.mark.parametrize("install", [with_pth, with_finder, with_direct_url, with_egg_link])
@pytest.mark.parametrize(
    "gate", ["{0}/bin/pytest -q", "cd tests && {0}/bin/python -m pytest", "A=1 timeout 9 {0}/bin/pytest"]
)
def test_an_editable_install_of_the_main_checkout_is_found_wherever_its_environment_is(
    project: Project, install: Callable[[Path, Path], None], gate: str
) -> None:
    install(venv(project.outside / "env"), project.main)
    found = project.find(gate.format(project.outside / "env"))
    assert found is not None and found.checkout == str(project.main) and found.kind == "python"
    said = found.sentence()
    assert "which imports the project from" in said and "passes whatever an agent has changed" in said
    assert 'setup: ["python -m venv .venv", ".venv/bin/pip install -e ."]' in found.advice()


def test_the_environment_of_the_main_checkout_is_found_by_its_path_alone(project: Project) -> None:
    venv(project.main / ".venv")
    for gate in ("{0}/.venv/bin/pytest", "PATH={0}/.venv/bin:$PATH pytest", ". {0}/.venv/bin/activate && pytest -q"):
        found = project.find(gate.format(project.main))
        assert (
            found is not None and f"{project.main}/.venv/bin/pytest, which lies in another checkout" in found.sentence()
        )
        assert "setup: [" in found.advice()
    # As uv writes a script whose path is long.
    script(project.main / ".venv" / "bin" / "pytest")
    found = project.find(f"{project.main}/.venv/bin/pytest")
    assert found is not None and "setup: [" in found.advice()


def test_an_activated_environment_is_found_through_the_path(project: Project) -> None:
    """As where somebody types `holdfast run` with the checkout's environment activated."""
    with_pth(venv(project.main / ".venv"), project.main / "src")
    found = project.find("pytest", path=f"{project.main}/.venv/bin:/usr/bin")
    assert found is not None and f"imports the project from {project.main}/src, in another checkout" in found.sentence()


def test_a_program_outside_whose_interpreter_is_in_the_main_checkout_is_found(project: Project) -> None:
    with_pth(venv(project.main / ".venv"), project.main)
    gate = script(project.outside / "pytest", f"#!{project.main}/.venv/bin/python")
    found = project.find(str(gate))
    assert found is not None and found.kind == "python"


def test_an_environment_that_was_copied_or_linked_into_the_worktree_is_found(project: Project) -> None:
    venv(project.main / ".venv")
    (project.work / ".venv").symlink_to(project.main / ".venv")
    assert project.find(".venv/bin/pytest") is not None
    (project.work / ".venv").unlink()
    # Copied as it is: its scripts still name the interpreter of the other.
    script(project.work / ".venv/bin/pytest", f"#!{project.main}/.venv/bin/python")
    found = project.find(".venv/bin/pytest")
    assert found is not None and f"runs {project.main}/.venv/bin/python, which lies" in found.sentence()


@pytest.mark.parametrize(
    "gate",
    [
        "{0}/tools/check.sh", "sh {0}/tools/check.sh -v", "cd {0} && make test", "make -C {0} test",
        "npm --prefix={0} test", "uv run --project {0} pytest", "PYTHONPATH={0}/src python3 -m unittest",
        "sh -c 'cd {0} && true'",
    ],
)  # fmt: skip
def test_other_ways_into_the_main_checkout_are_found(project: Project, gate: str) -> None:
    script(project.main / "tools" / "check.sh")
    found = project.find(gate.format(project.main))
    assert found is not None and found.checkout == str(project.main)


def test_links_of_node_modules_into_the_main_checkout_are_found(project: Project) -> None:
    (project.main / "node_modules").mkdir()
    (project.main / "packages" / "core").mkdir(parents=True)
    (project.work / "node_modules").symlink_to(project.main / "node_modules")
    found = project.find("npm test")
    assert found is not None and found.kind == "node" and "npm ci" in found.advice()
    (project.work / "node_modules").unlink()
    (project.work / "node_modules" / "@own").mkdir(parents=True)
    (project.work / "node_modules" / "@own" / "core").symlink_to(project.main / "packages" / "core")
    found = project.find("npx jest")
    assert found is not None and "packages/core" in found.sentence()


@pytest.mark.parametrize(
    "gate",
    [
        ".venv/bin/pytest -q", "make test", "test -f a.py", "python3 -m pytest", "{2}/env/bin/pytest", "cd src && ls",
        "{1}/tools/run", "$HOLDFAST_WORKTREE/tools/run", "diff {0}/golden a.py", "no-such-program", "'not closed",
    ],
)  # fmt: skip
def test_a_gate_of_its_own_worktree_is_left_alone(project: Project, gate: str) -> None:
    with_pth(venv(project.outside / "env"), project.outside / "other-project")
    script(project.work / "tools" / "run")
    site = venv(project.work / ".venv")
    with_direct_url(site, project.work)
    assert project.find(gate.format(project.main, project.work, project.outside)) is None


def test_a_pipe_a_loop_of_links_and_a_huge_file_count_as_nothing(project: Project) -> None:
    """A pipe in place of a program, endless links, and a file that is too large are nothing."""
    os.mkfifo(project.work / "pipe")
    (project.work / "loop").symlink_to("loop")
    site = venv(project.work / ".venv")
    (site / "huge.pth").write_text(f"{project.main}\n" * 100_000)
    assert [project.find(gate) for gate in ("./pipe", "./loop", ".venv/bin/pytest")] == [None, None, None]
