"""The rules of the tests themselves: a name says subject and behaviour, and a helper is written once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from kit import TESTS, TOP
from rooms import HOUSES, parsed, rooms

FILES = {str(path.relative_to(TESTS)): path.read_text() for path in sorted(TESTS.rglob("*.py"))}
# A relative clause or a pronoun has no subject of its own: the reader of a red line does not know what failed.
NO_SUBJECT = {
    "what", "whatever", "who", "who" + "ever", "whom", "whose", "whether", "which", "why", "how", "however", "when",
    "where", "it", "its", "they", "their", "there", "that", "this", "these", "those",
}  # fmt: skip
# "A thing is …" has three words at the least.
WORDS_MIN = 3
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def unclear_names(source: str) -> Iterator[str]:
    """Tests whose name has no subject, or nothing but one."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, FUNCTION) and node.name.startswith("test_"):
            words = node.name.split("_")[1:]
            if words[0] in NO_SUBJECT or len(words) < WORDS_MIN:
                yield node.name


def test_the_name_of_a_test_says_subject_and_behaviour() -> None:
    found = {name: list(unclear_names(source)) for name, source in FILES.items()}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize("name", ["it_is_kept", "what_a_kill_left_is_ended", "how_long_a_limit_lasts", "filters"])
def test_the_check_of_names_can_say_no(name: str) -> None:
    assert list(unclear_names(f"class TestIt:\n    def test_{name}(self): ..."))
    assert list(unclear_names("def test_modules_are_nouns(): ...")) == []


def helpers(source: str) -> Iterator[tuple[str, str]]:
    """Functions and classes beside the tests: the name, and the code without it and its docstring."""
    for node in parsed(source).body:
        if isinstance(node, (*FUNCTION, ast.ClassDef)) and not node.name.lower().startswith(("test", "pytest_")):
            has_docstring = ast.get_docstring(node) is not None
            head = [
                ast.dump(each)
                for each in (*node.decorator_list, *([] if isinstance(node, ast.ClassDef) else [node.args]))
            ]
            yield node.name, "\n".join([*head, *(ast.dump(each) for each in node.body[has_docstring:])])


def copies(files: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The places of each helper that is written more than once. One without a body is a name only."""
    places: dict[str, list[str]] = {}
    for file, source in files:
        for name, code in helpers(source):
            places.setdefault(code, []).append(f"{file}:{name}")
    return [found for code, found in places.items() if len(found) > 1 and code.strip()]


def test_a_helper_is_written_once() -> None:
    assert copies(FILES.items()) == [], "it belongs in tests/kit"


def test_the_check_of_copies_can_say_no() -> None:
    one, other = "def f(a):\n    '''Says a.'''\n    return a + 1", "def g(a):\n    return a + 1"
    assert copies([("x", one), ("y", other)]) == [["x:f", "y:g"]]
    assert copies([("x", one), ("y", other.replace("1", "2"))]) == []


def test_no_module_of_tests_imports_another() -> None:
    found = [
        f"{name}: {node.module}"
        for name, source in FILES.items()
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.ImportFrom) and Path(str(node.module).replace(".", "/")).name.startswith("test_")
    ]
    assert found == [], "it belongs in tests/kit"


def test_every_folder_of_tests_is_that_of_a_room() -> None:
    # What is no room: helpers, whole programs, rules of the source, and what has a target of its own in the Makefile.
    others = {"kit", "whole", "project", "api", "browser", "github_api", "install", "ops", "real_agents"}
    others |= {"real_project", "terminal", "walls", "webhooks"}
    folders = {path.parent for path in TESTS.glob("*/**/test_*.py")}
    names = {".".join(folder.relative_to(TESTS).parts) for folder in folders}
    assert {name for name in names if name not in {*rooms(), *HOUSES, *others}} == set()


def test_every_word_by_which_ci_chooses_tests_is_one_of_theirs() -> None:
    # A word that nothing has chooses nothing, and the run stays green.
    chosen = re.findall(r"-k '(.*?)'", (TOP / ".ci/run").read_text(), re.DOTALL)
    words = {word for expression in chosen for word in re.findall(r"\w+", expression)} - {"and", "or", "not"}
    theirs = "".join(FILES.values())
    assert len(words) > 10
    assert [word for word in sorted(words) if word not in theirs] == []
