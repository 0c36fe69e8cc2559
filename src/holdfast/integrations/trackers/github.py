"""GitHub, also GitHub Enterprise Server: REST, version 2022-11-28."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from holdfast.domain.issues.issue_records import Issue, IssuePage
from holdfast.errors import ServiceRefused
from holdfast.integrations.trackers.tracker import PER_PAGE, AdapterBase, SeenPage, hidden, is_gone, text_of, unchanged

# The permission by which somebody may push; GitHub gives `maintain` as `write`.
WRITERS = ("admin", "maintain", "write")


class GitHub(AdapterBase):
    service = "GitHub"
    public = "https://api.github.com"

    def headers(self) -> Mapping[str, str]:
        return {
            "authorization": f"Bearer {self._secret()}",
            "accept": "application/vnd.github+json",
            "x-github-api-version": "2022-11-28",
        }

    def pages(self, seen: Mapping[str, SeenPage]) -> Iterator[IssuePage]:
        # By the time of creation: an issue that is edited meanwhile keeps its place.
        params: dict[str, Any] = {"state": "open", "sort": "created", "direction": "asc", "per_page": PER_PAGE}
        if self.source.label:
            params["labels"] = self.source.label
        for at, known, answer in self.linked_pages(f"{self._repo}/issues", params, seen):
            if known and answer.is_unchanged:
                yield unchanged(at, known)
                continue
            # A pull request is listed as an issue, too.
            issues = tuple(self._issue(each) for each in answer.json if "pull_request" not in each)
            numbers = tuple(each.number for each in issues)
            yield IssuePage(at=at, next=answer.next_page, etag=answer.etag, numbers=numbers, issues=issues)

    def get(self, number: str, etag: str = "") -> tuple[Issue | None, str]:
        try:
            answer = self.client.get(f"{self._repo}/issues/{number}", etag=etag)
        except ServiceRefused as error:
            if is_gone(error):
                return Issue(number=number, is_gone=True), ""
            raise
        return (None, etag) if answer.is_unchanged else (self._issue(answer.json), answer.etag)

    def permission_of(self, author: str) -> bool:
        try:
            answer = self.client.get(f"{self._repo}/collaborators/{quote(author, safe='')}/permission")
        except ServiceRefused as error:
            # Nobody of that name, or a token that may not ask: then nobody is trusted.
            if error.facts.get("status") in (403, 404):
                return False
            raise
        return answer.json.get("permission") in WRITERS

    def comment(self, number: str, text: str, key: str) -> str:
        body = {"body": f"{text}\n\n{hidden(key)}"}
        answer = self.client.request("POST", f"{self._repo}/issues/{number}/comments", json=body)
        return text_of(answer.json.get("html_url"))

    def find_comment(self, number: str, key: str, since: float) -> str | None:
        moment = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        path = f"{self._repo}/issues/{number}/comments"
        for page in self.client.pages(path, since=moment, per_page=PER_PAGE):
            for each in page.json:
                if hidden(key) in text_of(each.get("body")):
                    return text_of(each.get("html_url"))
        return None

    def labels(self, number: str, add: tuple[str, ...], remove: tuple[str, ...]) -> None:
        if add:
            self.client.request("POST", f"{self._repo}/issues/{number}/labels", json={"labels": list(add)})
        for name in remove:
            try:
                self.client.request("DELETE", f"{self._repo}/issues/{number}/labels/{quote(name, safe='')}")
            except ServiceRefused as error:
                # It has no such label.
                if error.facts.get("status") != 404:
                    raise

    def close(self, number: str) -> None:
        closed = {"state": "closed", "state_reason": "completed"}
        self.client.request("PATCH", f"{self._repo}/issues/{number}", json=closed)

    @property
    def _repo(self) -> str:
        return f"/repos/{quote(self.source.project)}"

    def _issue(self, given: Mapping[str, Any]) -> Issue:
        labels = tuple(text_of(each if isinstance(each, str) else each.get("name")) for each in given.get("labels", ()))
        is_closed = given.get("state") == "closed"
        # Labels are the same whatever their case.
        wanted = not self.source.label or self.source.label.casefold() in {each.casefold() for each in labels}
        return Issue(
            number=text_of(given["number"]),
            url=text_of(given.get("html_url")),
            title=text_of(given.get("title")),
            body=text_of(given.get("body")),
            labels=labels,
            author=text_of((given.get("user") or {}).get("login")),
            updated_at=text_of(given.get("updated_at")),
            closed_at=(text_of(given.get("closed_at")) or "closed") if is_closed else "",
            wanted=wanted,
        )
