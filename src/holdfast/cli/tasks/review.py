"""`review`: look at a result that waits for approval, comment on its lines, and approve it or send it back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from holdfast.cli.options import complete_task, find_app, print_json, prints_json
from holdfast.cli.tasks.decisions import decide_and_tell
from holdfast.domain.wording import plain, plain_lines, plural
from holdfast.errors import InputError, ReviewEditorFailed, ReviewTextUnfit, TaskUnknown
from holdfast.storage.files import disk

if TYPE_CHECKING:
    from holdfast.domain.reviews.review_text import QuotedFile
    from holdfast.views.reviews import ReviewDiff, ReviewMaterial, Reviews

_VERDICTS = {"a": "approve", "s": "send_back", "d": "draft"}
_FILES_SHOWN_MAX = 300


@click.command(
    epilog="Examples:  holdfast review fix-login  ·  "
    "holdfast review fix-login --send-back -m 'Keep the old message.'  ·  "
    "holdfast review fix-login --json | jq .files  ·  holdfast review fix-login --draft --comments comments.json"
)
@click.argument("task", shell_complete=complete_task)
@click.option("--approve", "verdict", flag_value="approve", help="Let it land.")
@click.option("--send-back", "verdict", flag_value="send_back", help="The agent gets the comments and goes on.")
@click.option("--draft", "verdict", flag_value="draft", help="Keep the comments, and decide later.")
@click.option("--since-review", is_flag=True, help="Only what has changed since your last review.")
@click.option("--message", "-m", default="", metavar="WORDS", help="Words about the whole.")
@click.option(
    "--comments",
    type=click.File("rb"),
    metavar="FILE",
    help="Comments as JSON, without the editor; -: stdin.",
)
@prints_json
def review(
    ctx: click.Context, task: str, verdict: str | None, since_review: bool, message: str, comments: Any, as_json: bool
) -> None:
    """Review a result that waits for your approval.

    Shows the change in your pager, and opens your editor on it in quoted lines, like a mail: write each comment below
    the line that it is about. Then approve, send back, or keep it as a draft. What is sent back costs no attempt: the
    same conversation goes on, and gets each comment with its file and lines.

    With --comments or --message nothing is opened. Comments are a list of `{"path", "line", "last", "side", "words"}`,
    or an object with `summary` and `comments`. With --json and no verdict it prints what there is to review.
    """
    reviews = _reviews(ctx, task)
    material = reviews.material("since" if since_review else "whole")
    if as_json and verdict is None:
        print_json({**msgspec.to_builtins(material), "diffs": _diffs(reviews, material)})
        return
    if comments is not None or message or not sys.stdin.isatty():
        if verdict is None:
            raise click.UsageError("Say one of --approve, --send-back and --draft, or run it in a terminal.")
        summary, given = _given(comments) if comments is not None else ("", [])
        summary = "\n\n".join(filter(None, (message, summary)))
    else:
        summary, given, verdict = _by_hand(reviews, material, verdict)
    asked = {"candidate": material.candidate, "verdict": verdict, "summary": summary, "comments": given}
    decide_and_tell(ctx, "review", as_json, task=task, **asked)
    _kept(reviews, material).unlink_if_there()


def _reviews(ctx: click.Context, name: str) -> Reviews:
    from holdfast import identity
    from holdfast.views.reviews import Reviews

    app = find_app(ctx)
    state = app.read().state
    if name not in state.tasks:
        raise TaskUnknown.among(name, state.tasks)
    return Reviews(app.repo, app.layout, state.tasks[name], app.reader(), identity.user())


def _diffs(reviews: Reviews, material: ReviewMaterial) -> list[ReviewDiff]:
    view: Any = material.view
    return [reviews.diff(each.path, view) for each in material.files[:_FILES_SHOWN_MAX]]


def _given(comments: Any) -> tuple[str, list[Any]]:
    name = getattr(comments, "name", "standard input")
    content = comments.read()
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = f"is not JSON ({error})"
        if not content.strip():
            why = "is empty"
        elif isinstance(error, UnicodeDecodeError):
            why = "is not UTF-8 text"
        elif "truncated" in str(error):
            why = "ends in the middle of its JSON"
        example = '`[{"path": "a.py", "line": 3, "words": "Why?"}]`'
        raise InputError(detail=f"{name} {why}; write a list of comments into it, like {example}") from None
    if isinstance(found, list):
        return "", found
    if not isinstance(found, dict) or set(found) - {"summary", "comments"}:
        raise InputError(detail=f"{name}: a list of comments is needed, or an object with `comments`")
    return str(found.get("summary", "")), found.get("comments", [])


# -- in the editor ----------------------------------------------------------------------------------------------------


class _Kept:
    """The text that was written last, for the same candidate: nothing of it is lost by a mistake or a crash."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8-sig", errors="replace")
        except FileNotFoundError:
            return ""

    def write(self, text: str) -> None:
        disk.mkdir(self.path.parent)
        disk.replace(self.path, text.encode(errors="replace"))

    def unlink_if_there(self) -> None:
        disk.unlink(self.path, missing_ok=True)


def _kept(reviews: Reviews, material: ReviewMaterial) -> _Kept:
    return _Kept(reviews.layout.inside("cache", "reviews", f"{material.task}-{material.candidate[:12]}.txt"))


def _by_hand(reviews: Reviews, material: ReviewMaterial, verdict: str | None) -> tuple[str, list[Any], str]:
    """The pager, then the editor, again after a mistake; then the question."""
    from holdfast.domain.reviews.review_text import ReviewTextProblem, parse, render

    files, kept = _quoted_files(reviews, material), _kept(reviews, material)
    draft = reviews.task.reviews.draft_of(reviews.by)
    text = kept.read()
    if text:
        click.echo(f"It goes on with the text that was kept in {plain(str(kept.path))}", err=True)
    else:
        drafted = (draft.summary, draft.comments) if draft else ("", ())
        text = render(_title(material), files, *drafted)
    click.echo_via_pager(_shown(material, files))
    while True:
        text = _edited(material.task, text, kept)
        try:
            summary, comments = parse(text, files)
        except ReviewTextProblem as problem:
            unfit = ReviewTextUnfit(task=material.task, line=problem.line, reason=problem.reason, path=kept.path)
            click.echo(plain(str(unfit)), err=True)
            again = "Edit it again? [y]es opens the editor on your text, [n]o leaves it for later, [x] discards it"
            if (chosen := _chosen(again, "ynx", "y")) == "n":
                raise unfit from None
            if chosen == "x":
                _discard(kept)
            continue
        if verdict is not None:
            return summary, msgspec.to_builtins(comments), verdict
        words = plural(len(comments), "comment") + (" and a summary" if summary else "")
        question = f"{words}. [a]pprove, [s]end back, keep as [d]raft, [e]dit again, [x] discard"
        if (chosen := _chosen(question, "asdex", "d")) in _VERDICTS:
            return summary, msgspec.to_builtins(comments), _VERDICTS[chosen]
        if chosen == "x":
            _discard(kept)


def _edited(task: str, text: str, kept: _Kept) -> str:
    """The text as the editor has left it. It edits the kept file itself: what it saves stays, however it ends."""
    kept.write(text)
    try:
        click.edit(filename=str(kept.path))
    except click.ClickException as error:
        saved = f"what it saved is kept in {kept.path}"
        if kept.read() == text:
            saved = "it saved nothing new"
        detail = f"Your editor did not end well ({error.message})"
        raise ReviewEditorFailed(task=task, detail=plain(detail), kept=plain(saved)) from None
    edited = kept.read() or text
    kept.write(edited)
    return edited


def _chosen(question: str, letters: str, default: str) -> str:
    chosen: str = click.prompt(question, type=click.Choice(list(letters)), show_choices=False, default=default)
    return chosen


def _discard(kept: _Kept) -> NoReturn:
    kept.unlink_if_there()
    click.echo("Discarded. Nothing was submitted; a draft that was kept before is as it was.", err=True)
    raise click.exceptions.Exit(0)


def _quoted_files(reviews: Reviews, material: ReviewMaterial) -> list[QuotedFile]:
    from holdfast.domain.reviews.hunks import hunks
    from holdfast.domain.reviews.review_text import QuotedFile, words_of

    found = []
    for number, each in enumerate(material.files):
        words = words_of(each.status, each.added, each.removed, each.old_path)
        view: Any = material.view
        patch = reviews.diff(each.path, view).patch if number < _FILES_SHOWN_MAX else ""
        found.append(QuotedFile(each.path, words, hunks(patch)))
    return found


def _title(material: ReviewMaterial) -> str:
    return plain(f"Review of {material.task}: {material.candidate[:12]} by {material.attempt}, {material.view}")


def _shown(material: ReviewMaterial, files: list[QuotedFile]) -> str:
    """What the pager shows: why it waits, what was said last and what became of it, and the change."""
    lines = [_title(material), ""]
    if material.why:
        lines += [f"It waits because {plain(material.why)}.", ""]
    lines += [f"The agent has resolved a merge conflict in {plain(path)}." for path in material.resolved]
    if material.last is not None and material.since:
        lines += [f"Your comments on {material.last.candidate[:12]}:"]
        for each in material.last.comments:
            what = "changed since" if each.touched else "not changed since"
            lines.append(f"  [{what}] {plain(each.path)}:{each.line}  {' '.join(each.words.split())[:200]}")
        lines.append("")
    for file in files:
        lines.append(f"=== {plain(file.path)} ({file.words})")
        for hunk in file.hunks:
            lines += [hunk.header, *(f"{line.kind}{line.text}" for line in hunk.lines)]
        lines.append("")
    return plain_lines("\n".join(lines))
