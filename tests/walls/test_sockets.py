"""Sockets by which programs outside are started, or typed into, cannot be reached from a sandbox."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.processes import bwrap
from kit.confined import needs_bwrap

pytestmark = needs_bwrap

ASK = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print('connected')"


@pytest.fixture
def manager() -> Iterator[Path]:
    """Not below /dev/shm or /tmp, which are others inside."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top, socket.socket(socket.AF_UNIX) as listening:
        path = Path(top, "folder", "manager.sock")
        path.parent.mkdir()
        listening.bind(str(path))
        listening.listen()
        yield path


def connects(path: Path, *more: str) -> bool:
    argv = [bwrap.PROGRAM, *bwrap.shut(), *bwrap.without_sessions(), *more, "--", sys.executable, "-c", ASK, str(path)]
    tried = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (tried.returncode == 0) == ("connected" in tried.stdout)
    return tried.returncode == 0


def test_a_socket_is_covered_by_itself_or_with_its_folder(manager: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert connects(manager), "a read-only file system is no wall to a socket"
    monkeypatch.setattr(bwrap, "_MANAGERS", (manager,))
    assert not connects(manager)
    assert connects(manager, "--bind", str(manager), str(manager)), "who names it has it"
    monkeypatch.setattr(bwrap, "_MANAGERS", ())
    monkeypatch.setattr(bwrap, "_SESSIONS", (manager.parent,))
    assert not connects(manager)


def test_the_managers_of_this_machine_are_not_reached() -> None:
    """Whichever of them there are."""
    found = [path for path in (Path("/run/dbus/system_bus_socket"), Path("/run/systemd/private")) if path.is_socket()]
    assert [path for path in found if connects(path)] == []
    usual = {str(path) for path in bwrap._MANAGERS}
    assert {"/run/docker.sock", "/run/podman/podman.sock", "/run/systemd/private"} <= usual


def listening(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


OF_HOME = (".gnupg/S.gpg-agent", ".docker/run/docker.sock", ".ssh/agent.sock", ".colima/default/docker.sock")


@pytest.mark.parametrize("name", OF_HOME)
def test_agents_of_keys_and_containers_in_the_home_are_not_reached(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They sign and start things for every process that connects."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home, listening(Path(home, name)):
        assert connects(Path(home, name))
        monkeypatch.setenv("HOME", home)
        assert not connects(Path(home, name))


@pytest.mark.parametrize("variable", ["SSH_AUTH_SOCK", "DOCKER_HOST", "DBUS_SESSION_BUS_ADDRESS"])
def test_sockets_that_the_environment_names_are_not_reached(
    variable: str, manager: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"DOCKER_HOST": f"unix://{manager}", "DBUS_SESSION_BUS_ADDRESS": f"unix:path={manager},guid=0"}
    monkeypatch.setenv(variable, given.get(variable, str(manager)))
    assert not connects(manager)
