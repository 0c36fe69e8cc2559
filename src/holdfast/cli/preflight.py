"""Checks and notes before agents work: git, branch, identity, agents, and that agents work without asking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.domain.task import AT_WORK, OVER, TaskState
from holdfast.errors import BranchDeleted, DetachedHead, HoldfastError, NoAgent, NoBranch, NoCommit
from holdfast.storage.files.json_file import read_json

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.config.settings import Config
    from holdfast.domain.attempt_records import Permission
    from holdfast.domain.definition import Definition
    from holdfast.git.command import Repository
    from holdfast.layout import Layout
    from holdfast.ports import Agent
    from holdfast.views.rows import Overview

CHANGED_TOLD_MAX = 3
# What a run goes on with, whatever agents are there.
_UNDER_WAY = AT_WORK | {TaskState.ORPHANED, TaskState.DONE}
_DOES = {
    "skip": "works without asking you{flags}",
    "edits": "changes files without asking you{flags}, and runs commands only as its own settings allow",
    "ask": "asks you before it does anything that no rule allows",
    "own": "does what its own settings allow, and is refused what it would have to ask you for",
}


def preflight(app: App, *, with_goal: bool = False) -> list[str]:
    """Raises the first thing that is missing; returns what is worth knowing and stops nothing.

    `with_goal`: a task that names no agent is about to be added.
    """
    from holdfast.agents.common.prices import unpriced
    from holdfast.agents.registry import agents
    from holdfast.config import mcp
    from holdfast.domain.definition import Definition
    from holdfast.domain.routing import choose
    from holdfast.landing import foreign_code
    from holdfast.processes import sandbox
    from holdfast.views.rows import read_overview

    app.expect_initialised()
    for check in GIT_CHECKS.values():
        check(app)
    known, overview = agents(app.config, mcp.read(app.layout.mcp_servers)), read_overview(app)
    wanted = wanted_agents(app.config, overview)
    if with_goal:
        goal = choose(Definition("example", goal="example"), app.config).agent
        wanted.setdefault(goal, _example(goal))
    missing = {name: why for name, made in wanted.items() if (why := missing_agent(known, name, made))}
    is_idle = missing.keys() == wanted.keys() and not any(row.state in _UNDER_WAY for row in overview.rows.values())
    no_agent = NoAgent(missing=" ".join(missing.values()))
    if missing and ((is_idle and not _has_other_work(app, overview)) or (with_goal and goal in missing)):
        raise no_agent
    chosen = [choose(made, app.config) for made in wanted.values()]
    asked = [
        *((each.agent, each.model) for each in chosen),
        *((each.agent, each.model or "") for each in app.config.cascade),
    ]
    told = [str(no_agent)] if missing and is_idle else []
    told += [word] if (word := sandbox.unconfined(app.config.sandbox)) else []
    foreign = foreign_code.of_all(app.repo, app.layout, app.config, overview.unfinished)
    warned = [f"{each.sentence()} To mend it, {each.advice()}" for each in foreign]
    return [*told, *warned, *_about_checkout(app), *unpriced(app.config, known, asked)]


# -- git --------------------------------------------------------------------------------------------------------------


def usable_git(app: App | None = None) -> str:
    from holdfast.git import command as git

    git.require_minimum()
    return git.run("--version", cwd=Path.cwd(), env=git.environment({})).line


def target(app: App) -> str:
    """The branch to land on, which has a commit."""
    from holdfast.git import command as git
    from holdfast.worktrees import merges

    repository, named = git.discover(app.repo), app.config.git.target_branch
    if named is None and repository.run("symbolic-ref", "-q", "HEAD", codes=(0, 1)).code:
        found = repository.run("for-each-ref", "--count=1", "--format=%(refname:short)", "refs/heads").line
        raise DetachedHead(repo=app.repo, branch=found or "-c main")
    branch = merges.target_branch(app.repo, app.config)
    short = branch.removeprefix("refs/heads/")
    if repository.run("rev-parse", "-q", "--verify", f"{branch}^{{commit}}", codes=(0, 1, 128)).code:
        if commit := _last_commit(app, repository, branch):
            raise BranchDeleted(repo=app.repo, branch=short, commit=commit)
        has_commits = not repository.run("rev-parse", "-q", "--verify", "HEAD^{commit}", codes=(0, 1, 128)).code
        raise (NoBranch if named and has_commits else NoCommit)(repo=app.repo, branch=short)
    return short


def _last_commit(app: App, repository: Repository, branch: str) -> str:
    """The last known commit of a branch that is gone; empty for one that never had any."""
    from holdfast.landing.lost_landings import newest_landing

    landing = newest_landing(app.repo, branch, app.read().state.tasks.values()) if app.layout.root.exists() else ""
    log = repository.git_dir / "logs" / "HEAD"
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    short = branch.removeprefix("refs/heads/")
    switches = [line for line in lines if "\tcheckout: moving from " in line]
    has_branches = bool(repository.run("for-each-ref", "--count=1", "refs/heads").line)
    # Only where the log of HEAD was about this very branch: an orphan branch that is new has no commit, and no log.
    is_about_it = switches[-1].endswith(f" to {short}") if switches else not has_branches
    moves = [line.split(" ")[1] for line in lines if is_about_it or landing]
    # A deletion is logged as a move to a commit of zeros only.
    at = next((commit for commit in reversed(moves) if commit.strip("0")), "")
    for commit in (at, landing):
        found = repository.run("rev-parse", "-q", "--verify", f"{commit}^{{commit}}", codes=(0, 1, 128)).line
        if commit and found:
            return found
    return ""


def identity(app: App) -> str:
    from holdfast.worktrees import merges

    who = merges.identity(app.repo, app.config)
    return f"{who.name} <{who.email}>"


GIT_CHECKS: Mapping[str, Callable[[App], str]] = {"git": usable_git, "branch": target, "identity": identity}


def _about_checkout(app: App) -> Iterator[str]:
    """A dirty checkout is fine; what people wonder about is said."""
    from holdfast.git import command as git

    repository = git.discover(app.repo)
    asked = ("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames")
    names = [git.readable(field[3:]) for field in repository.run(*asked).fields()]
    if names:
        told = ", ".join(names[:CHANGED_TOLD_MAX])
        told += f" and {len(names) - CHANGED_TOLD_MAX} more" if len(names) > CHANGED_TOLD_MAX else ""
        yield (
            f"your checkout has changes that are not committed ({told}). They stay as "
            "they are; agents begin with the last commit and do not see them"
        )


# -- agents -----------------------------------------------------------------------------------------------------------


def wanted_agents(config: Config, overview: Overview) -> dict[str, Definition]:
    """The agents that would take the open tasks, each with one such task."""
    from holdfast.domain.routing import choose

    rows = (row for row in overview.rows.values() if row.state is TaskState.OPEN and row.id in overview.files)
    wanted: dict[str, Definition] = {}
    for row in rows:
        made = overview.files[row.id].definition
        wanted.setdefault(choose(made, config, overview.view.state.tasks.get(row.id)).agent, made)
    return wanted


def _has_other_work(app: App, overview: Overview) -> bool:
    """Whether a run has to do with others: messages to send, pull requests to look after, tasks that may arrive."""
    state = overview.view.state
    pulls = (task for task in state.tasks.values() if task.pull is not None and task.state not in OVER)
    # A parked message waits for a person, not for a run.
    messages = (each for each in state.outbox.values() if not each.parked)
    return bool(any(messages) or any(pulls) or app.config.sources or app.layout.triggers.exists())


def missing_agent(known: Mapping[str, Agent], name: str, made: Definition | None = None) -> str:
    """A sentence that says why the agent cannot work here, with what to type; empty when it can."""
    agent = known.get(name)
    if agent is None:
        return f"There is no agent called {name}; known are {', '.join(sorted(known))}."
    try:
        return agent.missing(made or _example(name))
    except HoldfastError as error:
        return str(error)


def _example(name: str) -> Definition:
    """A task that any agent could take, to ask it whether it is here."""
    from holdfast.domain.definition import Definition

    return Definition("example", goal="example", agent=name, command=("true",), script="say hello")


# -- permissions -------------------------------------------------------------------------------------------------------


def about_permissions(
    layout: Layout, config: Config, known: Mapping[str, Agent], names: Iterable[str]
) -> Iterator[str]:
    """Says of each agent, once in a data root and before its first start, that it works without asking.

    runtime/told.json keeps what was said; where it is lost, or the settings have changed since, it is said again. A
    sentence counts as said once the next one is asked for.
    """
    from holdfast.processes import sandbox
    from holdfast.storage.files import disk

    kept = read_json(layout.told, dict[str, dict[str, str]], lenient=True) or {}
    told, kind = kept.get("permissions", {}), sandbox.resolved(config.sandbox)
    for name in names:
        agent = known.get(name)
        permission = agent.permission if agent is not None else None
        if permission is None:
            continue
        facts = f"{permission.mode} {' '.join(permission.flags)} {kind}"
        if told.get(name) == facts:
            continue
        yield permission_sentence(name, permission, is_confined=kind != "none")
        told[name] = facts
        disk.replace(layout.told, msgspec.json.encode({"permissions": told}))


def permission_sentence(name: str, permission: Permission, *, is_confined: bool) -> str:
    flags = f" (`{' '.join(permission.flags)}`)" if permission.flags else ""
    does = _DOES[permission.mode].format(flags=flags)
    where = (
        "in a worktree and a sandbox of its own"
        if is_confined
        else "in a worktree of its own, and otherwise with your rights here: `sandbox: bwrap` confines it"
    )
    return f"{name} {does}, {where}. `permissions` in the settings' `agents` changes that: see docs/agents.md"
