"""`questions` and `answer`: what agents ask a person, and a person's answers."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from holdfast.cli.options import find_app, print_json, prints_json
from holdfast.cli.tasks.decisions import decide_and_tell
from holdfast.clock import monotonic
from holdfast.domain.wording import moment, plain
from holdfast.errors import InputError, TaskUnknown

LOOK_S = 0.2
# EX_TEMPFAIL of sysexits.h: there is no answer yet.
NOT_YET, DENIED = 75, 1


@click.command(epilog="Example:  holdfast questions --json | jq -r '.[].id'")
@click.argument("task", default="")
@click.option("--all", "shows_answered", is_flag=True, help="Also those that have their answer, of attempts under way.")
@prints_json
def questions(ctx: click.Context, task: str, shows_answered: bool, as_json: bool) -> None:
    """List what agents ask: leave to make a call, or words. Each waits for `holdfast answer`.

    Shows the tool, and the command or the diff of what it would do. Takes no lock and changes nothing.
    """
    from holdfast.views.questions import asked
    from holdfast.views.rows import read_overview

    app = find_app(ctx)
    state = app.read().state
    if task and task not in state.tasks and task not in (known := read_overview(app).rows):
        raise TaskUnknown.among(task, known)
    found = [row for row in asked(state, answered=shows_answered) if task in ("", row.task)]
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("Nobody asks anything.")
    for row in found:
        what = "asks" if row.kind == "words" else f"wants to call {row.tool}"
        click.echo(plain(f"{row.id}  {row.agent} {what}, since {moment(row.asked_at)}"))
        for line in row.preview.splitlines():
            click.echo(plain(f"    {line}"))
        click.echo(plain(f"  {row.next_step}" if not row.answer else f"  {row.answer} by {row.by}: {row.words}"))


@click.command(
    epilog="Examples:  holdfast answer fix-login.1.q1 --allow  ·  holdfast answer fix-login.1.q2 --deny no  ·  "
    "holdfast answer fix-login.1.q3 --say 'the blue one'"
)
@click.argument("question")
@click.option("--allow", "allows", is_flag=True, help="The agent may make this call, this once.")
@click.option("--always", is_flag=True, help="It may, and the settings allow such a call from now on.")
@click.option("--deny", metavar="WHY", help="It may not; the agent gets the reason.")
@click.option("--say", metavar="WORDS", help="The answer in words, to a question that wants words.")
@prints_json
def answer(
    ctx: click.Context, question: str, allows: bool, always: bool, deny: str | None, say: str | None, as_json: bool
) -> None:
    """Answer what an agent asks; `holdfast questions` lists the questions.

    The answer is journalled, whether a run is alive or not; a run gives it to the agent at once, otherwise the next one
    does. The first answer counts. --always writes a rule into `permissions` of config/settings.yaml.
    """
    if sum((allows or always, deny is not None, say is not None)) != 1:
        raise click.UsageError("Say one of --allow, --always, --deny WHY and --say WORDS.")
    kind = "allow" if allows or always else "deny" if deny is not None else "say"
    words = deny if deny is not None else say or ""
    decide_and_tell(ctx, "answer", as_json, question=question, answer=kind, words=words, always=always)


@click.command(epilog="Example:  holdfast ask 'Which of the two formats is the right one?'")
@click.argument("words")
@click.option(
    "--wait",
    "wait_s",
    metavar="SECONDS",
    type=click.FloatRange(0.0, 86_400.0),
    default=100.0,
    show_default=True,
    help="How long to wait for the answer now.",
)
@prints_json
def ask(ctx: click.Context, words: str, wait_s: float, as_json: bool) -> None:
    """For an agent: put a question to a person, and print the answer. It is called in the worktree of a task at work.

    The question waits in `holdfast questions` and on the page. Ends with code 75 while there is no answer: the same
    command, called again, waits on. With code 1 the person does not want to answer, and has said why.
    """
    from holdfast.agents.common import ask_files
    from holdfast.questions.records import WORDS_CHARS_MAX

    folder = os.environ.get(ask_files.FOLDER, "")
    if not folder or not Path(folder).is_dir():
        raise InputError(
            detail="only an agent that Holdfast has started can ask; a person answers, by `holdfast answer`"
        )
    if not words.strip() or len(words) > WORDS_CHARS_MAX:
        raise InputError(detail=f"a question has 1 to {WORDS_CHARS_MAX:,} characters")
    path, deadline = ask_files.put(Path(folder), words), monotonic() + wait_s
    while (found := ask_files.take_answer(path)) is None and monotonic() < deadline:
        time.sleep(LOOK_S)
    if as_json:
        print_json({"answer": found.decision if found else "", "words": found.words if found else ""})
    elif found is None:
        told = (
            "Nobody has answered yet. The question waits: call the same command again, or do something else meanwhile."
        )
        click.echo(told, err=True)
    else:
        click.echo(found.words)
    ctx.exit(NOT_YET if found is None else 0 if found.decision == "say" else DENIED)
