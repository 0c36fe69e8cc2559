"""Errors of the work itself: git, agents, verifying, landing, running."""

from __future__ import annotations

from holdfast.errors.base import HoldfastError, InputError
from holdfast.errors.storage import (
    DiskFault,
    DiskFull,
    JournalClosed,
    JournalCorrupt,
    Locked,
    Poisoned,
    StaleEpoch,
    SyncFailed,
)

# -- plugins ----------------------------------------------------------------------------------------------------------


class PluginUnknown(InputError):
    """There is no plugin {plugin}; installed are: {known}. `holdfast plugins` lists them."""


class PluginStopped(HoldfastError, exit_code=8):
    """The plugin {plugin} is set aside: {reason}. Its cursor stays, so it misses no entry; mend it, then type
    `holdfast plugins enable {plugin}`."""


# -- git --------------------------------------------------------------------------------------------------------------


class GitFailed(HoldfastError, exit_code=8):
    """`git {command}` failed in {path} with code {code}: {stderr}"""


class GitFault(GitFailed):
    """`git {command}` could not do its work in {path}: {reason}. What was acknowledged before is kept; fix the cause,
    and Holdfast tries again."""


class SandboxFailed(HoldfastError, exit_code=8):
    """The sandbox could not be made: {reason}. Nothing was done in it, and no attempt is spent; free what is missing
    (`holdfast doctor` tries one), then type `holdfast run`."""


class GitSyncFailed(SyncFailed):
    """`git {command}` could not make its work durable in {path}: {reason}. Nothing is acknowledged after a failed
    sync, and a sync is never tried twice; stop, check the disk, and start again to continue from what is really on
    it."""


class ObjectsDamaged(HoldfastError, exit_code=8):
    """The commit {commit} is not whole in {path}: {reason}. Nothing was changed; `holdfast check` lists what cannot be
    read. Bring the objects back from a copy of the repository, then start again."""


class GitUnusable(HoldfastError, exit_code=8):
    """git cannot be used: {reason}. Nothing was changed; install git {minimum} or newer, then start again."""


class GitLocked(HoldfastError, exit_code=8):
    """{path} is held by {holder}. Nothing was changed; Holdfast tries again by itself once that git has ended."""


class LandingLost(HoldfastError, exit_code=8):
    """The task {task} was to land on {branch} on top of {old}, but the branch {found}. Nothing was changed; the work
    is merged onto the newer commit and verified anew."""


class LandingReverted(HoldfastError, exit_code=8):
    """The commit {commit} on {branch} put back what the landing {landed} of {task} had changed: {paths}. It was made
    in a checkout that did not have the landing yet. Nothing was changed; type `{restore}` and `git commit`, then
    `holdfast resolve {task} --retry`; or `holdfast resolve {task} --happened` leaves it so."""


class GateStuck(HoldfastError, exit_code=8):
    """A gate of {attempt} was sent SIGKILL and has not ended: {processes}. Nothing was decided; end what it waits for
    (often a network disk), then start again."""


class JudgingWithdrawn(HoldfastError, exit_code=8):
    """The judging of {task} was ended without a verdict, because {behind}, on top of which it was judged, does not land
    so. Nothing is lost, and nothing is to be done: it is judged again in its turn."""


class SetupFailed(HoldfastError, exit_code=8):
    """The worktree for {attempt} could not be made ready: {what}. The last lines: {lines}. No attempt is spent.
    `holdfast hooks {task}` shows all of it; correct `worktree.{hook}` in config/settings.yaml or what it needs."""


class BudgetTaken(HoldfastError, exit_code=8):
    """{task} was not started once its worktree was ready: {reason}. No attempt is spent, and its worktree is kept; it
    is started when there is budget again."""


class IncludeTooLarge(HoldfastError, exit_code=8):
    """The files for a worktree are too many or too large: {path} matches {files} with {size} so far, and at most
    {files_most} with {size_most}, and 1 MB of names, are copied. Nothing was copied, and no attempt is spent; name
    fewer files there, commit that, and type `holdfast run`. Make what is large by a command of `worktree.setup` or
    with `worktree.clone` in config/settings.yaml."""


class PortsTaken(HoldfastError, exit_code=8):
    """There are no {count} ports in a row for a worktree: {reason}. Nothing was started, and no attempt is spent; end
    agents that are not needed, or set `worktree.ports` in config/settings.yaml to fewer. The leases are in {path}."""


class NotWritable(InputError):
    """`sandbox_writable` names {path}, which does not exist or is not an absolute path. Nothing was started; make it,
    or take it out of config/settings.yaml."""


class NoIdentity(InputError):
    """The author of what lands in {repo} is not set. The work is kept; type `git config user.name "Your Name"` and
    `git config user.email you@example.org`, or set `git.author_name` and `git.author_email` in
    config/settings.yaml."""


class NoTarget(InputError):
    """{repo} has no branch for work to land on: {reason}. Nothing was changed; check out a branch that has a commit, or
    name one as `git.target_branch` in config/settings.yaml."""


class NoCommit(NoTarget):
    """The branch {branch} of {repo} has no commit yet, and agents begin with one. Nothing was changed; type `git
    add -A` and `git commit -m "First commit"`, or, where there are no files yet, `git commit --allow-empty -m "First
    commit"`."""


class NoBranch(NoTarget):
    """There is no branch {branch} in {repo}, which `git.target_branch` names as the one to land on. Nothing was
    changed; type `git branch {branch}`, or name another in config/settings.yaml."""


class BranchDeleted(NoTarget):
    """The branch {branch} of {repo} was deleted; its last known commit is {commit}. Nothing was changed; type `git
    branch {branch} {commit}` to have it back, or check out another branch with `git switch`."""


class DetachedHead(NoTarget):
    """No branch is checked out in {repo}, so work has none to land on. Nothing was changed; type `git switch {branch}`,
    or name a branch as `git.target_branch` in config/settings.yaml."""


class NotAWorktree(InputError):
    """{path} is not the top folder of a git worktree: {reason}. Nothing was changed."""


class SubmoduleMissing(HoldfastError, exit_code=8):
    """The submodule {path} cannot be set up in a worktree: {reason}. Nothing was started; type `{command}` in {repo},
    or set `submodules: keep` in config/settings.yaml."""


class RestoreIncomplete(HoldfastError, exit_code=8):
    """{path} was restored to {name}, but these still differ: {paths}. Nothing else was touched; stop what writes
    there, then restore again."""


class SnapshotDamaged(HoldfastError, exit_code=8):
    """The snapshot {name} is not whole in {path}: {reason}. Nothing was changed; bring the object back from a copy of
    the data root or of the repository, or use another snapshot."""


class SnapshotLost(HoldfastError, exit_code=8):
    """Turn {turn} of {attempt} is lost: the journal has it, but its tree, commit {commit}, is not whole in {store}
    ({reason}). Nothing was started or changed. Bring it back from a copy of the data root and type `holdfast resolve
    {task} --retry`; or `--newest` continues from the newest turn that is there, `--anew` begins anew, and `--abandon`
    gives the task up."""


class NestedLost(SnapshotLost):
    """Turn {turn} of {attempt} is lost: it made a git repository of its own in {folder}, of which a snapshot has at
    most the commit, and that is gone. Nothing was started or changed. Bring the folder back and type `holdfast resolve
    {task} --retry`; or `--newest` continues from the newest turn that is there, `--anew` begins anew, and `--abandon`
    gives the task up."""


class NestedRepository(InputError):
    """The work has a git repository of its own in {paths}, of which a snapshot has at most the commit, so it would be
    left out. Nothing was changed; remove {first}/.git where its files are to be a part of the work, or list {first}/ in
    .gitignore, or take a turn from before it."""


class ResultLost(SnapshotLost):
    """The result of {attempt} is lost: the journal has it, but its commit {commit} is not whole in {store} ({reason}).
    Nothing was landed or changed. Bring it back from a copy of the data root and type `holdfast resolve {task}
    --retry`; or `--newest` continues from the newest turn that is there, `--anew` begins anew, and `--abandon` gives
    the task up."""


class SnapshotMissing(HoldfastError, exit_code=8):
    """There is no snapshot {name} in {store}. `holdfast snapshots list TASK` lists those that exist."""


class SnapshotTooLarge(HoldfastError, exit_code=8):
    """No snapshot of {worktree} was taken: {what}, and {limit} is {most}. All turns before are kept, and the files
    are still there. Remove what is too large, list it in .gitignore if it is not to land, or raise {limit} in
    config/settings.yaml."""


class SpawnFailed(HoldfastError, exit_code=8):
    """The runner of {attempt} could not be started: {reason}. The task keeps its worktree, and is tried again."""


class EffectUnclear(HoldfastError, exit_code=8):
    """It is not known whether the {effect} of {task} took place: {reason}. Nothing was decided; fix the cause, then
    start again: the next start looks first, and repeats nothing."""


class DetachFailed(HoldfastError):
    """The run in the background ended at once, with code {code}. Its output: {said} The end of {path} has all of it."""


class NeverAttempted(InputError):
    """No agent has worked on the task {task} yet: it is {state}. Nothing was changed; `holdfast show {task}` says what
    it waits for, and `holdfast run` starts what is ready."""


class NeverJudged(InputError):
    """No gate has judged {task} yet: the task is {state}. Nothing was changed; `holdfast show {name}` says why."""


class NoAgent(InputError):
    """No agent can work here: {missing} The tasks are kept; install an agent, name another as `agent` in
    config/settings.yaml, or give a task a `command:` or a `script:`, which need none. `holdfast doctor` lists the
    agents that are known."""


class GoalKept(NoAgent):
    """No agent can work here: {missing} The goal is kept as the task {task}; install an agent, or name another as
    `agent` in config/settings.yaml, then type `holdfast run`. `holdfast doctor` lists the agents that are known."""


class NobodyRuns(HoldfastError, exit_code=7):
    """No run is active in {path}. `holdfast status` shows the tasks and their states."""


class AgentsAlone(NobodyRuns):
    """No run is active in {path}, but agents that an earlier run left are at work: {attempts}. Nothing was changed;
    `holdfast stop --agents` ends them, and `holdfast run` continues with them."""


class AgentsNotStopped(HoldfastError, exit_code=7):
    """These agents were asked to end, and have not within {seconds:g} s: {attempts}. They end as soon as they can; what
    they did is kept, and `holdfast run` takes it."""


class NotStopped(HoldfastError, exit_code=7):
    """The run with pid {pid} was asked to end, and has not within {seconds:g} s. It ends as soon as it can; `holdfast
    run --take-over` ends it at once, and loses nothing."""


class LandingWaits(HoldfastError, exit_code=9):
    """The landing of {task} waits: it changes {paths}, which you have changed too, in your checkout. Commit or put away
    your changes there, and it continues by itself."""


class TemplateInvalid(InputError):
    """The template {name} uses the unknown placeholder {placeholder!r}; known placeholders are {known}."""


class TemplateUnreadable(InputError):
    """The template {name} cannot be used: {reason}. Nothing was started; correct it, or delete it to use Holdfast's own
    text."""


class RunStopped(HoldfastError, exit_code=7):
    """The run with pid {pid} was stopped by a signal, and answers no requests. Nothing was changed; let it continue
    with `kill -CONT {pid}`, or take its place with `holdfast run --take-over`."""


class RunsAlready(HoldfastError, exit_code=7):
    """A run is already active here: {holder}. Nothing was changed; look at it with `holdfast status`, end it with
    `holdfast stop`, or take its place with `holdfast run --take-over`."""


# -- the server -------------------------------------------------------------------------------------------------------


class ListenRefused(InputError):
    """The server would listen on {host}, where others can read its tokens on the network. Nothing was started; set
    server.tls_cert and server.tls_key, or, if the network is your own, server.plain_beyond_loopback to true."""


class CertificateUnusable(InputError):
    """The certificate {cert} with the key {key} cannot be used: {reason}. Nothing was started; name both files, in PEM
    form, as server.tls_cert and server.tls_key."""


class ListenFailed(HoldfastError, exit_code=21):
    """The server cannot listen on {host} port {port}: {reason}. Nothing was started; choose another with --port, or
    end what listens there."""


class NobodyServes(HoldfastError, exit_code=21):
    """No server is running for {path}. Nothing was opened; type `holdfast run` or `holdfast serve`."""


class ExtraMissing(HoldfastError, exit_code=22):
    """This needs the extra `{extra}`, which is not installed. Nothing was changed; in the environment of Holdfast, type
    `pip install 'holdfast[{extra}]'`."""


# -- whose fault it is ------------------------------------------------------------------------------------------------

# What is on disk is no longer certain: the process ends, and the next run continues from the disk.
FATAL = (JournalClosed, JournalCorrupt, StaleEpoch, SyncFailed, Poisoned, EffectUnclear)
# Faults of the machine, not of the task: a full disk, an I/O error, a git that was killed, a missing program.
_ENVIRONMENT = (
    DiskFull,
    DiskFault,
    GitFault,
    SandboxFailed,
    SetupFailed,
    BudgetTaken,
    IncludeTooLarge,
    PortsTaken,
    ObjectsDamaged,
    GitUnusable,
    GitLocked,
    Locked,
    SpawnFailed,
    SubmoduleMissing,
)


def is_fatal(error: BaseException) -> bool:
    return isinstance(error, FATAL)


def is_environment(error: BaseException) -> bool:
    """Whether the error says nothing about the task. Such a task waits, spends no attempt, and is tried again."""
    return isinstance(error, _ENVIRONMENT) and not is_fatal(error)
