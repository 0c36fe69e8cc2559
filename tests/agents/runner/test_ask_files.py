"""Questions by `holdfast ask`, as files that an agent can write as it likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.agents.common import ask_files
from holdfast.questions.records import Verdict


def test_a_question_is_put_once_and_its_answer_is_taken_once(tmp_path: Path) -> None:
    path = ask_files.put(tmp_path, "Which?")
    assert ask_files.put(tmp_path, "Which?") == path and ask_files.waiting(tmp_path) == [path]
    assert ask_files.words_of(path) == "Which?" and ask_files.take_answer(path) is None
    ask_files.answer(path, Verdict("say", "this"))
    assert ask_files.waiting(tmp_path) == [] and ask_files.put(tmp_path, "Which?") == path
    assert ask_files.take_answer(path) == Verdict("say", "this") and ask_files.take_answer(path) is None


@pytest.mark.parametrize("what", ["garbage", "huge", "folder", "link"])
def test_anything_else_in_its_place_is_no_question(tmp_path: Path, what: str) -> None:
    (folder := tmp_path / "asks").mkdir()
    path = folder / "a.json"
    if what == "folder":
        path.mkdir()
    elif what == "link":
        (outside := tmp_path / "outside").write_text('{"question": "secret"}')
        path.symlink_to(outside)
    else:
        path.write_bytes(b"\xff{" if what == "garbage" else b'{"question": "' + b"x" * 9_000_000 + b'"}')
    assert [ask_files.words_of(each) for each in ask_files.waiting(folder)] in ([], [""])
    assert ask_files.words_of(path) == ""


def test_an_answer_is_not_written_through_a_link_that_the_agent_has_made(tmp_path: Path) -> None:
    (folder := tmp_path / "asks").mkdir()
    (outside := tmp_path / "outside").write_text("kept")
    path = ask_files.put(folder, "Which?")
    path.with_suffix(".out").symlink_to(outside)
    ask_files.answer(path, Verdict("say", "this"))
    assert outside.read_text() == "kept"
