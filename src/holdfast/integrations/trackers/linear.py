"""Linear: GraphQL, every request a POST to one address."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from holdfast.clock import wall
from holdfast.domain.issues.issue_records import Issue, IssuePage
from holdfast.errors import AnswerLost, ServiceAway, ServiceLimited, ServiceRefused
from holdfast.integrations.http.client import LIMIT_PAUSE_S
from holdfast.integrations.trackers.tracker import PAGES_MAX, AdapterBase, SeenPage, text_of, too_many

# Linear counts what a query may answer with: nested lists are dear.
PER_PAGE = 50
_OVER = ("completed", "canceled", "duplicate")
_ISSUE = """
fragment Parts on Issue {
  id identifier url title description updatedAt completedAt canceledAt
  state { type } creator { email } labels(first: 50) { nodes { id name } } team { id }
}"""
ISSUES = (
    """query Issues($filter: IssueFilter, $first: Int, $after: String) {
  issues(filter: $filter, first: $first, after: $after, orderBy: createdAt) {
    nodes { ...Parts } pageInfo { hasNextPage endCursor }
  }
}"""
    + _ISSUE
)
ONE = "query One($id: String!) { issue(id: $id) { ...Parts } }" + _ISSUE
FIND = "query Find($id: String!) { comment(id: $id) { id url } }"
COMMENT = """mutation Comment($input: CommentCreateInput!) {
  commentCreate(input: $input) { success comment { id url } }
}"""
LABELS = """query Labels($filter: IssueLabelFilter, $first: Int) {
  issueLabels(filter: $filter, first: $first) { nodes { id name team { id } } }
}"""
STATES = """query States($filter: WorkflowStateFilter, $first: Int) {
  workflowStates(filter: $filter, first: $first) { nodes { id position } }
}"""
UPDATE = """mutation Update($id: String!, $input: IssueUpdateInput!) {
  issueUpdate(id: $id, input: $input) { success }
}"""


def comment_id(key: str) -> str:
    """The id of a comment, which its author may choose: a UUID of the form that Linear wants, made of the key."""
    return str(uuid.UUID(bytes=sha256(key.encode()).digest()[:16], version=4))


class Linear(AdapterBase):
    service = "Linear"
    public = "https://api.linear.app"

    def headers(self) -> Mapping[str, str]:
        # A personal key stands alone; a token of OAuth, which begins otherwise, is a bearer's.
        secret = self._secret()
        return {"authorization": secret if secret.startswith("lin_api_") else f"Bearer {secret}"}

    def pages(self, seen: Mapping[str, SeenPage]) -> Iterator[IssuePage]:
        """Linear has no etags: each page is sent every time."""
        wanted: dict[str, Any] = {
            "team": {"key": {"eq": self.source.project}},
            "state": {"type": {"nin": list(_OVER)}},
        }
        if self.source.label:
            wanted["labels"] = {"some": {"name": {"eq": self.source.label}}}
        at = ""
        for _ in range(PAGES_MAX):
            after = {"after": at} if at else {}
            found = self._ask(ISSUES, filter=wanted, first=PER_PAGE, **after)["issues"]
            issues = tuple(self._issue(each) for each in found["nodes"])
            info = found["pageInfo"]
            following = text_of(info["endCursor"]) if info["hasNextPage"] else ""
            numbers = tuple(each.number for each in issues)
            yield IssuePage(at=at, next=following, numbers=numbers, issues=issues)
            at = following
            if not at:
                return
        raise too_many(self.source)

    def get(self, number: str, etag: str = "") -> tuple[Issue | None, str]:
        found = self._found(number)
        return (Issue(number=number, is_gone=True) if found is None else self._issue(found)), ""

    def permission_of(self, author: str) -> bool:
        """Linear knows nothing of the repository: write rights are those that the source's `trusted` gives."""
        return False

    def comment(self, number: str, text: str, key: str) -> str:
        """Under an id of ours: a second one with the same id is refused."""
        issue = self._there(number)["id"]
        made = self._ask(COMMENT, input={"id": comment_id(key), "issueId": issue, "body": text})["commentCreate"]
        return text_of((made.get("comment") or {}).get("url"))

    def find_comment(self, number: str, key: str, since: float) -> str | None:
        try:
            return text_of(self._ask(FIND, id=comment_id(key))["comment"]["url"])
        except ServiceRefused as error:
            if error.facts.get("status") == 404:
                return None
            raise

    def labels(self, number: str, add: tuple[str, ...], remove: tuple[str, ...]) -> None:
        issue = self._there(number)
        team = (issue.get("team") or {}).get("id")
        ids = []
        for name in add:
            nodes = self._ask(LABELS, filter={"name": {"eq": name}}, first=PER_PAGE)["issueLabels"]["nodes"]
            fit = [each for each in nodes if (each.get("team") or {}).get("id") in (None, team)]
            if not fit:
                detail = f"there is no label {name!r}; make it there"
                raise ServiceRefused(service=self.client.service, asked="issueLabels", status=404, detail=detail)
            ids.append(fit[0]["id"])
        gone = [each["id"] for each in issue["labels"]["nodes"] if each["name"] in remove]
        changed = {"addedLabelIds": ids, "removedLabelIds": gone}
        wanted = {key: value for key, value in changed.items() if value}
        if wanted:
            self._ask(UPDATE, id=issue["id"], input=wanted)

    def close(self, number: str) -> None:
        issue = self._there(number)
        done = {"team": {"id": {"eq": issue["team"]["id"]}}, "type": {"eq": "completed"}}
        states = self._ask(STATES, filter=done, first=PER_PAGE)["workflowStates"]["nodes"]
        if not states:
            detail = "its team has no status that is completed"
            raise ServiceRefused(service=self.client.service, asked="workflowStates", status=409, detail=detail)
        first = min(states, key=lambda each: float(each.get("position") or 0))
        self._ask(UPDATE, id=issue["id"], input={"stateId": first["id"]})

    def _found(self, number: str) -> dict[str, Any] | None:
        try:
            found = self._ask(ONE, id=number)["issue"]
        except ServiceRefused as error:
            if error.facts.get("status") == 404:
                return None
            raise
        assert found is None or isinstance(found, dict)
        return found

    def _there(self, number: str) -> dict[str, Any]:
        found = self._found(number)
        if found is None:
            detail = f"there is no issue {number}"
            raise ServiceRefused(service=self.client.service, asked="issue", status=404, detail=detail)
        return found

    def _ask(self, query: str, **variables: Any) -> Any:
        """The data of the answer. Errors stand in the body, whatever its status; a read that was lost is only away."""
        try:
            answer = self.client.request("POST", "/graphql", json={"query": query, "variables": variables}).json
        except AnswerLost as error:
            if query.startswith("query"):
                raise ServiceAway(**error.facts) from None
            raise
        except ServiceRefused as error:
            # Linear answers 400 where a limit is reached.
            if "RATELIMITED" in str(error.facts.get("detail", "")) or "rate limit" in str(error).lower():
                raise self._limited() from None
            raise
        errors = answer.get("errors") or ()
        if not errors:
            return answer["data"]
        first = errors[0]
        more = first.get("extensions") or {}
        if more.get("code") == "RATELIMITED":
            raise self._limited()
        detail = text_of(first.get("message"))[:300]
        status = 404 if "not found" in detail.lower() else int(more.get("statusCode") or 400)
        raise ServiceRefused(service=self.client.service, asked="POST /graphql", status=status, detail=detail)

    def _limited(self) -> ServiceLimited:
        return ServiceLimited(service=self.client.service, asked="POST /graphql", until=wall() + LIMIT_PAUSE_S)

    def _issue(self, given: Mapping[str, Any]) -> Issue:
        labels = tuple(text_of(each.get("name")) for each in given["labels"]["nodes"])
        is_over = (given.get("state") or {}).get("type") in _OVER
        ended = text_of(given.get("completedAt") or given.get("canceledAt")) or "closed"
        return Issue(
            number=text_of(given["identifier"]),
            url=text_of(given.get("url")),
            title=text_of(given.get("title")),
            body=text_of(given.get("description")),
            labels=labels,
            author=text_of((given.get("creator") or {}).get("email")),
            updated_at=text_of(given.get("updatedAt")),
            closed_at=ended if is_over else "",
            wanted=not self.source.label or self.source.label in labels,
        )
