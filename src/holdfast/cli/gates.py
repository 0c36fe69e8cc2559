"""`gates`: what judged a task's result, how each came out, and what it printed."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast.cli.completion import complete_task
from holdfast.cli.shared import as_json, find_app, print_json
from holdfast.cli.table import echo_wrapped
from holdfast.cli.terminal import plain, plain_lines
from holdfast.domain.state import Task
from holdfast.durable.blobs import Blobs
from holdfast.engine import gate_results
from holdfast.engine.gates import Result
from holdfast.engine.verify import Verdict, shown_command
from holdfast.errors import BlobCorrupt, BlobMissing, NeverJudged, NotABlobId

_WORDS = {"passed": "passed", "failed": "FAILED", "timed_out": "TIMED OUT", "not_run": "not run"}


@click.command(epilog="Examples:  holdfast gates fix-login  ·  holdfast gates fix-login --full | less")
@click.argument("task", shell_complete=complete_task)
@click.option("--full", is_flag=True, help="All that each gate printed, in place of its last lines.")
@as_json
@click.pass_context
def gates(ctx: click.Context, task: str, full: bool, as_json: bool) -> None:
    """Show every gate of a task's last verification: how it came out, how long it took, and what it printed.

    Of a gate that passed, the output is shown with --full only. Takes no lock and changes nothing.
    """
    app = find_app(ctx)
    app.expect_initialised()
    view = app.look()
    known = view.state.tasks.get(task)
    found = gate_results.last_verdict(view.layout, known) if known is not None else None
    if known is None or found is None:
        raise _never(ctx, task, known)
    (attempt, verdict), blobs = found, Blobs(view.layout.cas)
    if as_json:
        print_json(_facts(task, attempt, verdict, blobs, full))
    else:
        _tell(attempt, verdict, blobs, full)


def _never(ctx: click.Context, task: str, known: Task | None) -> Exception:
    from holdfast.cli.overview import look, unknown

    rows = look(find_app(ctx)).rows
    state = known.state if known is not None else rows[task].state if task in rows else None
    return NeverJudged(task=task, state=state) if state is not None else unknown(task, rows)


def _facts(task: str, attempt: str, verdict: Verdict, blobs: Blobs, full: bool) -> dict[str, Any]:
    named = {name: getattr(verdict, name) for name in ("passed", "kind", "detail", "merged", "target", "files")}
    results = [msgspec.to_builtins(gate_results.facts(each, _output(blobs, each, full))) for each in verdict.results]
    return {"task": task, "attempt": attempt, **named, "gates": results}


def _tell(attempt: str, verdict: Verdict, blobs: Blobs, full: bool) -> None:
    echo_wrapped("", plain(f"{attempt} {'passed' if verdict.passed else 'was not taken'}: {verdict.detail}"))
    width = max((len(plain(each.name)) for each in verdict.results), default=0)
    for each in verdict.results:
        click.echo(plain(f"  {_WORDS[each.outcome]:<9}  {each.name:<{width}}  {_how(each)}"))
        if full or each.outcome in ("failed", "timed_out"):
            for line in _output(blobs, each, full):
                click.echo(f"      {plain_lines(line)}".rstrip())
    for path in verdict.files:
        click.echo(plain(f"  {path}"))


def _how(result: Result) -> str:
    command = shown_command(result.command)
    if result.told:
        return f"not run again: a person said that it happened  {command}"
    if result.outcome == "not_run":
        return command
    code = f", code {result.code}" if result.code else ""
    return f"{result.seconds:.1f} s{code}  {command}" + ("" if result.required else "  (advisory)")


def _output(blobs: Blobs, result: Result, full: bool) -> list[str]:
    if not full:
        return gate_results.last_lines(blobs, result, gate_results.SHOWN_LINES)
    try:
        return blobs.get(result.output).decode(errors="replace").splitlines() if result.output else []
    except (BlobMissing, BlobCorrupt, NotABlobId) as error:
        return [f"({error})"]
