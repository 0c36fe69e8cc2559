"""A stateful double of GitHub's issues on loopback: it keeps what it gets, and counts at the receiver.

    with ForgeDouble() as forge:
        number = forge.open("Fix it", "The body", labels=["agent"], author="ada")
        … run Holdfast with forge.url as the `url` of a source …
        forge.comments[number]      what was written, in order
        forge.requests              (method, path, status) of every request

It answers as GitHub does: pages with `Link`, etags with 304, the headers of the rate limit, 404 for what is not there.
`forge.faults` says what goes wrong: each request takes the next of them, `None` for one that goes well.

- `503`: nothing is done, and that is the answer.
- `limit`: nothing is done; 403 with the words of the secondary rate limit and `Retry-After`.
- `lost`: everything is done, and the connection closed before a word of the answer.
- `cut`: the connection is closed before anything is done.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

Fault = Literal["503", "limit", "lost", "cut"]
REPO = "acme/widgets"
TOKEN = "a-token-of-the-double"
_KEY = re.compile(r"<!-- holdfast: (.+?) -->")


def _user(name: str) -> dict[str, Any]:
    """A user with all that GitHub's description asks for."""
    at = f"https://api.github.test/users/{name}"
    kinds = ("events", "followers", "following", "gists", "organizations", "received_events", "repos", "starred")
    urls = {f"{kind}_url": f"{at}/{kind}" for kind in (*kinds, "subscriptions", "avatar")}
    own = {"login": name, "id": 1, "node_id": "U_1", "gravatar_id": "", "type": "User", "site_admin": False}
    return {**own, **urls, "url": at, "html_url": f"https://github.test/{name}"}


def _label(name: str) -> dict[str, Any]:
    at = f"https://api.github.test/repos/{REPO}/labels/1"
    return {
        "id": 1, "node_id": "L_1", "url": at, "name": name, "description": None, "color": "ededed", "default": False,
    }  # fmt: skip


class QuietServer(ThreadingHTTPServer):
    """A client that is killed closes its connection, which is nothing to report."""

    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        pass


class ForgeDouble:
    def __init__(
        self, *, seed: int = 0, fault_rate: float = 0.0, latency_s: float = 0.0, retry_after_s: int = 1
    ) -> None:
        self.issues: dict[int, dict[str, Any]] = {}
        self.comments: dict[int, list[dict[str, Any]]] = {}
        self.permissions: dict[str, str] = {"ada": "admin", "bob": "write", "eve": "read"}
        self.requests: list[tuple[str, str, int]] = []
        # What the issues went through: ("labels", number, names) and ("state", number, state), once for each change.
        self.events: list[tuple[str, int, Any]] = []
        self.faults: list[Fault | None] = []
        self.fired: Counter[str] = Counter()
        self.unknown: list[str] = []
        self.remaining = 5000
        self._random, self._rate = random.Random(seed), fault_rate
        self._latency_s, self._retry_after_s = latency_s, retry_after_s
        self._lock = threading.RLock()
        self._now = datetime(2026, 1, 1, tzinfo=UTC)
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                double._serve(self)

            do_POST = do_PATCH = do_DELETE = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self._server = QuietServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ForgeDouble:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def source(self, name: str = "gh", **more: Any) -> dict[str, Any]:
        """An entry of the settings' `sources` for it."""
        token = {"token": "env:FORGE_TOKEN", "url": self.url, "project": REPO, "every_s": 1}
        return {"name": name, "tracker": "github", **token, **more}

    # -- what people do there -----------------------------------------------------------------------------------------

    def open(self, title: str, body: str = "", *, labels: list[str] | None = None, author: str = "ada") -> int:
        with self._lock:
            number = len(self.issues) + 1
            page, at = f"https://github.test/{REPO}/issues/{number}", f"https://api.github.test/repos/{REPO}"
            self.issues[number] = {
                "id": 1000 + number, "node_id": f"I_{number}", "number": number, "title": title, "body": body,
                "state": "open", "locked": False, "comments": 0, "closed_at": None, "assignee": None, "milestone": None,
                "html_url": page, "url": f"{at}/issues/{number}", "repository_url": at, "user": _user(author),
                "labels_url": f"{at}/issues/{number}/labels", "comments_url": f"{at}/issues/{number}/comments",
                "events_url": f"{at}/issues/{number}/events", "labels": [_label(each) for each in labels or []],
                "created_at": self._moment(), "updated_at": self._moment(),
            }  # fmt: skip
            self.comments[number] = []
            return number

    def edit(self, number: int, **values: Any) -> None:
        with self._lock:
            if "labels" in values:
                values["labels"] = [_label(each) for each in values["labels"]]
            if "state" in values:
                values["closed_at"] = self._moment() if values["state"] == "closed" else None
            self.issues[number].update(values, updated_at=self._moment())

    # -- what was counted ---------------------------------------------------------------------------------------------

    def keys(self) -> Counter[str]:
        """How often each message of ours is there, by the mark in its comment."""
        bodies = [each["body"] for comments in self.comments.values() for each in comments]
        return Counter(key for body in bodies for key in _KEY.findall(body))

    def count(self, method: str, path: str, status: int | None = None) -> int:
        """How many requests there were of this method, whose path holds this."""
        with self._lock:
            return sum(each[0] == method and path in each[1] and status in (None, each[2]) for each in self.requests)

    # -- the server ---------------------------------------------------------------------------------------------------

    def _moment(self) -> str:
        self._now += timedelta(seconds=1)
        return self._now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def _fault(self) -> Fault | None:
        with self._lock:
            if self.faults:
                return self.faults.pop(0)
            if self._random.random() < self._rate:
                return self._random.choice(("503", "limit", "lost", "cut"))
        return None

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("content-length") or 0)
        body = json.loads(handler.rfile.read(length)) if length else None
        if self._latency_s:
            time.sleep(self._random.random() * self._latency_s)
        fault = self._fault()
        if fault:
            self.fired[fault] += 1
        if fault == "cut":
            self._hang_up(handler)
            return
        if fault in ("503", "limit"):
            status, content, headers = 503, {"message": "Unavailable"}, {}
            if fault == "limit":
                told = "You have exceeded a secondary rate limit. Please wait."
                status, content, headers = 403, {"message": told}, {"retry-after": str(self._retry_after_s)}
        elif handler.headers.get("authorization") != f"Bearer {TOKEN}":
            status, content, headers = 401, {"message": "Bad credentials"}, {}
        else:
            with self._lock:
                status, content, headers = self._answer(handler.command, handler.path, body)
        self._send(handler, status, content, headers, is_lost=fault == "lost")

    def _send(
        self, handler: BaseHTTPRequestHandler, status: int, content: Any, headers: dict[str, str], *, is_lost: bool
    ) -> None:
        data = b"" if content is None else json.dumps(content).encode()
        etag = f'W/"{hashlib.sha256(data).hexdigest()[:32]}"'
        if handler.command == "GET" and status == 200:
            headers = {**headers, "etag": etag}
            if handler.headers.get("if-none-match") == etag:
                status, data = 304, b""
        with self._lock:
            self.requests.append((handler.command, handler.path, status))
            self.remaining -= status != 304
        if is_lost:
            self._hang_up(handler)
            return
        if data:
            headers = {**headers, "content-type": "application/json; charset=utf-8"}
        limits = {"x-ratelimit-remaining": str(self.remaining), "x-ratelimit-reset": str(int(time.time()) + 3600)}
        with contextlib.suppress(OSError):
            handler.send_response(status)
            for name, value in {**limits, **headers, "content-length": str(len(data))}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(data)

    def _hang_up(self, handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        with contextlib.suppress(OSError):
            handler.connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, method: str, target: str, body: Any) -> tuple[int, Any, dict[str, str]]:
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        top = f"/repos/{REPO}"
        rest = unquote(parts.path).removeprefix(top).strip("/").split("/") if parts.path.startswith(top) else []
        match method, rest:
            case "GET", ["issues"]:
                return self._page(parts.path, query, list(self._listed(query)))
            case "GET", ["collaborators", name, "permission"]:
                rights = self.permissions.get(name, "none")
                user = {**_user(name), "role_name": rights}
                return 200, {"permission": rights, "role_name": rights, "user": user}, {}
            case _, ["issues", number, *more] if number.isdigit():
                if int(number) not in self.issues:
                    return 404, {"message": "Not Found"}, {}
                return self._of_issue(method, int(number), more, query, body, parts.path)
        self.unknown.append(f"{method} {target}")
        return 404, {"message": "Not Found"}, {}

    def _of_issue(
        self, method: str, number: int, more: list[str], query: dict[str, str], body: Any, path: str
    ) -> tuple[int, Any, dict[str, str]]:
        issue = self.issues[number]
        names = [each["name"] for each in issue["labels"]]
        match method, more:
            case "GET", []:
                return 200, issue, {}
            case "PATCH", []:
                if body.get("state") != issue["state"]:
                    self.events.append(("state", number, body["state"]))
                    self.edit(number, state=body["state"])
                return 200, issue, {}
            case "GET", ["comments"]:
                newer = [each for each in self.comments[number] if each["updated_at"] >= query.get("since", "")]
                return self._page(path, query, newer)
            case "POST", ["comments"]:
                moment, at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), len(self.comments[number]) + 1
                made = {
                    "id": number * 1000 + at, "node_id": f"C_{number}_{at}", "body": body["body"], "user": _user("ada"),
                    "html_url": f"{issue['html_url']}#{at}", "url": f"{issue['url']}/comments/{at}",
                    "issue_url": issue["url"], "created_at": moment, "updated_at": moment,
                }  # fmt: skip
                self.comments[number].append(made)
                issue["updated_at"] = self._moment()
                return 201, made, {}
            case "POST", ["labels"]:
                new = [each for each in body["labels"] if each not in names]
                if new:
                    self.events.append(("labels", number, tuple(new)))
                    self.edit(number, labels=[*names, *new])
                return 200, issue["labels"], {}
            case "DELETE", ["labels", name]:
                if name not in names:
                    return 404, {"message": "Label does not exist"}, {}
                self.events.append(("unlabelled", number, name))
                self.edit(number, labels=[each for each in names if each != name])
                return 200, issue["labels"], {}
        self.unknown.append(f"{method} {path}")
        return 404, {"message": "Not Found"}, {}

    def _listed(self, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        wanted = [each for each in query.get("labels", "").split(",") if each]
        for each in self.issues.values():
            has = {label["name"] for label in each["labels"]}
            if query.get("state", "open") in ("all", each["state"]) and set(wanted) <= has:
                yield each

    def _page(self, path: str, query: dict[str, str], found: list[Any]) -> tuple[int, Any, dict[str, str]]:
        size, at = int(query.get("per_page", 30)), int(query.get("page", 1))
        headers = {}
        if at * size < len(found):
            following = urlencode({**query, "page": at + 1})
            headers["link"] = f'<{self.url}{path}?{following}>; rel="next", <{self.url}{path}?page=99>; rel="last"'
        return 200, found[(at - 1) * size : at * size], headers
