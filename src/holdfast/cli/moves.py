"""`cancel`, `retry` and `resolve`: what a person decides. Each is a short run of its own, under the lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from holdfast.app import App, Session
from holdfast.cli.overview import tell_problems, unknown
from holdfast.cli.shared import as_json, find_app, print_json
from holdfast.domain.entries import MOVE_TO
from holdfast.domain.fsm import AbortReason, TransitionReason, move
from holdfast.domain.problem import Problem
from holdfast.domain.state import Task
from holdfast.domain.task import TASK, TaskEvent, TaskState
from holdfast.durable.entry import Record
from holdfast.errors import DefinitionInvalid, HoldfastError, IllegalTransition, NothingParked, TaskFilesDiffer

ACTOR = "cli"
# How a task is given up, by what its state allows.
_GIVE_UP = (
    TaskEvent.MANUAL_CANCEL,
    TaskEvent.REJECTED,
    TaskEvent.UNRECOVERABLE,
    TaskEvent.VERIFICATION_REJECTED,
)


@click.command(epilog="Example:  holdfast cancel fix-login old-idea")
@click.argument("tasks", nargs=-1, required=True, metavar="TASK...")
@as_json
@click.pass_context
def cancel(ctx: click.Context, tasks: tuple[str, ...], as_json: bool) -> None:
    """Cancel a task.

    Of several tasks all are cancelled or, if one cannot be, none. One that is cancelled already is left as it is.
    """
    app = find_app(ctx)
    with app.session() as session:
        asked = _known(app, session, tasks)
        todo = [task for task in asked if task.state is not TaskState.CANCELLED]
        _move(app, session, todo, _cancel_event, AbortReason.CANCELLED)
    _tell(session, asked, {task.id: "it was cancelled before" for task in asked if task not in todo}, as_json)


@click.command(epilog="Example:  holdfast retry fix-login")
@click.argument("tasks", nargs=-1, required=True, metavar="TASK...")
@as_json
@click.pass_context
def retry(ctx: click.Context, tasks: tuple[str, ...], as_json: bool) -> None:
    """Open a failed task again.

    Of several tasks all are opened or, if one cannot be, none.
    """
    app = find_app(ctx)
    with app.session() as session:
        asked = _known(app, session, tasks)
        _move(app, session, asked, lambda _: TaskEvent.RETRY, TransitionReason.REQUESTED_BY_PERSON)
    _tell(session, asked, {}, as_json)


@click.command(epilog="Example:  holdfast show fix-login   tells what is in doubt;  holdfast resolve fix-login --retry")
@click.argument("task")
@click.option("--happened", "decision", flag_value="happened", help="It took place; go on from there.")
@click.option("--retry", "decision", flag_value="retry", help="It did not take place, or may be repeated.")
@click.option("--abandon", "decision", flag_value="abandon", help="Give it up: the task is cancelled or fails.")
@as_json
@click.pass_context
def resolve(ctx: click.Context, task: str, decision: str | None, as_json: bool) -> None:
    """Decide what is parked or abandoned.

    After a crash Holdfast could not tell whether something took place, or found it too old to repeat. You say.
    """
    if decision is None:
        raise click.UsageError("Say one of --happened, --retry and --abandon.")
    app = find_app(ctx)
    with app.session() as session:
        [asked] = _known(app, session, [task])
        if not asked.parked:
            raise NothingParked(task=task, state=asked.state)
        session.ledger.append(session.ledger.epoch, _resolution(asked, decision))
    _tell(session, [asked], {task: f"resolved as: {decision}"}, as_json)


# -- moving -----------------------------------------------------------------------------------------------------------


def _known(app: App, session: Session, names: Sequence[str]) -> list[Task]:
    """The tasks of these names, each once. Also tells what the session found before it came to them."""
    tell_problems(app.layout, session.intake.problems)
    for closed in session.closed:
        click.echo(f"recovered: {closed.intent} of {closed.task} is {closed.how} ({closed.reason})", err=True)
    for task in session.intake.cancelled:
        click.echo(f"{task} is cancelled: its file was deleted", err=True)
    for task in session.intake.put_back:
        click.echo(f"{task}: its file was gone, and is put back", err=True)
    tasks = session.ledger.state.tasks
    for name in names:
        if name not in tasks:
            raise _unusable(app, name, session.intake.problems) or unknown(name, tasks)
    return [tasks[name] for name in dict.fromkeys(names)]


def _unusable(app: App, name: str, problems: Sequence[Problem]) -> HoldfastError | None:
    """Why a task that has files is not known all the same."""
    about = [each for each in problems if name in each.tasks]
    files = list(dict.fromkeys(str(app.layout.backlog / each.file) for each in about))
    if len(files) > 1:
        return TaskFilesDiffer(task=name, paths=", ".join(files))
    if not about:
        return None
    return DefinitionInvalid(name=files[0], problems="; ".join(f"line {each.line}: {each.message}" for each in about))


def _cancel_event(task: Task) -> TaskEvent:
    return TaskEvent.REJECTED if task.state is TaskState.PLANNED else TaskEvent.MANUAL_CANCEL


def _move(app: App, session: Session, tasks: Sequence[Task], event_of: Any, reason: str) -> None:
    ledger, records = session.ledger, []
    for task in tasks:
        try:
            step = move(TASK, task.id, task.state, event_of(task), TransitionReason(reason), ACTOR, app.clock())
        except IllegalTransition as error:
            raise ledger.refuse(task, error, reason, ACTOR) from error
        records.append(_moved(task, step.event, reason))
    if records:
        ledger.append(ledger.epoch, records)


def _moved(task: Task, event: TaskEvent, reason: str) -> Record:
    inputs = {"task": task.id, "event": event, "reason": reason}
    return Record(MOVE_TO[TASK.next(task.state, event)], inputs, actor=ACTOR)


def _resolution(task: Task, decision: str) -> list[Record]:
    """The move that the decision asks for, if any, and then the flag: a crash between leaves the task parked still."""
    legal = TASK.legal(task.state)
    event = None
    if decision == "abandon":
        event = next((each for each in _GIVE_UP if each in legal), None)
    elif decision == "happened" and task.parked.startswith("task_land_"):
        event = next((each for each in (TaskEvent.JANITOR_VERIFIED_AND_MERGED,) if each in legal), None)
    flag = {"task": task.id, "parked": "", "not_before": task.not_before}
    told = {"decision": decision, "was": task.parked, "reason": TransitionReason.RESOLVED_BY_PERSON}
    moves = [_moved(task, event, TransitionReason.RESOLVED_BY_PERSON)] if event else []
    return [*moves, Record("task_flagged", flag, told, ACTOR)]


def _tell(session: Session, tasks: Sequence[Task], notes: dict[str, str], as_json: bool) -> None:
    # Only once the session is over: an output that fails must not keep the files from following.
    now = [session.ledger.state.tasks[task.id] for task in tasks]
    if as_json:
        print_json([{"id": task.id, "state": task.state, "note": notes.get(task.id, "")} for task in now])
        return
    for task in now:
        note = notes.get(task.id)
        click.echo(f"{task.id}: {task.state}" + (f" ({note})" if note else ""))
