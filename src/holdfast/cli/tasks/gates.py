"""`gates`: what judged a task's result, how each came out, and what it printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.options import complete_task, find_app, print_json, prints_json
from holdfast.cli.screen.table import echo_wrapped
from holdfast.domain.task_record import Task
from holdfast.domain.wording import plain, plain_lines
from holdfast.errors import BlobCorrupt, BlobMissing, NeverJudged, NotABlobId, TaskUnknown
from holdfast.landing import gate_results
from holdfast.landing.gates import GateRun
from holdfast.landing.verify import GateVerdict, shown_command
from holdfast.storage.records.blobs import Blobs

if TYPE_CHECKING:
    from holdfast.app import View

_WORDS = {"passed": "passed", "failed": "FAILED", "timed_out": "TIMED OUT", "not_run": "not run"}


@click.command(epilog="Examples:  holdfast gates fix-login  ·  holdfast gates fix-login.1 --full | less")
@click.argument("task", metavar="TASK|ATTEMPT", shell_complete=complete_task)
@click.option("--full", is_flag=True, help="All that each gate printed, in place of its last lines.")
@prints_json
def gates(ctx: click.Context, task: str, full: bool, as_json: bool) -> None:
    """Show every gate of a verification: its result, how long it took, and what it printed.

    For a task this is its last attempt that was verified. The output of a gate that passed is shown with --full only.
    Takes no lock and changes nothing.
    """
    app = find_app(ctx)
    app.expect_initialised()
    view = app.read()
    known, attempt, verdict = _judged(view, task)
    if known is None or verdict is None:
        raise _never(ctx, task, known)
    blobs = Blobs(view.layout.cas)
    if as_json:
        named = {name: getattr(verdict, name) for name in ("passed", "kind", "detail", "merged", "target", "files")}
        facts = [gate_results.facts(each, _output(blobs, each, full)) for each in verdict.results]
        print_json({"task": known.id, "attempt": attempt, **named, "gates": msgspec.to_builtins(facts)})
    else:
        _print_verdict(attempt, verdict, blobs, full)


def _judged(view: View, name: str) -> tuple[Task | None, str, GateVerdict | None]:
    """The task, and what judged the attempt: the one that was named, or the last that was judged."""
    tasks, (owner, _, number) = view.state.tasks, name.rpartition(".")
    if name not in tasks and owner in tasks and number.isdecimal():
        return tasks[owner], name, gate_results.verdict_of(view.layout, name)
    if name not in tasks:
        return None, "", None
    attempt, verdict = gate_results.last_verdict(view.layout, tasks[name]) or ("", None)
    return tasks[name], attempt, verdict


def _never(ctx: click.Context, task: str, known: Task | None) -> Exception:
    from holdfast.views.rows import read_overview

    rows = read_overview(find_app(ctx)).rows
    state = known.state if known is not None else rows[task].state if task in rows else None
    name = known.id if known is not None else task
    return NeverJudged(task=task, name=name, state=state) if state is not None else TaskUnknown.among(task, rows)


def _print_verdict(attempt: str, verdict: GateVerdict, blobs: Blobs, full: bool) -> None:
    echo_wrapped("", plain(f"{attempt} {'passed' if verdict.passed else 'was not taken'}: {verdict.detail}"))
    width = max((len(plain(each.name)) for each in verdict.results), default=0)
    for each in verdict.results:
        click.echo(plain(f"  {_WORDS[each.outcome]:<9}  {each.name:<{width}}  {_how(each)}"))
        if full or each.outcome in ("failed", "timed_out"):
            for line in _output(blobs, each, full):
                click.echo(f"      {plain_lines(line)}".rstrip())
    for path in verdict.files:
        click.echo(plain(f"  {path}"))


def _how(result: GateRun) -> str:
    command = shown_command(result.command)
    if result.told:
        return f"not run again: a person said that it happened  {command}"
    if result.outcome == "not_run":
        return command
    code = f", code {result.code}" if result.code else ""
    return f"{result.seconds:.1f} s{code}  {command}" + ("" if result.required else "  (advisory)")


def _output(blobs: Blobs, result: GateRun, full: bool) -> list[str]:
    if not full:
        return gate_results.last_lines(blobs, result, gate_results.SHOWN_LINES)
    try:
        return blobs.get(result.output).decode(errors="replace").splitlines() if result.output else []
    except (BlobMissing, BlobCorrupt, NotABlobId) as error:
        return [f"({error})"]
