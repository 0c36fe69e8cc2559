"""Files that an agent can write, and that we open: nobody waits for a pipe in their place, no link is followed, and
none is read that has no end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.adapters.gemini import Chat
from holdfast.agents.common import hook
from holdfast.domain.attempt_records import Ending, Launch
from holdfast.git import objects, worktree_links
from holdfast.layout import Attempt
from holdfast.processes import sandbox
from holdfast.snapshots import submodule_state
from holdfast.storage.files import plain
from holdfast.storage.records import attempt_folder
from holdfast.worktrees import commit_messages
from kit.confined import needs_bwrap
from kit.runner import Bench
from kit.waiting import WAIT_S_MAX

ANSWER = b'{"id": "1", "type": "gemini", "tokens": {"input": 3, "total": 5}}\n'
CHAT = "tmp/p/chats/session-x-0123abcd.jsonl"
SIGN = b'{"start": 1, "pid": 1, "start_ticks": 1, "boot_id": "x", "host": "h"}'


# What it reads, the file's place, a content that it takes, and what it makes of a file that is none.
READERS: dict[str, tuple[Callable[[Path], Any], str, bytes, tuple[Any, ...]]] = {
    "gemini": (lambda top: Chat(top, "0123abcd").answers(), CHAT, ANSWER, ([],)),
    "marker": (lambda top: sandbox._marked(top, ".project_root", "/w"), "p/.project_root", b"/w", (None,)),
    "hook": (lambda top: hook.input_of(top / "call-1.json"), "call-1.json", b"{}", (b"",)),
    "message": (lambda top: commit_messages._read(top / "logs" / "HEAD", top), "logs/HEAD", b"x", ([],)),
    "submodule": (submodule_state.head_of, "HEAD", b"a" * 40, ("",)),
    "link": (lambda top: worktree_links.admin_of(top), ".git", b"gitdir: /x\n", (None,)),
    "content": (lambda top: objects._content(str(top / "f")), "f", b"x", (None,)),
    "start": (lambda top: attempt_folder._read(top / "alive", attempt_folder.Sign), "alive", SIGN, (None,)),
    "lock": (lambda top: plain.is_free(Attempt(top).alive), "alive.lock", b"", (True, False)),
}


def made(tmp_path: Path, name: str) -> Path:
    path = tmp_path / "top" / READERS[name][1]
    path.parent.mkdir(parents=True)
    return path


def ended(name: str, top: Path, pipe: Path) -> Any:
    """What it returns; a pipe that it waits for is let go."""
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(READERS[name][0](top)), daemon=True)
    reader.start()
    reader.join(WAIT_S_MAX / 4)
    waits = reader.is_alive()
    while reader.is_alive():
        os.close(os.open(pipe, os.O_RDWR))
        reader.join(0.1)
    assert not waits, "it waited for the pipe"
    return found[0]


@pytest.mark.parametrize("name", READERS)
def test_a_plain_file_is_read(tmp_path: Path, name: str) -> None:
    made(tmp_path, name).write_bytes(READERS[name][2])
    assert READERS[name][0](tmp_path / "top") not in READERS[name][3][:1] or name == "lock"


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    path = made(tmp_path, name)
    os.mkfifo(path)
    assert ended(name, tmp_path / "top", path) in READERS[name][3]


@pytest.mark.parametrize("name", [name for name in READERS if name != "content"])
def test_a_link_is_not_followed(tmp_path: Path, name: str) -> None:
    path = made(tmp_path, name)
    (tmp_path / "elsewhere").write_bytes(READERS[name][2])
    path.symlink_to(tmp_path / "elsewhere")
    assert READERS[name][0](tmp_path / "top") in READERS[name][3]


@pytest.mark.parametrize("name", ["gemini", "marker", "message"])
def test_a_linked_folder_is_not_gone_into(tmp_path: Path, name: str) -> None:
    path = made(tmp_path, name)
    path.write_bytes(READERS[name][2])
    path.parent.rename(tmp_path / "elsewhere")
    path.parent.symlink_to(tmp_path / "elsewhere")
    assert READERS[name][0](tmp_path / "top") in READERS[name][3]


# It holds the lock that says that it lives, and so may write to its file.
GROW = """
for fd in /proc/self/fd/*; do
    case "$(readlink "$fd")" in *alive.lock*) python3 -c 'import os,sys; os.truncate(sys.argv[1], 1 << 40)' "$fd";; esac
done
"""


@needs_bwrap
def test_a_lock_that_an_agent_has_made_huge_is_not_read(bench: Bench) -> None:
    ended = bench.run(agent="command", launch=Launch(("sh", "-c", GROW)), sandbox="bwrap")
    assert ended.ending is Ending.DONE, bench.files.output.read_text()
    if bench.files.alive.stat().st_size < 1 << 40:
        pytest.skip("the lock is not the agent's to write")
    assert attempt_folder.last_sign(bench.files, 1) is None
