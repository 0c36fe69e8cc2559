"""The routes of `kit.pull_double`: what GitHub and GitLab answer, in the form in which each does."""

from __future__ import annotations

from typing import Any

from kit.pull_double import REPO, KeptComment, KeptPull, PullDouble, Route

R = r"/repos/acme/app"
P = r"/projects/acme%2Fapp"
LEVELS = {"write": 30, "read": 20, "": 0}


# -- GitHub -----------------------------------------------------------------------------------------------------------


def _pull(double: PullDouble, kept: KeptPull) -> dict[str, Any]:
    is_open = kept.state == "open"
    mergeable = double.is_mergeable(kept) if is_open and double.at(kept.branch) else None
    return {
        "number": kept.number,
        "html_url": f"https://git.example/{REPO}/pull/{kept.number}",
        "state": "open" if is_open else "closed",
        "merged": kept.state == "merged",
        "merged_at": "2026-01-01T00:00:00Z" if kept.state == "merged" else None,
        "merge_commit_sha": kept.merged or None,
        "title": kept.title,
        "body": kept.body,
        "draft": kept.draft,
        "head": {"ref": kept.branch, "sha": double.head(kept.number)},
        "base": {"ref": kept.base, "sha": double.at(kept.base)},
        "mergeable": mergeable,
        "mergeable_state": "unknown" if mergeable is None else "clean" if mergeable else "dirty",
    }


def _find(double: PullDouble, query: dict[str, str], body: Any) -> Any:
    owner, _, branch = query["head"].partition(":")
    assert owner == "acme"
    return [_pull(double, each) for each in reversed(double.pulls.values()) if each.branch == branch]


def _open(double: PullDouble, query: dict[str, str], body: Any) -> Any:
    if not double.at(body["head"]):
        return 422, {"message": "Validation Failed"}
    if any(each.branch == body["head"] and each.state == "open" for each in double.pulls.values()):
        return 422, {"message": "A pull request already exists"}
    return _pull(
        double, double.made(body["head"], body["base"], body["title"], body["body"], draft=body.get("draft", False))
    )


def _change(double: PullDouble, query: dict[str, str], body: Any, number: str) -> Any:
    kept = double.pulls[int(number)]
    kept.title, kept.body = body.get("title", kept.title), body.get("body", kept.body)
    if "state" in body:
        kept.state, kept.head_at_end = body["state"], double.at(kept.branch)
    return _pull(double, kept)


def _get(double: PullDouble, query: dict[str, str], body: Any, number: str) -> Any:
    return _pull(double, double.pulls[int(number)]) if int(number) in double.pulls else (404, {"message": "Not Found"})


def _merge(double: PullDouble, query: dict[str, str], body: Any, number: str) -> Any:
    if body["sha"] != double.head(int(number)):
        return 409, {"message": "Head branch was modified"}
    return {"sha": double.merge(int(number)), "merged": True}


def _comment(double: PullDouble, each: KeptComment) -> dict[str, Any]:
    access = double.people.get(each.author, "")
    is_bot = each.author.endswith("[bot]")
    return {
        "id": each.id,
        "user": {"login": each.author, "type": "Bot" if is_bot else "User"},
        "author_association": "COLLABORATOR" if access else "NONE",
        "body": each.body,
        "path": each.path,
        "line": each.line or None,
        "state": each.state,
        "in_reply_to_id": each.thread if each.thread != each.id else None,
    }


def _comments(kind: str) -> Any:
    def listed(double: PullDouble, query: dict[str, str], body: Any, number: str) -> Any:
        return [_comment(double, each) for each in double.pulls[int(number)].comments if each.kind == kind]

    return listed


def _threads(double: PullDouble, query: dict[str, str], body: Any) -> Any:
    kept = double.pulls[body["variables"]["number"]]
    nodes = [
        {"isResolved": each.resolved, "comments": {"nodes": [
            {"databaseId": other.id} for other in kept.comments if other.thread == each.thread
        ]}}
        for each in kept.comments if each.kind == "thread" and each.thread == each.id
    ]  # fmt: skip
    threads = {"pageInfo": {"hasNextPage": False, "endCursor": None}, "nodes": nodes}
    return 200, {"data": {"repository": {"pullRequest": {"reviewThreads": threads}}}}


def _say(double: PullDouble, query: dict[str, str], body: Any, number: str) -> Any:
    return _comment(double, double.say(int(number), body["body"], by="holdfast"))


def _reply(double: PullDouble, query: dict[str, str], body: Any, number: str, comment: str) -> Any:
    first = next(each for each in double.pulls[int(number)].comments if each.id == int(comment))
    return _comment(double, double.say(int(number), body["body"], by="holdfast", path=first.path, thread=first.thread))


def _check_runs(double: PullDouble, query: dict[str, str], body: Any, head: str) -> Any:
    return {"check_runs": [
        {"id": each.id, "name": each.name, "status": "completed" if each.conclusion else "in_progress",
         "conclusion": each.conclusion, "app": {"slug": "github-actions"}, "output": {"title": None}}
        for each in double.checks.get(head, [])
    ]}  # fmt: skip


def _log(double: PullDouble, query: dict[str, str], body: Any, check: str) -> Any:
    return next(each.log for all_of in double.checks.values() for each in all_of if each.id == int(check))


def _permission(double: PullDouble, query: dict[str, str], body: Any, login: str) -> Any:
    return {"permission": double.people.get(login) or "none"}


def _kept(name: str) -> Any:
    def keep(double: PullDouble, query: dict[str, str], body: Any, number: str) -> Any:
        setattr(double.pulls[int(number)], name, body[name])
        return {}

    return keep


# -- GitLab -----------------------------------------------------------------------------------------------------------


def _request(double: PullDouble, kept: KeptPull) -> dict[str, Any]:
    is_open = kept.state == "open"
    is_fit = double.is_mergeable(kept) if is_open and double.at(kept.branch) else False
    return {
        "iid": kept.number,
        "web_url": f"https://git.example/{REPO}/-/merge_requests/{kept.number}",
        "state": "opened" if is_open else kept.state,
        "source_branch": kept.branch,
        "target_branch": kept.base,
        "title": kept.title,
        "description": kept.body,
        "draft": kept.title.startswith("Draft: "),
        "sha": double.head(kept.number),
        "has_conflicts": is_open and not is_fit,
        "detailed_merge_status": "mergeable" if is_fit else "conflict",
        "merge_commit_sha": kept.merged or None,
        "squash_commit_sha": None,
    }


def _find_requests(double: PullDouble, query: dict[str, str], body: Any) -> Any:
    branch = query["source_branch"]
    return [_request(double, each) for each in reversed(double.pulls.values()) if each.branch == branch]


def _open_request(double: PullDouble, query: dict[str, str], body: Any) -> Any:
    branch = body["source_branch"]
    if any(each.branch == branch and each.state == "open" for each in double.pulls.values()):
        return 409, {"message": ["Another open merge request already exists for this source branch"]}
    return _request(double, double.made(branch, body["target_branch"], body["title"], body["description"]))


def _change_request(double: PullDouble, query: dict[str, str], body: Any, number: str) -> Any:
    kept = double.pulls[int(number)]
    kept.title, kept.body = body.get("title", kept.title), body.get("description", kept.body)
    if body.get("state_event") == "close":
        kept.state, kept.head_at_end = "closed", double.at(kept.branch)
    return _request(double, kept)


def _get_request(double: PullDouble, query: dict[str, str], body: Any, number: str) -> Any:
    return _request(double, double.pulls[int(number)])


def _merge_request(double: PullDouble, query: dict[str, str], body: Any, number: str) -> Any:
    double.merge(int(number))
    return _request(double, double.pulls[int(number)])


def _note(double: PullDouble, each: KeptComment) -> dict[str, Any]:
    user = sorted(double.people).index(each.author) + 1 if each.author in double.people else 99
    position = {"new_path": each.path, "new_line": each.line} if each.path else None
    return {
        "id": each.id, "body": each.body, "system": False, "resolved": each.resolved,
        "author": {"id": user, "username": each.author}, "position": position,
    }  # fmt: skip


def _discussions(double: PullDouble, query: dict[str, str], body: Any, number: str) -> Any:
    comments = double.pulls[int(number)].comments
    return [
        {"id": f"d{first.id}", "individual_note": first.kind != "thread",
         "notes": [_note(double, each) for each in comments if each is first or each.thread == first.id]}
        for first in comments if first.kind != "thread" or first.thread == first.id
    ]  # fmt: skip


def _notes(double: PullDouble, query: dict[str, str], body: Any, number: str) -> Any:
    return [_note(double, each) for each in double.pulls[int(number)].comments]


def _add_note(double: PullDouble, query: dict[str, str], body: Any, number: str) -> Any:
    return _note(double, double.say(int(number), body["body"], by="holdfast"))


def _add_to_thread(double: PullDouble, query: dict[str, str], body: Any, number: str, thread: str) -> Any:
    first = next(each for each in double.pulls[int(number)].comments if f"d{each.id}" == thread)
    return _note(double, double.say(int(number), body["body"], by="holdfast", path=first.path, thread=first.id))


def _member(double: PullDouble, query: dict[str, str], body: Any, user: str) -> Any:
    names = sorted(double.people)
    name = names[int(user) - 1] if int(user) <= len(names) else ""
    level = LEVELS[double.people.get(name, "")]
    return {"access_level": level} if level else (404, {"message": "404 Not found"})


def _pipelines(double: PullDouble, query: dict[str, str], body: Any) -> Any:
    heads = list(double.checks)
    return [{"id": heads.index(query["sha"])}] if query["sha"] in double.checks else []


def _jobs(double: PullDouble, query: dict[str, str], body: Any, pipeline: str) -> Any:
    states = {"success": "success", "failure": "failed", None: "running"}
    return [
        {"id": each.id, "name": each.name, "status": states[each.conclusion], "allow_failure": False}
        for each in double.checks[list(double.checks)[int(pipeline)]]
    ]


ROUTES: dict[str, list[Route]] = {
    "github": [
        ("GET", rf"{R}/pulls", _find),
        ("POST", rf"{R}/pulls", _open),
        ("GET", rf"{R}/pulls/(\d+)", _get),
        ("PATCH", rf"{R}/pulls/(\d+)", _change),
        ("PUT", rf"{R}/pulls/(\d+)/merge", _merge),
        ("GET", rf"{R}/pulls/(\d+)/comments", _comments("thread")),
        ("GET", rf"{R}/pulls/(\d+)/reviews", _comments("review")),
        ("GET", rf"{R}/issues/(\d+)/comments", _comments("comment")),
        ("POST", r"/graphql", _threads),
        ("POST", rf"{R}/issues/(\d+)/comments", _say),
        ("POST", rf"{R}/pulls/(\d+)/comments/(\d+)/replies", _reply),
        ("POST", rf"{R}/issues/(\d+)/labels", _kept("labels")),
        ("POST", rf"{R}/pulls/(\d+)/requested_reviewers", _kept("reviewers")),
        ("GET", rf"{R}/commits/(\w+)/check-runs", _check_runs),
        ("GET", rf"{R}/commits/\w+/status", lambda double, query, body: {"statuses": []}),
        ("GET", rf"{R}/actions/jobs/(\d+)/logs", _log),
        ("GET", rf"{R}/collaborators/([^/]+)/permission", _permission),
    ],
    "gitlab": [
        ("GET", rf"{P}/merge_requests", _find_requests),
        ("POST", rf"{P}/merge_requests", _open_request),
        ("GET", rf"{P}/merge_requests/(\d+)", _get_request),
        ("PUT", rf"{P}/merge_requests/(\d+)", _change_request),
        ("PUT", rf"{P}/merge_requests/(\d+)/merge", _merge_request),
        ("GET", rf"{P}/merge_requests/(\d+)/discussions", _discussions),
        ("GET", rf"{P}/merge_requests/(\d+)/notes", _notes),
        ("POST", rf"{P}/merge_requests/(\d+)/notes", _add_note),
        ("POST", rf"{P}/merge_requests/(\d+)/discussions/(\w+)/notes", _add_to_thread),
        ("GET", rf"{P}/members/all/(\d+)", _member),
        ("GET", rf"{P}/pipelines", _pipelines),
        ("GET", rf"{P}/pipelines/(\d+)/jobs", _jobs),
        ("GET", rf"{P}/jobs/(\d+)/trace", _log),
    ],
}
