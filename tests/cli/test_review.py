"""`holdfast review` in a terminal: the pager, the editor with its mistakes, and the question at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from kit.git import git
from kit.program import Terminal, holdfast
from kit.project import add, layout, state

# The first time it spoils a quoted line, and writes a comment all the same; the second time it mends that.
EDITOR = """#!/bin/sh
if test -e {mark}; then sed -i 's/^> .TWO and more$/> +TWO/' "$1"; exit; fi
touch {mark}
sed -i 's/^> .TWO$/> +TWO and more\\nToo loud./' "$1"
"""


@pytest.fixture
def waiting(repo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (repo / "a.txt").write_text("one\ntwo\nthree\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "a")
    go = repo.parent / "go"
    add(repo, "t", f"run sed -i s/two/TWO/ a.txt\nwhile {go}: run sed -i s/TWO/Two/ a.txt", approve=True)
    holdfast(repo, "run", code=20)
    editor = repo.parent / "editor"
    editor.write_text(EDITOR.format(mark=repo.parent / "edited"))
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("PAGER", "cat")
    return repo


@pytest.mark.heavy
def test_the_name_of_a_file_forges_no_line_in_the_pager_and_the_diff(waiting: Path) -> None:
    add(waiting, "n", "run printf x > \"$(printf 'a\\n=== b.py (changed)\\tz')\"", approve=True)
    holdfast(waiting, "run", code=20)
    with Terminal(waiting, "review", "n", "--draft") as terminal:
        terminal.end()
    with Terminal(waiting, "diff", "n") as other:
        other.end()
    for seen in (terminal.seen, other.seen):
        assert "a\\n=== b.py (changed)\\tz" in seen and "\n=== b.py" not in seen


@pytest.mark.parametrize(
    ("content", "why"), [("", "is empty"), ('[{"path"', "ends in the middle"), ("{]", "is not JSON")]
)
def test_comments_that_are_no_json_are_refused_with_an_example(waiting: Path, content: str, why: str) -> None:
    said = holdfast(waiting, "review", "t", "--draft", "--comments", "-", stdin=content, code=2)
    assert why in said and '"words": "Why?"' in said


def test_a_spoilt_quote_is_named_with_its_line_and_the_mended_text_is_sent_back(waiting: Path) -> None:
    kept = layout(waiting).root / "cache" / "reviews"
    with Terminal(waiting, "review", "t") as screen:
        screen.read_until("Edit it again?")
        # The pager came first.
        assert "+TWO" in screen.seen and "the task says `approve: true`" in " ".join(screen.seen.split())
        said = " ".join(screen.seen.split())
        assert "cannot be used: the quoted line '> +TWO and more'" in said and "is kept in" in said
        [file] = kept.iterdir()
        assert "Too loud." in file.read_text()
        screen.type("y\n")
        screen.read_until("[e]dit again")
        assert "1 comment." in screen.seen
        screen.type("s\n")
        assert screen.end() == 0, screen.seen
    task = state(waiting).tasks["t"]
    assert task.state is TaskState.OPEN and list(kept.iterdir()) == []
    [comment] = task.reviews.submitted[0].comments
    assert (comment.path, comment.line, comment.quote, comment.words) == ("a.txt", 2, "TWO", "Too loud.")
    (waiting.parent / "go").touch()
    holdfast(waiting, "run", code=20)
    since = holdfast(waiting, "diff", "t", "--since-review")
    assert "-TWO\n+Two\n" in since and "-two" not in since
    assert "a.txt" in holdfast(waiting, "diff", "t", "--since-review", "--stat")


def test_a_text_that_is_given_up_is_found_again_and_can_become_a_draft(waiting: Path) -> None:
    with Terminal(waiting, "review", "t", "--draft") as screen:
        screen.read_until("Edit it again?")
        screen.type("n\n")
        assert screen.end() == 2
    with Terminal(waiting, "review", "t", "--draft") as screen:
        assert screen.end() == 0, screen.seen
        assert "goes on with the text that was kept" in " ".join(screen.seen.split())
    [draft] = state(waiting).tasks["t"].reviews.drafts
    assert [each.words for each in draft.comments] == ["Too loud."]
    assert "nobody has submitted a review" in holdfast(waiting, "diff", "t", "--since-review", code=2)


def test_an_editor_that_fails_is_named_with_what_is_kept_and_what_to_type(
    waiting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = waiting.parent / "failing"
    editor.write_text('#!/bin/sh\nsed -i "s/^> .TWO$/&\\nToo loud./" "$1"\nexit 1\n')
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    with Terminal(waiting, "review", "t", "--draft") as screen:
        assert screen.end() == 2
    said = " ".join(screen.seen.split())
    assert f"Your editor did not end well ({editor}: Editing failed)" in said and "Nothing was submitted" in said
    [file] = (layout(waiting).root / "cache" / "reviews").iterdir()
    assert f"what it saved is kept in {file}" in said and "Type `holdfast review t` to go on" in said
    assert "Too loud." in file.read_text()
    # The next one that ends well goes on with it.
    monkeypatch.setenv("EDITOR", "true")
    with Terminal(waiting, "review", "t", "--draft") as screen:
        assert screen.end() == 0, screen.seen
    assert [each.words for each in state(waiting).tasks["t"].reviews.drafts[0].comments] == ["Too loud."]


def test_a_text_that_cannot_be_used_can_be_discarded(waiting: Path) -> None:
    with Terminal(waiting, "review", "t") as screen:
        screen.read_until("[x] discards it")
        screen.type("x\n")
        assert screen.end() == 0 and "Discarded. Nothing was submitted" in screen.seen
    assert list((layout(waiting).root / "cache" / "reviews").iterdir()) == []
    assert not state(waiting).tasks["t"].reviews.drafts
