"""Puts the parts of this room together for a run."""

from __future__ import annotations

from holdfast.engine.context import RunContext
from holdfast.integrations.pull_requests.landing import LandingByPullRequest
from holdfast.integrations.pull_requests.poll import PullRequestPoll
from holdfast.integrations.pull_requests.publishers import forge_finder
from holdfast.integrations.pull_requests.remote import GitRemote


def pull_request_parts(context: RunContext) -> tuple[LandingByPullRequest, PullRequestPoll]:
    """How results land by pull request, and what looks at those that are open. Asks nobody."""
    settings = context.config.pull_requests
    remote = GitRemote(context.repo, context.layout, settings)
    landing = LandingByPullRequest(remote, settings)
    return landing, PullRequestPoll(context, landing, forge_finder(remote, settings), settings)
