"""The examples of docs/worktrees.md, with the tools themselves: environments in each worktree, and one cache."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kit import TOP
from kit.git import git
from kit.program import holdfast
from kit.project import add, landed, layout, sound

PAGE = (TOP / "docs" / "worktrees.md").read_text()
EXAMPLES = dict(re.findall(r"```yaml\n# ([a-z-]+)\n(.*?)```", PAGE, re.DOTALL))


def python(repo: Path) -> str:
    (repo / "pyproject.toml").write_text(
        '[project]\nname = "sample"\nversion = "1"\nrequires-python = ">=3.9"\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    # A package that needs nothing from anywhere.
    (repo / "backend.py").write_text(BACKEND)
    (repo / "sample.py").write_text("NUMBER = 1\n")
    (repo / "test_sample.py").write_text(
        "import unittest, sample\nclass Case(unittest.TestCase):\n"
        "    def test_it(self): self.assertIn('worktrees', sample.__file__)\n"
    )
    (repo / ".gitignore").write_text("/.sdd/\n.venv/\n__pycache__/\n*.egg-info/\n")
    return "write sample.py NUMBER = 2"


BACKEND = """
import os, zipfile
FILES = {
    "sample.pth": "",
    "sample-1.dist-info/METADATA": "Metadata-Version: 2.1\\nName: sample\\nVersion: 1\\n",
    "sample-1.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
}
def get_requires_for_build_editable(config_settings=None): return []
def get_requires_for_build_wheel(config_settings=None): return []
def build_editable(folder, config_settings=None, metadata_directory=None):
    name, record = "sample-1-py3-none-any.whl", "sample-1.dist-info/RECORD"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for path, text in {**FILES, record: "".join(f"{path},,\\n" for path in (*FILES, record))}.items():
            wheel.writestr(path, text or os.getcwd())
    return name
build_wheel = build_editable
"""


def node(repo: Path) -> str:
    (repo / "package.json").write_text('{"name": "sample", "version": "1.0.0", "scripts": {"test": "node test.js"}}')
    lock = {"name": "sample", "version": "1.0.0", "lockfileVersion": 3, "requires": True}
    lock["packages"] = {"": {"name": "sample", "version": "1.0.0"}}
    (repo / "package-lock.json").write_bytes(msgspec.json.encode(lock))
    (repo / "test.js").write_text("if (!process.cwd().includes('worktrees')) process.exit(1);\n")
    (repo / ".gitignore").write_text("/.sdd/\nnode_modules/\n")
    return "write more.js 1"


def rust(repo: Path) -> str:
    (repo / "Cargo.toml").write_text('[package]\nname = "sample"\nversion = "0.1.0"\nedition = "2021"\n')
    (repo / "Cargo.lock").write_text('version = 3\n\n[[package]]\nname = "sample"\nversion = "0.1.0"\n')
    (repo / "src").mkdir()
    (repo / "src" / "lib.rs").write_text("#[test]\nfn it() { assert_eq!(1 + 1, 2); }\n")
    return "write src/more.txt x"


def go(repo: Path) -> str:
    (repo / "go.mod").write_text("module sample\n\ngo 1.19\n")
    (repo / "sample.go").write_text("package sample\n\nfunc One() int { return 1 }\n")
    (repo / "sample_test.go").write_text(
        'package sample\n\nimport "testing"\n\nfunc TestOne(t *testing.T) {\n\tif One() != 1 {\n\t\tt.Fail()\n\t}\n}\n'
    )
    return "write more.txt x"


PROJECTS: dict[str, tuple[str, Callable[[Path], str]]] = {
    "python-uv": ("uv", python),
    "python-pip": ("python3", python),
    "node": ("npm", node),
    "rust": ("cargo", rust),
    "go": ("go", go),
}


def test_every_example_has_its_project() -> None:
    assert EXAMPLES.keys() == PROJECTS.keys()


@pytest.mark.heavy
@pytest.mark.parametrize("name", PROJECTS)
def test_an_example_of_the_page_works_with_its_tool(repo: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tool, make = PROJECTS[name]
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    settings = msgspec.yaml.decode(EXAMPLES[name])
    for folder in settings["sandbox_writable"]:
        (repo.parent / folder.removeprefix("~/")).mkdir(parents=True, exist_ok=True)
    layout(repo).settings.write_text(EXAMPLES[name].replace(".venv/bin/pytest", ".venv/bin/python -m unittest"))
    for found in ("RUSTUP_HOME", "CARGO_HOME"):
        # A tool of this machine's user is used with a home of the test's own.
        folder = Path(os.path.expanduser(f"~/.{found.removesuffix('_HOME').lower()}"))
        if folder.is_dir():
            monkeypatch.setenv(found, str(folder))
    text = layout(repo).settings.read_text()
    layout(repo).settings.write_text(text + "gate_env: [RUSTUP_HOME, CARGO_HOME]\n")
    script = make(repo)
    if name == "python-uv":
        assert os.system(f"cd {repo} && uv lock -q --offline") == 0
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "a project")
    add(repo, "t", script)
    add(repo, "u", "write other.txt x", depends_on=["t"])
    told = holdfast(repo, "run", code=None)
    assert landed(repo) == ["t", "u"], told + holdfast(repo, "hooks", "t", "--full", code=None)
    sound(repo)
