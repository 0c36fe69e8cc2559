"""Words for people, and text that a terminal can show safely."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.wording import (
    fault_words,
    given_words,
    iso,
    moment,
    money,
    plain,
    plain_json,
    plain_lines,
    plural,
    size,
)
from holdfast.errors import SetupFailed


@pytest.mark.parametrize(
    ("usd", "told"),
    [(0, "$0.00"), (0.0012499999999999998, "$0.00125"), (1.5, "$1.50"), (1234.567, "$1,234.57"), (0.05, "$0.05"),
     (0.25, "$0.25"), (0.0000001, "less than $0.000001"), (0.9999, "$1.00"), (-0.5, "-$0.50")],
)  # fmt: skip
def test_money_has_the_digits_that_count(usd: float, told: str) -> None:
    assert money(usd) == told


def test_counts_have_the_right_noun() -> None:
    assert [plural(count, "turn") for count in (0, 1, 2, 1000)] == ["0 turns", "1 turn", "2 turns", "1,000 turns"]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ('{"command":"echo one\\n  > NOTES.md","description":"a command"}', "echo one > NOTES.md"),
        ('{"content":"x","file_path":"/a/b.py"}', "/a/b.py"),
        ('{"description":"only this","command":7}', "only this"),
        ('{"other":1}', '{"other":1}'), ('{"command":', '{"command":'), ("ls  -l\nmore", "ls -l more"), ("", ""),
        ('{"command":"\\ud800"}', '{"command":"\\ud800"}'),
    ],
)  # fmt: skip
def test_a_tools_input_is_shown_by_its_most_telling_field(raw: str, told: str) -> None:
    assert given_words(raw) == told


@pytest.mark.parametrize(
    ("number", "told"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KB"), (1536, "1.5 KB"), (10 * 1024, "10 KB"),
     (3 << 20, "3.0 MB"), (1023 << 30, "1023 GB"), (1 << 40, "1.0 TB"), (20 << 40, "20.0 TB")],
)  # fmt: skip
def test_a_size_has_its_unit(number: int, told: str) -> None:
    assert size(number) == told


@pytest.mark.parametrize(
    ("unix_s", "told", "written"),
    [
        (0.0, "1970-01-01 00:00:00Z", "1970-01-01T00:00:00.000000Z"),
        (1795000000.25, "2026-11-18 11:06:40Z", "2026-11-18T11:06:40.250000Z"),
        (1e18, "second 1000000000000000000", 1e18),
    ],
)
def test_a_moment_is_a_date_where_the_calendar_has_it(unix_s: float, told: str, written: str | float) -> None:
    assert moment(unix_s) == told and iso(unix_s) == written


@pytest.mark.parametrize(
    ("cause", "not_before", "told"),
    [
        ("The disk is full.", 0.0, "held up by a fault of the machine: The disk is full. A run tries it again"),
        ("The disk is full.", 5.0, ""),
        (
            str(SetupFailed(task="t", attempt="t.1", hook="setup", what="no", lines="boom")),
            0.0,
            "held up by a failed setup: The worktree for t.1 could not be made ready: no. The last lines: boom. No "
            "attempt is spent. `holdfast hooks t` shows all of it; correct `worktree.setup` in config/settings.yaml or "
            "what it needs. A run tries it again",
        ),
        (
            "The files for a worktree are too many",
            0.0,
            "held up by a failed setup: The files for a worktree are too many. A run tries it again",
        ),
        ("", 0.0, ""),
    ],
)
def test_a_fault_of_the_machine_is_named_unless_the_task_only_waits(cause: str, not_before: float, told: str) -> None:
    assert fault_words(cause, not_before) == told


# -- text that controls nothing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "one_line", "lines"),
    [
        ("ab ü", "ab ü", "ab ü"),
        ("a\tb\nc", "a\\tb\\nc", "a\tb\nc"),
        ("\x1b[1m\u202e", "\\x1b[1m\\u202e", "\\x1b[1m\\u202e"),
        ("\r\n\x07", "\\r\\n\\x07", "\\r\n\\x07"),
    ],
)
def test_control_characters_become_their_escapes(text: str, one_line: str, lines: str) -> None:
    assert plain(text) == one_line and plain_lines(text) == lines


@pytest.mark.parametrize(
    ("text", "told"),
    [('{"a":"\x7f\u2028"}\n', '{"a":"\\u007f\\u2028"}\n'), ('"\U000e0001"', '"\\udb40\\udc01"'), ("ü", "ü")],
)
def test_json_is_escaped_in_the_way_of_json(text: str, told: str) -> None:
    assert plain_json(text) == told


@given(st.text())
def test_escaped_text_is_one_printable_line(text: str) -> None:
    assert plain(text).isprintable()


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_escaped_json_is_the_same_json(value: dict[str, str]) -> None:
    shown = plain_json(msgspec.json.encode(value).decode())
    assert shown.isprintable() and json.loads(shown) == value
