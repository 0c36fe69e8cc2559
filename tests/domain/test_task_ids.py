"""The id of a task that was given none."""

from __future__ import annotations

import pytest

from holdfast.domain.task_ids import ID_LENGTH_MAX, free_id, from_values, numbered, slug, words_of
from holdfast.errors import InputError

LONG = "Make the parser of the configuration files accept comments at the end of a line"


def test_an_id_made_of_a_goal_is_short_and_unique() -> None:
    assert free_id("Fix the login", ()) == "fix-login"
    assert free_id("The", ()) == "the" and free_id("", ()) == "task" and free_id("???", ()) == "task"
    taken: list[str] = []
    for _ in range(120):
        taken.append(free_id(LONG, taken))
    assert max(map(len, taken)) <= ID_LENGTH_MAX == 24
    assert len(set(taken)) == 120
    assert taken[:2] == ["make-parser", "make-parser-2"]
    assert len(free_id("x" * 100, ())) == ID_LENGTH_MAX


@pytest.mark.parametrize(
    ("made", "number", "name"),
    [
        ("login", 1, "login"),
        ("login", 2, "login-2"),
        ("x" * 24, 1, "x" * 24),
        ("x" * 24, 12, "x" * 21 + "-12"),
        # A dash at the cut is no part of the name.
        ("a" * 21 + "-bb", 2, "a" * 21 + "-2"),
    ],
)
def test_a_number_makes_an_id_no_longer(made: str, number: int, name: str) -> None:
    assert numbered(made, number) == name and len(name) <= ID_LENGTH_MAX


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("one two-three four five six", "one-two-three-four-five"),
        ("abcdefghijkl mnopqrstuvw x", "abcdefghijkl-mnopqrstuvw"),
        ("abcdefghijkl mnopqrstuvwx y", "abcdefghijkl"),
        ("And so, for the", "and-so-for-the"),
    ],
)
def test_an_id_has_as_many_whole_words_as_fit(words: str, name: str) -> None:
    assert slug(words) == name


def test_an_id_is_looked_for_from_the_number_on_that_is_given() -> None:
    assert free_id("Login", ("login-3",), first=3) == "login-4" and free_id("Login", ("login", "login-2")) == "login-3"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"title": "T", "goal": "G", "command": "C"}, "T"),
        ({"title": "", "goal": "G", "command": "C"}, "G"),
        ({"command": "C"}, "C"),
        ({}, ""),
    ],
)
def test_the_words_of_a_task_are_its_title_or_goal_or_command(values: dict[str, str], words: str) -> None:
    assert words_of(values) == words


def test_values_give_the_definition_of_a_file_or_all_its_problems() -> None:
    assert from_values({"id": "a", "goal": "x", "verify": "true"}).verify[0].command == "true"
    with pytest.raises(InputError, match=r"priority.*; .*max_attempts"):
        from_values({"id": "a", "goal": "x", "priority": "high", "max_attempts": -1})
    with pytest.raises(InputError, match="no UTF-8 text"):
        from_values({"id": "a", "goal": "\ud800", "priority": "high"})
