"""A repository with the real `holdfast run --stay` over it, which can be killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.ledgers.reader import FileLedgerReader
from holdfast.server.event_feed import parse_cursor
from holdfast.server.serving import Address, read_address
from holdfast.storage.journal.entry import Entry
from holdfast.storage.journal.writer import epoch_of
from kit import TOP
from kit.program import HOLDFAST, environment
from kit.project import add, layout, make_repo, state
from kit.waiting import wait_for

# The window of a phone, and fingers.
PHONE: dict[str, Any] = {"width": 390, "height": 780, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}
SHOTS = TOP / "build" / "screenshots"


class Site:
    def __init__(self, folder: Path) -> None:
        self.repo = make_repo(folder / "repo")
        self.gate = folder / "go"
        self.process: subprocess.Popen[bytes] | None = None
        self._log = open(folder / "run.log", "ab")  # noqa: SIM115

    @property
    def address(self) -> Address:
        found = read_address(layout(self.repo))
        assert found is not None
        return found

    def start(self, *args: str, names: list[str] | None = None, env: Mapping[str, str] = {}) -> Site:
        """By default `run --stay`; `start("serve")` starts no agents. It answers to these names, too."""
        more = {**env, **({"HOLDFAST_SERVER__NAMES": json.dumps(names)} if names else {})}
        self.process = subprocess.Popen(
            [*HOLDFAST, *(args or ("run", "--stay", "--plain"))],
            cwd=self.repo,
            env=environment(self.repo, HOLDFAST_SERVER__ENABLED="true", **more),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        process = self.process
        wait_for(lambda: process.poll() is not None or read_address(layout(self.repo)) is not None, "a server")
        assert process.poll() is None, Path(self._log.name).read_text()
        return self

    def kill(self) -> None:
        """The server and the run, as a power cut would; agents go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait(120) == -signal.SIGKILL

    def records(self, cli: str, path: Path, halt: bool = False) -> dict[str, str]:
        """Puts a program on the PATH that says what was recorded of a real CLI. With `halt` it waits in the middle
        until the gate is open. Returns the variables to start with."""
        folder = self.repo.parent / "bin"
        folder.mkdir(exist_ok=True)
        lines = path.read_bytes().splitlines(keepends=True)
        half = len(lines) // 2 if halt else len(lines)
        for name, part in (("begin", lines[:half]), ("end", lines[half:])):
            (folder / f"{cli}.{name}").write_bytes(b"".join(part))
        waits = f"while ! test -e '{self.gate}'; do sleep 0.05; done"
        script = f"""#!/bin/sh
case "$1" in --version) echo 1.0.0; exit;; esac
cat '{folder}/{cli}.begin'
{waits if halt else ":"}
echo {cli} > made-by-{cli}.txt
cat '{folder}/{cli}.end'
"""
        (folder / cli).write_text(script)
        (folder / cli).chmod(0o755)
        keys = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), "none")
        return {**keys, "PATH": f"{folder}:{os.environ['PATH']}"}

    def add(self, task: str, script: str, **more: Any) -> None:
        """`wait` in a script is a turn that ends once the gate is open."""
        waits = f"run while ! test -e {self.gate}; do sleep 0.05; done"
        lines = [waits if line == "wait" else line for line in script.splitlines()]
        add(self.repo, task, "\n".join(lines), **more)

    def entries_after(self, cursor: str) -> list[tuple[str, Entry]]:
        """What the journal has behind a cursor of the API."""
        after = parse_cursor(cursor)
        read = FileLedgerReader(layout(self.repo)).read()
        return [(run, entry) for run, entry in read if (epoch_of(run), entry.seq) > after]

    def open_gate(self) -> None:
        self.gate.touch()

    def states(self) -> dict[str, str]:
        return {name: str(task.state) for name, task in state(self.repo).tasks.items()}

    def ask(self, path: str, body: Any = None) -> Any:
        """The API itself, as the operator."""
        headers = {"Authorization": f"Bearer {self.address.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.address.url + path, data, headers)) as answer:
            return json.load(answer)

    def close(self) -> None:
        """Lets agents that wait go on, and ends the run when none is left."""
        self.open_gate()
        if self.process is not None and self.process.poll() is None:
            working = ("CLAIMED", "IN_PROGRESS")
            wait_for(lambda: not any(each in working for each in self.states().values()), "the end of the agents")
            self.process.terminate()
            self.process.wait(120)
        self._log.close()


def shot(page: Any, name: str) -> None:
    """A picture of a moment that is over when the test ends."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")


def confirm(page: Any) -> None:
    """Answers the dialog with yes."""
    from playwright.sync_api import expect

    page.locator("dialog button[type=submit]").click()
    expect(page.locator("dialog")).to_have_count(0)
