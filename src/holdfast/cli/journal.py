"""`holdfast history` and `holdfast log`: the journal, read as it stands on disk.

Both take no lock and write nothing, so they work while somebody else runs. They stream: memory does not grow with the
journal. Good entries are printed before damage is reported, and what a crash tore is noted on standard error.
"""

from __future__ import annotations

import contextlib
import difflib
import fnmatch
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import click
import msgspec

from holdfast.cli.options import complete_task, find_app, prints_json
from holdfast.cli.screen.terminal import Printer, local_time, moment, printing, wait_for_reader
from holdfast.domain.entries import PAYLOADS
from holdfast.domain.state import State
from holdfast.domain.wording import plain, plural
from holdfast.errors import BlobCorrupt, BlobMissing, NoSuchEntry, NotABlobId, TaskUnknown
from holdfast.landing.gate_results import output_of_verdict
from holdfast.layout import Layout
from holdfast.ports import LedgerReader
from holdfast.storage.journal.data_root import read_root
from holdfast.storage.journal.entry import Entry, encode
from holdfast.storage.journal.writer import epoch_of, is_run_id
from holdfast.storage.records.blobs import Blobs
from holdfast.views import as_of, story
from holdfast.views.concerns import Concerns
from holdfast.views.rows import print_problems

POLL_S = 0.2
SHOWS_ALL = "`holdfast list` shows all."
_DIGITS_MAX = 20
# A stream does not know its widest cells: what most stories stay within.
_WIDE = ["", "1000:1000", "holdfast", ""]
_GOOD, _BAD = ("_closed", "_confirmed", "_done"), ("_failed", "_parked", "_abandoned", "_orphaned")
Item = tuple[str, Entry]
Filter = Callable[[str, Entry], bool]


@click.command(epilog="Examples:  holdfast history fix-login  ·  holdfast history fix-login --json | jq -r .what")
@click.argument("task", shell_complete=complete_task)
@click.option("--definitions", is_flag=True, help="Also print the task's definition as it was each time it changed.")
@prints_json
def history(ctx: click.Context, task: str, definitions: bool, as_json: bool) -> None:
    """Tell a task's whole story from the journal, oldest first.

    A task whose file no run has taken in yet has an empty story. With --json, one JSON object per line and entry.
    """
    layout, journal = _reader(ctx)
    known, concerns, is_known, blobs = set[str](), Concerns(task), False, Blobs(layout.cas)
    with printing() as printer, _torn_noted(journal):
        printer.reserve(_WIDE)
        for run, entry in journal.read():
            if entry.decision_type == "task_added":
                known.add(story.task_of(entry))
            if concerns(run, entry):
                is_known = True
                _print_with_facts(printer, run, entry, blobs, as_json, definitions=definitions)
    if not is_known and not _explain_no_story(layout, task):
        raise TaskUnknown(task=task, hint=_near(task, known, SHOWS_ALL))


@click.command(
    epilog="Examples:  holdfast log -n 20  ·  holdfast log --follow --task fix-login  ·  holdfast log --at 3:17"
)
@click.option("--run", metavar="RUN", help="Only this run: its id, or its epoch's number.")
@click.option("--type", "types", multiple=True, metavar="GLOB", help="Only such types, such as 'task_*'. Repeatable.")
@click.option("--task", metavar="TASK", shell_complete=complete_task, help="Only what concerns this task.")
@click.option("--actor", metavar="ACTOR", help="Only what this actor wrote.")
@click.option("--since", callback=moment, metavar="TIME", help="Only from this time on.")
@click.option("--until", callback=moment, metavar="TIME", help="Only up to this time.")
@click.option("-n", "count", type=click.IntRange(min=0), metavar="N", help="Only the last N.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new entries as they come, until Ctrl-C.")
@click.option("--at", metavar="RUN:SEQ|TIME", help="Show the task graph as it was then instead.")
@prints_json
def log(
    ctx: click.Context,
    run: str | None,
    types: tuple[str, ...],
    task: str | None,
    actor: str | None,
    since: float | None,
    until: float | None,
    count: int | None,
    follow: bool,
    at: str | None,
    as_json: bool,
) -> None:
    """Show the journal, filtered, followed, or as of a moment.

    TIME is an ISO time (local unless it names a zone), Unix seconds, or how long ago: 2h, 10m, 1d12h. With --json, the
    journal's own lines, one JSON object each.
    """
    if at is not None:
        if follow or types or any(given is not None for given in (run, actor, since, until, count)):
            raise click.UsageError("--at shows one moment; of the other options only --task and --json go with it.")
        return _show_as_of(ctx, at, task, as_json)
    layout, journal = _reader(ctx)
    concerns = None if task is None else Concerns(task)
    wanted = _filter(journal, run, types, concerns, actor, since=since, until=until)
    with printing() as printer:
        printer.reserve(["", "", max(PAYLOADS, key=len), "", "", ""])
        with _torn_noted(journal, still_written=follow):
            for item in _last(_matching(journal.read(), wanted), count):
                _print(printer, *item, as_json)
        printer.flush()
        if task is not None and concerns is not None and not concerns.is_known and not _explain_no_story(layout, task):
            added = {story.task_of(entry) for _, entry in journal.read() if entry.decision_type == "task_added"}
            click.echo(f"holdfast: there is no task {plain(task)!r}: {_near(task, added, SHOWS_ALL)}", err=True)
        _warn_unknown_types(types)
        while follow and wait_for_reader(POLL_S):
            with _torn_noted(journal, still_written=True):
                for item in _matching(journal.read(journal.end), wanted):
                    _print(printer, *item, as_json)
    return None


def _reader(ctx: click.Context) -> tuple[Layout, LedgerReader]:
    app = find_app(ctx)
    app.expect_initialised()
    return read_root(app.layout.root), app.reader()


def _explain_no_story(layout: Layout, task: str) -> bool:
    """Prints why a task with a file has no story yet; False where no file names the task."""
    # The reader of YAML is loaded only for a task that is not in the journal.
    from holdfast.backlog.folder import Backlog

    scan = Backlog(layout.backlog).scan()
    problems = [each for each in scan.problems if task in each.tasks]
    if task in scan.tasks or task in scan.moved:
        click.echo(f"{plain(task)} has no story yet: the next run takes its file in", err=True)
    elif problems:
        click.echo(f"{plain(task)} has no story yet, and no run takes it in while its file has a problem", err=True)
    print_problems(layout, problems)
    return task in scan.tasks or task in scan.moved or bool(problems)


# -- choosing ---------------------------------------------------------------------------------------------------------


def _filter(
    journal: LedgerReader,
    run: str | None,
    types: Sequence[str],
    concerns: Concerns | None,
    actor: str | None,
    since: float | None,
    until: float | None,
) -> list[Filter]:
    """One test for each option given."""
    tests: list[Filter] = []
    if concerns is not None:
        # First, because it must see every entry: a closing is known by the intent that it closes.
        tests.append(concerns)
    if run is not None:
        named = _run_named(journal, run)
        tests.append(lambda found, entry: found == named)
    if types:
        tests.append(lambda found, entry: any(fnmatch.fnmatchcase(entry.decision_type, glob) for glob in types))
    if actor is not None:
        tests.append(lambda found, entry: entry.actor == actor)
    if since is not None:
        tests.append(lambda found, entry: entry.timestamp >= since)
    if until is not None:
        tests.append(lambda found, entry: entry.timestamp <= until)
    return tests


def _warn_unknown_types(globs: Sequence[str]) -> None:
    for glob in globs:
        if not any(fnmatch.fnmatchcase(kind, glob) for kind in PAYLOADS):
            hint = f"; {near}" if (near := _near(glob, PAYLOADS)) else ""
            click.echo(f"holdfast: this Holdfast writes no entry of a type {plain(glob)!r}{hint}", err=True)


def _matching(items: Iterator[Item], tests: list[Filter]) -> Iterator[Item]:
    return (item for item in items if all(test(*item) for test in tests)) if tests else items


def _last(items: Iterator[Item], count: int | None) -> Iterator[Item]:
    """The last so many; all of them when no number is given. What was good before damage counts."""
    if count is None:
        yield from items
        return
    kept: deque[Item] = deque(maxlen=min(count, sys.maxsize))
    try:
        kept.extend(items)
    finally:
        yield from kept


def _run_named(journal: LedgerReader, name: str) -> str:
    """The run of that id, or of that epoch."""
    for run in journal.runs():
        if name == run or _number(name) == epoch_of(run):
            return run
    raise NoSuchEntry(what=f"run {name!r}", wal=journal.place)


def _number(text: str) -> int:
    """The number that a text is, or -1. One with more digits than any entry or epoch has is none."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS_MAX else -1


# -- printing ---------------------------------------------------------------------------------------------------------


def _print(printer: Printer, run: str, entry: Entry, as_json: bool) -> None:
    if as_json:
        # The very bytes of the journal: it was written by the same encoder, from the same values in the same order.
        printer.entry(encode(entry))
        return
    kind = entry.decision_type
    is_good, is_bad = kind.endswith(_GOOD), kind.endswith(_BAD)
    cells = [local_time(entry.timestamp), f"{run}:{entry.seq}", kind, story.task_of(entry) or "-", entry.actor]
    colours = ["bright_black", "bright_black", "green" if is_good else "red" if is_bad else None, "cyan"]
    printer.columns([*cells, story.log_words(entry)], colours)


def _print_with_facts(printer: Printer, run: str, entry: Entry, blobs: Blobs, as_json: bool, definitions: bool) -> None:
    pinned = story.definition_of(entry)
    text = _text_of(blobs, pinned) if definitions and pinned else None
    verdict = entry.output.get("verdict") if entry.decision_type == "task_verify_confirmed" else None
    output = output_of_verdict(blobs, verdict) if isinstance(verdict, str) else []
    if as_json:
        more: dict[str, object] = {} if text is None else {"definition_text": text}
        more |= {"gate_output": output} if output else {}
        printer.line(encode({**story.facts_of(run, entry), **more}))
        return
    # As `log --at` takes it: the run's number and the entry's.
    cells = [local_time(entry.timestamp), f"{epoch_of(run)}:{entry.seq}", entry.actor]
    printer.columns([*cells, story.log_words(entry)], ["bright_black", "bright_black"])
    if text is not None:
        printer.text(text.rstrip("\n"), "    | ")
    for line in output:
        printer.text(line, "    | ")


def _text_of(blobs: Blobs, digest: str) -> str:
    try:
        return blobs.get(digest).decode(errors="backslashreplace")
    except (BlobMissing, BlobCorrupt, NotABlobId) as error:
        return f"({error})"


@contextlib.contextmanager
def _torn_noted(journal: LedgerReader, *, still_written: bool = False) -> Iterator[None]:
    """Notes what a crash tore, once it was read. The last of a living run may just be half written: no note of that."""
    yield
    newest = journal.runs()[-1:] if still_written else []
    for torn in journal.torn:
        if torn.run not in newest:
            where = f"the end of run {torn.run}, {plural(torn.length, 'byte')} from byte {torn.offset} on"
            click.echo(f"holdfast: {where}, is no whole entry: never acknowledged, kept as it is, skipped.", err=True)


def _near(word: str, known: Iterable[str], otherwise: str = "") -> str:
    close = difflib.get_close_matches(word, sorted(known), 3)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else otherwise


# -- as of a moment ---------------------------------------------------------------------------------------------------


def _show_as_of(ctx: click.Context, at: str, task: str | None, as_json: bool) -> None:
    layout, journal = _reader(ctx)
    state, run, entry = _folded(ctx, journal, at)
    if task is not None and task not in state.tasks:
        raise TaskUnknown(task=task, hint=_near(task, state.tasks, SHOWS_ALL))
    found = as_of.graph_of(state, run, entry, layout, lambda name: task in (None, name))
    with printing() as printer:
        if as_json:
            printer.line(msgspec.json.encode(found))
        else:
            _print_rows(printer, found)


def _folded(ctx: click.Context, journal: LedgerReader, at: str) -> tuple[State, str, Entry]:
    run, colon, seq = at.rpartition(":")
    # A time has a colon too, but none has six digits or only digits before it.
    if colon and _number(seq) >= 0 and (_number(run) >= 0 or is_run_id(run)):
        named = _run_named(journal, run)
        found = as_of.at_entry(journal, named, _number(seq))
        if found is None:
            raise NoSuchEntry(what=f"entry {_number(seq)} of run {named}", wal=journal.place)
        return found
    unix_s = moment(ctx, next(option for option in ctx.command.params if option.name == "at"), at)
    assert unix_s is not None
    found = as_of.at_moment(journal, unix_s)
    if found is None:
        raise NoSuchEntry(what=f"entry as old as {local_time(unix_s)}", wal=journal.place)
    return found


def _print_rows(printer: Printer, found: as_of.AsOf) -> None:
    printer.text(f"as of {found.run}:{found.seq}, {local_time(found.timestamp)}", "")
    rows = [["TASK", "STATE", "ATTEMPTS", "SINCE", "DEPENDS ON", "TITLE"]]
    for row in found.tasks:
        title = " · ".join(part for part in (row.title, "; ".join(row.waits)) if part)
        since, needs = local_time(row.changed_at), " ".join(row.depends_on) or "-"
        rows.append([row.id, f"{row.state}", str(row.attempts), since, needs, title])
    printer.reserve(*rows)
    for number, cells in enumerate(rows):
        printer.columns(cells, ["cyan"] if number else [])
