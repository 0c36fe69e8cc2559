"""Jira Cloud: REST, version 3. Its texts are documents of the Atlassian format, made plain here."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from holdfast.domain.issues.issue_records import Issue, IssuePage
from holdfast.errors import InputError, ServiceRefused
from holdfast.integrations.trackers.tracker import (
    PAGES_MAX,
    PER_PAGE,
    AdapterBase,
    SeenPage,
    is_gone,
    text_of,
    too_many,
)

FIELDS = "summary,description,labels,status,creator,updated,resolutiondate"
DEPTH_MAX = 50
_BLOCKS = {"paragraph", "heading", "codeBlock", "blockquote", "listItem", "tableRow", "rule", "mediaSingle", "panel"}


class Jira(AdapterBase):
    service = "Jira"

    def headers(self) -> Mapping[str, str]:
        if self.source.user is None:
            return super().headers()
        both = base64.b64encode(f"{self.source.user}:{self._secret()}".encode()).decode()
        return {"authorization": f"Basic {both}", "accept": "application/json"}

    def pages(self, seen: Mapping[str, SeenPage]) -> Iterator[IssuePage]:
        """Jira has no etags for a search: each page is sent every time."""
        jql, token = self._jql(), ""
        for _ in range(PAGES_MAX):
            more = {"nextPageToken": token} if token else {}
            params: dict[str, Any] = {"jql": jql, "fields": FIELDS, "maxResults": PER_PAGE, **more}
            answer = self.client.get("/rest/api/3/search/jql", **params).json
            issues = tuple(self._issue(each) for each in answer.get("issues", ()))
            following = "" if answer.get("isLast", True) else text_of(answer.get("nextPageToken"))
            numbers = tuple(each.number for each in issues)
            yield IssuePage(at=token, next=following, numbers=numbers, issues=issues)
            token = following
            if not token:
                return
        raise too_many(self.source)

    def get(self, number: str, etag: str = "") -> tuple[Issue | None, str]:
        try:
            answer = self.client.get(f"/rest/api/3/issue/{quote(number, safe='')}", fields=FIELDS)
        except ServiceRefused as error:
            if is_gone(error):
                return Issue(number=number, is_gone=True), ""
            raise
        return self._issue(answer.json), ""

    def permission_of(self, author: str) -> bool:
        """Jira knows nothing of the repository: write rights are those that the source's `trusted` gives."""
        return False

    def comment(self, number: str, text: str, key: str) -> str:
        body = {"body": document_of(f"{text}\n\n{_mark(key)}")}
        path = f"/rest/api/3/issue/{quote(number, safe='')}/comment"
        return f"comment {self.client.request('POST', path, json=body).json.get('id')}"

    def find_comment(self, number: str, key: str, since: float) -> str | None:
        path, at = f"/rest/api/3/issue/{quote(number, safe='')}/comment", 0
        # The newest first, so that old ones need not be read.
        for _ in range(PAGES_MAX):
            found = self.client.get(path, startAt=at, maxResults=PER_PAGE, orderBy="-created").json
            comments = found.get("comments", ())
            for each in comments:
                if _mark(key) in plain_text(each.get("body")):
                    return f"comment {each.get('id')}"
                if _unix_s(text_of(each.get("created"))) < since:
                    return None
            at += len(comments)
            if not comments or at >= int(found.get("total", 0)):
                return None
        return None

    def labels(self, number: str, add: tuple[str, ...], remove: tuple[str, ...]) -> None:
        changes = [*({"add": each} for each in add), *({"remove": each} for each in remove)]
        if changes:
            path = f"/rest/api/3/issue/{quote(number, safe='')}"
            self.client.request("PUT", path, json={"update": {"labels": changes}})

    def close(self, number: str) -> None:
        """By the first transition that leads to a status of the category `done`: each project has its own."""
        path = f"/rest/api/3/issue/{quote(number, safe='')}/transitions"
        for each in self.client.get(path).json.get("transitions", ()):
            if _category(each.get("to") or {}) == "done":
                self.client.request("POST", path, json={"transition": {"id": text_of(each.get("id"))}})
                return
        detail = "no transition leads from its status to one that is done"
        raise ServiceRefused(service=self.client.service, asked=f"POST {path}", status=409, detail=detail)

    def _jql(self) -> str:
        parts = [f"project = {_quoted(self.source.project)}", "statusCategory != Done"]
        if self.source.label:
            parts.append(f"labels = {_quoted(self.source.label)}")
        if self.source.query:
            if "order by" in self.source.query.lower():
                raise InputError(detail=f"the query of the source {self.source.name!r} has an order; leave it out")
            parts.append(f"({self.source.query})")
        return " AND ".join(parts) + " ORDER BY created ASC"

    def _issue(self, given: Mapping[str, Any]) -> Issue:
        fields, key = given.get("fields") or {}, text_of(given["key"])
        labels = tuple(text_of(each) for each in fields.get("labels") or ())
        author = fields.get("creator") or {}
        is_done = _category(fields.get("status") or {}) == "done"
        return Issue(
            number=key,
            url=f"{self.client.base}/browse/{key}",
            title=text_of(fields.get("summary")),
            body=plain_text(fields.get("description")).strip(),
            labels=labels,
            author=text_of(author.get("accountId")),
            updated_at=text_of(fields.get("updated")),
            closed_at=(text_of(fields.get("resolutiondate")) or "done") if is_done else "",
            wanted=not self.source.label or self.source.label in labels,
        )


def _mark(key: str) -> str:
    """Its documents can hide nothing."""
    return f"(holdfast: {key})"


def plain_text(node: Any, depth: int = 0) -> str:
    """The text of a document: its blocks on lines of their own. What it shows and is no text is left out."""
    if isinstance(node, str) or node is None:
        return node or ""
    if not isinstance(node, Mapping) or depth > DEPTH_MAX:
        return ""
    kind = node.get("type")
    if kind == "text":
        return text_of(node.get("text"))
    if kind == "hardBreak":
        return "\n"
    if kind in ("mention", "emoji"):
        return text_of((node.get("attrs") or {}).get("text"))
    inner = "".join(plain_text(each, depth + 1) for each in node.get("content") or ())
    if kind == "listItem":
        return f"- {inner.strip()}\n"
    return f"{inner.rstrip(chr(10))}\n\n" if kind in _BLOCKS else inner


def document_of(text: str) -> dict[str, Any]:
    """A document of one paragraph for each part of the text that is set off by an empty line."""
    parts = [part for part in text.split("\n\n") if part.strip()]
    return {"type": "doc", "version": 1, "content": [_paragraph(part) for part in parts]}


def _paragraph(text: str) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n")):
        content += [{"type": "hardBreak"}] if number else []
        content += [{"type": "text", "text": line}] if line else []
    return {"type": "paragraph", "content": content}


def _category(status: Mapping[str, Any]) -> str:
    return text_of((status.get("statusCategory") or {}).get("key"))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _unix_s(written: str) -> float:
    try:
        return datetime.strptime(written, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
    except ValueError:
        # Unknown is not old.
        return float("inf")
