"""`gc`: removes what is of no use any more, and archives what is seldom read."""

from __future__ import annotations

import contextlib
from collections import Counter

import click

from holdfast.checks.gc import Collector, Garbage
from holdfast.checks.repair import holding
from holdfast.cli.options import find_app, print_json, print_notice, prints_json
from holdfast.domain.wording import plain, size
from holdfast.storage.audit.from_journal import without_run
from holdfast.storage.journal.data_root import open_root

SHOWN_MAX = 20
_NOUNS = {
    "worktree": "the worktree of {name}, whose work has landed",
    "scratch": "worktrees/{name}, in which candidates are judged",
    "snapshots": "the snapshots of {name}, which landed long ago; `git gc` gives their space back",
    "blob": "the blob {name}, which nothing names",
}


@click.command(
    epilog="""\b
Examples:
  holdfast gc --dry-run          what would go, and how much space that gives
  holdfast gc --keep-days 7      keep the snapshots of the last week only"""
)
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@click.option(
    "--keep-days", type=click.FloatRange(0), default=30.0, show_default=True, help="Keep snapshots younger than this."
)
@prints_json
def gc(ctx: click.Context, dry_run: bool, keep_days: float, as_json: bool) -> None:
    """Remove what is of no use: worktrees whose work has landed, snapshots of what landed long ago, the worktree for
    judging, and blobs that nothing names. Run files of the journal beyond the newest `ledgers.keep_runs` are archived:
    compressed, and read as before.

    The hook `worktree.before_remove` runs before a task's worktree goes. Work that has not landed, the journal and
    its archive, and every attempt's folder are always kept. It refuses while a run is alive; a dry run is possible at
    any time.
    """
    app = find_app(ctx)
    app.expect_initialised()
    layout = open_root(app.layout.root, app.repo)
    with contextlib.ExitStack() as owning:
        facts: dict[str, float] = {}
        if not dry_run:
            owning.enter_context(holding(layout, app.repo, app.clock))
            facts = owning.enter_context(without_run(layout, "gc", print_notice, app.clock, app.audit_key))
        tasks = app.read().state.tasks.values()
        collector = Collector(app.repo, layout, app.config, tasks, clock=app.clock, note=_note)
        found = list(collector.find(keep_days)) if dry_run else collector.remove(keep_days)
        keep = app.config.ledgers.keep_runs
        runs, saved = (collector.runs_to_archive(keep), 0) if dry_run else collector.archive_runs(keep)
        facts |= {"keep_days": keep_days, **Counter(each.kind for each in found), "archived": len(runs)}
    total = sum(each.bytes for each in found) + saved
    if as_json:
        removed, archived = ("would_remove", "would_archive") if dry_run else ("removed", "archived")
        print_json({"dry_run": dry_run, "bytes": total, removed: found, archived: runs})
        return
    _print_garbage(found, runs, saved, dry_run)


def _note(task: str, told: str) -> None:
    print_notice(f"{task}: {told}")


def _print_garbage(found: list[Garbage], runs: list[str], saved: int, dry_run: bool) -> None:
    shown: Counter[str] = Counter()
    for each in found:
        shown[each.kind] += 1
        if shown[each.kind] <= SHOWN_MAX:
            click.echo(f"{_space(each.bytes)}  {_NOUNS[each.kind].format(name=plain(each.name))}")
    for kind, count in shown.items():
        if count > SHOWN_MAX:
            click.echo(f"{'':10}  and {count - SHOWN_MAX} more of the kind: {kind}")
    if runs:
        what = f"run {runs[0]}" if len(runs) == 1 else f"{len(runs)} runs, {runs[0]} to {runs[-1]}"
        click.echo(f"{_space(saved)}  {what}, compressed into the journal's archive")
    if not found and not runs:
        click.echo("There is nothing to remove.")
        return
    end = "; nothing was removed yet: `holdfast gc` does it" if dry_run else " removed"
    click.echo(f"{size(sum(each.bytes for each in found) + saved):>10}  in all{end}")


def _space(number: int) -> str:
    return f"{size(number):>10}" if number else " " * 10
