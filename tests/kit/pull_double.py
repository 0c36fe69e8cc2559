"""GitHub and GitLab on loopback, as far as pull requests go: what they keep, and how they fail.

The repository behind it is a bare one with real commits: a merge or a squash is made there by git. Each request is
counted, so a test can say what arrived. A fault is set beforehand, and `fired` says whether it took place.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kit.git import git

REPO = "acme/app"
TOKEN = "token-of-the-tests"
WHO = {"name": "A person", "email": "person@example.org"}
_AS = {
    "GIT_AUTHOR_NAME": "A person", "GIT_AUTHOR_EMAIL": "person@example.org",
    "GIT_COMMITTER_NAME": "A person", "GIT_COMMITTER_EMAIL": "person@example.org",
}  # fmt: skip
Route = tuple[str, str, Callable[..., Any]]


@dataclass
class Fault:
    """`how`: `lost` carries the request out and answers nothing; a number is a status, with nothing carried out."""

    method: str
    path: str
    how: str | int
    times: int = 1
    fired: int = 0


@dataclass
class KeptComment:
    id: int
    kind: str
    author: str
    body: str
    path: str = ""
    line: int = 0
    state: str = ""
    thread: int = 0
    resolved: bool = False


@dataclass
class KeptPull:
    number: int
    branch: str
    base: str
    title: str
    body: str
    draft: bool = False
    state: str = "open"
    merged: str = ""
    head_at_end: str = ""
    labels: list[str] = field(default_factory=list)
    reviewers: list[str] = field(default_factory=list)
    comments: list[KeptComment] = field(default_factory=list)


@dataclass
class KeptCheck:
    id: int
    name: str
    conclusion: str | None
    log: str = ""


class PullDouble:
    """`people`: each with the access that it has: `write`, `read`, or empty for a stranger."""

    def __init__(self, bare: Path) -> None:
        self.bare = bare
        self.pulls: dict[int, KeptPull] = {}
        self.checks: dict[str, list[KeptCheck]] = {}
        self.people = {"ada": "write", "eve": "", "rob": "read", "holdfast": "write"}
        self.asked: list[tuple[str, str, Any]] = []
        self.faults: list[Fault] = []
        self.token = TOKEN
        self.url = self.kind = ""
        self._next = 100
        self._lock = threading.RLock()

    def number(self) -> int:
        self._next += 1
        return self._next

    # -- what people and their machines do ----------------------------------------------------------------------------

    def say(self, pull: int, words: str, by: str = "ada", **where: Any) -> KeptComment:
        """A comment: on a line where `path` is given, else in the conversation."""
        kind = "thread" if where.get("path") else "comment"
        made = KeptComment(self.number(), kind, by, words, **where)
        made.thread = made.thread or made.id
        self.pulls[pull].comments.append(made)
        return made

    def review(self, pull: int, state: str, words: str = "", by: str = "ada") -> KeptComment:
        made = KeptComment(self.number(), "review", by, words, state=state)
        self.pulls[pull].comments.append(made)
        return made

    def check(self, head: str, name: str, conclusion: str | None, log: str = "") -> None:
        self.checks.setdefault(head, []).append(KeptCheck(self.number(), name, conclusion, log))

    def head(self, pull: int) -> str:
        kept = self.pulls[pull]
        return self.at(kept.branch) or kept.head_at_end

    def at(self, branch: str) -> str:
        return git(self.bare, "for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}")

    def commit(self, branch: str, files: dict[str, str], words: str = "more") -> str:
        """Somebody's commit on a branch."""
        lines = []
        for name, text in files.items():
            blob = self._hash(text)
            lines.append((name, blob))
        old = self.at(branch)
        tree = self._with(f"{old}^{{tree}}", lines)
        made = git(self.bare, "commit-tree", tree, "-p", old, "-m", words, env=_AS)
        git(self.bare, "update-ref", f"refs/heads/{branch}", made, old)
        return made

    def merge(self, pull: int, how: str = "merge", words: str = "") -> str:
        """Merges it as its service would: with a merge commit, or squashed with a message of a person's own."""
        kept = self.pulls[pull]
        head, base = self.head(pull), self.at(kept.base)
        tree = git(self.bare, "merge-tree", "--write-tree", base, head).splitlines()[0]
        parents = ["-p", base] if how == "squash" else ["-p", base, "-p", head]
        message = words or f"{kept.title} (#{pull})"
        made = git(self.bare, "commit-tree", tree, *parents, "-m", message, env=_AS)
        git(self.bare, "update-ref", f"refs/heads/{kept.base}", made, base)
        kept.state, kept.merged, kept.head_at_end = "merged", made, head
        return made

    def _hash(self, text: str) -> str:
        import subprocess

        done = subprocess.run(["git", "hash-object", "-w", "--stdin"], cwd=self.bare, input=text.encode(),
                              capture_output=True, check=True)  # fmt: skip
        return done.stdout.decode().strip()

    def _with(self, tree: str, files: list[tuple[str, str]]) -> str:
        index = {"GIT_INDEX_FILE": str(self.bare / f"index-{self.number()}")}
        git(self.bare, "read-tree", tree, env=index)
        for name, blob in files:
            git(self.bare, "update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", env=index)
        return git(self.bare, "write-tree", env=index)

    # -- what the services tell of it ---------------------------------------------------------------------------------

    def is_mergeable(self, kept: KeptPull) -> bool:
        head, base = self.at(kept.branch), self.at(kept.base)
        try:
            git(self.bare, "merge-tree", "--write-tree", base, head)
        except AssertionError:
            return False
        return True

    def made(self, branch: str, base: str, title: str, body: str, *, draft: bool = False) -> KeptPull:
        kept = KeptPull(len(self.pulls) + 1, branch, base, title, body, draft=draft)
        self.pulls[kept.number] = kept
        return kept

    def sent(self, method: str, ending: str) -> list[Any]:
        """The bodies of the requests of this kind that arrived."""
        return [body for how, path, body in self.asked if how == method and re.search(ending, path)]

    def fail(self, method: str, path: str, how: str | int, times: int = 1) -> Fault:
        fault = Fault(method, path, how, times)
        self.faults.append(fault)
        return fault

    def answer(self, handler: BaseHTTPRequestHandler, routes: list[Route]) -> None:
        parts = urllib.parse.urlsplit(handler.path)
        query = {name: values[-1] for name, values in urllib.parse.parse_qs(parts.query).items()}
        length = int(handler.headers.get("content-length") or 0)
        body = json.loads(handler.rfile.read(length)) if length else None
        with self._lock:
            self.asked.append((handler.command, handler.path, body))
            fault = self._fault(handler.command, parts.path)
            if fault is not None and fault.how != "lost":
                limit = {"retry-after": "1"} if fault.how == 429 else {}
                reply(handler, int(fault.how), {"message": "a fault of the test"}, limit)
                return
            status, answer = self._carried_out(handler, parts.path, query, body, routes)
            if fault is not None:
                handler.close_connection = True
                return
        reply(handler, status, answer)

    def _fault(self, method: str, path: str) -> Fault | None:
        for each in self.faults:
            if each.times > each.fired and each.method == method and re.search(each.path, path):
                each.fired += 1
                return each
        return None

    def _carried_out(
        self, handler: BaseHTTPRequestHandler, path: str, query: dict[str, str], body: Any, routes: list[Route]
    ) -> tuple[int, Any]:
        given = handler.headers.get("authorization", "").removeprefix("Bearer ") or handler.headers.get("private-token")
        if given != self.token:
            return 401, {"message": "Bad credentials"}
        for method, pattern, function in routes:
            if handler.command == method and (found := re.fullmatch(pattern, path)):
                made = function(self, query, body, *found.groups())
                status = 201 if method == "POST" else 200
                return made if isinstance(made, tuple) else (status, made)
        return 404, {"message": "Not Found"}


def reply(handler: BaseHTTPRequestHandler, status: int, answer: Any, headers: dict[str, str] | None = None) -> None:
    is_text = isinstance(answer, str)
    content = answer.encode() if is_text else json.dumps(answer).encode()
    handler.send_response(status)
    handler.send_header("content-type", "text/plain" if is_text else "application/json")
    handler.send_header("content-length", str(len(content)))
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.end_headers()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        handler.wfile.write(content)


@contextlib.contextmanager
def serving(double: PullDouble, kind: str) -> Iterator[PullDouble]:
    """`kind`: github or gitlab."""
    from kit.pull_routes import ROUTES

    routes = ROUTES[kind]
    double.kind = kind

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            double.answer(self, routes)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    double.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield double
    finally:
        server.shutdown()
        server.server_close()
