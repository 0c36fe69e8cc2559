"""A gate's text as simple commands: what runs, where, and with which variables."""

from __future__ import annotations

import shlex

import pytest

from holdfast.landing.shell_words import SimpleCommand, simple_commands

ENVIRON = {"HOME": "/home/ada", "PATH": "/usr/bin"}


def seen(command: str | tuple[str, ...]) -> list[tuple[str, str]]:
    return [(" ".join(each.words), each.folder) for each in simple_commands(command, ENVIRON)]


@pytest.mark.parametrize(
    ("command", "commands"),
    [
        ("pytest -q", [("pytest -q", "")]),
        (("pytest", "-k", "a b"), [("pytest -k a b", "")]),
        (("sh", "-c", "cd x && make"), [("cd", "x"), ("make", "x")]),
        ("A=1 B='x y' pytest", [("pytest", "")]),
        ("cd sub && pytest; ls", [("cd", "sub"), ("pytest", "sub"), ("ls", "sub")]),
        ("(cd sub && pytest) && ls", [("cd", "sub"), ("pytest", "sub"), ("ls", "")]),
        ("cd a\ncd ../b\nmake", [("cd", "a"), ("cd", "b"), ("make", "b")]),
        ("env -u X A=1 timeout -k 5 60 nice -n 5 pytest", [("pytest", "")]),
        ("exec ~/bin/check", [("/home/ada/bin/check", "")]),
        ("$HOME/bin/check ${NONE}/x", [("/home/ada/bin/check ${NONE}/x", "")]),
        ("if ! ruff check; then exit 1; fi", [("ruff check", ""), ("exit 1", "")]),
        ("pytest > out.txt 2>&1 || cat out.txt", [("pytest", ""), ("cat out.txt", "")]),
        ("pytest | tee log & wait", [("pytest", ""), ("tee log", ""), ("wait", "")]),
        ("bash -c 'cd in && sh -c \"make test\"'", [("cd", "in"), ("make test", "in")]),
        ("pytest \\\n  -q  # as people do", [("pytest -q", "")]),
        ("it's not closed", []),
        ("", []),
    ],
)
def test_a_command_is_read_as_a_shell_reads_it(command: str | tuple[str, ...], commands: list[tuple[str, str]]) -> None:
    assert seen(command) == commands


def test_assignments_count_for_their_command_or_for_all_that_follow() -> None:
    first, second, third = simple_commands("A=1 x; export B=$HOME/b; C=3; . ./env/bin/activate; y; D=4 z", ENVIRON)
    assert first == SimpleCommand(("x",), variables={"A": "1"})
    assert second.variables == {"B": "/home/ada/b", "C": "3"} and second.sourced == ("./env/bin/activate",)
    assert third.variables == {"B": "/home/ada/b", "C": "3", "D": "4"}


def test_shells_within_shells_have_a_limit() -> None:
    nested = "make"
    for _ in range(6):
        nested = shlex.join(["sh", "-c", nested])
    [last] = simple_commands(nested, ENVIRON)
    assert last.words[:2] == ("sh", "-c")
