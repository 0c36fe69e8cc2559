"""`doctor`: what is wrong here, and what to type."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from holdfast.agents.adapters.acp import ProtocolAgent
from holdfast.agents.registry import agents
from holdfast.agents.survey import survey
from holdfast.backlog.folder import Backlog
from holdfast.checks import doctor as health
from holdfast.checks.check import check
from holdfast.checks.doctor import Finding, Part
from holdfast.checks.sources import sources_part
from holdfast.checks.trigger_health import triggers_part
from holdfast.cli import preflight
from holdfast.cli.options import config_here, find_app, print_json, prints_json
from holdfast.domain.definition import Definition
from holdfast.domain.routing import choose
from holdfast.domain.task import TaskState
from holdfast.domain.wording import plain, plural
from holdfast.errors import HoldfastError, NotInitialised, NotInRepository
from holdfast.integrations.plugins.hookspecs import API_VERSION
from holdfast.processes import sandbox
from holdfast.storage.journal.data_root import read_root
from holdfast.storage.journal.lock import live_owner
from holdfast.views.next_step import next_step_of
from holdfast.views.plugins import plugin_rows, strangers
from holdfast.views.rows import Overview, read_overview

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.config.settings import Config
    from holdfast.config.trackers import SourceSettings

SOMETHING_TO_DO = 20
SHOWN_MAX = 10
# How long an agent by protocol may take to answer.
PROTOCOL_S_MAX = 10.0
_ASKING = {TaskState.FAILED, TaskState.PENDING_APPROVAL}
_PLUGIN_WAY = {"broken": "holdfast plugins show {}", "set aside": "holdfast plugins enable {}"}
_WAY_OUT = {
    "git": "git --version",
    "branch": "git status",
    "identity": 'git config user.name "Your Name" && git config user.email you@example.org',
}


@click.command(epilog="Examples:  holdfast doctor  ·  holdfast doctor --json | jq '.parts[].findings[].next'")
@click.option("--online", is_flag=True, help="Also ask each issue tracker of the settings, with its token.")
@prints_json
def doctor(ctx: click.Context, online: bool, as_json: bool) -> None:
    """Look for what is wrong: with git, the machine, the agents, the journal, and what crashes have left.

    Every finding comes with the exact command to type next. Takes no lock and changes nothing. Outside a repository it
    looks at git and the agents. The exit code is 0 when all is well, and 20 when there is something to do.
    """
    parts = list(_parts_here(ctx, online))
    is_well = not any(part.findings for part in parts)
    if as_json:
        print_json({"well": is_well, "parts": parts})
    else:
        _print_parts(parts)
    ctx.exit(0 if is_well else SOMETHING_TO_DO)


def _print_parts(parts: list[Part]) -> None:
    width = max(len(part.name) for part in parts)
    for part in parts:
        click.echo(plain(f"{'!!' if part.findings else 'ok'}  {part.name:<{width}}  {part.fact}"))
        for finding in part.findings:
            click.echo(plain(f"      {finding.said}"))
            click.echo(plain(f"        next: {finding.next}"))
    count = sum(len(part.findings) for part in parts)
    click.echo("All is well." if not count else f"{plural(count, 'thing')} to do.")


def _parts_here(ctx: click.Context, online: bool) -> Iterator[Part]:
    """All parts in a repository with a data root; elsewhere what is missing, and what can be looked at without."""
    yield Part("python", ".".join(map(str, sys.version_info[:3])))
    try:
        app = find_app(ctx)
    except NotInRepository as error:
        yield _git_part("git", None)
        yield Part("repository", "none here", [Finding(str(error), "cd YOUR-REPOSITORY | git init")])
        yield _agents_part(config_here(ctx), None)
        yield _plugins_part(config_here(ctx), {})
        return
    try:
        app.expect_initialised()
    except NotInitialised as error:
        yield from (_git_part(name, app) for name in preflight.GIT_CHECKS)
        yield Part("data root", "not there yet", [Finding(str(error), "holdfast init")])
        yield _agents_part(app.config, None)
        yield _plugins_part(app.config, {})
        return
    yield from _parts(app)
    if app.config.sources:
        yield sources_part(app.config, app.repo, app.layout.settings)
    for source in app.config.sources if online else ():
        yield _reach_part(app, source)


def _parts(app: App) -> Iterator[Part]:
    has_git = True
    for name in preflight.GIT_CHECKS:
        part = _git_part(name, app)
        yield part
        has_git = has_git and not (name == "git" and part.findings)
        if not has_git:
            break
    layout = read_root(app.layout.root)
    yield health.disk_part(layout)
    yield health.filesystems_part(layout, app.repo)
    yield health.watches_part()
    yield health.cgroups_part()
    yield health.limits_part(app.config)
    yield health.host_part(app.config)
    yield _sandbox_part(app)
    yield health.clock_part(layout, app.clock())
    yield health.lock_part(layout)
    yield _chain_part(app)
    yield from _state_parts(app, has_git)
    yield _notify_part(app)
    yield health.audit_part(layout, key_path=app.audit_key)
    yield health.quarantine_part(layout)


def _plugins_part(config: Config, aside: Mapping[str, str]) -> Part:
    """Whether each plugin loads and is made for this Holdfast, and which were set aside."""
    rows = plugin_rows(config.plugins, aside)
    findings = [
        Finding(f"the plugin {row.name} is {row.state}: {row.reason}", _PLUGIN_WAY[row.state].format(row.name))
        for row in rows
        if row.state in _PLUGIN_WAY
    ]
    findings += [
        Finding(f"the settings name the plugin {name}, which is not installed", "holdfast plugins")
        for name in strangers(config.plugins)
    ]
    fact = ", ".join(f"{row.name} {row.version} ({row.state})" for row in rows) or "none installed"
    return Part("plugins", f"{fact}; the plugin API has version {API_VERSION}", findings)


def _reach_part(app: App, source: SourceSettings) -> Part:
    """Whether a tracker answers, and lets us in: its first page is asked for, and nothing follows from it."""
    from holdfast.integrations.trackers.registry import tracker_of
    from holdfast.views.connections.sources import limit_words

    name = f"tracker {source.name}"
    try:
        tracker = tracker_of(source, app.repo)
        found = next(iter(tracker.pages({})))
    except HoldfastError as error:
        return Part(name, "does not answer as it should", [Finding(str(error), f"holdfast sync {source.name}")])
    limit = limit_words(tracker.limit.remaining, tracker.limit.resets_at, 0.0, app.clock())
    more = " and more" if found.next else ""
    return Part(name, f"answers: {plural(len(found.numbers), 'open issue')}{more}{'; ' + limit if limit else ''}")


def _sandbox_part(app: App) -> Part:
    """The sandbox of agents, and what being root means for it."""
    kind = app.config.sandbox
    why = sandbox.missing(kind, tries=True) or sandbox.unconfined(kind)
    found = [Finding(why, "apt-get install bubblewrap")] if why else []
    return Part("sandbox", sandbox.in_words(kind), found)


def _notify_part(app: App) -> Part:
    """Whether the addresses of rules can be read, and Apprise knows them. None of them is shown."""
    if not app.config.notify:
        return Part("notify", "no rule")
    from holdfast.integrations.notify.addresses import troubles

    found = [Finding(each.said, each.next) for each in troubles(app.config, app.repo)]
    return Part("notify", plural(len(app.config.notify), "rule"), found)


def _git_part(name: str, app: App | None) -> Part:
    """One of the checks of git; without a repository only `git` itself."""
    try:
        return Part(name, preflight.usable_git() if app is None else preflight.GIT_CHECKS[name](app))
    except HoldfastError as error:
        return Part(name, "cannot be used", [Finding(str(error), _WAY_OUT[name])])


def _chain_part(app: App) -> Part:
    section = check(app.layout, Backlog(app.layout.backlog), None, chain_only=True).sections[0]
    singular = {"runs": "run", "entries": "entry"}
    counts = section.counted.items()
    counted = ", ".join(f"{number:,} {singular.get(name, name) if number == 1 else name}" for name, number in counts)
    return Part("chain", counted, [Finding(said, "holdfast check --chain") for said in section.findings])


def _state_parts(app: App, has_git: bool) -> Iterator[Part]:
    """The parts that need the journal's state; none where it cannot be read, which the chain's part has said."""
    try:
        view = app.read()
    except HoldfastError as error:
        yield health.Part("state", "cannot be read", [health.Finding(str(error), "holdfast check")])
        return
    tasks = view.state.tasks.values()
    is_run = live_owner(view.layout.lock) is not None
    steps = {name: next_step_of(name, task.state, task) for name, task in view.state.tasks.items()}
    yield health.decisions_part(view.state, steps, len(view.found.pairing.open_intents()), is_run)
    if not is_run:
        end = view.found.end.ref if view.found.end else None
        yield health.witnesses_part(view.layout, view.state, end, app.repo if has_git else None)
    yield health.attempts_part(view.layout, tasks)
    yield triggers_part(app.repo, view.layout, view.state.connections.triggers, is_run, app.config.sources)
    overview = read_overview(app)
    yield _tasks_part(overview)
    yield _agents_part(app.config, overview)
    yield _plugins_part(app.config, view.state.connections.plugins_aside)
    if has_git:
        yield health.landings_part(app.repo, view.state, view.layout.snapshots)
        yield health.trees_part(app.repo, view.layout, tasks)
        yield health.worktrees_part(app.repo, view.layout, app.config, tasks)
        yield health.setups_part(app.repo, view.layout, app.config, tasks)
        yield health.git_locks_part(app.repo)
        yield health.gates_part(app.repo, view.layout, app.config, overview.unfinished)
        if app.config.submodules == "init":
            yield health.submodules_part(app.repo, view.layout, app.config)


def _tasks_part(overview: Overview) -> Part:
    """Files that cannot be used, and tasks that wait for a person; what is parked has a part of its own."""
    files = list(dict.fromkeys(each.file for each in overview.problems))
    findings = []
    for file in files[:SHOWN_MAX]:
        first = next(each for each in overview.problems if each.file == file)
        name = next((name for name in first.tasks if name in overview.rows), "")
        way = f"holdfast edit {name}" if name else f"mend {overview.view.layout.backlog}/{file}"
        findings.append(Finding(f"{file}:{first.line} cannot be used: {first.message}", way))
    asking = [
        row for row in overview.rows.values() if row.state in _ASKING and not row.parked and not row.landing_waits
    ]
    for row in asking[:SHOWN_MAX]:
        why = f": {row.reason}" if row.reason else ""
        findings.append(Finding(f"{row.id} {row.asks or 'has failed'}{why}", row.next_step))
    for left, what in ((len(files), "files that cannot be used"), (len(asking), "tasks that wait for you")):
        if left > SHOWN_MAX:
            findings.append(Finding(f"and {left - SHOWN_MAX} more {what}", "holdfast list"))
    counted = f"{plural(len(overview.rows), 'task')}, {plural(len(files), 'file')} with problems"
    return Part("tasks", counted, findings)


def _agents_part(config: Config, overview: Overview | None) -> Part:
    """All that are known. One that is missing is a finding only where an open task asks for it; the default agent has
    to be signed in, too."""
    known = agents(config)
    found = {each.name: each for each in survey(known)}
    here, absent = ([name for name in sorted(found) if bool(found[name].path) is is_here] for is_here in (True, False))
    strangers = [name for name in here if found[name].signed_in is False]
    fact = f"{', '.join(here) or 'none'} here"
    fact += f"; {', '.join(absent)} missing" if absent else ""
    fact += f"; {', '.join(strangers)} not signed in" if strangers else ""
    spoken = {name: each.version(PROTOCOL_S_MAX) for name, each in known.items() if isinstance(each, ProtocolAgent)}
    mute = [name for name, told in spoken.items() if not told and name in here]
    fact += "".join(f"; {name} speaks {told[told.rfind('(') + 1 : -1]}" for name, told in spoken.items() if told)
    findings = []
    wanted = preflight.wanted_agents(config, overview) if overview is not None else {}
    for name, made in wanted.items():
        if why := preflight.missing_agent(known, name, made):
            findings.append(Finding(f"{why} The task {made.id} asks for it.", f"holdfast edit {made.id} --agent NAME"))
        elif name in mute:
            said = f"{name} does not answer by the Agent Client Protocol, and the task {made.id} asks for it."
            findings.append(Finding(f"{said} See `acp` in the settings' `agents`.", "holdfast agents --wait 60"))
        elif name in strangers:
            said = f"{name} is not signed in, and the task {made.id} asks for it. {found[name].sign_in}."
            findings.append(Finding(said, "holdfast agents"))
    usual = choose(Definition("example", goal="example"), config).agent
    if usual in strangers and usual not in wanted:
        said = f"{usual} is not signed in, and gets every task that names no other agent. {found[usual].sign_in}."
        findings.append(Finding(said, "holdfast agents"))
    return Part("agents", fact, findings)
