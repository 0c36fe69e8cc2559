"""Which paths a task may change."""

from __future__ import annotations

import pytest

from holdfast.domain.path_rules import is_narrower, outside


@pytest.mark.parametrize(
    ("rule", "allowed", "refused"),
    [
        ("src/", ["src/a", "src/b/c"], ["src", "lib/src/a", "srcs/a", "a"]),
        ("src", ["src", "src/a", "lib/src/a"], ["srcs/a"]),
        ("*.md", ["a.md", "docs/b.md", ".md"], ["a.mdx", "a.md2/b"]),
        ("docs/**", ["docs/a", "docs/b/c"], ["docs", "a/docs/b"]),
        ("docs/*.md", ["docs/a.md"], ["docs/b/a.md", "a.md"]),
        ("**/test_*.py", ["test_a.py", "a/b/test_c.py"], ["a/b/c_test.py"]),
        ("a/**/z", ["a/z", "a/b/z", "a/b/c/z/inner"], ["a/zz", "b/a/z"]),
        ("/Makefile", ["Makefile"], ["sub/Makefile"]),
        ("v[0-9]", ["v1", "x/v2/a"], ["va", "v"]),
        ("v[!0-9]", ["va"], ["v1", "v/"]),
        ("a?c", ["abc"], ["a/c", "ac"]),
        ("a+(b)", ["a+(b)"], ["ab", "aab"]),
        (r"\*", ["*"], ["a"]),
        ("./src/", ["src/a"], ["a"]),
    ],
)
def test_a_rule_allows_the_paths_that_it_matches(rule: str, allowed: list[str], refused: list[str]) -> None:
    assert outside([*allowed, *refused], [rule]) == sorted(refused)


def test_rules_of_paths_add_up() -> None:
    assert outside(["b", "a", "c.md"], []) == []
    assert outside(["b", "a", "c.md", "s/x", "b"], ["*.md", "s/"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("rule", "rules", "expected"),
    [
        ("src/", ["src/"], True),
        ("src/a/**", ["docs", "src/**"], True),
        ("./src/a.py", ["/src"], True),
        ("src/a.py", ["src"], True),
        ("src", ["src/"], False),
        ("a.py", ["src/"], False),
        ("srcs/a", ["src/"], False),
        ("src/../etc", ["src/"], False),
        ("src/a", ["s*/"], False),
        ("*.md", ["docs/*.md"], False),
    ],
)
def test_a_subtasks_paths_are_narrower(rule: str, rules: list[str], expected: bool) -> None:
    assert is_narrower(rule, rules) is expected
