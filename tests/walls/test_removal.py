"""Removing folders that an agent has written: whatever it swaps meanwhile, nothing outside them goes."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from holdfast.domain.attempt_records import Ending, Launch
from holdfast.errors import DiskError
from holdfast.storage.files import disk
from holdfast.storage.files.kernel import Kernel
from holdfast.testing.recorder import PowerCut, Recorder
from kit.confined import needs_bwrap
from kit.runner import Bench


def victim(folder: Path, names: list[str]) -> Path:
    """A folder of the user's, with files of the same names as the agent's."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text("the user's")
    return folder


class Swapping(Kernel):
    """Swaps a folder for a symbolic link just before something in it is removed."""

    def __init__(self, folder: Path, victim: Path) -> None:
        self.folder, self.victim, self.swapped = folder, victim, 0

    def unlink(self, path: Path, *more: int | None) -> None:
        if path.parent == self.folder and not self.swapped:
            self.swapped = 1
            os.rename(self.folder, self.folder.with_name("aside"))
            os.symlink(self.victim, self.folder)
        super().unlink(path, *more)


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_folder_that_becomes_a_link_while_it_is_removed_leads_nowhere(tmp_path: Path, below: str) -> None:
    names = [f"f{number}" for number in range(20)]
    users = victim(tmp_path / "users", names)
    folder = tmp_path / "gone" / below / "d"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("the agent's")
    kernel = Swapping(folder, users)
    with disk.use_kernel(kernel), contextlib.suppress(DiskError):
        disk.remove_tree(tmp_path / "gone")
    assert kernel.swapped and sorted(os.listdir(users)) == sorted(names)
    disk.remove_tree(tmp_path / "gone")
    assert sorted(os.listdir(users)) == sorted(names) and not (tmp_path / "gone").exists()


def test_a_folder_that_becomes_a_link_before_it_is_opened_is_removed_as_a_link(tmp_path: Path) -> None:
    users = victim(tmp_path / "users", ["a"])
    (tmp_path / "gone" / "d").mkdir(parents=True)
    (tmp_path / "gone" / "d" / "a").touch()
    (tmp_path / "gone" / "z").touch()

    class Early(Kernel):
        swapped = 0

        def unlink(self, path: Path, *more: int | None) -> None:
            if path.name == "z":
                self.swapped = 1
                (tmp_path / "gone" / "d").rename(tmp_path / "aside")
                (tmp_path / "gone" / "d").symlink_to(users)
            super().unlink(path, *more)

    kernel = Early()
    with disk.use_kernel(kernel):
        disk.remove_tree(tmp_path / "gone")
    assert kernel.swapped and os.listdir(users) == ["a"] and not (tmp_path / "gone").exists()
    assert os.listdir(tmp_path / "aside") == ["a"]


def test_a_folder_that_is_moved_away_while_it_is_removed_is_not_left_upwards(tmp_path: Path) -> None:
    """The way back up would lead to the folder that it was moved to."""
    users = victim(tmp_path / "users", ["a"])
    folder = tmp_path / "gone" / "d"
    folder.mkdir(parents=True)
    (folder / "f").touch()

    class Moving(Kernel):
        def unlink(self, path: Path, *more: int | None) -> None:
            super().unlink(path, *more)
            if path == folder / "f":
                folder.rename(users / "d")

    with disk.use_kernel(Moving()), pytest.raises(DiskError, match="moved while it was being removed"):
        disk.remove_tree(tmp_path / "gone")
    assert sorted(os.listdir(users)) == ["a", "d"]


def test_no_depth_is_too_much(tmp_path: Path) -> None:
    """Deeper than a path may be long, than descriptors may be open, and than a call may be nested."""
    top = os.open(tmp_path, os.O_RDONLY)
    os.mkdir("gone", dir_fd=top)
    fd = os.open("gone", os.O_RDONLY, dir_fd=top)
    for _ in range(3000):
        os.mkdir("deeper", dir_fd=fd)
        inner = os.open("deeper", os.O_RDONLY, dir_fd=fd)
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
        os.close(fd)
        fd = inner
    os.close(fd)
    os.close(top)
    try:
        disk.remove_tree(tmp_path / "gone")
        assert not (tmp_path / "gone").exists()
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "gone"], check=True)  # Python's own removal fails at this depth.


def test_the_simulated_disk_sees_every_removal(tmp_path: Path) -> None:
    for name in ("gone/a/b", "gone/c"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("gone/a/b/f", "gone/a/g", "gone/h"):
        (tmp_path / name).touch()
    recorder = Recorder(tmp_path)
    with disk.use_kernel(recorder):
        disk.remove_tree(tmp_path / "gone")
    seen = {call.path for call in recorder.calls if call.kind == "unlink"}
    assert seen == {f"gone{rest}" for rest in ("", "/a", "/a/b", "/a/b/f", "/a/g", "/c", "/h")}


def test_the_power_can_go_at_each_of_them(tmp_path: Path) -> None:
    (tmp_path / "gone" / "a").mkdir(parents=True)
    (tmp_path / "gone" / "a" / "f").touch()
    recorder = Recorder(tmp_path)
    recorder.die_at(1)
    with disk.use_kernel(recorder), pytest.raises(PowerCut):
        disk.remove_tree(tmp_path / "gone")
    assert recorder.fired[0].path == "gone/a" and (tmp_path / "gone" / "a").is_dir()


# -- a confined agent -------------------------------------------------------------------------------------------------

# In its folder of calls, which the runner tidies while it lives. It swaps the folder as soon as the first file goes.
RACE = """
import os, pathlib, sys
call = pathlib.Path(os.environ["HOLDFAST_FILES"], "call-1.json")
names = [f"f{number}" for number in range(2000)]
made = call.with_name("made")
(made / "d").mkdir(parents=True)
for name in names:
    (made / "d" / name).touch()
made.rename(call)
# Calls are answered in the order of their names: when the second is, the first was.
second = call.with_name("call-2.json")
second.write_text("{}")
while second.exists():
    if len(os.listdir(call / "d")) < len(names):
        os.rename(call / "d", call.with_name("aside"))
        os.symlink(sys.argv[1], call / "d")
        break
print('{"type":"result","subtype":"success","is_error":false,"result":"ok"}')
"""


@needs_bwrap
def test_a_confined_agent_has_no_folder_of_the_user_emptied(bench: Bench, tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(2000)]
    users = victim(tmp_path / "users", names)
    launch = Launch(("python3", "-c", RACE, str(users)), files={"x": "y"}, has_hook=True, stream="claude")
    ended = bench.run(agent="claude", launch=launch, sandbox="bwrap")
    assert ended.ending is Ending.DONE, ended.detail
    assert len(os.listdir(users)) == len(names)


@needs_bwrap
def test_a_secret_file_behind_a_link_of_the_agents_is_not_removed(bench: Bench, tmp_path: Path) -> None:
    """The file with the secret goes when its agent has ended; the agent has put a link to the user's in its folder."""
    users = victim(tmp_path / "users", ["settings.json"])
    script = f"""
        mv "$HOLDFAST_FILES/home" "$HOLDFAST_FILES/aside" && ln -s {users} "$HOLDFAST_FILES/home"
        echo '{{"type":"result","subtype":"success","is_error":false,"result":"ok"}}'
    """
    launch = Launch(
        ("sh", "-c", script), files={"home/settings.json": "${TOKEN}"}, references=("TOKEN",),
        has_hook=True, stream="claude",
    )  # fmt: skip
    order = bench.order(agent="claude", launch=launch, sandbox="bwrap")
    assert bench.start(order, TOKEN="secret").wait(120) == 0
    assert bench.exit().ending is Ending.DONE, bench.exit().detail
    assert (bench.files.agent / "home").is_symlink() and os.listdir(users) == ["settings.json"]
