"""Issues as task files: what a stranger writes stays text, and what a writer says in front matter counts."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backlog.issue_files import (
    BODY_CHARS_MAX,
    NOT_BY_ISSUES,
    TITLE_CHARS_MAX,
    IssueFile,
    file_of,
    is_edited_here,
    merged,
)
from holdfast.domain.definition import Check, Definition, parse
from holdfast.domain.issues.issue_records import Issue, Origin, is_task_of, task_id

FRONT = "---\ndepends_on: [3, '#4', other]\nverify: pytest -q\nagent: codex\nlabels: [urgent]\n---\nThe words.\n"


def made(body: str = "", *, trusted: bool = False, title: str = "Fix it", **more: object) -> IssueFile:
    issue = Issue(number="12", url="https://x.test/12", title=title, body=body, author="ada", is_trusted=trusted)
    return file_of(msgspec.structs.replace(issue, **more), source="gh", tracker="github")


def test_front_matter_of_a_writer_is_taken() -> None:
    found = made(FRONT, trusted=True, labels=("bug",))
    definition = found.definition
    assert (definition.id, definition.agent, definition.verify) == ("gh-12", "codex", (Check("pytest -q"),))
    assert definition.depends_on == ("gh-3", "gh-4", "other") and definition.labels == ("bug", "urgent")
    assert definition.goal == "The words.\n\n(Issue 12, https://x.test/12)\n" and not found.problem
    assert definition.origin is not None
    assert definition.origin.fields == ("agent", "depends_on", "verify") and definition.origin.trusted
    fenced = FRONT.replace("---\ndep", "```yaml holdfast\ndep").replace("---\nThe", "```\nThe")
    assert made(fenced, trusted=True, labels=("bug",)).definition == definition


def test_front_matter_of_a_stranger_is_text() -> None:
    definition = made(FRONT).definition
    assert (definition.agent, definition.verify, definition.depends_on) == (None, (), ())
    assert definition.goal is not None
    assert "\n> verify: pytest -q\n" in definition.goal and "https://x.test/12" in definition.goal
    assert "ada" in definition.goal and "without write rights" in definition.goal
    assert definition.origin is not None and not definition.origin.trusted


@given(st.text(), st.text(), st.text())
def test_no_text_of_a_stranger_leaves_its_quotation(title: str, body: str, author: str) -> None:
    definition = made(body, title=title, author=author).definition
    head, _, quoted = (definition.goal or "").partition("\n\n")
    assert "\n" not in head and all(line.startswith(">") for line in quoted.rstrip("\n").split("\n"))
    assert parse(IssueFile(definition).text, definition.id) == definition, "its file says something else"
    bare = msgspec.structs.replace(definition, id="", title=None, goal=None, labels=(), origin=None)
    assert bare == Definition(""), "something beside the words was set"


@given(st.text(max_size=200))
def test_every_front_matter_gives_a_file_that_reads(text: str) -> None:
    found = made(f"---\n{text}\n---\nwords", trusted=True)
    assert parse(found.text, "gh-12") == found.definition


@pytest.mark.parametrize("key", sorted(NOT_BY_ISSUES))
def test_front_matter_cannot_say_who_the_task_is_or_what_holdfast_writes(key: str) -> None:
    found = made(f"---\n{key}: x\nagent: codex\n---\nwords", trusted=True)
    assert key in found.problem and found.definition.agent is None
    assert found.definition.goal is not None and f"{key}: x" in found.definition.goal
    assert (found.definition.id, found.definition.claim, found.definition.result) == ("gh-12", None, None)


@pytest.mark.parametrize("front", ["verfy: x", "verify: [", "- a", "priority: high", "a: 1\na: 2", "labels: {a: b}"])
def test_front_matter_that_cannot_be_used_is_left_as_text_and_told(front: str) -> None:
    found = made(f"---\n{front}\n---\nwords", trusted=True)
    assert found.problem and front.partition("\n")[0] in (found.definition.goal or "")


def test_lengths_are_bounded() -> None:
    definition = made("x" * 10**6, title="y" * 10**5, labels=("z" * 1000,) * 1000).definition
    assert len(definition.goal or "") < BODY_CHARS_MAX + 2000 and len(definition.title or "") == TITLE_CHARS_MAX
    assert len(definition.labels) == 1 and len(definition.labels[0]) == 100


def test_an_edit_of_the_file_is_told_from_an_edit_of_the_issue() -> None:
    before = made(FRONT, trusted=True).definition
    assert not is_edited_here(before)
    assert is_edited_here(msgspec.structs.replace(before, goal="other"))
    assert is_edited_here(msgspec.structs.replace(before, agent="claude"))
    # What no issue gave is a person's to add.
    assert not is_edited_here(msgspec.structs.replace(before, priority=1))


def test_an_edited_issue_keeps_what_a_person_added_and_takes_back_its_own() -> None:
    before = msgspec.structs.replace(made(FRONT, trusted=True).definition, priority=1, goal="edited here")
    after = merged(before, made("---\nagent: claude\n---\nNew.", trusted=True).definition)
    assert (after.priority, after.agent, after.verify, after.depends_on) == (1, "claude", (), ())
    assert after.goal == "New.\n\n(Issue 12, https://x.test/12)\n" and not is_edited_here(after)


@given(st.sampled_from(["gh", "gh2", "a"]), st.sampled_from(["1", "12", "OPS-1", "OPS-12"]), st.integers(1, 12))
def test_an_id_belongs_to_one_issue(source: str, number: str, round: int) -> None:
    name = task_id(source, number, round)
    for other in ("gh", "gh2", "a"):
        for its in ("1", "12", "OPS-1", "OPS-12"):
            origin = Origin(source=other, tracker="github", number=its, url="", etag="")
            assert is_task_of(name, origin) == ((other, its) == (source, number))
