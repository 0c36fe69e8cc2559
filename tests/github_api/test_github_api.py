"""Our requests to GitHub against GitHub's own OpenAPI description: prism refuses each that does not fit.

Behind prism stands the double of GitHub that the other tests use: its answers have to fit the description, too. Run by
`make test-trackers`, which installs prism and the description from npm.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.config.trackers import SourceSettings
from holdfast.domain.issues.issue_records import Issue
from holdfast.errors import ServiceRefused
from holdfast.integrations.trackers.github import GitHub
from holdfast.integrations.trackers.tracker import SeenPage
from kit.forge_double import REPO, TOKEN, ForgeDouble
from kit.forge_runs import ENV, EVERYTHING, connect, expect_each_once, scripted
from kit.program import holdfast

FOLDER = Path(os.environ.get("HOLDFAST_GITHUB_API", "."))
PRISM = FOLDER / "node_modules/.bin/prism"
DESCRIPTION = FOLDER / "node_modules/@octokit/openapi/generated/api.github.com.json"
PATHS = (
    "/repos/{owner}/{repo}/issues", "/repos/{owner}/{repo}/issues/{issue_number}",
    "/repos/{owner}/{repo}/issues/{issue_number}/comments", "/repos/{owner}/{repo}/issues/{issue_number}/labels",
    "/repos/{owner}/{repo}/issues/{issue_number}/labels/{name}",
    "/repos/{owner}/{repo}/collaborators/{username}/permission",
)  # fmt: skip

pytestmark = pytest.mark.skipif(
    "HOLDFAST_GITHUB_API" not in os.environ, reason="`make test-trackers` installs prism and GitHub's description"
)


@pytest.fixture(scope="session")
def description(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of GitHub's description only the paths that we ask for: prism reads the whole of it for half a minute.

    Two things are mended. GitHub answers 304 to `If-None-Match`, and its description says so of some paths only. And
    `nullable` beside no type is taken out: prism cannot read that, and would check nothing of such a body.
    """
    whole = json.loads(DESCRIPTION.read_bytes())
    whole["paths"] = {path: whole["paths"][path] for path in PATHS}
    _take_out_nullable(whole["paths"])
    for methods in whole["paths"].values():
        if "get" in methods:
            methods["get"]["responses"].setdefault("304", {"description": "Not modified"})
    path = tmp_path_factory.mktemp("description") / "github.json"
    path.write_text(json.dumps(whole))
    return path


@contextlib.contextmanager
def prism(description: str, upstream: str) -> Iterator[str]:
    """Prism on loopback in front of a server, and its address. It refuses requests and answers that do not fit."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    listens = ["--errors", "--host", "127.0.0.1", "--port", port]
    command = [str(PRISM), "proxy", *listens, description, upstream]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            line = next((line for line in process.stdout if "is listening" in line), "")
            assert line, "prism did not begin"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _take_out_nullable(node: Any) -> None:
    if isinstance(node, dict) and "type" not in node:
        node.pop("nullable", None)
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _take_out_nullable(each)


class Behind(NamedTuple):
    """The double, and the address of prism in front of it."""

    forge: ForgeDouble
    url: str


@pytest.fixture(scope="session")
def behind(description: Path) -> Iterator[Behind]:
    with ForgeDouble() as forge, prism(str(description), forge.url) as url:
        yield Behind(forge, url)


def client(url: str, monkeypatch: pytest.MonkeyPatch, **more: str) -> GitHub:
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    return GitHub(SourceSettings("gh", "github", REPO, "env:FORGE_TOKEN", url=url, **more))


def test_every_request_of_ours_fits_the_description(behind: Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    github, number = (
        client(behind.url, monkeypatch, label="help wanted"),
        behind.forge.open("A", labels=["help wanted"]),
    )
    [page] = github.pages({})
    assert page.numbers == (str(number),)
    [again] = github.pages({"": SeenPage(page.etag, page.next, page.numbers)})
    assert again.issues is None, "its etag was not sent"
    issue, etag = github.get(str(number))
    assert issue is not None and issue.title == "A" and github.get(str(number), etag) == (None, etag)
    assert github.get("4711")[0] == Issue(number="4711", is_gone=True)
    assert [github.permission_of(name) for name in ("ada", "eve")] == [True, False]
    assert github.comment(str(number), "Done.", "a-key") == github.find_comment(str(number), "a-key", 1.7e9)
    assert github.find_comment(str(number), "another", 1.7e9) is None
    github.labels(str(number), ("done", "a label/with a slash"), ("help wanted", "not there"))
    github.close(str(number))
    ended = github.get(str(number))[0]
    assert ended is not None and not ended.is_open and not ended.wanted
    assert ended.labels == ("done", "a label/with a slash") and not behind.forge.unknown


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "issues?state=some", None),
        ("GET", "issues?sort=title", None),
        ("GET", "issues/twelve", None),
        ("PATCH", "issues/12", {"state": "shut"}),
        ("POST", "issues/12/comments", {"text": "no body"}),
        ("POST", "issues/12/labels", {"labels": "one"}),
    ],
)
def test_a_request_that_does_not_fit_is_refused(
    behind: Behind, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: object
) -> None:
    """Else the test above would prove nothing."""
    before = len(behind.forge.requests)
    with pytest.raises(ServiceRefused, match="422"):
        client(behind.url, monkeypatch).client.request(method, f"/repos/{REPO}/{path}", json=body)
    assert len(behind.forge.requests) == before, "it reached the double"


def test_a_whole_run_fits_the_description_on_both_sides(repo: Path, description: Path) -> None:
    with ForgeDouble() as forge, prism(str(description), forge.url) as url:
        connect(repo, forge, **{**EVERYTHING, "url": url})
        numbers = {forge.open(f"Write {name}", scripted(name), labels=["agent"]) for name in "ab"}
        forge.open("By eve", scripted("eve"), author="eve")
        holdfast(repo, "sync", env=ENV)
        holdfast(repo, "sync", env=ENV)
        assert forge.count("GET", "/issues?", 304), "no page was asked for by its etag"
        holdfast(repo, "run", "--plain", env=ENV)
        expect_each_once(repo, forge, numbers)
