"""Decisions of a person: `cancel`, `retry`, `resolve`, `approve`, `reject`, `resume`, `promote`, `undo`, `fork`,
`reassign`.

While `holdfast run` works, it is asked and does it; otherwise each is a short run of its own, under the lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import complete_task, find_app, print_json, prints_json
from holdfast.domain.task import TaskState
from holdfast.domain.wording import plain
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.decisions.context import Answer

_TURN = click.option("--turn", type=click.IntRange(min=1), required=True, metavar="N", help="Which turn.")
_MESSAGE = click.option("--message", default="", metavar="TEXT", help="Tell its agent this, as `holdfast tell` does.")
_LANDS = {TaskState.CLOSED, TaskState.DONE, TaskState.PENDING_APPROVAL}


@click.command(epilog="Example:  holdfast cancel fix-login old-idea")
@click.argument("tasks", nargs=-1, required=True, metavar="TASK...", shell_complete=complete_task)
@prints_json
def cancel(ctx: click.Context, tasks: tuple[str, ...], as_json: bool) -> None:
    """Cancel a task; its agent is ended.

    Of several tasks all are cancelled or, if one cannot be, none. One that is cancelled already is left as it is.
    """
    decide_and_tell(ctx, "cancel", as_json, tasks=list(tasks))


@click.command(epilog="Example:  holdfast retry fix-login")
@click.argument("tasks", nargs=-1, required=True, metavar="TASK...", shell_complete=complete_task)
@click.option("--reason", default="", help="Why; the agent gets it as feedback.")
@_MESSAGE
@prints_json
def retry(ctx: click.Context, tasks: tuple[str, ...], reason: str, message: str, as_json: bool) -> None:
    """Open a failed task again, or send back a result that has not landed.

    A result that is done and whose landing waits needs a --reason. Of several tasks all are opened or, if one cannot
    be, none.
    """
    decide_and_tell(ctx, "retry", as_json, tasks=list(tasks), reason=reason, message=message)


@click.command(epilog="Example:  holdfast show fix-login   shows what is in doubt;  holdfast resolve fix-login --retry")
@click.argument("task", default="", shell_complete=complete_task)
@click.option("--happened", "decision", flag_value="happened", help="It took place; go on from there.")
@click.option("--retry", "decision", flag_value="retry", help="It did not take place, or may be repeated.")
@click.option("--abandon", "decision", flag_value="abandon", help="Give it up: the task is cancelled or fails.")
@click.option("--newest", "decision", flag_value="newest", help="A turn is lost: go on from the newest that is there.")
@click.option("--anew", "decision", flag_value="anew", help="A turn is lost: begin anew.")
@click.option(
    "--journal-restored", "decision", flag_value="journal-restored",
    help="Without a task: the journal was put back from a backup, and the newer one is lost.",
)  # fmt: skip
@click.option(
    "--audit-lost", "decision", flag_value="audit-lost",
    help="Without a task: records of the audit log are lost, and there is no backup of them.",
)  # fmt: skip
@click.option("--rewritten", metavar="COMMIT", help="Its landing is on the branch as this other commit.")
@click.option("--dropped", "decision", flag_value="dropped", help="Its landing was taken off the branch on purpose.")
@prints_json
def resolve(ctx: click.Context, task: str, decision: str | None, rewritten: str | None, as_json: bool) -> None:
    """Decide what is parked or abandoned.

    After a crash Holdfast could not tell whether something took place, or found it too old to repeat. You say.

    --rewritten and --dropped are about a landing that is not on its branch any more, because somebody rewrote the
    history there, and that could not be recognised.

    --journal-restored is about no task: the journal is older than what lies beside it, and you have no newer one. What
    only the lost journal knew is moved to quarantine/, and the next run goes on from the journal as it is. Work that
    had landed meanwhile is recognised on the branch; where that is in doubt, the task waits for you.

    --audit-lost is about no task either: the audit log lacks what the journal has noted of it. The journal says from
    now on that you know.
    """
    if decision in ("journal-restored", "audit-lost"):
        if task:
            raise click.UsageError(f"--{decision} is about the whole data root: leave the task out.")
        _accept_loss(find_app(ctx), decision == "journal-restored", as_json)
        return
    if not task:
        raise click.UsageError("Name the task to decide about.")
    if rewritten and decision:
        raise click.UsageError("Say one thing: --rewritten COMMIT goes with no other.")
    if decision is None and not rewritten:
        raise click.UsageError(
            "Say one of --happened, --retry, --abandon, --newest, --anew, --rewritten COMMIT and --dropped."
        )
    if rewritten or decision == "dropped":
        decide_and_tell(ctx, "settle", as_json, task=task, commit=rewritten or "")
        return
    decide_and_tell(ctx, "resolve", as_json, task=task, decision=decision)


@click.command(epilog="Example:  holdfast approve fix-login")
@click.argument("task", shell_complete=complete_task)
@prints_json
def approve(ctx: click.Context, task: str, as_json: bool) -> None:
    """Let a result land that waits for you.

    `holdfast diff` shows what the attempt did. A run that works lands it at once, otherwise the next one does.
    """
    decide_and_tell(ctx, "approve", as_json, task=task)


@click.command(epilog="Example:  holdfast reject fix-login --reason 'The error message must stay as it was.'")
@click.argument("task", shell_complete=complete_task)
@click.option("--reason", required=True, help="Why; the agent gets it when the task is tried again.")
@prints_json
def reject(ctx: click.Context, task: str, reason: str, as_json: bool) -> None:
    """Refuse a result that waits for you: the task fails.

    `holdfast retry` then begins another attempt with the work so far and your reason.
    """
    decide_and_tell(ctx, "reject", as_json, task=task, reason=reason)


@click.command(
    epilog="Examples:  holdfast resume fix-login  ·  holdfast resume fix-login --message 'Try the other way.'"
)
@click.argument("task", shell_complete=complete_task)
@_MESSAGE
@prints_json
def resume(ctx: click.Context, task: str, message: str, as_json: bool) -> None:
    """Continue the last attempt of a task that has failed or was stopped.

    Its worktree and conversation are kept, and it costs no attempt, where `holdfast retry` begins a new one.
    """
    decide_and_tell(ctx, "resume", as_json, task=task, message=message)


@click.command(epilog="Example:  holdfast reassign fix-login --agent codex --reason 'It goes in circles.'")
@click.argument("task", shell_complete=complete_task)
@click.option("--agent", default="", metavar="NAME", help="Who goes on; without it, the next step of the cascade.")
@click.option("--reason", default="", help="Why; it is kept in the journal.")
@prints_json
def reassign(ctx: click.Context, task: str, agent: str, reason: str, as_json: bool) -> None:
    """Take a task from its agent and give it to another.

    The agent that works on it is ended first. The attempt goes on from its last turn and costs no other; the new agent
    begins a conversation of its own, with the history in its prompt.
    """
    decide_and_tell(ctx, "reassign", as_json, task=task, agent=agent, reason=reason)


@click.command(epilog="Example:  holdfast promote fix-login")
@click.argument("task", shell_complete=complete_task)
@click.option("--branch", default="", metavar="NAME", help="Land on this new branch in place of the target.")
@prints_json
def promote(ctx: click.Context, task: str, branch: str, as_json: bool) -> None:
    """Land what an attempt made, again or after all.

    A closed task whose landing is there is left as it is; one whose landing was lost is verified and landed again. What
    a failed task's last attempt made is verified anew, and lands if it passes. Exit code 1 says that it did not.

    With --branch, a result that is done lands as a new branch: for one whose landing waits for your checkout.
    """
    answer = decide_and_tell(ctx, "promote", as_json, task=task, branch=branch)
    if answer.tasks[0].state not in _LANDS:
        ctx.exit(1)


@click.command(epilog="Example:  holdfast undo fix-login --turn 3 && holdfast resume fix-login")
@click.argument("task", shell_complete=complete_task)
@_TURN
@prints_json
def undo(ctx: click.Context, task: str, turn: int, as_json: bool) -> None:
    """Put a task's worktree back to how a turn left it.

    Only while nobody works in it. What stands there is saved first, as a snapshot `undo-<k>` of the attempt. The next
    start goes on from there: by itself for a task that was paused, after `holdfast resume` for one that failed or whose
    agent you have stopped.
    """
    answer = decide_and_tell(ctx, "undo", as_json, task=task, turn=turn)
    if not as_json:
        click.echo(f"  what stood there is saved as {plain(answer.facts['saved'])}")


@click.command(
    epilog="Examples:  holdfast fork fix-login --turn 3  ·  holdfast fork fix-login.1 --turn 3 --id other-way"
)
@click.argument("task", metavar="TASK|ATTEMPT", shell_complete=complete_task)
@_TURN
@click.option("--id", "name", default="", metavar="NEW", help="Make a new task of this id that begins there.")
@prints_json
def fork(ctx: click.Context, task: str, turn: int, name: str, as_json: bool) -> None:
    """Begin anew with the tree that a turn left.

    The next attempt of an open or failed task begins with it, on top of the newest target. For a closed or cancelled
    one, and with --id, a new task is made that says so in `forked_from`.
    """
    spare = _spare(find_app(ctx), task)
    decide_and_tell(ctx, "fork", as_json, task=task, turn=turn, id=name, spare=spare)


def _spare(app: App, task: str) -> str:
    """An id for a new task, chosen once: the decision can then be repeated without making another."""
    from holdfast.views.rows import read_overview

    overview = read_overview(app)
    base = task if task in overview.rows else task.rpartition(".")[0] or task
    number = 1
    while (name := f"{base}-fork" if number == 1 else f"{base}-fork-{number}") in overview.taken:
        number += 1
    return name


def text_of(content: bytes, place: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _not_text(place) from None


def _not_text(place: str) -> InputError:
    way = "write it in UTF-8 (`iconv -f LATIN1 -t UTF-8 FILE` makes that of an older text)"
    return InputError(detail=f"{place} is not UTF-8 text; {way}, or name a file of the repository in the message")


def decide_and_tell(ctx: click.Context, kind: str, as_json: bool, **params: Any) -> Answer:
    from holdfast.short_runs import decide

    for name, value in params.items():
        # Bytes of the command line that are no text arrive as halves of characters.
        if isinstance(value, str) and not value.isascii():
            text_of(value.encode(errors="surrogateescape"), f"the {name}")
    answer = decide(find_app(ctx), kind, params, lambda line: click.echo(plain(line), err=True))
    if as_json:
        print_json([{"id": task.id, "state": task.state, "note": task.note, **answer.facts} for task in answer.tasks])
    for task in () if as_json else answer.tasks:
        click.echo(plain(f"{task.id}: {task.state}" + (f" ({task.note})" if task.note else "")))
    return answer


def _accept_loss(app: App, is_of_journal: bool, as_json: bool) -> None:
    """A person says that a newer journal is lost, or that records of the audit log are."""
    from holdfast.short_runs import accept_audit_loss, accept_journal

    said: list[str] = []
    facts: dict[str, list[str]] = {"told": said}
    if is_of_journal:
        facts = {"witnesses": (found := accept_journal(app, said.append)), **facts}
        taken = "the journal is taken as it is; `holdfast run` goes on"
        end = taken if found else "nothing knew more than the journal"
    else:
        accept_audit_loss(app, said.append)
        end = "the journal says that records of the audit log are lost; the log goes on from here"
    if as_json:
        print_json(facts)
        return
    for line in [*facts.get("witnesses", []), *said, end]:
        click.echo(plain(line))
