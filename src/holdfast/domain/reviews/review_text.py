"""The text in which a person writes a review: the diff in quoted lines, like a mail, and comments below the lines.

What stands in front of the first quoted line is about the whole. Quoted lines must stay as they are, because they say
where a comment belongs: whole files and hunks, and the end of a hunk, may be deleted. White space at the end of a line
does not count, because editors remove it. A line of a person's own that begins with ">" is written with a blank in
front of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.domain.reviews.hunks import Hunk
from holdfast.domain.reviews.review_records import CommentText, ReviewComment, Side, name_words

QUOTE = "> "
# Beyond this a file's diff is left out of the text; its name stays, and can be commented on.
FILE_LINES_MAX, LINES_MAX = 3_000, 30_000
_RANGE = re.compile(r"\[(\d{1,4}) lines?\][ \t]*\n?")
HEAD = """\
# {title}
#
# Write a comment below the line that it is about. Leave the lines that begin with ">" as they are; files, hunks and
# the end of a hunk may be deleted. A comment that begins with "[3 lines]" is about the last three lines above it, one
# below the name of a file about all of it. Words between here and the first quoted line are about the whole.
# The lines of this block that begin with "#" are left out. A line of your own that begins with ">" or "#" needs a
# blank in front of it.

"""


class QuotedFile(NamedTuple):
    """One file of the text: its name, how it changed, in words, and its hunks."""

    path: str
    words: str
    hunks: Sequence[Hunk]


class _Line(NamedTuple):
    """A quoted line. `level`: 2 begins a file, 1 a hunk, 0 is a line of one."""

    text: str
    level: int
    path: str
    side: Side = "new"
    number: int = 0


class ReviewTextProblem(Exception):
    """The text cannot be read as a review: at which line, and why. The caller says where it is kept."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line, self.reason = line, reason


def render(
    title: str, files: Sequence[QuotedFile], summary: str = "", comments: Sequence[ReviewComment | CommentText] = ()
) -> str:
    """The text to edit, with the comments of a draft at their places; those without a place stand at the top."""
    placed: dict[tuple[str, Side, int], list[str]] = {}
    for each in comments:
        last = max(each.last, each.line)
        count = last - each.line + 1
        words = f"[{count} lines] {each.words}" if each.line and count > 1 else each.words
        placed.setdefault((each.path, "new" if not each.line else each.side, last), []).append(words)
    body: list[str] = []
    for line in _quoted(files):
        body.append(f"{QUOTE}{line.text}".rstrip())
        if line.level == 1:
            continue
        for words in placed.pop((line.path, line.side, line.number), ()):
            body += ["", *_set_apart(words.strip("\n")).split("\n"), ""]
    lost = [
        f"{name_words(path)}, line {number}: {words}" for (path, _, number), each in placed.items() for words in each
    ]
    top = _set_apart("\n\n".join(filter(None, [summary.strip(), *lost])))
    return HEAD.format(title=title) + (f"{top}\n\n" if top else "") + "\n".join(body) + "\n"


def parse(text: str, files: Sequence[QuotedFile]) -> tuple[str, tuple[CommentText, ...]]:
    """The summary and the comments of an edited text. Raises ReviewTextProblem."""
    expected, at = _quoted(files), -1
    summary: list[str] = []
    made: list[CommentText] = []
    words: list[str] = []
    begun = 1
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith(">"):
            if at >= 0:
                begun = begun if any(map(str.strip, words)) else number
                words.append(line)
            elif not line.startswith("#"):
                summary.append(line)
            continue
        made += _comment(words, expected, at, begun)
        words = []
        at = _next(expected, at, line, number)
    made += _comment(words, expected, at, begun)
    return _own("\n".join(summary).strip("\n").rstrip()), tuple(made)


# A person's own line that would be taken for a quoted one, or for one to leave out.
_APART, _OWN = re.compile(r"^(?= *[>#])", re.MULTILINE), re.compile(r"^ (?= *[>#])", re.MULTILINE)


def _set_apart(words: str) -> str:
    return _APART.sub(" ", words)


def _own(words: str) -> str:
    """The words as they were before they were set apart."""
    return _OWN.sub("", words)


def _quoted(files: Sequence[QuotedFile]) -> list[_Line]:
    found: list[_Line] = []
    for file in files:
        found.append(_Line(f"File: {name_words(file.path)} ({file.words})", 2, file.path))
        count = sum(len(hunk.lines) for hunk in file.hunks)
        if count > FILE_LINES_MAX or len(found) + count > LINES_MAX:
            found.append(_Line(f"({count} lines are not shown here; `holdfast diff` has them)", 1, file.path))
            continue
        for hunk in file.hunks:
            found.append(_Line(_shown(hunk.header), 1, file.path))
            for line in hunk.lines:
                side: Side = "old" if line.kind == "-" else "new"
                number = line.old if line.kind == "-" else line.new
                found.append(_Line(f"{line.kind}{_shown(line.text)}", 0, file.path, side, number))
    return found


def _next(expected: Sequence[_Line], at: int, line: str, number: int) -> int:
    """The place of a quoted line: the next one, or the beginning of a later hunk of the file, or of a later file."""
    text = line.removeprefix(">").removeprefix(" ").rstrip()
    path = expected[at].path if at >= 0 else ""
    for place in range(at + 1, len(expected)):
        each = expected[place]
        is_next = place == at + 1
        is_reachable = is_next or each.level == 2 or (each.level == 1 and each.path == path)
        if is_reachable and each.text.rstrip() == text:
            return place
    raise ReviewTextProblem(number, f"the quoted line {_cut(line)!r} is not the one that stood here; it was edited, "
                                    "or lines in the middle of a hunk were deleted. If it is a comment of yours, "
                                    "write a blank in front of its >")  # fmt: skip


def _comment(words: Sequence[str], expected: Sequence[_Line], at: int, begun: int) -> list[CommentText]:
    text = "\n".join(words).strip("\n").rstrip()
    if not text.strip() or at < 0:
        return []
    line, count = expected[at], 1
    if line.level == 1:
        raise ReviewTextProblem(begun, "a comment stands below the beginning of a hunk; write it below a line of it")
    if found := _RANGE.match(text):
        count, text = int(found[1]), text[found.end() :]
    text = _own(text)
    if not text.strip():
        raise ReviewTextProblem(begun, "a comment says how many lines it is about, and nothing else")
    if line.level == 2:
        return [CommentText(line.path, text)]
    hunk = _of_hunk(expected, at)
    if not 1 <= count <= len(hunk):
        raise ReviewTextProblem(begun, f"the comment is about {count} lines, and {len(hunk)} of them stand above it")
    return [CommentText(line.path, text, line=hunk[-count], last=line.number, side=line.side)]


def _of_hunk(expected: Sequence[_Line], at: int) -> list[int]:
    """The numbers of the hunk's lines up to this one, on its side."""
    numbers: list[int] = []
    for line in expected[at::-1]:
        if line.level:
            break
        # A context line is on both sides; its number is that of the new one.
        if line.side == expected[at].side:
            numbers.insert(0, line.number)
    return numbers


# What an editor, or a reader, would obey instead of showing it.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2028\u2029\u2060\u2066-\u2069\ufeff]"
)


def _shown(text: str) -> str:
    return _UNSEEN.sub(lambda found: f"<{ord(found[0]):04X}>", text.rstrip("\r").replace("\n", "<000A>"))


def _cut(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[:most] + "…"


def words_of(status: str, added: int | None, removed: int | None, old_path: str = "") -> str:
    """How a file changed: `changed, +3 -1`, `renamed from a.py, +0 -0`, `added, not text`."""
    how = f"renamed from {name_words(old_path)}" if status == "renamed" and old_path else status
    return f"{how}, not text" if added is None else f"{how}, +{added} -{removed}"
