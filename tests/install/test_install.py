"""Installing as the README says: from the built wheel and sdist with pip, with pipx, with uv; each in a clean place.

`HOLDFAST_INSTALL` is a virtual environment with uv and pipx. A Python that this machine does not have is left out, and
said so; the Python of the tests must be there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path

import pytest

from kit import TOP

TOOLS = Path(os.environ["HOLDFAST_INSTALL"]).absolute() / "bin"
VERSIONS = ("3.11", "3.12", "3.13")
# What README promises. Counted without pip and setuptools, with the byte code that pip compiles.
PACKAGES_MAX, MEGABYTES_MAX = 20, 45
MEASURE = """
import importlib.metadata, json, pathlib, site
top = pathlib.Path(site.getsitepackages()[0])
tools = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence.pth")
names = sorted({each.metadata["Name"].lower() for each in importlib.metadata.distributions()} - {"pip", "setuptools"})
files = [path for path in top.rglob("*") if path.is_file() and not path.is_symlink()]
kept = [path for path in files if not path.relative_to(top).parts[0].split("-")[0] in tools]
print(json.dumps([names, sum(path.stat().st_size for path in kept if path.name != "distutils-precedence.pth")]))
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    """Nothing of this checkout, nor of the person's own Holdfast; where packages come from is left as it is set."""
    ours = ("HOLDFAST_", "GIT_", "XDG_", "VIRTUAL_ENV", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "HOME": str(home), **more}


def run(*argv: str | Path, cwd: Path, **more: str) -> str:
    env = environment(cwd, **more)
    done = subprocess.run(list(map(str, argv)), cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel, made from the sdist, and the sdist, made from what git has of this checkout."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    subprocess.run(["git", "clone", "-q", str(TOP), str(source)], check=True)
    run(TOOLS / "uv", "build", "--quiet", "--python", sys.executable, "-o", folder / "dist", source, cwd=folder)
    return {"wheel": next((folder / "dist").glob("*.whl")), "sdist": next((folder / "dist").glob("*.tar.gz"))}


def find_python(version: str) -> str:
    done = subprocess.run([TOP / "tools/find-python", version], capture_output=True, text=True, check=False)
    if done.returncode:
        is_ours = version == ".".join(map(str, sys.version_info[:2]))
        assert not is_ours, "the Python that runs this is not found"
        pytest.skip(f"no Python {version} here")
    return done.stdout.strip()


def tracked(suffixes: tuple[str, ...] = ()) -> set[str]:
    files = subprocess.run(["git", "ls-files", "src"], cwd=TOP, capture_output=True, text=True, check=True).stdout
    return {name.removeprefix("src/") for name in files.splitlines() if not suffixes or name.endswith(suffixes)}


def test_wheel_and_sdist_hold_every_file_of_the_source(built: dict[str, Path]) -> None:
    """The page, its script and its style among them."""
    assert any(name.endswith("web/index.html") for name in tracked((".html",))) and tracked((".js",))
    assert tracked() <= set(zipfile.ZipFile(built["wheel"]).namelist())
    with tarfile.open(built["sdist"]) as packed:
        names = {name.partition("/src/")[2] for name in packed.getnames()}
    assert tracked() <= names


@pytest.mark.parametrize(
    ("source", "version"),
    [*((source, version) for source in ("wheel", "sdist") for version in VERSIONS), ("checkout", VERSIONS[0])],
)
def test_pip_into_a_clean_environment(source: str, version: str, built: dict[str, Path], tmp_path: Path) -> None:
    subprocess.run([find_python(version), "-m", "venv", tmp_path / "venv"], check=True)
    bin_folder = tmp_path / "venv/bin"
    run(bin_folder / "pip", "install", "--quiet", "--disable-pip-version-check", built.get(source, TOP), cwd=tmp_path)
    names, size = json.loads(run(bin_folder / "python", "-c", MEASURE, cwd=tmp_path))
    print(f"\nPython {version} from the {source}: {len(names)} packages, {size / 1e6:.1f} MB")
    assert "holdfast" in names and len(names) <= PACKAGES_MAX, names
    assert size / 1e6 <= MEGABYTES_MAX
    works(bin_folder / "holdfast", tmp_path)


def works(holdfast: Path, folder: Path) -> None:
    """The first minute, with an agent that needs no account: init, add, run, check; and the dashboard's page."""
    repo = folder / "repo"
    for words in (("init", "-q", "-b", "main"), ("config", "user.name", "A"), ("config", "user.email", "a@example.org"),
                  ("commit", "-q", "--allow-empty", "-m", "begin")):  # fmt: skip
        repo.mkdir(exist_ok=True)
        run("git", *words, cwd=repo)
    assert re.fullmatch(r"holdfast \d+\.\d+\.\d+\n", run(holdfast, "--version", cwd=repo))
    run(holdfast, "init", cwd=repo)
    run(
        holdfast,
        "add",
        "Say hello",
        "--id",
        "hello",
        "--script",
        "write hello.txt hi",
        "--verify",
        "grep hi hello.txt",
        cwd=repo,
    )
    run(holdfast, "run", "--plain", cwd=repo)
    assert (repo / "hello.txt").read_text() == "hi\n"
    assert "Sound." in run(holdfast, "check", cwd=repo)
    serves_its_page(holdfast, repo)


def serves_its_page(holdfast: Path, repo: Path) -> None:
    argv = [str(holdfast), "serve", "--json"]
    with subprocess.Popen(argv, cwd=repo, env=environment(repo), stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            address = next(found[0] for line in server.stdout if (found := re.search(r"http://[0-9.:]+", line)))
            page = urllib.request.urlopen(f"{address}/").read().decode()
            assets = re.findall(r'(?:src|href)="(/[^"]+\.(?:js|css))"', page)
            assert "<html" in page and assets
            for asset in assets:
                assert urllib.request.urlopen(address + asset).read()
        finally:
            server.terminate()
            server.stdout.read()


@pytest.mark.parametrize("source", ["wheel", "checkout"])
def test_pipx_installs_a_working_program(source: str, built: dict[str, Path], tmp_path: Path) -> None:
    folders = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    what = built.get(source, TOP)
    run(TOOLS / "pipx", "install", "--quiet", "--python", sys.executable, what, cwd=tmp_path, **folders)
    assert run(tmp_path / "bin/holdfast", "--version", cwd=tmp_path).startswith("holdfast ")


@pytest.mark.parametrize("source", ["wheel", "checkout"])
def test_uv_tool_installs_a_working_program(source: str, built: dict[str, Path], tmp_path: Path) -> None:
    folders = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    what = built.get(source, TOP)
    run(TOOLS / "uv", "tool", "install", "--quiet", "--python", sys.executable, what, cwd=tmp_path, **folders)
    assert run(tmp_path / "bin/holdfast", "--version", cwd=tmp_path).startswith("holdfast ")


def test_uvx_runs_the_demo_outside_of_any_repository(tmp_path: Path) -> None:
    argv = (TOOLS / "uvx", "--quiet", "--python", sys.executable, "--from", TOP, "holdfast", "demo")
    (tmp_path / "tmp").mkdir()
    said = run(*argv, cwd=tmp_path, TMPDIR=str(tmp_path / "tmp"), GIT_CEILING_DIRECTORIES=str(tmp_path.parent))
    print(said)
    assert "Sound." in said and "Next, in a repository of yours" in said
    assert not list((tmp_path / "tmp").glob("holdfast-demo-*"))
