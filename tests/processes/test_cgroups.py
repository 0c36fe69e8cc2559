"""Control groups of both versions, each where this machine has it to give."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast import identity
from holdfast.layout import Attempt, Layout
from holdfast.processes import cgroups, starts
from holdfast.storage.files import disk, plain
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.attempt_folder import Running
from kit.runner import is_dead
from kit.waiting import wait_for

HOMES = cgroups.homes()


@pytest.fixture(params=HOMES or [None], ids=str)
def group(request: pytest.FixtureRequest, files: Attempt, monkeypatch: pytest.MonkeyPatch) -> Iterator[cgroups.Group]:
    if request.param is None:
        pytest.skip("there is no control group to be had")
    monkeypatch.setattr(cgroups, "homes", lambda: [request.param])
    made = cgroups.make(files, "T.1", 1)
    assert made is not None and made.path.parent == request.param
    yield made
    made.kill()
    wait_for(lambda: not made.members())
    made.remove()
    assert not made.path.exists()


def begun(group: cgroups.Group, line: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE, text=True, preexec_fn=group.join)
    assert child.stdout is not None and child.stdout.readline() == "on\n"
    return child


def test_a_process_stays_in_its_control_group(group: cgroups.Group) -> None:
    child = begun(group, "setsid env -i sh -c 'sleep 600 >/dev/null' & echo on; exec sleep 600")
    wait_for(lambda: len(group.members()) == 3)
    assert child.pid in group.members() and os.getpid() not in group.members()
    group.kill()
    assert child.wait() == -9
    wait_for(lambda: not group.members())
    assert child.stdout is not None
    child.stdout.close()


def test_frozen_it_does_nothing_and_thawed_it_goes_on(group: cgroups.Group, tmp_path: Path) -> None:
    child = begun(group, f"echo x > {tmp_path}/log; echo on; while :; do echo x >> {tmp_path}/log; done")
    group.freeze(60.0)
    size = (tmp_path / "log").stat().st_size
    # The signal that wakes a stopped process changes nothing.
    os.kill(child.pid, 18)
    ticks = Path(f"/proc/{child.pid}/stat").read_text().split()[13:15]
    subprocess.run(["sleep", "0.2"], check=True)
    assert (tmp_path / "log").stat().st_size == size
    assert Path(f"/proc/{child.pid}/stat").read_text().split()[13:15] == ticks
    group.thaw()
    wait_for(lambda: (tmp_path / "log").stat().st_size > size)
    group.freeze(60.0)
    group.kill()
    assert child.wait() == -9
    assert child.stdout is not None
    child.stdout.close()


def test_processes_of_an_earlier_data_root_of_the_same_path_are_ended(group: cgroups.Group, files: Attempt) -> None:
    """Its runner was killed while its agent stood still: who comes in would stand still with it."""
    left = begun(group, "echo on; exec sleep 600")
    group.freeze(60.0)
    again = cgroups.make(files, "T.1", 1)
    assert again is not None and again.path == group.path
    assert left.wait() == -9
    child = begun(again, "echo on; exec sleep 600")
    group.kill()
    child.wait()
    for each in (left, child):
        assert each.stdout is not None
        each.stdout.close()


def note(files: Attempt, path: Path) -> None:
    me = identity.current()
    nobody = identity.Identity(2**22 - 1, 1, me.boot_id, me.host)
    disk.replace(files.alive, b"")
    running = Running("T.1", 1, me, nobody, nobody.pid, cgroup=str(path), lock=attempt_folder.lock_id(files.alive))
    disk.replace(files.process, msgspec.json.encode(running))


def test_the_members_of_a_start_are_ended_and_its_group_is_removed(group: cgroups.Group, files: Attempt) -> None:
    child = begun(group, "trap '' TERM; echo on; while :; do sleep 600; done")
    group.freeze(60.0)
    note(files, group.path)
    starts.end_all(files, "T.1", 2, 0.0)
    assert child.poll() is None, "it is not of that start"
    starts.end_all(files, "T.1", 1, 0.1)
    assert child.wait() == -9 and not group.path.exists() and plain.is_free(files.alive)
    assert child.stdout is not None
    child.stdout.close()


def test_a_group_of_another_name_is_nobody_of_ours(files: Attempt, tmp_path: Path) -> None:
    """An agent may write the file that names its group: it must not turn us against others."""
    if not HOMES:
        pytest.skip("there is no control group to be had")
    other = cgroups.make(Layout(tmp_path / "other").attempt_files("T.1"), "T.1", 1)
    assert other is not None
    child = begun(other, "echo on; exec sleep 600")
    for path in (other.path, other.path.parent):
        note(files, path)
        starts.end_all(files, "T.1", 1, 0.0)
    assert not is_dead(child.pid)
    other.kill()
    child.wait()
    assert child.stdout is not None
    child.stdout.close()
    wait_for(lambda: not other.members())
    other.remove()


def test_an_empty_group_of_a_dead_runner_is_swept_and_no_other(
    group: cgroups.Group, files: Attempt, tmp_path: Path
) -> None:
    layout = Layout(tmp_path / "data")
    attempt_folder.claim_start(files, 1, attempt_folder.RUNNER, "")
    cgroups.sweep(layout)
    assert group.path.exists(), "its runner lives, and may be about to join it"
    found = msgspec.json.decode(files.start(1).read_bytes())
    files.start(1).write_bytes(msgspec.json.encode({**found, "start_ticks": 1, "pid": 2**22 - 1}))
    cgroups.sweep(Layout(tmp_path / "another"))
    assert group.path.exists(), "it is another data root's"
    cgroups.sweep(layout)
    assert not group.path.exists()


def test_the_empty_group_of_gates_is_swept_and_one_in_use_is_not(files: Attempt, tmp_path: Path) -> None:
    if not HOMES:
        pytest.skip("there is no control group to be had")
    made = cgroups.make(files, "T.1", cgroups.GATES)
    assert made is not None
    child = begun(made, "echo on; exec sleep 600")
    cgroups.sweep(Layout(tmp_path / "data"))
    assert made.members() == [child.pid]
    made.kill()
    child.communicate()
    wait_for(lambda: not made.members())
    cgroups.sweep(Layout(tmp_path / "data"))
    assert not made.path.exists()
