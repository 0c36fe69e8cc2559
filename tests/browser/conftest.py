"""The dashboard in a real Chromium, over a real run. Only `make test-browser`, which sets HOLDFAST_BROWSER, runs it.

Every page is watched: nothing that a task or an agent says may open a dialog, run a script, or break a rule of the
page's own policy. A screenshot of the end of each test is left in build/screenshots.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.site import SHOTS, Site
from kit.waiting import WAIT_S_MAX

collect_ignore_glob = [] if "HOLDFAST_BROWSER" in os.environ else ["test_*.py"]

# Runs before the page's own scripts: what would only show in a console is kept here.
WATCH = """
window.hostile = 0;
window.seen = [];
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
document.addEventListener("holdfast:event", (event) => window.seen.push(event.detail));
"""  # noqa: E501


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    # Waiting ends when it has come; on a busy machine that may take its time.
    expect.set_options(timeout=WAIT_S_MAX * 1000)
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=os.environ["HOLDFAST_BROWSER"],
            # A name that is not loopback: to a page from there, plain HTTP is no secure context.
            args=["--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP holdfast.test 127.0.0.1"],
        )
        yield browser
        browser.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


@pytest.fixture
def look(chromium: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Opens a page that is watched. `look(site, "#/costs", width=360, token=…, host=…)`."""
    opened: list[tuple[Any, list[str]]] = []

    def open_page(site: Site, path: str = "", *, token: str | None = None, host: str = "", **more: Any) -> Any:
        size = {"width": more.pop("width", 1400), "height": more.pop("height", 900)}
        context = chromium.new_context(viewport=size, **more)
        context.set_default_timeout(WAIT_S_MAX * 1000)
        context.add_init_script(WATCH)
        page = context.new_page()
        troubles: list[str] = []
        page.on("dialog", lambda dialog: (troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on("console", lambda message: _hear(message, troubles))
        page.troubles = troubles
        opened.append((page, troubles))
        address = site.address
        url = address.url.replace("127.0.0.1", host) if host else address.url
        page.goto(f"{url}/#token={address.token if token is None else token}")
        if path:
            page.goto(f"{url}/{path}")
        return page

    yield open_page
    SHOTS.mkdir(parents=True, exist_ok=True)
    for number, (page, troubles) in enumerate(opened):
        page.screenshot(path=SHOTS / f"{request.node.name}{f'-{number}' if number else ''}.png")
        assert page.evaluate("window.hostile") == 0
        assert page.evaluate("window.violations") == []
        assert troubles == []
        page.context.close()


def _hear(message: Any, troubles: list[str]) -> None:
    # The browser itself tells of each request that failed; where one must not, its test looks at the page.
    if message.type == "error" and not message.text.startswith("Failed to load resource"):
        troubles.append(f"console: {message.text}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if "HOLDFAST_BROWSER" in os.environ and SHOTS.is_dir():
        terminalreporter.write_line(f"screenshots: {SHOTS}")


def pytest_sessionstart() -> None:
    if "HOLDFAST_BROWSER" in os.environ:
        told = subprocess.run([os.environ["HOLDFAST_BROWSER"], "--version"], capture_output=True, text=True, check=True)
        print(told.stdout.strip(), file=sys.stderr)
