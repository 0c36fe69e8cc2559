"""Runs that are killed on the way by pull request: one is opened, each comment is answered once, and nothing is lost.

All is counted at the receiver, which is a double of the service with a real remote behind it.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.engine.effects import POINTS
from holdfast.integrations.outbox.publish import PUBLISH_POINTS
from holdfast.integrations.pull_requests.remote import PUSH_POINTS
from kit.crash import end_of
from kit.git import git
from kit.program import begin, holdfast
from kit.project import make_repo, sound, state
from kit.pull_double import KeptPull, PullDouble
from kit.pull_project import ENV, feedback, in_rounds, with_remote

KILLS = int(os.environ.get("HOLDFAST_KILLS", "5"))
KILLS_A_STORY = 10
# The parts of the story in which each entry is appended: it is opened, it gets comments, it is merged.
ENTRIES = {
    "message_queued": (0, 1), "pull_request_published": (0, 1), "task_publish_intent": (0, 1),
    "task_publish_confirmed": (0, 1), "task_approval_requested": (0, 1), "pull_request_seen": (1, 2),
    "task_opened": (1,), "task_done": (2,), "task_land_intent": (2,), "task_land_confirmed": (2,), "task_closed": (2,),
}  # fmt: skip
# Of each part how many messages leave: a push, the request, and in the second round two answers.
MESSAGES = (2, 4)
AT = [
    *((part, f"{point}:1") for part in (0, 1) for point in PUSH_POINTS),
    *(
        (part, f"{point}:{count}")
        for part, most in enumerate(MESSAGES)
        for point in ("publish.sent", "effect.publish.before", "effect.publish.after")
        for count in range(1, most + 1)
    ),
    *((part, f"append.{name}.{when}:1") for name, parts in ENTRIES.items() for part in parts
      for when in ("before", "after")),
]  # fmt: skip
FAMILIES = ("append.*", "append.*", "effect.publish.*", "publish.*", "push.*", "append.pull_request_*", "land.*")


class Story:
    """One task from its file to closed, with two comments and a squash on the way, while runs are killed."""

    def __init__(self, repo: Path, double: PullDouble, task: str) -> None:
        self.repo, self.double, self.task = repo, double, task
        self.rounds = in_rounds(repo, task)
        self.number, self.killed, self.lives = 0, 0, 0
        self.merged = ""

    @property
    def kept(self) -> KeptPull:
        return self.double.pulls[self.number]

    @property
    def parts(self) -> list[tuple[Callable[[], object], Callable[[], bool]]]:
        """What happens, and how it is seen that it has been dealt with."""
        return [(list, self.is_open), (self.comment, self.is_answered), (self.merge, self.is_closed)]

    def live(self, point: str = "") -> bool:
        """One run; whether it was killed."""
        crash = {"HOLDFAST_CRASH_AT": point} if point else {}
        run = begin(self.repo, **ENV, **crash)
        end_of(run)
        self.lives += 1
        is_killed = run.returncode == -signal.SIGKILL
        self.killed += is_killed
        # A message whose try was cut off waits for its next one: nobody wants to wait for that here.
        for key in state(self.repo).outbox:
            holdfast(self.repo, "outbox", "--retry", key)
        return is_killed

    def is_open(self) -> bool:
        found = [each for each in self.double.pulls.values() if each.branch == f"holdfast/{self.task}"]
        if not found:
            return False
        self.number = found[0].number
        return not state(self.repo).outbox

    def comment(self) -> None:
        self.rounds[0].touch()
        self.double.say(self.number, f"{self.task}: a second file, please.", path=f"{self.task}.txt", line=1)
        self.double.say(self.number, f"{self.task}: and mind the name.")

    def is_answered(self) -> bool:
        return len(self.replies()) >= 2 and not state(self.repo).outbox

    def replies(self) -> list[str]:
        return [each.body for each in self.kept.comments if each.author == "holdfast"]

    def merge(self) -> None:
        self.merged = self.double.merge(self.number, "squash", "words of a person")

    def is_closed(self) -> bool:
        return state(self.repo).tasks[self.task].state == "CLOSED"

    def expect_all_once(self) -> None:
        task, double = state(self.repo).tasks[self.task], self.double
        assert [each.number for each in double.pulls.values() if each.branch == f"holdfast/{self.task}"] == [
            self.number
        ]
        assert len(self.replies()) == len(set(self.replies())) == 2
        keys = Counter(line for text in self.replies() for line in text.splitlines() if "holdfast: reply" in line)
        assert set(keys.values()) == {1}
        told = "\n".join(feedback(self.repo))
        assert told.count(f"{self.task}: a second file") == told.count(f"{self.task}: and mind") == 1
        assert task.landing.commit == self.merged and task.pull is not None and task.pull.rounds == 1
        assert git(self.repo, "show", f"{self.merged}:{self.task}-1.txt") == "x"
        assert not state(self.repo).outbox


def tell(story: Story, points: list[str]) -> None:
    """Walks through it; each run is killed at the next of these points, as long as there are any."""
    for act, is_done in story.parts:
        act()
        for _ in range(60):
            story.live(points.pop(0) if points else "")
            if is_done():
                break
        else:
            raise AssertionError(f"{is_done.__name__} never came")


@pytest.mark.heavy
@pytest.mark.parametrize(("part", "point"), AT)
def test_a_kill_at_each_point_opens_and_answers_once(tmp_path: Path, part: int, point: str) -> None:
    assert {*PUSH_POINTS, "publish.sent"} <= {each.rpartition(":")[0] for _, each in AT}
    assert "effect.publish.before" in POINTS
    assert "publish.sent" in PUBLISH_POINTS
    repo = make_repo(tmp_path / "repo")
    with with_remote(repo, "github") as double:
        story = Story(repo, double, "one")
        for number, (act, is_done) in enumerate(story.parts):
            act()
            story.live(point if number == part else "")
            while not is_done():
                story.live()
        assert story.killed == 1, "the fault did not fire"
        story.expect_all_once()
    sound(repo)


@pytest.mark.heavy
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_kills_at_random_points_open_and_answer_once(tmp_path: Path, kind: str) -> None:
    chance, killed, stories = random.Random(int(os.environ.get("HOLDFAST_SEED", "1"))), 0, 0
    repo = make_repo(tmp_path / "repo")
    with with_remote(repo, kind) as double:
        while killed < KILLS:
            story = Story(repo, double, f"t{stories}")
            most = min(KILLS_A_STORY, KILLS - killed)
            tell(story, [f"{chance.choice(FAMILIES)}:{chance.randint(1, 25)}" for _ in range(most)])
            story.expect_all_once()
            killed, stories = killed + story.killed, stories + 1
    print(f"{kind}: {killed} kills, {stories} pull requests, each opened once, each comment answered once")
    sound(repo)
