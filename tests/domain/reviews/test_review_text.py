"""The text of a review in an editor: comments are found at their places, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from holdfast.domain.reviews.hunks import hunks
from holdfast.domain.reviews.review_records import CommentText, ReviewComment
from holdfast.domain.reviews.review_text import FILE_LINES_MAX, QuotedFile, ReviewTextProblem, parse, render, words_of

PATCH = "@@ -1,3 +1,4 @@\n one\n-two\n+TWO\n+and \n three\n@@ -10,2 +11,2 @@\n ten\n-}\n+}}\n"
FILES = [
    QuotedFile("src/a.py", "changed, +3 -2", hunks(PATCH)),
    QuotedFile("logo.png", "added, not text", ()),
    QuotedFile("b.txt", "added, +1 -0", hunks("@@ -0,0 +1 @@\n+} \n")),
]
TEXT = render("Review of t", FILES)


def below(quoted: str, words: str, text: str = TEXT) -> str:
    head, found, rest = text.partition(f"> {quoted}\n")
    assert found, quoted
    return f"{head}{found}{words}\n{rest}"


def test_an_untouched_text_says_nothing() -> None:
    assert parse(TEXT, FILES) == ("", ())
    assert "# Review of t" in TEXT and "> File: logo.png (added, not text)" in TEXT


def test_the_name_of_a_file_forges_no_line() -> None:
    name = "a\n=== b.py\t\x1b[2K"
    shown = "a\\n=== b.py\\t\\x1b[2K"
    files = [QuotedFile(name, words_of("renamed", 1, 0, name), ())]
    lost = ReviewComment(name, "new", 3, 3, "", "", "Why?")
    text = render("Review of t", files, "", (lost,))
    assert f"> File: {shown} (renamed from {shown}, +1 -0)\n" in text and f"{shown}, line 3: Why?" in text
    assert lost.place == f"{shown}, line 3" and parse(below(text.splitlines()[-1][2:], "So?", text), files)[1]


@pytest.mark.parametrize(
    ("quoted", "words", "comment"),
    [
        ("+TWO", "Loud.", CommentText("src/a.py", "Loud.", 2, 2, "new")),
        ("-two", "\nWhy?\n\nReally.\n", CommentText("src/a.py", "Why?\n\nReally.", 2, 2, "old")),
        (" three", "[3 lines] All.", CommentText("src/a.py", "All.", 2, 4, "new")),
        ("File: logo.png (added, not text)", "Too large.", CommentText("logo.png", "Too large.")),
        ("+}}", "# a heading", CommentText("src/a.py", "# a heading", 12, 12, "new")),
        ("+}}", " > as you said\nNo.", CommentText("src/a.py", "> as you said\nNo.", 12, 12, "new")),
    ],
)
def test_a_comment_belongs_to_the_line_above_it(quoted: str, words: str, comment: CommentText) -> None:
    assert parse(below(quoted, words), FILES) == ("", (comment,))


def test_a_summary_stands_in_front_and_deleted_hunks_are_not_missed() -> None:
    text = below("+} ".rstrip(), "End.", below("+TWO", "Loud."))
    head, _, rest = text.partition("> @@ -10,2")
    text = head + "> File: b.txt" + rest.partition("> File: b.txt")[2]
    first, quoted, rest = text.partition("> File: src/a.py")
    summary, comments = parse(f"{first}Nearly.\n# left out\nThere.\n\n{quoted}{rest}", FILES)
    assert summary == "Nearly.\nThere."
    assert [(each.path, each.line, each.words) for each in comments] == [("src/a.py", 2, "Loud."), ("b.txt", 1, "End.")]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (TEXT.replace("> +TWO", "> +two"), 13, "is not the one that stood here"),
        (TEXT.replace("> -two\n", ""), 12, "lines in the middle of a hunk were deleted"),
        (below("@@ -10,2 +11,2 @@", "Where?"), 17, "below the beginning of a hunk"),
        (below("+TWO", "[9 lines] Far."), 14, "about 9 lines, and 2 of them stand above it"),
        (below("+TWO", "[2 lines]"), 14, "nothing else"),
        (TEXT + "> and more\n", 24, "is not the one"),
        (below("+TWO", "> so you say\nNo."), 14, "If it is a comment of yours, write a blank in front of its >"),
    ],
)
def test_an_edited_quote_is_refused_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(ReviewTextProblem, match=reason) as problem:
        parse(text, FILES)
    assert problem.value.line == line


def test_a_draft_stands_at_its_places_and_is_read_back_as_it_was() -> None:
    drafted = [
        ReviewComment("src/a.py", "new", 2, 4, quote="TWO", blob="b", words="All of\nit."),
        ReviewComment("src/a.py", "old", 2, 2, quote="two", blob="b", words="Why?"),
        ReviewComment("logo.png", "new", 0, 0, quote="", blob="b", words="> +TWO\n > twice\n# Large."),
        ReviewComment("gone.py", "new", 7, 7, quote="x", blob="b", words="Lost."),
    ]
    summary, comments = parse(render("t", FILES, "# All\n> of it:\nFine.", drafted), FILES)
    assert summary == "# All\n> of it:\nFine.\n\ngone.py, line 7: Lost."
    assert {(each.path, each.side, each.line, each.last, each.words) for each in comments} == {
        (each.path, each.side, each.line, each.last, each.words) for each in drafted[:3]
    }


def test_a_line_that_would_be_obeyed_is_shown_and_read_back_by_its_number() -> None:
    files = [QuotedFile("a\u202eb\x1b", "added", hunks("@@ -0,0 +1,2 @@\n+\u202eevil\x1b[2J\r\n+fine\n"))]
    text = render("t", files)
    assert "\x1b" not in text and "\u202e" not in text and "<202E>evil" in text
    assert parse(text + "Yes.\n", files)[1] == (CommentText("a\u202eb\x1b", "Yes.", 2, 2, "new"),)


def test_a_huge_file_is_named_and_not_quoted() -> None:
    long = QuotedFile("long", "added", hunks("@@ -0,0 +1 @@\n" + "+x\n" * (FILE_LINES_MAX + 1)))
    text = render("t", [long, FILES[2]])
    assert len(text) < 2000 and "lines are not shown here" in text and "> File: b.txt" in text
    assert parse(below("File: long (added)", "No.", text), [long, FILES[2]])[1] == (CommentText("long", "No."),)
