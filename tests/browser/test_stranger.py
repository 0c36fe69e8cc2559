"""Somebody else on the port of a server that was killed: the page tells them nothing that is worth something later."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from browser.site import Site
from kit.waiting import wait_for

pytest.importorskip("playwright")
from playwright.sync_api import expect


class Stranger(BaseHTTPRequestHandler):
    heard: list[str]

    def do_GET(self) -> None:
        self.heard.append(f"{self.path} {self.headers.get('authorization', '')}")
        body = b'{"start": "00", "proof": "00", "detail": "Sign in again."}'
        self.send_response(200 if self.path.startswith("/auth/start") else 401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


def test_a_stranger_on_the_port_gets_no_token_that_lasts(site: Site, look: Callable[..., Any]) -> None:
    page = look(site.start())
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    sent, port = site.address.token, int(site.address.url.rpartition(":")[2])
    site.kill()
    heard: list[str] = []
    stranger = ThreadingHTTPServer(("127.0.0.1", port), type("Heard", (Stranger,), {"heard": heard}))
    thread = threading.Thread(target=stranger.serve_forever)
    thread.start()
    try:
        wait_for(lambda: any("/auth/start" in each for each in heard), "the page to ask which server this is")
        expect(page.locator(".sign-in")).to_be_visible()
    finally:
        stranger.shutdown()
        stranger.server_close()
        thread.join()
    site.start()
    assert any(sent in each for each in heard) and not any(site.address.token in each for each in heard)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        asked = urllib.request.Request(f"{site.address.url}/auth/me", headers={"Authorization": f"Bearer {sent}"})
        urllib.request.urlopen(asked)
    # The address that `holdfast dashboard` prints brings the person back in.
    page.get_by_label("Token").fill(f"{site.address.url}/#token={site.address.token}")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    page.troubles.clear()
