"""`add` and `edit`: they write definitions and nothing else. They begin no run: also while somebody else works."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from holdfast.backlog.folder import Backlog
from holdfast.backlog.scanner import FoundFile
from holdfast.cli.options import complete_task, find_app, print_json, print_notice, prints_json
from holdfast.cli.tasks.add_checks import expect_usable, print_added, print_edited, warn_without_gates
from holdfast.domain.definition import Definition, find, parse, problems_of, render
from holdfast.domain.file_problem import FileProblem
from holdfast.domain.task import OVER, TaskState
from holdfast.domain.task_ids import free_id, from_values, words_of
from holdfast.errors import (
    AlreadyExists,
    DefinitionInvalid,
    DiskError,
    FileMissing,
    HoldfastError,
    InputError,
    TaskExists,
    TaskIsFinal,
    TaskUnknown,
)
from holdfast.storage.journal.data_root import expect_repository
from holdfast.views.rows import Overview, read_overview

if TYPE_CHECKING:
    from holdfast.app import App

F = TypeVar("F", bound=Callable[..., Any])

STDIN = "standard input"
_ENDINGS = (".yaml", ".yml")
# In this order they are written to a new file. The names are the definition's keys.
_OPTIONS = (
    click.option("--title", help="A line that names it."),
    click.option("--goal", help="What is to be done, in words; may have several lines."),
    click.option("--role", help="Which role takes it on."),
    click.option("--priority", type=int, help="1 comes before 2."),
    click.option(
        "--depends-on", multiple=True, metavar="TASK", shell_complete=complete_task,
        help="Begin once this task is closed; repeatable.",
    ),
    click.option(
        "--on-dependency-failed", type=click.Choice(["wait", "cancel"]),
        help="When such a task fails or is cancelled: wait for you, or be cancelled, too.",
    ),
    click.option("--parent", metavar="TASK", shell_complete=complete_task, help="The task that this one is a part of."),
    click.option("--agent", help="Which agent works on it."),
    click.option("--model", help="Which model that agent uses."),
    click.option("--command", help="A command that does the work, in place of an agent."),
    click.option("--script", metavar="STEPS", help="What the scripted agent does, a step on each line."),
    click.option("--sandbox", metavar="KIND", help="The sandbox of the agent: auto, bwrap or none."),
    click.option(
        "--land", type=click.Choice(["merge", "pull_request"]), help="How its result lands: here, or by pull request."
    ),
    click.option(
        "--permissions", type=click.Choice(["skip", "edits", "own", "ask"]),
        help="What its agent does unasked; rules for single calls go into its file.",
    ),
    click.option("--budget-usd", type=float, help="What it may cost at most."),
    click.option("--budget-tokens", type=int, help="How many tokens it may use at most."),
    click.option("--budget-turns", type=int, help="How many turns it may take at most."),
    click.option("--budget-seconds", type=float, help="How many seconds of work it may take at most."),
    click.option("--max-attempts", type=int, help="How often it may be tried."),
    click.option("--max-resumes", type=int, help="How often an attempt may be continued after a crash."),
    click.option("--timeout-s", type=float, help="How long one attempt may take."),
    click.option("--subtask-timeout-s", type=float, help="How long it may wait for its subtasks."),
    click.option("--path", "paths", multiple=True, help="A rule for the paths that the work may change; repeatable."),
    click.option("--verify", multiple=True, metavar="COMMAND", help="A check that must pass; repeatable."),
    click.option("--approve/--no-approve", default=None, help="A person must see the result before it lands."),
    click.option(
        "--may-change-nothing/--must-change-something", default=None,
        help="A question or a review: closed with its answer where nothing was changed.",
    ),
    click.option("--not-before", metavar="TIME", help="An ISO time such as 2030-01-31T12:00:00Z, or Unix seconds."),
    click.option("--label", "labels", multiple=True, help="A label to filter tasks by; repeatable."),
    click.option("--forked-from", metavar="ATTEMPT@TURN", help="Begin with the tree that this turn left."),
    click.option("--context", multiple=True, metavar="KEY=VALUE|JSON", help="A fact for the prompt; repeatable."),
)  # fmt: skip


def definition_options(command: F) -> F:
    """The options that give a definition's values, alike for `add` and `edit`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class Text(msgspec.Struct, frozen=True):
    """A definition as it was given. `place` names the file, and is empty for options.

    `words` are what its id was made of; empty where it was given.
    """

    place: str
    content: bytes
    made: Definition
    words: str = ""


@click.command(
    epilog="Examples:  holdfast add 'Fix the login' --verify 'pytest -q'  ·  holdfast add tasks/*.yaml  ·  "
    "holdfast add - < task.yaml"
)
@click.argument("given", nargs=-1, metavar="[GOAL | FILE...]")
@click.option("--id", "name", help="The task's id; without one it is made of the title or the goal.")
@definition_options
@prints_json
def add(ctx: click.Context, /, given: tuple[str, ...], name: str | None, as_json: bool, **options: Any) -> None:
    """Add a task: a goal in words, files, or - for standard input.

    A FILE exists and ends in .yaml or .yml; anything else is the goal. Only the task's file is written; the next run
    takes it in. With several files, all are added or, if one has a problem, none. In a pipe only the paths of the files
    are printed.
    """
    app = find_app(ctx)
    overview = _overview_for_writing(app)
    files, options["goal"] = _files_or_goal(given, options["goal"])
    values = _given(options)
    expect_usable(app, options)
    if options["goal"] is not None and not options["goal"].strip():
        raise InputError(detail='the goal is empty; say what is to be done, as in `holdfast add "Fix the login"`')
    if files and (values or (name and files != ("-",))):
        raise InputError(detail="give options or files, not both; only --id goes with -")
    if not files and not values and not name and not sys.stdin.isatty():
        files = ("-",)
    taken = overview.taken
    texts = [_from_file(file, taken, name) for file in files] or [_from_options(name, values, taken)]
    _expect_new(overview, texts)
    _expect_sound(overview, texts)
    added = [_create(overview.view.backlog, text, taken) for text in texts]
    if as_json:
        print_json([{"id": each.definition.id, "file": str(each.path)} for each in added])
    else:
        print_added(app, added)
        warn_without_gates(app, [each.definition for each in added])


def _files_or_goal(given: tuple[str, ...], goal: str | None) -> tuple[tuple[str, ...], str | None]:
    """The files that were given, or the goal. What could be a mistyped file is refused rather than made a goal."""
    words = [each for each in given if each != "-" and not (each.endswith(_ENDINGS) and os.path.exists(each))]
    if not words:
        return given, goal
    for word in words:
        if os.path.exists(word):
            raise InputError(detail=f"{word} is no task file: its name does not end in .yaml or .yml")
        if word.endswith(_ENDINGS) and not any(map(str.isspace, word)):
            raise InputError(detail=f"there is no file {word}; a goal of this name is given with --goal")
    if len(given) > len(words):
        raise InputError(detail="give a goal or files, not both")
    if len(words) > 1:
        raise InputError(detail=f'give the goal in quotes, as in `holdfast add "{" ".join(words)}"`')
    if goal is not None:
        raise InputError(detail="the goal is given twice, by itself and with --goal")
    return (), words[0]


def add_goal(app: App, goal: str) -> str:
    """Adds a task from words alone, and returns its id."""
    overview = _overview_for_writing(app)
    taken = overview.taken
    return _create(overview.view.backlog, _from_options(None, {"goal": goal}, taken), taken).definition.id


@click.command(
    epilog="Examples:  holdfast edit fix-login --priority 1 --label urgent  ·  holdfast edit fix-login  ·  "
    "holdfast edit fix-login --file new.yaml"
)
@click.argument("task", shell_complete=complete_task)
@click.argument("source", required=False, metavar="[-]")
@click.option("--file", help="The whole new text of the task's file; - is standard input.")
@definition_options
@prints_json
def edit(ctx: click.Context, /, task: str, source: str | None, file: str | None, as_json: bool, **options: Any) -> None:
    """Change a task's definition, by options or in your editor.

    Options change only their own keys; all else in the file stays, comments too. An empty value takes a key out. An
    edit of a task that is being worked on counts for its next attempt.
    """
    app = find_app(ctx)
    overview = _overview_for_writing(app)
    _expect_editable(overview, task)
    expect_usable(app, {key: options[key] for key in ("agent", "sandbox", "script")})
    values, file = _given(options, keep_empty=True), file or source
    if file and values:
        raise InputError(detail="give options or a file, not both")
    if not (file or values or (sys.stdin.isatty() and sys.stdout.isatty())):
        raise InputError(detail="say what to change: options, --file, or run it in a terminal to use your editor")
    path = _edit_by_options(overview, task, values) if values else _edit_whole(overview, task, file)
    if as_json:
        print_json({"id": task, "file": str(path or overview.files[task].path), "changed": path is not None})
    else:
        print_edited(task, path)


def _edit_by_options(overview: Overview, task: str, values: Mapping[str, Any]) -> Path:
    """Changes the file as it is when this command has its turn: another may have changed other keys meanwhile."""

    def changed(found: FoundFile, text: bytes) -> bytes:
        if found.folder == "closed":
            told = str((found.definition.result or {}).get("state"))
            raise TaskIsFinal(task=task, state=TaskState(told) if told in TaskState.__members__ else TaskState.CLOSED)
        from holdfast.backlog.yaml_edit import edited

        return _judged_text(overview, edited(text, found.definition, found.path.stem, values), found, "")

    return overview.view.backlog.change(task, changed).path


def _edit_whole(overview: Overview, task: str, file: str | None) -> Path | None:
    """Replaces the text that was read, and no other: what somebody else wrote meanwhile is not undone."""
    backlog = overview.view.backlog
    found, before = backlog.read(task)

    def save(text: bytes, place: str) -> Path:
        return backlog.edit(task, _judged_text(overview, text, found, place), found.digest).path

    return save(_read(file), STDIN if file == "-" else file) if file else _edit_by_hand(before.decode(), save)


def _judged_text(overview: Overview, text: bytes, found: FoundFile, place: str) -> bytes:
    _expect_sound(overview, [Text(place, text, _parsed(text, found.path.stem, place))])
    return text


def _overview_for_writing(app: App) -> Overview:
    """Reads the overview before a file is written, and refuses the data root of another repository."""
    app.expect_initialised()
    expect_repository(app.layout, app.repo)
    return read_overview(app)


def _create(backlog: Backlog, text: Text, taken: set[str]) -> FoundFile:
    """Creates the file. Where another was quicker with the same id, the next that is free is made of the words."""
    while True:
        name = text.made.id
        try:
            return backlog.add(text.content, name)
        except (TaskExists, AlreadyExists) as error:
            if not text.words:
                raise TaskExists(task=name, path=error.path) from error
        taken.add(name)
        made = msgspec.structs.replace(text.made, id=free_id(text.words, taken))
        text = msgspec.structs.replace(text, made=made, content=text.content if text.place else render(made))


# -- from options -----------------------------------------------------------------------------------------------------


def _given(options: Mapping[str, Any], *, keep_empty: bool = False) -> dict[str, Any]:
    """The values that were given, by the definition's keys. None stands for a key that is to go."""
    given: dict[str, Any] = {}
    for key, value in options.items():
        if value is None or value == ():
            continue
        kept: Any = [each for each in value if each] if isinstance(value, tuple) else value
        if key == "context":
            kept = _context(kept)
        if key == "not_before" and re.fullmatch(r"\d+(\.\d+)?", kept):
            kept = float(kept)
        if isinstance(kept, float) and not math.isfinite(kept):
            raise InputError(detail=f"{key} must be a finite number, not {kept}")
        if kept not in ("", [], {}):
            given[key] = kept
        elif keep_empty:
            given[key] = None
    return given


def _context(texts: list[str]) -> dict[str, Any]:
    """Reads KEY=VALUE, where the value is text whatever it looks like, or a mapping in JSON."""
    context: dict[str, Any] = {}
    for text in texts:
        key, is_pair, value = text.partition("=")
        try:
            context |= msgspec.json.decode(text, type=dict[str, Any]) if text.startswith("{") else {key: value}
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise InputError(detail=f"--context {text!r} begins as JSON, and is none: {error}") from error
        if not text.startswith("{") and not (key and is_pair):
            raise InputError(detail=f"--context {text!r} is neither KEY=VALUE nor a mapping in JSON")
    return context


def _from_options(name: str | None, values: dict[str, Any], taken: Collection[str]) -> Text:
    words = words_of(values)
    made = from_values({"id": name or free_id(words, taken), **values})
    return Text("", render(made), made, "" if name else words or "task")


# -- from files -------------------------------------------------------------------------------------------------------


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    from holdfast.storage.files import disk

    try:
        with disk.reading(Path(file)):
            return Path(file).read_bytes()
    except FileMissing:
        raise InputError(detail=f"there is no file {file}") from None
    except DiskError as error:
        raise InputError(detail=f"{file} cannot be read: {error.reason}") from error


def _from_file(file: str, taken: Collection[str], name: str | None = None) -> Text:
    content, place = _read(file), STDIN if file == "-" else file
    made = _parsed(content, name or ("task" if file == "-" else Path(file).stem), place)
    if name:
        if made.id != name:
            raise InputError(detail=f"{place} gives itself the id {made.id!r}, not {name!r}: leave one of them out")
        return Text(place, content, made)
    if file == "-" and made.id != _parsed(content, "another", place).id:
        # It gives itself no id, and there is no file name: it is called by what it says.
        words = made.title or made.goal or str(made.command or "") or "task"
        return Text(place, content, msgspec.structs.replace(made, id=free_id(words, taken)), words)
    return Text(place, content, made)


def _parsed(content: bytes, stem: str, place: str) -> Definition:
    made = parse(content, stem)
    if isinstance(made, Definition):
        return made
    raise _invalid(place, made)


def _invalid(place: str, problems: list[FileProblem]) -> InputError:
    if not place:
        # Without the lines: options have none.
        return InputError(detail="; ".join(each.message for each in problems))
    return DefinitionInvalid(name=place, problems="; ".join(f"line {each.line}: {each.message}" for each in problems))


# -- in the editor ----------------------------------------------------------------------------------------------------


def _edit_by_hand(text: str, save: Callable[[bytes, str], Path]) -> Path | None:
    """Opens the editor, again after a mistake; gives up only when told to, and then shows what was written."""
    edited = click.edit(text, extension=".yaml")
    while edited is not None and edited != text:
        try:
            return save(edited.encode(), "your text")
        except HoldfastError as error:
            print_notice(str(error))
            if not click.confirm("Edit it again?", default=True):
                click.echo(edited)
                raise
        edited = click.edit(edited, extension=".yaml") or edited
    return None


# -- what must hold before anything is written ------------------------------------------------------------------------


def _expect_new(overview: Overview, texts: list[Text]) -> None:
    places: dict[str, str] = {}
    for text in texts:
        name = text.made.id
        if name in places:
            raise InputError(detail=f"{places[name]} and {text.place} both give the task {name!r}")
        places[name] = text.place
        if name in overview.rows:
            raise TaskExists(task=name, path=overview.rows[name].file or overview.view.layout.backlog)


def _expect_editable(overview: Overview, task: str) -> None:
    if task not in overview.files:
        problems = [each for each in overview.problems if task in each.tasks]
        if problems:
            raise _invalid(str(overview.view.layout.backlog / problems[0].file), problems)
        raise TaskUnknown.among(task, overview.rows)
    state = overview.rows[task].state
    if state in OVER:
        raise TaskIsFinal(task=task, state=state)


def _expect_sound(overview: Overview, texts: list[Text]) -> None:
    """Refuses an unknown dependency or a cycle. Files written by hand may come in any order, and are not refused."""
    new = {text.made.id: text for text in texts}
    others = [(name, file.definition) for name, file in overview.files.items() if name not in new]
    broken = {task for problem in overview.problems for task in problem.tasks} - overview.files.keys()
    for problem in problems_of([*others, *((name, text.made) for name, text in new.items())], broken):
        mine = next((new[name] for name in problem.tasks if name in new), None)
        if mine is not None:
            line = find(mine.content, problem.key)[0]
            raise _invalid(mine.place, [msgspec.structs.replace(problem, line=line)])
