"""How work leaves by pull request: the section `pull_requests` of the settings.

Its types are read when this module is loaded, so they are not postponed.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.config.secret_refs import SecretRef
from holdfast.config.sections import ENTRIES_MAX, Seconds, Text

LandBy = Literal["merge", "pull_request"]
# By it the branches of tasks are told from those of people, also in events about them.
BRANCH_PREFIX = "holdfast/"
ForgeName = Literal["github", "gitlab"]


class PullRequestSettings(msgspec.Struct, frozen=True):
    forge: Annotated[
        ForgeName | None, Meta(description="service that has the pull requests; null: as the host of the remote says")
    ] = None
    remote: Annotated[Text, Meta(description="git remote to which the branch of a task is pushed")] = "origin"
    base_remote: Annotated[
        Text | None, Meta(description="git remote that has the base, where you push to a fork; null: the same remote")
    ] = None
    base: Annotated[
        Text | None, Meta(description="branch that a pull request is to be merged into; null: the target branch")
    ] = None
    repo: Annotated[
        Text | None, Meta(description="owner/name that has the pull requests; null: from the base remote's URL")
    ] = None
    url: Annotated[
        Text | None, Meta(description="address of the service's API, of a self-hosted one; null: from the remote's URL")
    ] = None
    token: Annotated[
        SecretRef | None, Meta(description="reference to the token; null: env:GITHUB_TOKEN or env:GITLAB_TOKEN")
    ] = None
    branch_prefix: Annotated[Text, Meta(description="the branch of a task is this and the task's id")] = BRANCH_PREFIX
    draft: Annotated[bool, Meta(description="pull requests are opened as drafts")] = False
    labels: Annotated[tuple[Text, ...], Meta(max_length=ENTRIES_MAX, description="labels of a new pull request")] = ()
    reviewers: Annotated[
        tuple[Text, ...], Meta(max_length=ENTRIES_MAX, description="who is asked to review a new pull request")
    ] = ()
    rounds_max: Annotated[
        int, Meta(ge=0, le=1000, description="times that comments and failed checks go back to the agent by themselves")
    ] = 5
    every_s: Annotated[Seconds, Meta(description="how often open pull requests are looked at")] = 60.0
    update: Annotated[
        Literal["needed", "always"],
        Meta(description="when the base has moved: merged and verified anew where it is needed to merge, or always"),
    ] = "needed"
    merge: Annotated[bool, Meta(description="true: `holdfast pr TASK --merge` may merge a pull request")] = False
    delete_branch: Annotated[bool, Meta(description="the branch is deleted at the remote once it is merged")] = False
