"""Lines of a diff, and where they are in the next version of a file."""

from __future__ import annotations

import pytest

from holdfast.domain.reviews.hunks import LineSpan, change_lines, followed, hunks, is_touched, spans

PATCH = """\
@@ -1,4 +1,5 @@ def a():
 one
-two
+TWO
+2.5
 three
 four
@@ -10 +11,0 @@
-ten
\\ No newline at end of file
"""


def test_lines_have_their_numbers_on_each_side() -> None:
    first, second = hunks(PATCH)
    assert [(line.kind, line.text, line.old, line.new) for line in first.lines] == [
        (" ", "one", 1, 1),
        ("-", "two", 2, 0),
        ("+", "TWO", 0, 2),
        ("+", "2.5", 0, 3),
        (" ", "three", 3, 4),
        (" ", "four", 4, 5),
    ]
    assert [(line.kind, line.old) for line in second.lines] == [("-", 10), ("\\", 0)]
    assert spans(PATCH) == [LineSpan(1, 4, 1, 5), LineSpan(10, 1, 11, 0)]
    assert hunks("") == hunks("Binary files a and b differ\n") == []


@pytest.mark.parametrize(
    ("first", "last", "changed", "is_so"),
    [
        (5, 5, [LineSpan(5, 1, 5, 1)], True),
        (5, 7, [LineSpan(7, 2, 7, 0)], True),
        (5, 7, [LineSpan(8, 2, 8, 0)], False),
        (5, 7, [LineSpan(1, 4, 1, 9)], False),
        # Lines that were added behind line 7, in front of line 5, and further away.
        (5, 7, [LineSpan(7, 0, 8, 2)], True),
        (5, 7, [LineSpan(4, 0, 5, 1)], True),
        (5, 7, [LineSpan(3, 0, 4, 1), LineSpan(8, 0, 10, 1)], False),
    ],
)
def test_a_range_is_touched_where_its_lines_or_their_neighbours_change(
    first: int, last: int, changed: list[LineSpan], is_so: bool
) -> None:
    assert is_touched(first, last, changed) is is_so


@pytest.mark.parametrize(("line", "now"), {1: 1, 2: 2, 3: 5, 4: 6, 5: 7, 6: 7, 7: 8, 9: 10, 10: 10, 12: 12}.items())
def test_a_line_is_followed_through_changes_above_it(line: int, now: int) -> None:
    # Two lines added behind 2; 5 and 6 became one line; 10 was removed.
    assert followed(line, [LineSpan(2, 0, 3, 2), LineSpan(5, 2, 7, 1), LineSpan(10, 1, 10, 0)]) == now


def test_a_change_is_told_without_its_place_and_a_binary_file_by_its_content() -> None:
    text = "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@ f\n-a\n+b\n"
    moved = text.replace("@@ -1 +1 @@ f", "@@ -9 +9 @@ g").replace("1..2", "3..4")
    assert list(change_lines(text)) == list(change_lines(moved))
    binary = "diff --git a/x b/x\nindex 1..2 100644\nBinary files a/x and b/x differ\n"
    assert list(change_lines(binary)) != list(change_lines(binary.replace("..2", "..3")))
