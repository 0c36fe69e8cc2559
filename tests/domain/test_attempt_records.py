"""The records of one attempt."""

from __future__ import annotations

from holdfast.domain.attempt_records import folder_name


def test_a_worktrees_name_is_the_one_that_claude_code_makes() -> None:
    """The folders that version 2.1.197 makes for these paths."""
    assert folder_name("/home/ada/a b/.sdd/wörk_1") == "-home-ada-a-b--sdd-w-rk-1"
    assert folder_name("/" + "x" * 250) == "-" + "x" * 199 + "-v734pd"
    # The longest that is not cut, and the shortest that is.
    assert folder_name("x" * 200) == "x" * 200
    assert folder_name("x" * 201).startswith("x" * 200 + "-")
