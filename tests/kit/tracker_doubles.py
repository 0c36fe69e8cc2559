"""Doubles of GitLab, Jira Cloud and Linear on loopback: small, with state, and strict about what they are sent.

Each takes the requests that its public documentation describes, and refuses all else: an unknown path, parameter or key
is a 400 and stands in `refused`. What they keep is in `issues`, by the issue's number, and counted at the receiver.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlencode, urlsplit

TOKEN = "a-token-of-the-double"
MOMENT = "2026-01-02T03:04:05.000+0000"


class Refused(Exception):
    """A request that the documentation does not have. With 404: what it names is not there."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


class TrackerDouble:
    """The server of one double. `lose`: so many answers to changing requests are lost behind their work."""

    kind = ""
    settings: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.issues: dict[str, dict[str, Any]] = {}
        self.refused: list[str] = []
        self.lose = 0
        self.changes = 0
        self.per_page_max = 100
        double = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                double._serve(self)

            do_POST = do_PUT = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> TrackerDouble:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def source(self, **more: Any) -> dict[str, Any]:
        token = {"token": "env:FORGE_TOKEN", "url": f"{self.url}{self.base}", "trusted": ["ada"]}
        return {"name": self.kind, "tracker": self.kind, **token, **self.settings, **more}

    base = ""

    def open(self, title: str, body: str = "", *, labels: tuple[str, ...] = (), author: str = "ada") -> str:
        number = self.name_of(len(self.issues) + 1)
        self.issues[number] = {
            "title": title, "body": body, "labels": list(labels), "author": author, "open": True, "comments": [],
        }  # fmt: skip
        return number

    def name_of(self, number: int) -> str:
        return str(number)

    def there(self, number: str) -> dict[str, Any]:
        if number not in self.issues:
            raise Refused(f"no issue {number}", 404)
        return self.issues[number]

    def is_known(self, headers: Any) -> bool:
        raise NotImplementedError

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any, dict[str, str]]:
        raise NotImplementedError

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        length = int(handler.headers.get("content-length") or 0)
        body = json.loads(handler.rfile.read(length)) if length else None
        headers: dict[str, str] = {}
        try:
            if not self.is_known(handler.headers):
                raise Refused("who are you?", 401)
            status, content, headers = self.answer(handler.command, parts.path, query, body)
        except Refused as error:
            status, content = error.status, {"message": str(error), "errors": [{"message": str(error)}]}
            if error.status == 400:
                self.refused.append(f"{handler.command} {handler.path}: {error}")
        if self.lose and self.changes_something(handler.command, body):
            self.lose -= 1
            return
        data = b"" if content is None else json.dumps(content).encode()
        with contextlib.suppress(OSError):
            handler.send_response(status)
            for name, value in {**headers, "content-length": str(len(data))}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(data)

    def changes_something(self, method: str, body: Any) -> bool:
        return method != "GET"


def expect_keys(given: Any, allowed: set[str]) -> None:
    if not isinstance(given, dict) or not given.keys() <= allowed:
        raise Refused(f"{given!r}: allowed are {sorted(allowed)}")


# -- GitLab -----------------------------------------------------------------------------------------------------------


class GitLabDouble(TrackerDouble):
    """`/projects/:id/issues`, `/issues/:iid`, `/notes` and `/members/all`, as the pages of its REST API say."""

    kind, base = "gitlab", "/api/v4"
    settings: ClassVar[dict[str, Any]] = {"project": "group/sub/widgets"}
    levels: ClassVar[dict[str, int]] = {"ada": 40, "bob": 30, "eve": 20}

    def is_known(self, headers: Any) -> bool:
        return bool(headers.get("private-token") == TOKEN)

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any, dict[str, str]]:
        top = "/api/v4/projects/group%2Fsub%2Fwidgets/"
        if not path.startswith(top):
            raise Refused("the project's path has to be URL-encoded", 404)
        match method, path.removeprefix(top).split("/"):
            case "GET", ["issues"]:
                expect_keys(query, {"state", "labels", "order_by", "sort", "per_page", "scope", "page"})
                if query.get("state") not in ("opened", "closed", None) or query.get("order_by") != "created_at":
                    raise Refused("state or order_by does not have a valid value")
                wanted = {each for each in query.get("labels", "").split(",") if each}
                found = [self._issue(number) for number, each in self.issues.items() if each["open"]]
                return self._page(path, query, [each for each in found if wanted <= set(each["labels"])])
            case "GET", ["members", "all"]:
                expect_keys(query, {"query", "per_page", "page"})
                near = [name for name in self.levels if name.startswith(query.get("query", ""))]
                found = [{"username": name, "access_level": self.levels[name], "state": "active"} for name in near]
                return self._page(path, query, found)
            case "GET", ["issues", number]:
                return 200, self._issue(number), {}
            case "PUT", ["issues", number]:
                expect_keys(body, {"add_labels", "remove_labels", "state_event"})
                issue = self.there(number)
                issue["labels"] += [each for each in body.get("add_labels", "").split(",") if each]
                gone = body.get("remove_labels", "").split(",")
                issue["labels"] = [each for each in dict.fromkeys(issue["labels"]) if each not in gone]
                issue["open"] = issue["open"] and body.get("state_event") != "close"
                return 200, self._issue(number), {}
            case "GET", ["issues", number, "notes"]:
                expect_keys(query, {"sort", "order_by", "per_page", "page"})
                notes = self.there(number)["comments"]
                return self._page(path, query, list(reversed(notes)) if query.get("sort") == "desc" else notes)
            case "POST", ["issues", number, "notes"]:
                expect_keys(body, {"body"})
                notes = self.there(number)["comments"]
                notes.append({"id": len(notes) + 1, "body": body["body"], "created_at": "2100-01-02T03:04:05.000Z"})
                return 201, notes[-1], {}
        raise Refused("there is no such path")

    def _issue(self, number: str) -> dict[str, Any]:
        issue = self.there(number)
        return {
            "iid": int(number), "title": issue["title"], "description": issue["body"], "labels": issue["labels"],
            "state": "opened" if issue["open"] else "closed", "author": {"username": issue["author"]},
            "closed_at": None if issue["open"] else MOMENT, "updated_at": MOMENT,
            "web_url": f"https://gitlab.test/group/sub/widgets/-/issues/{number}",
        }  # fmt: skip

    def _page(self, path: str, query: dict[str, str], found: list[Any]) -> tuple[int, Any, dict[str, str]]:
        size, at = min(int(query.get("per_page", 20)), self.per_page_max), int(query.get("page", 1))
        headers = {"ratelimit-remaining": "1999", "ratelimit-reset": "4102444800"}
        if at * size < len(found):
            headers["link"] = f'<{self.url}{path}?{urlencode({**query, "page": at + 1})}>; rel="next"'
        return 200, found[(at - 1) * size : at * size], headers


# -- Jira -------------------------------------------------------------------------------------------------------------


class JiraDouble(TrackerDouble):
    """`/rest/api/3/search/jql`, `issue/{key}`, its `comment` and `transitions`, as the REST API v3 says."""

    kind = "jira"
    settings: ClassVar[dict[str, Any]] = {"project": "OPS", "user": "ada@example.org"}
    asked: str = ""

    def name_of(self, number: int) -> str:
        return f"OPS-{number}"

    def is_known(self, headers: Any) -> bool:
        wanted = base64.b64encode(f"ada@example.org:{TOKEN}".encode()).decode()
        return bool(headers.get("authorization") == f"Basic {wanted}")

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any, dict[str, str]]:
        match method, path.removeprefix("/rest/api/3/").split("/"):
            case "GET", ["search", "jql"]:
                expect_keys(query, {"jql", "fields", "maxResults", "nextPageToken"})
                return 200, self._found(query), {}
            case "GET", ["issue", key]:
                expect_keys(query, {"fields"})
                return 200, self._issue(key), {}
            case "PUT", ["issue", key]:
                return self._edit(key, body)
            case "GET", ["issue", key, "comment"]:
                expect_keys(query, {"startAt", "maxResults", "orderBy"})
                notes, at = list(reversed(self.there(key)["comments"])), int(query.get("startAt", 0))
                size = min(int(query.get("maxResults", 50)), self.per_page_max)
                return 200, {"startAt": at, "total": len(notes), "comments": notes[at : at + size]}, {}
            case "POST", ["issue", key, "comment"]:
                expect_keys(body, {"body"})
                expect_document(body["body"])
                notes = self.there(key)["comments"]
                made = {"id": str(len(notes) + 1), "body": body["body"], "created": "2100-01-02T03:04:05.000+0000"}
                notes.append(made)
                return 201, made, {}
            case "GET", ["issue", key, "transitions"]:
                to = [("11", "indeterminate"), ("31", "done")] if self.there(key)["open"] else []
                moves = [{"id": each, "to": {"statusCategory": {"key": category}}} for each, category in to]
                return 200, {"transitions": moves}, {}
            case "POST", ["issue", key, "transitions"]:
                expect_keys(body, {"transition"})
                if body["transition"] != {"id": "31"}:
                    raise Refused("it is not a legal transition")
                self.there(key)["open"] = False
                return 204, None, {}
        raise Refused("there is no such path")

    def _edit(self, key: str, body: Any) -> tuple[int, Any, dict[str, str]]:
        expect_keys(body, {"update"})
        expect_keys(body["update"], {"labels"})
        issue = self.there(key)
        for change in body["update"]["labels"]:
            [(what, label)] = change.items()
            if " " in label or what not in ("add", "remove"):
                raise Refused("the label contains spaces, or the operation is unknown")
            issue["labels"] = [each for each in issue["labels"] if each != label] + [label] * (what == "add")
        return 204, None, {}

    def _found(self, query: dict[str, str]) -> dict[str, Any]:
        self.asked = query["jql"]
        shape = (
            r'project = "OPS" AND statusCategory != Done( AND labels = "([^"]+)")?( AND \(.+\))? ORDER BY created ASC'
        )
        parsed = re.fullmatch(shape, query["jql"])
        if parsed is None:
            raise Refused(f"the JQL cannot be parsed: {query['jql']}")
        fits = [key for key, each in self.issues.items() if each["open"] and (parsed[2] or "") in (*each["labels"], "")]
        at, size = int(query.get("nextPageToken", 0)), min(int(query.get("maxResults", 50)), self.per_page_max)
        more = {"nextPageToken": str(at + size)} if at + size < len(fits) else {}
        return {"issues": [self._issue(key) for key in fits[at : at + size]], "isLast": not more, **more}

    def _issue(self, key: str) -> dict[str, Any]:
        issue = self.there(key)
        lines = [{"type": "paragraph", "content": _line(line)} for line in issue["body"].split("\n\n")]
        fields = {
            "summary": issue["title"], "labels": issue["labels"], "creator": {"accountId": issue["author"]},
            "description": {"type": "doc", "version": 1, "content": lines} if issue["body"] else None,
            "status": {"statusCategory": {"key": "new" if issue["open"] else "done"}}, "updated": MOMENT,
            "resolutiondate": None if issue["open"] else MOMENT,
        }  # fmt: skip
        return {"id": "1", "key": key, "fields": fields}


def _line(text: str) -> list[dict[str, Any]]:
    parts = [[{"type": "text", "text": each}] if each else [] for each in text.split("\n")]
    return [node for number, each in enumerate(parts) for node in ([{"type": "hardBreak"}] * bool(number) + each)]


def expect_document(node: Any) -> None:
    """A document of the Atlassian format, of the kinds that a comment of ours may have."""
    if node.get("type") != "doc" or node.get("version") != 1 or not node.get("content"):
        raise Refused("the body is no document")
    for block in node["content"]:
        if block["type"] != "paragraph" or any(
            each.get("type") == "text" and not each["text"] for each in block["content"]
        ):
            raise Refused("INVALID_INPUT")


# -- Linear -----------------------------------------------------------------------------------------------------------


class LinearDouble(TrackerDouble):
    """One address for GraphQL. Each operation is known by the field that it asks for; its variables are checked."""

    kind = "linear"
    settings: ClassVar[dict[str, Any]] = {"project": "ENG"}
    names: ClassVar[dict[str, str]] = {"done": "label-done", "agent": "label-agent", "stuck": "label-stuck"}

    def name_of(self, number: int) -> str:
        return f"ENG-{number}"

    def is_known(self, headers: Any) -> bool:
        return bool(headers.get("authorization") == f"Bearer {TOKEN}")

    def changes_something(self, method: str, body: Any) -> bool:
        return str(body["query"]).startswith("mutation")

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any, dict[str, str]]:
        if (method, path) != ("POST", "/graphql"):
            raise Refused("there is one address, /graphql")
        expect_keys(body, {"query", "variables"})
        text, given = body["query"], body["variables"]
        declared = set(re.findall(r"\$(\w+):", text))
        if not given.keys() <= declared or text.count("{") != text.count("}"):
            raise Refused("a variable is not declared, or the query is cut")
        field = re.search(r"\{\s*(\w+)\(", text)
        found = getattr(self, f"_{field[1]}", None) if field else None
        if found is None:
            raise Refused(f"Cannot query field in {text}")
        try:
            return (
                200,
                {"data": {field[1]: found(**given)}},
                {"x-ratelimit-requests-remaining": "1499", "x-ratelimit-requests-reset": "4102444800000"},
            )  # type: ignore[index]
        except Refused as error:
            if error.status != 404:
                raise
            # As Linear has it: no status of its own, but an error in the body.
            told = {"message": f"Entity not found: {error}", "extensions": {"code": "INPUT_ERROR", "statusCode": 400}}
            return 200, {"data": None, "errors": [told]}, {}

    def _issues(self, filter: Any, first: int, after: str = "") -> Any:
        expect_keys(filter, {"team", "state", "labels"})
        wanted = filter.get("labels", {}).get("some", {}).get("name", {}).get("eq", "")
        fits = [key for key, each in self.issues.items() if each["open"] and wanted in (*each["labels"], "")]
        at, size = int(after or 0), min(first, self.per_page_max)
        info = {"hasNextPage": at + size < len(fits), "endCursor": str(at + size)}
        return {"nodes": [self._issue(key) for key in fits[at : at + size]], "pageInfo": info}

    def _issue(self, id: str) -> Any:
        issue = self.there(id.removeprefix("uuid-"))
        key = id.removeprefix("uuid-")
        labels = [{"id": self.names.get(each, f"label-{each}"), "name": each} for each in issue["labels"]]
        return {
            "id": f"uuid-{key}", "identifier": key, "url": f"https://linear.test/{key}", "title": issue["title"],
            "description": issue["body"], "updatedAt": MOMENT, "completedAt": None if issue["open"] else MOMENT,
            "canceledAt": None, "state": {"type": "unstarted" if issue["open"] else "completed"},
            "creator": {"email": issue["author"]}, "labels": {"nodes": labels}, "team": {"id": "team-1"},
        }  # fmt: skip

    def _comment(self, id: str) -> Any:
        for number, issue in self.issues.items():
            for each in issue["comments"]:
                if each["id"] == id:
                    return {"id": id, "url": f"https://linear.test/{number}#{id}"}
        raise Refused("Comment", 404)

    def _commentCreate(self, input: Any) -> Any:
        expect_keys(input, {"id", "issueId", "body"})
        if not re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", input["id"]):
            raise Refused("id must be a UUID v4")
        with contextlib.suppress(Refused):
            self._comment(input["id"])
            raise Refused("there is a comment with this id", 409)
        self.there(input["issueId"].removeprefix("uuid-"))["comments"].append(
            {"id": input["id"], "body": input["body"]}
        )
        return {"success": True, "comment": self._comment(input["id"])}

    def _issueLabels(self, filter: Any, first: int) -> Any:
        name = filter["name"]["eq"]
        known = [{"id": self.names[name], "name": name, "team": None}] if name in self.names else []
        return {"nodes": [{"id": "label-of-others", "name": name, "team": {"id": "team-2"}}, *known][:first]}

    def _workflowStates(self, filter: Any, first: int) -> Any:
        expect_keys(filter, {"team", "type"})
        if filter != {"team": {"id": {"eq": "team-1"}}, "type": {"eq": "completed"}}:
            raise Refused("another filter")
        return {"nodes": [{"id": "state-later", "position": 2.0}, {"id": "state-done", "position": 1.0}]}

    def _issueUpdate(self, id: str, input: Any) -> Any:
        expect_keys(input, {"addedLabelIds", "removedLabelIds", "stateId"})
        issue = self.there(id.removeprefix("uuid-"))
        named = {value: key for key, value in self.names.items()}
        issue["labels"] += [
            named[each] for each in input.get("addedLabelIds", ()) if named[each] not in issue["labels"]
        ]
        issue["labels"] = [
            each for each in issue["labels"] if self.names.get(each) not in input.get("removedLabelIds", ())
        ]
        issue["open"] = issue["open"] and input.get("stateId") != "state-done"
        return {"success": True}


DOUBLES = {each.kind: each for each in (GitLabDouble, JiraDouble, LinearDouble)}


def texts_of(double: TrackerDouble, number: str) -> Iterator[str]:
    """The texts of an issue's comments, however the tracker keeps them."""
    for each in double.issues[number]["comments"]:
        yield each["body"] if isinstance(each["body"], str) else json.dumps(each["body"])
