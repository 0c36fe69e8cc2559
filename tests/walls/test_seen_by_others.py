"""What other users of the machine see: the arguments of every process."""

from __future__ import annotations

import os
from pathlib import Path

from kit.program import holdfast
from kit.project import layout, make_repo
from kit.server import served
from kit.waiting import wait_for

BROWSER = """#!/bin/sh
cp "$1" {seen}/page
printf '%s\\n' "$0" "$@" > {seen}/new
mv {seen}/new {seen}/arguments
"""


def test_a_browser_is_started_without_the_token_among_its_arguments(tmp_path: Path) -> None:
    repo, seen = make_repo(tmp_path), tmp_path / "seen"
    seen.mkdir()
    browser = seen / "xdg-open"
    browser.write_text(BROWSER.format(seen=seen))
    browser.chmod(0o755)
    with served(repo) as server:
        token, page = server.address.token, layout(repo).server_page
        told = holdfast(repo, "dashboard", "--open", env={"PATH": f"{seen}:{os.environ['PATH']}"})
        assert token in told
        wait_for(lambda: (seen / "arguments").exists(), "a browser that is started")
        assert (seen / "arguments").read_text().splitlines()[1:] == [str(page)]
        assert f"url={server.address.url}/#token={token}" in (seen / "page").read_text()
        assert page.stat().st_mode & 0o777 == 0o600 and page.parent.stat().st_mode & 0o777 == 0o700
    assert not page.exists()


def test_a_missing_browser_is_reported(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    git = tmp_path / "bin"
    git.mkdir()
    for name in ("git", "env", "sh"):
        (git / name).symlink_to(f"/usr/bin/{name}")
    with served(repo):
        assert "no browser" in holdfast(repo, "dashboard", "--open", env={"PATH": str(git), "BROWSER": "/nosuch"})
