"""The git remote of pull requests: where a branch is, pushing ours, and fetching the base.

Git runs here with the user's own settings and credentials, or with the token of the settings, which reaches it as a
variable: it is in no argument, no file and no URL. It asks nothing on a terminal, and no hook runs. A push names one
branch and the commit that it was at (`--force-with-lease`): what somebody else put there is never overwritten.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.config.pull_requests import PullRequestSettings
from holdfast.config.secret_refs import read_secret
from holdfast.crashpoints import point
from holdfast.errors import GitFailed, GitUnusable, PullRequestsUnset, PushRefused, ServiceAway
from holdfast.git import command as git
from holdfast.layout import Layout
from holdfast.snapshots.store import Store
from holdfast.storage.journal import root_place
from holdfast.worktrees import pins

PUSH_POINTS = ("push.before", "push.after")
GIT_S_MAX = 120.0
# What a user's own git may need to reach a remote.
_PASSED_ON = (
    "SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "GIT_SSH", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "HTTP_PROXY",
    "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "GIT_SSL_CAINFO",
)  # fmt: skip
_SETTINGS = {"core.fsync": "all", "http.lowSpeedLimit": "1", "http.lowSpeedTime": "30"}
_TOKEN = "HOLDFAST_GIT_TOKEN"
# The helper's text is the same for everybody: the shell that git starts reads the token from the variable.
_HELPER = f'!f() {{ test "$1" = get && printf "username=%s\\npassword=%s\\n" oauth2 "${_TOKEN}"; }}; f'
_TOKEN_LESS = (
    "give git a credential for it (a key, or a credential helper), or set pull_requests.token, then `holdfast outbox "
    "--retry` it"
)
# Of git's words: what is wrong, and the way out.
_REFUSALS = (
    (r"stale info|fetch first|non-fast-forward", "somebody else has put other commits on that branch",
     "look at them there; bring them into the base, or give the task another branch with pull_requests.branch_prefix"),
    (r"GH006|protected branch|pre-receive hook declined|GL-HOOK|not allowed to (?:force )?push code to a protected",
     "the branch is protected there",
     "allow pushes to it, or set pull_requests.branch_prefix to one that is not protected"),
    (r"Permission to .* denied|not allowed to push|403|HTTP Basic: Access denied|insufficient_scope|read-only",
     "you may not push there",
     "fork it, add the fork with `git remote add fork URL`, and set pull_requests.remote to fork and "
     "pull_requests.base_remote to the remote that has the base"),
    (r"could not read (?:Username|Password)|Authentication failed|Permission denied \(publickey|terminal prompts "
     r"disabled|Host key verification failed", "git has no credential for it", _TOKEN_LESS),
    (r"does not appear to be a git repository|[Rr]epository .*not found|No such remote",
     "there is no such repository, or you cannot see it",
     "name another with pull_requests.remote; `git remote -v` lists them"),
)  # fmt: skip


class GitRemote:
    """The remotes that the settings name. `push_url` and `base_url` are as git has them, which may hold a password:
    only their hosts and paths are used."""

    def __init__(self, repo: Path, layout: Layout, settings: PullRequestSettings) -> None:
        self._repo, self._layout, self._settings = repo, layout, settings
        self.push_name = settings.remote
        self.base_name = settings.base_remote or settings.remote

    @property
    def base_url(self) -> str:
        return self._url(self.base_name)

    @property
    def push_url(self) -> str:
        return self._url(self.push_name, "--push")

    def _url(self, name: str, *options: str) -> str:
        found = git.discover(self._repo).run("remote", "get-url", *options, "--", name, codes=(0, 2, 128))
        if found.code:
            raise PullRequestsUnset(
                reason=f"the repository has no git remote {name!r}",
                way=f"add it with `git remote add {name} URL`, or name another as pull_requests.remote",
            )
        return found.line

    # -- the branch of a task -----------------------------------------------------------------------------------------

    def branch_at(self, branch: str) -> str:
        """The commit that the branch is at, there; empty where there is no such branch."""
        line = self._run(self.push_name, "ls-remote", "--", self.push_name, f"refs/heads/{branch}")
        return line.partition("\t")[0]

    def push(self, branch: str, head: str, known: str, old: str) -> None:
        """Moves the branch from `old`, or makes it where that is empty. `known`: a commit below that both have."""
        repository = git.discover(self._repo)
        store = Store(self._layout.snapshots, repository)
        if store.exists:
            store.hand_over(head, known)
        point("push.before")
        ref = f"refs/heads/{branch}"
        self._run(
            self.push_name, "push", "--quiet", "--no-verify", f"--force-with-lease={ref}:{old}", "--",
            self.push_name, f"{head}:{ref}", what=f"a push to {branch}",
        )  # fmt: skip
        point("push.after")

    def delete(self, branch: str, old: str) -> None:
        ref = f"refs/heads/{branch}"
        lease = f"--force-with-lease={ref}:{old}"
        self._run(self.push_name, "push", "--quiet", "--no-verify", lease, "--", self.push_name, f":{ref}",
                  what=f"to delete {branch}")  # fmt: skip

    # -- the base -----------------------------------------------------------------------------------------------------

    def base_ref(self, base: str) -> str:
        """Our own ref in the user's repository for the base as it is at the remote."""
        return f"refs/holdfast/remote/{root_place.id_of(self._layout) or 'root'}/{self.base_name}/{base}"

    def fetch_base(self, base: str) -> str:
        """Fetches the base and returns the commit that it is at."""
        ref = self.base_ref(base)
        self._run(
            self.base_name, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--",
            self.base_name, f"+refs/heads/{base}:{ref}", what=f"a fetch of {base}",
        )  # fmt: skip
        pins.sync_above(git.discover(self._repo), [ref])
        return self.known_base(base)

    def known_base(self, base: str) -> str:
        """The commit that it was at when it was fetched last; empty where it never was."""
        asked = ("rev-parse", "--verify", "--quiet", f"{self.base_ref(base)}^{{commit}}")
        return git.discover(self._repo).run(*asked, codes=(0, 1, 128)).line

    # -- git ----------------------------------------------------------------------------------------------------------

    def _run(self, remote: str, *args: str, what: str = "") -> str:
        repository = git.discover(self._repo)
        env = {**repository.env, **self._environment(remote)}
        asked, what = f"git {args[0]} {remote}", what or f"git {args[0]}"
        try:
            ended = subprocess.run(
                ["git", *args], cwd=repository.worktree, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=GIT_S_MAX, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ServiceAway(service="The git remote", asked=asked, reason="it took too long") from None
        except OSError as error:
            raise GitUnusable(reason=f"`git` cannot be run: {error.strerror}", minimum="2.38") from error
        if not ended.returncode:
            return ended.stdout.decode(errors="replace").strip()
        said = _without_urls(ended.stderr.decode(errors="replace").strip())
        for pattern, reason, way in _REFUSALS:
            if re.search(pattern, said):
                raise PushRefused(remote=remote, what=what, reason=f"{reason} ({_last(said)})", way=way)
        if ended.returncode < 0:
            raise GitFailed(command=args[0], path=self._repo, code=ended.returncode, stderr=said)
        raise ServiceAway(service="The git remote", asked=asked, reason=_last(said) or f"code {ended.returncode}")

    def _environment(self, remote: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        token = self._token(remote)
        settings = dict(_SETTINGS)
        env = git.environment(settings, **kept, SSH_ASKPASS="/bin/false", SSH_ASKPASS_REQUIRE="force")
        if token:
            count = int(env["GIT_CONFIG_COUNT"])
            # The empty one drops the user's helpers: the settings name the token to be used.
            # By its host: where that sends git elsewhere, the token does not follow.
            key = f"credential.https://{urlsplit(self._url(remote)).netloc.rpartition('@')[2]}.helper"
            for number, value in enumerate(("", _HELPER), count):
                env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
            env |= {"GIT_CONFIG_COUNT": str(count + 2), _TOKEN: token}
        return env

    def _token(self, remote: str) -> str:
        """Only where the settings name one, and the remote is reached by HTTPS."""
        url = self._url(remote)
        if self._settings.token is None or not url.startswith("https://"):
            return ""
        return read_secret(self._settings.token)


def _without_urls(said: str) -> str:
    """A URL may hold a password."""
    return re.sub(r"(\w+://)[^/\s@']*@", r"\1", said)


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("hint:", "To ", "remote: ="))]
    return " ".join(told[-3:])[:400]
