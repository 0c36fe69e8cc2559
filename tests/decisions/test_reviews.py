"""Reviews: a draft, an approval, the way back to the agent, and what became of the comments."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.task import TaskState
from holdfast.storage.records.blobs import Blobs
from kit.git import git
from kit.program import holdfast
from kit.project import add, landed, layout, settings, sound, state

APP = "def a():\n    return 1\n\n\ndef b():\n    return 2\n"
FIRST = "run sed -i s/1/10/ app.py\nwrite new.txt hello\n"


@pytest.fixture
def waiting(repo: Path) -> Path:
    """A task whose result waits; sent back, its agent changes one of the two lines."""
    _commit(repo, APP)
    add(repo, "t", f"{FIRST}while go: run true\nrun sed -i s/10/11/ app.py\nwrite other.txt more", approve=True)
    _stop_after(repo, turns=2)
    return repo


def _stop_after(repo: Path, turns: int) -> None:
    text = (layout(repo).backlog_open / "t.yaml").read_text()
    marker = repo.parent / "go"
    lines = text.replace("while go: run true\n", "").split("\n")
    steps = [place for place, line in enumerate(lines) if line.strip().startswith(("run ", "write "))]
    for place in steps[turns:]:
        lines[place] = f"  while {marker}: {lines[place].strip()}"
    (layout(repo).backlog_open / "t.yaml").write_text("\n".join(lines))
    holdfast(repo, "run", code=20)
    assert state(repo).tasks["t"].state is TaskState.PENDING_APPROVAL


def review(repo: Path, *options: str, comments: Any = None, code: int | None = 0, **env: str) -> str:
    given = ["--comments", "-"] if comments is not None else []
    text = json.dumps(comments) if comments is not None else ""
    said: str = holdfast(repo, "review", "t", *options, *given, code=code, stdin=text, env=env)
    return said


COMMENTS = [
    {"path": "app.py", "line": 2, "words": "Make it eleven."},
    {"path": "new.txt", "line": 1, "words": "Say more. token=abcdef0123456789abcdef"},
    {"path": "app.py", "line": 2, "side": "old", "words": "This was right."},
]


@pytest.mark.heavy
def test_a_review_that_is_sent_back_reaches_the_same_attempt_with_file_line_quote_and_words(waiting: Path) -> None:
    repo, before = waiting, state(waiting).tasks["t"]
    assert "goes on with its conversation" in review(repo, "--send-back", "-m", "Nearly.", comments=COMMENTS)
    task = state(repo).tasks["t"]
    assert task.state is TaskState.OPEN and task.continues and task.candidate == before.candidate
    told = Blobs(layout(repo).cas).get(task.feedback).decode()
    for words in (
        "Nearly.",
        "app.py, line 2:\n\n>     return 10\n\nMake it eleven.",
        ">     return 1\n\nThis was right.",
    ):
        assert words in told, told
    assert "token=[redacted]" in told and "abcdef" not in told
    [kept] = task.reviews.submitted
    blob = git(repo, "rev-parse", f"{before.candidate}:app.py")
    assert kept.comments[0].quote == "    return 10" and kept.comments[0].blob == blob
    assert (kept.verdict, kept.candidate, kept.target) == ("send_back", before.candidate, before.landing.verified_on)
    assert "abcdef0123456789" not in "".join(path.read_text() for path in layout(repo).wal.glob("*.jsonl"))
    (repo.parent / "go").touch()
    holdfast(repo, "run", code=20)
    now = state(repo).tasks["t"]
    assert (now.attempts, now.attempt.id, now.start.number, now.state) == (1, "t.1", 2, TaskState.PENDING_APPROVAL)
    assert now.candidate != before.candidate
    shown = json.loads(review(repo, "--json", "--since-review"))
    assert [each["touched"] for each in shown["last"]["comments"]] == [True, False, True]
    assert [each["path"] for each in shown["files"]] == ["app.py", "other.txt"] and shown["since"] is True
    assert "-    return 10\n+    return 11" in shown["diffs"][0]["patch"]
    review(repo, "--approve")
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and state(repo).tasks["t"].reviews.submitted == ()
    sound(repo)


def test_a_draft_is_kept_replaced_and_removed(waiting: Path) -> None:
    assert "kept as a draft" in review(waiting, "--draft", comments=COMMENTS[:1])
    review(waiting, "--draft", "-m", "Wait.", comments=COMMENTS[1:2])
    [draft] = state(waiting).tasks["t"].reviews.drafts
    assert draft.summary == "Wait." and [each.path for each in draft.comments] == ["new.txt"]
    assert json.loads(review(waiting, "--json"))["draft"]["summary"] == "Wait."
    assert state(waiting).tasks["t"].state is TaskState.PENDING_APPROVAL
    assert "no draft is kept" in review(waiting, "--draft", comments=[])
    assert state(waiting).tasks["t"].reviews.drafts == ()


UNFIT: list[tuple[Any, str]] = [
    ([{"path": "none.py", "line": 1, "words": "x"}], "no file 'none.py'"),
    ([{"path": "app.py", "line": 99, "words": "x"}], "has 6 lines in the new version"),
    ([{"path": "app.py", "line": 1, "words": ""}], "words"),
    ([{"path": "app.py", "line": 1, "words": "x" * 8001}], "8000"),
    ([{"path": "app.py", "line": 1, "words": "x" * 8000}] * 30, "200,000 characters"),
    ({"more": 1}, "a list of comments is needed"),
    ([], "say what is to change"),
]


def test_a_review_that_cannot_be_used_is_refused_and_changes_nothing(waiting: Path) -> None:
    for comments, sentence in UNFIT:
        assert sentence in review(waiting, "--send-back", comments=comments, code=2)
    assert state(waiting).tasks["t"].reviews.submitted == ()


@pytest.mark.heavy
def test_a_review_of_an_older_candidate_is_refused_and_kept_as_a_draft(waiting: Path) -> None:
    old = state(waiting).tasks["t"].candidate
    review(waiting, "--send-back", "-m", "Again.")
    (waiting.parent / "go").touch()
    holdfast(waiting, "run", code=20)
    from holdfast.app import App
    from holdfast.config.layers import load
    from holdfast.errors import ReviewStale
    from holdfast.short_runs import decide

    app = App(waiting, load(waiting, environ={"HOME": str(waiting.parent)}))
    asked = {"task": "t", "candidate": old, "verdict": "approve", "comments": COMMENTS[:1]}
    for _ in range(2):
        with pytest.raises(ReviewStale, match=r"came too late.*kept as a draft"):
            decide(app, "review", asked, lambda line: None)
    task = state(waiting).tasks["t"]
    assert task.state is TaskState.PENDING_APPROVAL and not task.approved
    assert [each.words for each in task.reviews.drafts[0].comments] == ["Make it eleven."]
    sound(waiting)


def test_a_result_that_does_not_wait_cannot_be_reviewed(repo: Path) -> None:
    add(repo, "t", "write a.txt x")
    assert "There is no task 't'" in review(repo, "--approve", code=2)
    holdfast(repo, "run")
    assert "only what waits for an approval" in review(repo, "--approve", code=9)
    assert "only what waits" in review(repo, "--send-back", "-m", "x", code=9)


POINTS = [
    *((("--draft",), f"append.review_drafted.{when}") for when in ("before", "after")),
    *((("--send-back",), f"append.review_submitted.{when}") for when in ("before", "after")),
    *((("--send-back",), f"append.task_opened.{when}") for when in ("before", "after")),
    *((("--approve",), f"append.task_done.{when}") for when in ("before", "after")),
]


@pytest.mark.heavy
@pytest.mark.parametrize(("verdict", "point"), POINTS)
def test_a_review_that_is_killed_at_an_entry_is_whole_or_not_there(
    waiting: Path, verdict: tuple[str], point: str
) -> None:
    killed = {"HOLDFAST_CRASH_AT": f"{point}:1"}
    review(waiting, *verdict, "-m", "x", comments=COMMENTS[:1], code=-signal.SIGKILL, **killed)
    sound(waiting)
    task = state(waiting).tasks["t"]
    is_there = point.endswith("after")
    if verdict == ("--draft",):
        assert bool(task.reviews.drafts) is is_there
    elif task.state is TaskState.PENDING_APPROVAL:
        # Both entries of a review are one append: neither is there without the other.
        assert not task.reviews.submitted and not is_there
    else:
        assert len(task.reviews.submitted) == 1 and bool(task.feedback) is (verdict == ("--send-back",))
    if task.state is TaskState.PENDING_APPROVAL:
        review(waiting, "--send-back", "-m", "x", comments=COMMENTS[:1])
        assert len(state(waiting).tasks["t"].reviews.submitted) == 1
    sound(waiting)


# -- rules, and a target that moves -----------------------------------------------------------------------------------


RULES: dict[str, tuple[dict[str, Any], str]] = {
    "path": ({"path": "*.py"}, "path.py matches *.py"),
    "size": (
        {"role": "large", "files": 1, "lines": 3},
        "role large; 1 file changed, 1 or more; 3 lines changed, 3 or more",
    ),
    "role": ({"role": "role"}, "role role"),
    "elsewhere": ({"path": "docs/**"}, ""),
    "few": ({"role": "few", "files": 2}, ""),
    "short": ({"role": "short", "lines": 100}, ""),
}


@pytest.mark.heavy
def test_a_rule_of_the_settings_makes_a_result_wait_and_says_why(repo: Path) -> None:
    settings(repo, approve=[rule for rule, _ in RULES.values()])
    for name, (rule, _) in RULES.items():
        role, ending = rule.get("role", "none"), ".py" if name == "path" else ".txt"
        add(repo, name, f"write {name}{ending} 1\\n2\\n3", role=role, approve=False)
    holdfast(repo, "run", code=20)
    for name, (_, why) in RULES.items():
        assert state(repo).tasks[name].state is (TaskState.PENDING_APPROVAL if why else TaskState.CLOSED), name
        if why:
            shown = " ".join(holdfast(repo, "show", name).split())
            assert f"for you to approve its result: a rule of `approve:` in the settings fits: {why}" in shown


@pytest.mark.parametrize("is_same", [True, False])
def test_an_approval_counts_for_a_newer_target_unless_the_change_becomes_another(waiting: Path, is_same: bool) -> None:
    review(waiting, "--approve")
    # Either above the change, or a part of the change itself, which then lands without that part.
    text = "# new\n" + APP if is_same else APP
    (waiting / "app.py").write_text(text)
    if not is_same:
        (waiting / "new.txt").write_text("hello\n")
    git(waiting, "add", ".")
    git(waiting, "commit", "-qm", "meanwhile")
    holdfast(waiting, "run", code=0 if is_same else 20)
    task = state(waiting).tasks["t"]
    if is_same:
        assert task.state is TaskState.CLOSED and task.landing.approved != task.landing.verified
        return
    assert task.state is TaskState.PENDING_APPROVAL and not task.approved
    assert "its change is another in new.txt" in task.outcome["detail"]
    shown = json.loads(review(waiting, "--json"))
    assert shown["relanding"]["differs"] == ["new.txt"] and "another in new.txt" in shown["why"]
    review(waiting, "--approve")
    holdfast(waiting, "run")
    assert landed(waiting) == ["t"]
    sound(waiting)


def test_a_conflict_that_the_agent_resolved_is_shown_as_such(repo: Path) -> None:
    _commit(repo, APP)
    solved = APP.replace("1", "15").replace("\n", "\\n").removesuffix("\\n")
    add(repo, "t", f"attempt 1: run sed -i s/1/10/ app.py\nattempt 2: write app.py {solved}", approve=True)
    holdfast(repo, "run", code=20)
    review(repo, "--approve")
    # The target changes the same line: the landing conflicts, and the next attempt finds the markers.
    _commit(repo, APP.replace("1", "5"))
    holdfast(repo, "run", code=20)
    task = state(repo).tasks["t"]
    assert task.attempts == 2 and task.past[0].kind == "conflict" and not task.approved
    shown = json.loads(review(repo, "--json"))
    assert shown["resolved"] == ["app.py"] and shown["last"]["verdict"] == "approve"


def _commit(repo: Path, text: str) -> None:
    (repo / "app.py").write_text(text)
    git(repo, "add", "app.py")
    git(repo, "commit", "-qm", "app")
