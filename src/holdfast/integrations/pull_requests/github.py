"""Pull requests of GitHub, also of a server of one's own: REST, and GraphQL for which threads are resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.config.secret_refs import read_secret
from holdfast.domain.pull_requests.pull_decisions import LOG_CHARS_MAX, MARK, CheckRun, PullComment, PullView
from holdfast.errors import HoldfastError, ServiceAway, ServiceRefused, within
from holdfast.integrations.http.client import HttpClient
from holdfast.integrations.pull_requests.forge import (
    ITEMS_MAX,
    ForgeAddress,
    ForgeKind,
    FoundPull,
    WantedPull,
    explained,
)

RIGHTS = "read and write access to contents and pull requests, and read access to checks and actions"
# Only people with one of these can have write access; a member need not.
_WRITERS = {"OWNER", "MEMBER", "COLLABORATOR"}
_MAY_WRITE = {"admin", "write", "maintain"}
_PASSED = {"success", "neutral", "skipped"}
_STATUS = {"success": "passed", "pending": "pending"}
_THREADS = """query($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) { reviewThreads(first: 100, after: $after) {
    pageInfo { hasNextPage endCursor }
    nodes { isResolved comments(first: 100) { nodes { databaseId } } } } } } }"""


class GitHubPulls:
    """Implements `forge.py:Forge`."""

    def __init__(self, address: ForgeAddress) -> None:
        self._repo, self._source, self._token = address.repo, address.source, address.token
        self._http = HttpClient("GitHub", address.api, self._headers)
        self._at = f"/repos/{self._repo}"
        # What was answered last, with its etag: an answer that is still so costs nothing of the limit.
        self._known: dict[str, tuple[str, Any]] = {}
        # Who may write to the repository, as far as it was asked in this look.
        self._may_write: dict[str, bool] = {}

    def _headers(self) -> Mapping[str, str]:
        return {
            "authorization": f"Bearer {read_secret(self._token)}",
            "accept": "application/vnd.github+json",
            "x-github-api-version": "2022-11-28",
        }

    # -- asking -------------------------------------------------------------------------------------------------------

    def _get(self, path: str, **params: Any) -> Any:
        key = f"{path}?{sorted(params.items())}"
        etag, known = self._known.get(key, ("", None))
        with explained(RIGHTS, self._repo):
            answer = self._http.get(path, etag, **params)
        if answer.is_unchanged:
            return known
        found = answer.json
        if answer.etag and not answer.next_page:
            self._known[key] = answer.etag, found
        return found

    def _all(self, path: str, inside: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        with explained(RIGHTS, self._repo):
            for page in self._http.pages(path, per_page=100):
                content = page.json
                found += content.get(inside, []) if inside else content
                if len(found) >= ITEMS_MAX:
                    break
        return found[:ITEMS_MAX]

    def _send(self, method: str, path: str, **body: Any) -> Any:
        with explained(RIGHTS, self._repo):
            return self._http.request(method, path, json=body).json

    # -- the request --------------------------------------------------------------------------------------------------

    def find(self, branch: str) -> list[FoundPull]:
        head = f"{self._source.partition('/')[0]}:{branch}"
        found = self._get(f"{self._at}/pulls", head=head, state="all", sort="created", direction="desc", per_page=50)
        # A service that does not know the filter would answer with others.
        return [_found(each) for each in found if each["head"]["ref"] == branch]

    def open(self, wanted: WantedPull) -> FoundPull:
        owner = self._source.partition("/")[0]
        head = wanted.branch if self._source == self._repo else f"{owner}:{wanted.branch}"
        body = {"title": wanted.title, "body": wanted.body, "head": head, "base": wanted.base, "draft": wanted.draft}
        made = self._send("POST", f"{self._at}/pulls", **body)
        found = _found(made)
        # They are of use, and nothing depends on them.
        for path, values in (
            (f"issues/{found.number}/labels", {"labels": list(wanted.labels)}),
            (f"pulls/{found.number}/requested_reviewers", {"reviewers": list(wanted.reviewers)}),
        ):
            if any(values.values()):
                try:
                    self._send("POST", f"{self._at}/{path}", **values)
                except HoldfastError:
                    continue
        return found

    def update(self, number: int, title: str, body: str) -> FoundPull:
        return _found(self._send("PATCH", f"{self._at}/pulls/{number}", title=title, body=body))

    def close(self, number: int) -> None:
        self._send("PATCH", f"{self._at}/pulls/{number}", state="closed")

    def merge(self, number: int, head: str) -> None:
        self._send("PUT", f"{self._at}/pulls/{number}/merge", sha=head)

    def view(self, number: int, *, is_whole: bool = True) -> PullView:
        pull = self._get(f"{self._at}/pulls/{number}")
        found, head = _found(pull), pull["head"]["sha"]
        facts: dict[str, Any] = {"number": number, "state": found.state, "url": found.url, "head": head}
        if found.state == "merged":
            return PullView(**facts, merged=pull.get("merge_commit_sha") or "")
        if found.state == "closed" or not is_whole:
            return PullView(**facts)
        state = pull.get("mergeable_state", "")
        mergeable = False if state == "dirty" else pull.get("mergeable")
        return PullView(
            **facts,
            is_mergeable=mergeable,
            is_behind=state == "behind",
            comments=tuple(self._comments(number)),
            checks=tuple(self._checks(head)),
        )

    # -- what people said ---------------------------------------------------------------------------------------------

    def _comments(self, number: int) -> list[PullComment]:
        self._may_write.clear()
        in_threads = self._all(f"{self._at}/pulls/{number}/comments")
        resolved = self._resolved(number) if in_threads else set()
        found = [
            self._comment(each, "thread", path=each.get("path") or "", line=each.get("line") or 0,
                     is_resolved=each["id"] in resolved)
            for each in in_threads
        ]  # fmt: skip
        for each in self._all(f"{self._at}/pulls/{number}/reviews"):
            wants = each.get("state") == "CHANGES_REQUESTED"
            if wants or (each.get("body") and each.get("state") in ("COMMENTED", "APPROVED")):
                asks = each.get("state") != "APPROVED"
                text = each.get("body") or "Changes are requested."
                found.append(self._comment({**each, "body": text}, "review", asks=asks))
        found += [self._comment(each, "comment") for each in self._all(f"{self._at}/issues/{number}/comments")]
        return found

    def _comment(
        self,
        each: Mapping[str, Any],
        kind: str,
        *,
        path: str = "",
        line: int = 0,
        is_resolved: bool = False,
        asks: bool = True,
    ) -> PullComment:
        user = each.get("user") or {}
        login, is_person = user.get("login", "somebody"), user.get("type") != "Bot"
        text = each.get("body") or ""
        may = is_person and each.get("author_association") in _WRITERS
        return PullComment(
            id=f"{kind}:{each['id']}",
            author=login,
            text=text,
            path=path,
            line=line,
            is_trusted=may and MARK not in text and self._has_access(login),
            is_resolved=is_resolved,
            asks=asks,
        )

    def _has_access(self, login: str) -> bool:
        if login not in self._may_write:
            try:
                found = self._get(f"{self._at}/collaborators/{login}/permission")
                self._may_write[login] = found.get("permission") in _MAY_WRITE
            except ServiceRefused:
                self._may_write[login] = False
        return self._may_write[login]

    def _resolved(self, number: int) -> set[int]:
        """The comments of resolved threads, which REST does not tell."""
        owner, _, name = self._repo.partition("/")
        base = self._http.base
        address = f"{base.removesuffix('/v3')}/graphql" if base.endswith("/api/v3") else f"{base}/graphql"
        found: set[int] = set()
        after: str | None = None
        while True:
            variables = {"owner": owner, "name": name, "number": number, "after": after}
            try:
                with explained(RIGHTS, self._repo):
                    asked = {"query": _THREADS, "variables": variables}
                    answer = self._http.request("POST", address, json=asked).json
            except ServiceRefused:
                raise
            except HoldfastError as error:
                # It only reads: what was lost can be asked again.
                raise ServiceAway(service="GitHub", asked="POST /graphql", reason=within(error)) from error
            data = ((answer.get("data") or {}).get("repository") or {}).get("pullRequest") or {}
            threads = data.get("reviewThreads") or {}
            for each in threads.get("nodes") or ():
                if each["isResolved"]:
                    found |= {comment["databaseId"] for comment in each["comments"]["nodes"]}
            page = threads.get("pageInfo") or {}
            if not page.get("hasNextPage"):
                return found
            after = page.get("endCursor")

    def reply(self, number: int, comment: str, text: str) -> None:
        kind, _, name = comment.partition(":")
        if kind == "thread":
            self._send("POST", f"{self._at}/pulls/{number}/comments/{name}/replies", body=text)
        else:
            self._send("POST", f"{self._at}/issues/{number}/comments", body=text)

    def replies(self, number: int, comment: str) -> list[str]:
        kind = comment.partition(":")[0]
        path = f"pulls/{number}/comments" if kind == "thread" else f"issues/{number}/comments"
        return [each.get("body") or "" for each in self._all(f"{self._at}/{path}")]

    # -- checks -------------------------------------------------------------------------------------------------------

    def _checks(self, head: str) -> list[CheckRun]:
        found = [_check(each) for each in self._all(f"{self._at}/commits/{head}/check-runs", "check_runs")]
        status = self._get(f"{self._at}/commits/{head}/status", per_page=100)
        return found + [
            CheckRun(name=each["context"], state=_STATUS.get(each["state"], "failed"),
                     summary=f"{each.get('description') or ''} {each.get('target_url') or ''}".strip())
            for each in status.get("statuses", ())
        ]  # fmt: skip

    def log(self, check: CheckRun) -> str:
        """Of a job of GitHub Actions, which has the number of its check."""
        if not check.log_of:
            return ""
        try:
            return self._http.download(f"{self._at}/actions/jobs/{check.log_of}/logs", LOG_CHARS_MAX)
        except ServiceRefused:
            # A check of another kind, or a log that is gone: its summary has to do.
            return ""


def _found(pull: Mapping[str, Any]) -> FoundPull:
    state = "merged" if pull.get("merged") or pull.get("merged_at") else pull["state"]
    return FoundPull(number=pull["number"], url=pull.get("html_url", ""), state=state, body=pull.get("body") or "")


def _check(run: Mapping[str, Any]) -> CheckRun:
    output = run.get("output") or {}
    if run.get("status") != "completed":
        state = "pending"
    else:
        state = "passed" if run.get("conclusion") in _PASSED else "failed"
    is_job = (run.get("app") or {}).get("slug") == "github-actions"
    summary = "\n".join(filter(None, (output.get("title"), output.get("summary"), output.get("text"))))
    return CheckRun(name=run["name"], state=state, log_of=str(run["id"]) if is_job else "", summary=summary)


GITHUB = ForgeKind(
    make=GitHubPulls,
    hosts=("github",),
    api=lambda host: "https://api.github.com" if host == "github.com" else f"https://{host}/api/v3",
    token="env:GITHUB_TOKEN",
    rights=RIGHTS,
)
