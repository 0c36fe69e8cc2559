"""Ports of worktrees: no two have the same at one time, whatever dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import PortsTaken
from holdfast.preparation import port_leases
from holdfast.storage.files import plain
from kit.confined import why_not
from kit.git import git
from kit.program import begin
from kit.project import add, landed, layout, make_repo, settings, sound
from kit.waiting import wait_for

# Takes a block for each worktree named, tells the first ports, and holds them until its input ends.
HOLDER = """
import sys
from pathlib import Path
from holdfast.preparation import port_leases
place, count, *owners = sys.argv[1:]
leases = [port_leases.take(Path(place), int(count), Path(owner)) for owner in owners]
print(*(lease.first for lease in leases), flush=True)
sys.stdin.read()
"""


def holder(place: Path, count: int, owners: list[Path]) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", HOLDER, str(place), str(count), *map(str, owners)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def firsts(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(word) for word in process.stdout.readline().split()]


def test_thirty_worktrees_of_two_data_roots_share_no_port(tmp_path: Path) -> None:
    # Blocks of two sizes, taken by six processes at the same time.
    owners = [tmp_path / root / f"t{number}" for root in ("one", "other") for number in range(15)]
    for owner in owners:
        owner.mkdir(parents=True)
    counts = [10, 25]
    holders = [holder(tmp_path / "ports", counts[first % 2], owners[first * 5 : first * 5 + 5]) for first in range(6)]
    found = [(first, counts[number % 2]) for number, each in enumerate(holders) for first in firsts(each)]
    ports = [port for first, count in found for port in range(first, first + count)]
    assert len(found) == 30 and len(set(ports)) == len(ports)
    for each in holders:
        each.communicate()
    # Each gets its own again, also in another order.
    again = [port_leases.take(tmp_path / "ports", counts[index // 5 % 2], owner) for index, owner in enumerate(owners)]
    assert [lease.first for lease in again] == [first for first, _ in found]
    for lease in again:
        lease.close()


def test_a_lease_lasts_as_long_as_a_process_that_inherited_it(tmp_path: Path) -> None:
    lease = port_leases.take(tmp_path, 10, tmp_path / "w")
    child = subprocess.Popen(["sleep", "1000"], pass_fds=lease.descriptors)
    lease.close()
    other = port_leases.take(tmp_path, 10, tmp_path / "v")
    assert other.first != lease.first and not plain.is_free(tmp_path / str(lease.first))
    child.kill()
    child.wait()
    assert plain.is_free(tmp_path / str(lease.first))
    other.close()


def test_a_block_in_which_a_program_listens_is_left_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port_leases.FIRST + 3))
        taken.listen()
        lease = port_leases.take(tmp_path, 10, tmp_path / "w")
        assert lease.first > port_leases.FIRST
        lease.close()


def test_all_ports_in_use_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_leases, "END", port_leases.FIRST + 10)
    lease = port_leases.take(tmp_path, 10, tmp_path / "w")
    with pytest.raises(PortsTaken, match="no attempt is spent"):
        port_leases.take(tmp_path, 10, tmp_path / "v")
    lease.close()


@pytest.mark.heavy
@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
def test_an_agent_keeps_its_ports_when_its_run_is_killed(repo: Path, sandbox: str) -> None:
    if sandbox == "bwrap" and (why := why_not()):
        pytest.skip(why)
    settings(repo, worktree={"ports": 4}, sandbox=sandbox)
    add(repo, "t", "run echo $HOLDFAST_PORT > port\nrun until test -f go; do sleep 0.05; done")
    run = begin(repo, HOLDFAST_SANDBOX=sandbox)
    tree = layout(repo).worktree("t")
    wait_for(lambda: (tree / "port").exists() and (tree / "port").read_text().strip())
    first = int((tree / "port").read_text())
    run.send_signal(signal.SIGKILL)
    run.communicate()
    lease = port_leases.folder() / str(first)
    assert not plain.is_free(lease) and lease.read_text() == str(tree)
    (tree / "go").touch()
    begin(repo, HOLDFAST_SANDBOX=sandbox).communicate(timeout=120)
    assert landed(repo) == ["t"] and plain.is_free(lease)
    sound(repo)


@pytest.mark.heavy
def test_thirty_agents_of_two_runs_share_no_port(tmp_path: Path) -> None:
    gate = f"test -n $HOLDFAST_PORT && echo $HOLDFAST_PORT >> {tmp_path}/gates"
    repos = [make_repo(tmp_path / name / "repo") for name in ("one", "other")]
    for repo in repos:
        settings(repo, max_agents=15, worktree={"ports": 10})
        for number in range(15):
            # All of them live at the same time.
            told, wait = f"{tmp_path}/agents", "do sleep 0.2; done"
            step = f"run echo $HOLDFAST_PORT >> {told}; until test $(wc -l < {told}) = 30; {wait}"
            add(repo, f"t{number}", f"{step}\nwrite a{number}.txt x", verify=[gate])
    runs = [begin(repo) for repo in repos]
    for run in runs:
        run.communicate(timeout=600)
    ports = (tmp_path / "agents").read_text().split()
    assert len(ports) == 30 == len(set(ports)) and (tmp_path / "gates").read_text()
    assert [len(landed(repo)) for repo in repos] == [15, 15]
    assert os.listdir(port_leases.folder()) and git(repos[0], "status", "--porcelain") == ""
