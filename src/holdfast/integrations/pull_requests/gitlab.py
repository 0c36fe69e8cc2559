"""Merge requests of GitLab, also of a server of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from holdfast.config.secret_refs import read_secret
from holdfast.domain.pull_requests.pull_decisions import LOG_CHARS_MAX, MARK, CheckRun, PullComment, PullView
from holdfast.errors import ServiceRefused
from holdfast.integrations.http.client import HttpClient
from holdfast.integrations.pull_requests.forge import (
    ITEMS_MAX,
    ForgeAddress,
    ForgeKind,
    FoundPull,
    WantedPull,
    explained,
)

RIGHTS = "the scope `api`, and the role Developer or a higher one"
# From this access level on somebody may push.
DEVELOPER = 30
_STATES = {"opened": "open", "locked": "open", "merged": "merged", "closed": "closed"}
_JOBS = {"success": "passed", "skipped": "passed", "manual": "passed", "failed": "failed", "canceled": "failed"}
_CONFLICT, _BEHIND = {"conflict", "broken_status"}, {"need_rebase"}


class GitLabRequests:
    """Implements `forge.py:Forge`."""

    def __init__(self, address: ForgeAddress) -> None:
        self._repo, self._token = address.repo, address.token
        self._http = HttpClient("GitLab", address.api, lambda: {"private-token": read_secret(self._token)})
        self._at = f"/projects/{quote(address.repo, safe='')}"
        self._source = f"/projects/{quote(address.source, safe='')}"
        self._may_write: dict[int, bool] = {}

    def _get(self, path: str, **params: Any) -> Any:
        with explained(RIGHTS, self._repo):
            return self._http.get(path, **params).json

    def _all(self, path: str, **params: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        with explained(RIGHTS, self._repo):
            for page in self._http.pages(path, per_page=100, **params):
                found += page.json
                if len(found) >= ITEMS_MAX:
                    break
        return found[:ITEMS_MAX]

    def _send(self, method: str, path: str, **body: Any) -> Any:
        with explained(RIGHTS, self._repo):
            return self._http.request(method, path, json=body).json

    # -- the request --------------------------------------------------------------------------------------------------

    def find(self, branch: str) -> list[FoundPull]:
        found = self._get(
            f"{self._at}/merge_requests", source_branch=branch, state="all", order_by="created_at", per_page=50
        )
        return [_found(each) for each in found if each["source_branch"] == branch]

    def open(self, wanted: WantedPull) -> FoundPull:
        title = f"Draft: {wanted.title}" if wanted.draft else wanted.title
        body: dict[str, Any] = {
            "source_branch": wanted.branch,
            "target_branch": wanted.base,
            "title": title,
            "description": wanted.body,
            "labels": ",".join(wanted.labels),
        }
        if self._source != self._at:
            body["target_project_id"] = self._get(self._at)["id"]
        if reviewers := [each["id"] for name in wanted.reviewers for each in self._get("/users", username=name)]:
            body["reviewer_ids"] = reviewers
        return _found(self._send("POST", f"{self._source}/merge_requests", **body))

    def update(self, number: int, title: str, body: str) -> FoundPull:
        before = self._get(f"{self._at}/merge_requests/{number}")
        title = f"Draft: {title}" if before.get("draft") else title
        return _found(self._send("PUT", f"{self._at}/merge_requests/{number}", title=title, description=body))

    def close(self, number: int) -> None:
        self._send("PUT", f"{self._at}/merge_requests/{number}", state_event="close")

    def merge(self, number: int, head: str) -> None:
        self._send("PUT", f"{self._at}/merge_requests/{number}/merge", sha=head)

    def view(self, number: int, *, is_whole: bool = True) -> PullView:
        pull = self._get(f"{self._at}/merge_requests/{number}")
        found, head = _found(pull), pull.get("sha") or ""
        facts: dict[str, Any] = {"number": number, "state": found.state, "url": found.url, "head": head}
        if found.state == "merged":
            merged = pull.get("merge_commit_sha") or pull.get("squash_commit_sha") or head
            return PullView(**facts, merged=merged)
        if found.state == "closed" or not is_whole:
            return PullView(**facts)
        status = pull.get("detailed_merge_status", "")
        is_in_conflict = bool(pull.get("has_conflicts")) or status in _CONFLICT
        return PullView(
            **facts,
            is_mergeable=False if is_in_conflict else status == "mergeable" or None,
            is_behind=status in _BEHIND,
            comments=tuple(self._comments(number)),
            checks=tuple(self._checks(head)),
        )

    # -- what people said ---------------------------------------------------------------------------------------------

    def _comments(self, number: int) -> list[PullComment]:
        self._may_write.clear()
        return [
            self._comment(thread["id"], note, is_alone=bool(thread.get("individual_note")))
            for thread in self._all(f"{self._at}/merge_requests/{number}/discussions")
            for note in thread["notes"]
            if not note.get("system")
        ]

    def _comment(self, thread: str, note: Mapping[str, Any], *, is_alone: bool) -> PullComment:
        author, position, text = note.get("author") or {}, note.get("position") or {}, note.get("body") or ""
        is_ours = MARK in text
        return PullComment(
            id=f"comment:{note['id']}" if is_alone else f"thread:{thread}:{note['id']}",
            author=author.get("username", "somebody"),
            text=text,
            path=position.get("new_path") or position.get("old_path") or "",
            line=position.get("new_line") or position.get("old_line") or 0,
            is_trusted=not is_ours and not author.get("bot") and self._has_access(author.get("id", 0)),
            is_resolved=bool(note.get("resolved")),
        )

    def _has_access(self, user: int) -> bool:
        if user not in self._may_write:
            try:
                member = self._get(f"{self._at}/members/all/{user}")
                self._may_write[user] = member.get("access_level", 0) >= DEVELOPER
            except ServiceRefused:
                self._may_write[user] = False
        return self._may_write[user]

    def reply(self, number: int, comment: str, text: str) -> None:
        kind, _, name = comment.partition(":")
        at = f"{self._at}/merge_requests/{number}"
        path = f"{at}/discussions/{name.partition(':')[0]}/notes" if kind == "thread" else f"{at}/notes"
        self._send("POST", path, body=text)

    def replies(self, number: int, comment: str) -> list[str]:
        return [each.get("body") or "" for each in self._all(f"{self._at}/merge_requests/{number}/notes")]

    # -- checks -------------------------------------------------------------------------------------------------------

    def _checks(self, head: str) -> list[CheckRun]:
        pipelines = self._get(f"{self._at}/pipelines", sha=head, per_page=1)
        if not pipelines:
            return []
        jobs = self._all(f"{self._at}/pipelines/{pipelines[0]['id']}/jobs")
        return [
            CheckRun(name=each["name"], state=_JOBS.get(each["status"], "pending"), log_of=str(each["id"]),
                     summary=each.get("failure_reason") or "")
            for each in jobs
            if not (each["status"] == "failed" and each.get("allow_failure"))
        ]  # fmt: skip

    def log(self, check: CheckRun) -> str:
        try:
            return self._http.download(f"{self._at}/jobs/{check.log_of}/trace", LOG_CHARS_MAX)
        except ServiceRefused:
            return ""


def _found(pull: Mapping[str, Any]) -> FoundPull:
    state = _STATES.get(pull["state"], "open")
    return FoundPull(number=pull["iid"], url=pull.get("web_url", ""), state=state, body=pull.get("description") or "")


GITLAB = ForgeKind(
    make=GitLabRequests,
    hosts=("gitlab",),
    api=lambda host: f"https://{host}/api/v4",
    token="env:GITLAB_TOKEN",
    rights=RIGHTS,
)
