"""`sync`: asks the issue trackers for changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.options import find_app, print_json, print_notice, prints_json
from holdfast.clock import wall
from holdfast.domain.wording import plain, plural
from holdfast.errors import InputError, SourceUnknown

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.config.trackers import SourceSettings
    from holdfast.integrations.trackers.sync import SyncOutcome

SERVICE_FAILED = 22
_COUNTED = (("add", "added"), ("edit", "rewritten"), ("cancel", "cancelled"), ("ask", "for you to decide"))


@click.command(epilog="Examples:  holdfast sync  ·  holdfast sync gh --dry-run  ·  holdfast sync --json")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--dry-run", is_flag=True, help="Only say what would be changed here.")
@prints_json
def sync(ctx: click.Context, names: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Ask the issue trackers of the settings' `sources` for changes; NAME asks only those.

    A new issue becomes a task file in backlog/issues/, one that was edited rewrites its file, and one that was closed
    cancels its task, or asks you. A run does the same by itself; while one works, it is asked to do it at once. The
    exit code is 22 where a tracker could not be asked: what was found before is kept; the next round goes on.
    """
    app = find_app(ctx)
    app.expect_initialised()
    sources = _chosen(app, names)
    if not dry_run and _is_asked(app, [each.name for each in sources]):
        if as_json:
            print_json({"asked": [each.name for each in sources], "sources": []})
        else:
            click.echo("The run asks them now; `holdfast status` shows when they have answered.")
        return
    outcomes = _outcomes(app, sources, dry_run=dry_run)
    if as_json:
        print_json({"asked": [], "sources": [_facts(each) for each in outcomes]})
    else:
        _print(outcomes, dry_run)
    ctx.exit(SERVICE_FAILED if any(each.error for each in outcomes) else 0)


def _chosen(app: App, names: tuple[str, ...]) -> list[SourceSettings]:
    known = {each.name: each for each in app.config.sources}
    if not known:
        raise InputError(
            detail=f"there are no `sources` in {app.layout.settings}; docs/trackers.md says how to name one"
        )
    for name in names:
        if name not in known:
            raise SourceUnknown(source=name, known=", ".join(known))
    return [known[name] for name in dict.fromkeys(names or known)]


def _is_asked(app: App, names: list[str]) -> bool:
    """Has the run that is alive do it; False where none is."""
    from holdfast.decisions import mailbox
    from holdfast.short_runs import decide

    if not mailbox.is_served(app.layout):
        return False
    decide(app, "sync", {"sources": names}, print_notice)
    return True


def _outcomes(app: App, sources: list[SourceSettings], *, dry_run: bool) -> list[SyncOutcome]:
    """Asks first, and owns the data root only while the answers are applied."""
    from holdfast.integrations.trackers.issue_plan import changes_of
    from holdfast.integrations.trackers.registry import tracker_of
    from holdfast.integrations.trackers.source_rounds import Fetcher
    from holdfast.integrations.trackers.sync import apply_round, fetch_round, known_here, outcome_of

    view, found = app.read(), []
    files = view.backlog.scan().tasks
    for source in sources:
        fetcher = Fetcher(source, tracker_of(source, app.repo))
        found.append(fetch_round(fetcher, app.layout, view.state, files, print_notice, anew=dry_run))
    if dry_run:
        executed = view.found.pairing.find_executed
        return [
            outcome_of(each, changes_of(source, each, known_here(executed, files, view.state, source.name)))
            for source, each in zip(sources, found, strict=True)
        ]
    from holdfast.wiring import run_context

    with run_context(app, lambda task, text: print_notice(f"{task}: {text}" if task else text), works=False) as context:
        return [apply_round(context, source, each) for source, each in zip(sources, found, strict=True)]


def _facts(outcome: SyncOutcome) -> dict[str, object]:
    changes = [{"kind": each.kind, "task": each.task, "url": each.url, "why": each.why} for each in outcome.changes]
    limit = {"remaining": outcome.limit.remaining, "resets_at": outcome.limit.resets_at}
    asked = {"source": outcome.source, "issues": outcome.issues, "error": outcome.error}
    return {**asked, "changes": changes, "limit": {**limit, "not_before": outcome.not_before}}


def _print(outcomes: list[SyncOutcome], dry_run: bool) -> None:
    from holdfast.integrations.trackers.sync import lines_of
    from holdfast.views.connections.sources import limit_words

    for each in outcomes:
        for task, line in lines_of(each):
            click.echo(plain(f"{task}: {line}" if task else line))
        if each.error and not each.issues and not each.changes:
            continue
        counts = [f"{len(each.tasks(kind))} {words}" for kind, words in _COUNTED if each.tasks(kind)]
        limit = limit_words(each.limit.remaining, each.limit.resets_at, each.not_before, wall())
        told = ", ".join([plural(each.issues, "open issue"), *(counts or ["nothing new"])])
        click.echo(plain(f"{each.source}: {told}{'; ' + limit if limit else ''}"))
    if dry_run:
        click.echo("Nothing was changed: without --dry-run it is.")
