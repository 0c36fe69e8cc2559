"""`sandbox_network: none`: gates, and agents that talk to no model, reach nobody, not even what listens on loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.attempt_records import Launch
from holdfast.domain.task import TaskState
from kit.confined import needs_bwrap, outputs
from kit.program import holdfast
from kit.project import add, make_repo, settings, state
from kit.runner import SCRIPT, Bench


@pytest.fixture
def port() -> Iterator[int]:
    """Somebody who listens, and to whom the machine's own processes can connect."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def reaches(port: int) -> str:
    return f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 5)\""


@needs_bwrap
@pytest.mark.parametrize("network", ["open", "none"])
def test_agent_and_gate_reach_the_network_or_nobody(tmp_path: Path, port: int, network: str) -> None:
    repo = make_repo(tmp_path / "repo")
    settings(repo, sandbox_network=network)
    tried = f"if {reaches(port)} 2> /dev/null; then echo open; else echo none; fi"
    add(repo, "a", f"run {tried} > a.txt", verify=[{"command": f"test $({tried}) = {network} && grep {network} a.txt"}],
        max_attempts=1)  # fmt: skip
    told = holdfast(repo, "run", env={"HOLDFAST_SANDBOX": "bwrap"})
    assert state(repo).tasks["a"].state is TaskState.CLOSED, told


@needs_bwrap
def test_an_agent_that_talks_to_a_model_keeps_its_way_to_it(bench: Bench, port: int) -> None:
    script = f"run {reaches(port)} && echo reached"
    bench.run(launch=Launch(SCRIPT, stdin=script), sandbox="bwrap", sandbox_network="none")
    assert outputs(bench) == ["reached\n"]


def test_nothing_starts_where_the_network_is_to_be_shut_and_there_is_no_sandbox(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    settings(repo, sandbox_network="none")
    add(repo, "a", "write a.txt x")
    told = holdfast(repo, "run", code=20)
    assert "`sandbox_network: none` needs a sandbox" in told and state(repo).tasks["a"].start.number == 0
