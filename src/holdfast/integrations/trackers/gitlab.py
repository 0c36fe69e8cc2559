"""GitLab, on gitlab.com or one's own: REST, version 4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from holdfast.domain.issues.issue_records import Issue, IssuePage
from holdfast.errors import ServiceRefused
from holdfast.integrations.trackers.tracker import PER_PAGE, AdapterBase, SeenPage, hidden, is_gone, text_of, unchanged

# Developers may push; reporters and guests may not.
DEVELOPER = 30


class GitLab(AdapterBase):
    service = "GitLab"
    public = "https://gitlab.com/api/v4"

    def headers(self) -> Mapping[str, str]:
        return {"private-token": self._secret(), "accept": "application/json"}

    def pages(self, seen: Mapping[str, SeenPage]) -> Iterator[IssuePage]:
        params: dict[str, Any] = {
            "state": "opened", "order_by": "created_at", "sort": "asc", "per_page": PER_PAGE, "scope": "all",
        }  # fmt: skip
        if self.source.label:
            params["labels"] = self.source.label
        for at, known, answer in self.linked_pages(f"{self._project}/issues", params, seen):
            if known and answer.is_unchanged:
                yield unchanged(at, known)
                continue
            issues = tuple(self._issue(each) for each in answer.json)
            numbers = tuple(each.number for each in issues)
            yield IssuePage(at=at, next=answer.next_page, etag=answer.etag, numbers=numbers, issues=issues)

    def get(self, number: str, etag: str = "") -> tuple[Issue | None, str]:
        try:
            answer = self.client.get(f"{self._project}/issues/{number}", etag=etag)
        except ServiceRefused as error:
            if is_gone(error):
                return Issue(number=number, is_gone=True), ""
            raise
        return (None, etag) if answer.is_unchanged else (self._issue(answer.json), answer.etag)

    def permission_of(self, author: str) -> bool:
        for page in self.client.pages(f"{self._project}/members/all", query=author, per_page=PER_PAGE):
            for each in page.json:
                if each.get("username") == author and each.get("state", "active") == "active":
                    return int(each.get("access_level", 0)) >= DEVELOPER
        return False

    def comment(self, number: str, text: str, key: str) -> str:
        body = {"body": f"{text}\n\n{hidden(key)}"}
        answer = self.client.request("POST", f"{self._project}/issues/{number}/notes", json=body)
        return f"note {answer.json.get('id')}"

    def find_comment(self, number: str, key: str, since: float) -> str | None:
        path = f"{self._project}/issues/{number}/notes"
        # The newest first, so that old ones need not be read.
        for page in self.client.pages(path, sort="desc", order_by="created_at", per_page=PER_PAGE):
            for each in page.json:
                if hidden(key) in text_of(each.get("body")):
                    return f"note {each.get('id')}"
                if _unix_s(text_of(each.get("created_at"))) < since:
                    return None
        return None

    def labels(self, number: str, add: tuple[str, ...], remove: tuple[str, ...]) -> None:
        changed = {"add_labels": ",".join(add), "remove_labels": ",".join(remove)}
        wanted = {key: value for key, value in changed.items() if value}
        if wanted:
            self.client.request("PUT", f"{self._project}/issues/{number}", json=wanted)

    def close(self, number: str) -> None:
        self.client.request("PUT", f"{self._project}/issues/{number}", json={"state_event": "close"})

    @property
    def _project(self) -> str:
        return f"/projects/{quote(self.source.project, safe='')}"

    def _issue(self, given: Mapping[str, Any]) -> Issue:
        labels = tuple(text_of(each) for each in given.get("labels", ()))
        is_closed = given.get("state") == "closed"
        return Issue(
            number=text_of(given["iid"]),
            url=text_of(given.get("web_url")),
            title=text_of(given.get("title")),
            body=text_of(given.get("description")),
            labels=labels,
            author=text_of((given.get("author") or {}).get("username")),
            updated_at=text_of(given.get("updated_at")),
            closed_at=(text_of(given.get("closed_at")) or "closed") if is_closed else "",
            wanted=not self.source.label or self.source.label in labels,
        )


def _unix_s(written: str) -> float:
    try:
        time = datetime.fromisoformat(written)
    except ValueError:
        # Unknown is not old.
        return float("inf")
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
