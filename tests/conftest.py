from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from holdfast.layout import Attempt
    from kit.runner import Bench
    from kit.states import Run

# `make fuzz` asks for more examples; the fast tests must be the same every time.
EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "0"))
# No explaining: it traces every line, and a failure would end as a timeout that says nothing.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
settings.register_profile("fast", max_examples=40, deadline=None, derandomize=True, database=None, phases=PHASES)
settings.register_profile(
    "fuzz", max_examples=EXAMPLES or 1, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("fuzz" if EXAMPLES else "fast")

# The tests start thousands of processes of Holdfast: compiled once for all of them, whatever this shell says.
COMPILED = Path(__file__).parent.parent / "build" / "bytecode"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(COMPILED)
sys.dont_write_bytecode = False

# The tests' folders are in memory where there is room for them. A kill leaves the same there as on a disk, and what the
# loss of power leaves is shown on a simulated disk. The long campaigns with kills stay on the disk of this machine.
MEMORY, MEMORY_BYTES_MIN = "/dev/shm", 4 << 30


def _has_room(folder: str) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    is_fit = os.access(folder, os.W_OK) and not found.f_flag & os.ST_NOEXEC
    return is_fit and found.f_bavail * found.f_frsize >= MEMORY_BYTES_MIN


if "HOLDFAST_KILLS" not in os.environ and _has_room(MEMORY):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)

# Runs sign what they put on record: the key that they make for it is not to be one of the person who runs the tests.
# The sandbox has tests of its own, which say so; elsewhere it would only cost each start some time.
os.environ["HOLDFAST_SANDBOX"] = "none"
# Agents that give way to all else would come to nothing for minutes on a busy machine.
os.environ["HOLDFAST_LIMITS__NICE"] = "0"
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="holdfast-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], ignore_errors=True)
# Nor do they take ports that a person's worktrees have.
os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"]

# A shell ignores Ctrl-C for what it starts in the background, and so does every process that those start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def repo(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A repository with a data root. `@pytest.mark.repo(grace_s=0.5)`: with these settings; `make`: made by another."""
    from kit.project import make_repo, settings

    marker = request.node.get_closest_marker("repo")
    wanted = dict(marker.kwargs) if marker else {}
    repo: Path = wanted.pop("make", make_repo)(tmp_path / "repo")
    if wanted:
        settings(repo, **wanted)
    return repo


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HOME is the test's own folder, for a run in this process as for the commands that `kit.program` starts."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A repository with one attempt, and no orchestrator; what is left at work is ended."""
    from kit.runner import Bench

    made = Bench(tmp_path)
    yield made
    made.end()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A run in this process, in a repository of its own, with the scripted agent: its steps are the test's to take."""
    from kit.states import running

    with running(tmp_path / "repo", agent="scripted") as run:
        yield run


@pytest.fixture
def files(tmp_path: Path) -> Attempt:
    """The folder of one attempt, and no repository."""
    from holdfast.layout import Layout

    made = Layout(tmp_path / "data").attempt_files("T.1")
    made.root.mkdir(parents=True)
    return made


@pytest.fixture
def no_agent_left(repo: Path) -> Iterator[None]:
    """Agents that a test leaves at work are ended."""
    from holdfast.layout import Layout
    from holdfast.processes import starts

    yield
    for files in map(Layout(repo / ".sdd").attempt_files, os.listdir(repo / ".sdd" / "attempts")):
        starts.end_all(files, files.root.name, None, 0.5)


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """Like `tmp_path`, but in memory: for files that are written anew for each of their bytes."""
    from kit.disks import scratch

    with scratch() as folder:
        yield folder


def pytest_itemcollected(item: pytest.Item) -> None:
    """Every property test is one that `make fuzz` deepens."""
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        item.add_marker(pytest.mark.fuzz)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Heavy ones come first, so that none begins last. A short piece of a long tier is every n-th of its tests."""
    items.sort(key=lambda item: item.get_closest_marker("heavy") is None)
    taken = items[:: int(os.environ.get("TESTS_EVERY", "1"))]
    if len(taken) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(taken)))
        items[:] = taken
