"""Patterns match what Python's `re` matches, and never take longer for a worse text."""

from __future__ import annotations

import contextlib
import random
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import PatternInvalid
from holdfast.integrations.triggers.pattern import TEXT_CHARS_MAX, Pattern, PatternTooSlow

ATOMS = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", r"\w", r"\d", r"\s", r"\.", "(a|b)", "(?:ab|c)", "x"])
PARTS = st.tuples(ATOMS, st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?"])).map(
    "".join
)
EDGES = st.sampled_from(["", "", "^", r"\b", r"\B", r"\A"])
SEQUENCES = st.tuples(EDGES, st.lists(PARTS, max_size=4).map("".join), st.sampled_from(["", "", r"\b", r"\Z"])).map(
    "".join
)
PATTERNS = st.tuples(
    st.sampled_from(["", "(?i)", "(?s)", "(?m)"]), st.lists(SEQUENCES, min_size=1, max_size=3).map("|".join)
).map("".join)


@given(PATTERNS, st.text("abcx1. \nAB_", min_size=1, max_size=20))
def test_a_pattern_matches_what_the_library_matches(pattern: str, text: str) -> None:
    assert Pattern(pattern).is_in(text) == (re.search(pattern, text) is not None)


@given(st.text("ab(|)[]*+?{1,2}\\^$.wdP<n>:=!-", max_size=12))
def test_every_text_is_a_pattern_or_refused_with_a_sentence(text: str) -> None:
    with contextlib.suppress(PatternInvalid):
        Pattern(text).is_in("aab")


@pytest.mark.parametrize(
    "pattern", [r"(a+)+b", r"(a|a)*b", r"(a|aa)+$x", r"a*a*a*a*a*a*b", r"(.*)*c.*d", r"(\w+\s?)*z!"]
)
def test_a_pattern_that_hangs_the_library_is_answered_at_once(pattern: str) -> None:
    began = time.perf_counter()
    assert not Pattern(pattern).is_in("a" * TEXT_CHARS_MAX * 2)
    # The library would take longer than the age of the universe; this is no measure of speed.
    assert time.perf_counter() - began < 30


def test_a_search_that_takes_too_many_steps_is_given_up() -> None:
    pattern, text = Pattern(r"(a|b)*a(a|b){150}c"), "".join(random.Random(1).choices("ab", k=TEXT_CHARS_MAX))
    with pytest.raises(PatternTooSlow):
        pattern.is_in(text)


UNSUPPORTED = (
    "(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", "(?P=x)", "a**", "*a", "(", ")", "[a", "a{300}", "((a{200}){200}){200}",
    "(" * 100 + ")" * 100, "a" * 501, r"\p", "a++",
)  # fmt: skip


@pytest.mark.parametrize("pattern", UNSUPPORTED)
def test_a_pattern_that_is_not_supported_is_refused(pattern: str) -> None:
    with pytest.raises(PatternInvalid):
        Pattern(pattern)
