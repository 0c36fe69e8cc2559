"""The one registry of services that have pull requests, by the name that the settings use."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.config.pull_requests import PullRequestSettings
from holdfast.errors import PullRequestsUnset
from holdfast.integrations.pull_requests.forge import Forge, ForgeAddress, ForgeKind, split_url
from holdfast.integrations.pull_requests.github import GITHUB
from holdfast.integrations.pull_requests.gitlab import GITLAB

FORGES: Mapping[str, ForgeKind] = {"github": GITHUB, "gitlab": GITLAB}


def forge_of(settings: PullRequestSettings, base_url: str, push_url: str) -> Forge:
    """The service of these remotes. Raises PullRequestsUnset, which says which setting is missing."""
    host, path = split_url(base_url)
    by_host = (each for each, kind in FORGES.items() if any(part in host for part in kind.hosts))
    name: str = settings.forge or next(by_host, "")
    if not name:
        raise PullRequestsUnset(
            reason=f"nothing tells which service the remote's host {host or 'without a name'!r} is",
            way="set pull_requests.forge to " + " or ".join(FORGES),
        )
    repo = settings.repo or path
    if "/" not in repo or (not settings.url and not host):
        missing = "pull_requests.url and pull_requests.repo" if not host else "pull_requests.repo"
        raise PullRequestsUnset(reason="the remote's URL does not name the repository there", way=f"set {missing}")
    kind = FORGES[name]
    source = split_url(push_url)[1] if push_url != base_url else repo
    return kind.make(
        ForgeAddress(
            api=settings.url or kind.api(host),
            repo=repo,
            source=source if "/" in source else repo,
            token=settings.token or kind.token,
        )
    )
