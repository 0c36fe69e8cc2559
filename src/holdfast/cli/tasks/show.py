"""`show`: one task for people; `--json` has everything that is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from msgspec.structs import asdict

from holdfast.cli.options import complete_task, find_app, print_json, prints_json
from holdfast.cli.screen.table import echo_wrapped
from holdfast.domain.definition import Definition
from holdfast.domain.routing import Choice, choose
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task
from holdfast.domain.wording import moment, money, plain, plain_lines, plural
from holdfast.errors import TaskUnknown
from holdfast.storage.records.at_work import clock
from holdfast.views.rows import Overview, Row, last_reason, read_overview

_LABEL = 10


@click.command(epilog="Examples:  holdfast show fix-login  ·  holdfast show fix-login --json | jq .state")
@click.argument("task", shell_complete=complete_task)
@prints_json
def show(ctx: click.Context, task: str, as_json: bool) -> None:
    """Show one task: its state and why, what to type next, what it cost, and its definition."""
    app = find_app(ctx)
    overview = read_overview(app)
    if task not in overview.rows and not any(task in each.tasks for each in overview.problems):
        raise TaskUnknown.among(task, overview.rows)
    facts = _facts(overview, task)
    if facts.get("state") is TaskState.OPEN and facts["definition"]:
        facts["next"] = choose(facts["definition"], app.config, overview.view.state.tasks.get(task))
    if as_json:
        print_json(facts)
        return
    row, known = overview.rows.get(task), overview.view.state.tasks.get(task)
    for label, text in _lines(row, known, facts):
        echo_wrapped(f"  {label:{_LABEL}} ", plain(text))
    if task in overview.files:
        from holdfast.backlog.yaml_blocks import without_blocks

        # The definition in its author's own words, with the comments, and without what Holdfast wrote below.
        words = without_blocks(overview.view.backlog.read(task)[1]).decode(errors="replace")
        if words:
            click.echo("\n" + plain_lines(words.rstrip("\n")))


# -- for programs -----------------------------------------------------------------------------------------------------


def _facts(overview: Overview, name: str) -> dict[str, Any]:
    """The facts of a task, by name, without those that its state does not have."""
    from holdfast.landing.gate_results import output_of_task
    from holdfast.storage.records.blobs import Blobs
    from holdfast.views.costs import cost_of_attempts

    row, task, file = overview.rows.get(name), overview.view.state.tasks.get(name), overview.files.get(name)
    layout = overview.view.layout
    facts: dict[str, Any] = {"id": name}
    if row is not None:
        facts |= {"state": row.state, "new": row.new, "ready": row.is_ready, "waits": row.waits}
        facts |= {"next_step": row.next_step, "lost": row.lost}
    if task is not None:
        facts |= {key: value for key, value in _flat(task).items() if key not in ("id", "definition")}
        facts["pinned"] = task.definition
        attempts = (f"{name}.{number}" for number in range(1, task.attempts + 1))
        facts["cost"] = cost_of_attempts(map(layout.attempt_files, attempts))
        facts["gate_output"] = output_of_task(layout, Blobs(layout.cas), task)
    problems = [each for each in overview.problems if name in each.tasks]
    files = {str(layout.backlog / each.file) for each in problems if each.file}
    facts["files"] = [str(file.path)] if file else sorted(files)
    facts["definition"] = file.definition if file else None
    facts["problems"] = problems
    return facts


# The facts of a task's records that go by another name where all facts stand side by side.
_FLAT = {
    ("claim", "number"): "claims",
    ("attempt", "id"): "attempt",
    ("start", "number"): "starts",
    ("landing", "commit"): "landed",
    ("landing", "branch"): "landed_on",
    ("landing", "waits"): "landing_waits",
}


def _flat(task: Task) -> dict[str, Any]:
    """All facts of the task side by side, those of its records, too."""
    facts = asdict(task)
    for name, record in {each: facts.pop(each) for each in ("claim", "attempt", "start", "landing", "spent")}.items():
        facts |= {_FLAT.get((name, key), key): value for key, value in asdict(record).items()}
    return facts


# -- for people -------------------------------------------------------------------------------------------------------

Lines = Iterator[tuple[str, str]]


def _lines(row: Row | None, task: Task | None, facts: dict[str, Any]) -> Lines:
    """Lines of a label and a text, the most important first."""
    state = f"{row.state}{' (new: the next run takes it in)' if row.new else ''}" if row else "cannot be used"
    click.echo(plain(f"{facts['id']}: {state}" + (f" · {row.title}" if row and row.title else "")))
    for problem in facts["problems"]:
        yield "problem", str(problem)
    if row is not None:
        yield from _why(row, task, facts)
        if row.next_step:
            yield "next", row.next_step
    if task is not None:
        yield from _work(task, facts)
    choice: Choice | None = facts.get("next")
    if choice is not None:
        model = f", model {choice.model}" if choice.model else ""
        yield "goes to", f"{choice.agent}{model} ({choice.why})" if choice.why else f"{choice.agent}{model}"
    made: Definition | None = facts["definition"]
    if made is not None and made.depends_on:
        yield "needs", ", ".join(made.depends_on)
    for path in facts["files"]:
        yield "file", path


def _why(row: Row, task: Task | None, facts: dict[str, Any]) -> Lines:
    if row.state is TaskState.PENDING_APPROVAL:
        why = str(task.outcome.get("detail", "")) if task is not None else ""
        yield "waits", "for you to approve its result" + (f": {why}" if why else "")
    for why in row.waits:
        yield "waits", why
    if row.lost:
        yield "lost", row.lost
    if row.reason:
        yield "failed", row.reason
        if task is not None and task.again:
            yield "", "another attempt follows by itself"
    elif task is not None and task.state is TaskState.OPEN and (last := last_reason(task)):
        yield "last try", last
    elif task is not None and task.state is TaskState.CANCELLED and (last := last_reason(task)):
        yield "because", last
    output = facts.get("gate_output") or []
    yield from (("", f"| {line}") for line in output)
    if output:
        yield "", f"`holdfast gates {row.id}` shows more"


def _work(task: Task, facts: dict[str, Any]) -> Lines:
    claim, attempt, landing, spent = task.claim, task.attempt, task.landing, task.spent
    if claim.worked_by or claim.agent:
        model = f", model {claim.model}" if claim.model else ""
        yield "agent", f"{claim.agent or claim.worked_by}{model}" + (f" ({claim.why})" if claim.why else "")
    if task.attempts:
        times = "once" if attempt.resumes == 1 else plural(attempt.resumes, "time")
        continued = f", continued {times}" if attempt.resumes else ""
        yield "attempts", f"{task.attempts}, the last is {attempt.id}{continued}"
        how = f" ({facts['cost']})" if facts.get("cost") else ""
        counts = [f"{money(spent.usd)}{how}", plural(spent.turns, "turn"), plural(spent.tokens, "token")]
        yield "spent", ", ".join([*counts, f"{clock(spent.seconds)} of work"])
    if task.outcome.get("kind") == "answer":
        lines = str(task.outcome.get("answer") or "(it said nothing)").splitlines()
        yield from (("answer" if not number else "", line) for number, line in enumerate(lines))
    for message in task.told:
        yield (
            "told",
            f"{message.text.strip()} ({message.by or 'a person'}; its agent gets it at its next turn or start)",
        )
    if claim.progress:
        yield "says", claim.progress
    if task.pull is not None:
        yield "pull request", f"{task.pull.words}{f': {task.pull.url}' if task.pull.url else ''}"
    if landing.commit:
        branch = landing.branch.removeprefix("refs/heads/")
        yield "landed", f"as {landing.commit[:12]}" + (f" on {branch}" if branch else "")
    elif task.candidate and task.state is not TaskState.CLOSED:
        yield "result", f"{task.candidate[:12]} of {attempt.id}: `holdfast diff {task.id}` shows it"
    yield "added", moment(task.added_at)
    if task.changed_at != task.added_at:
        yield "changed", moment(task.changed_at)
