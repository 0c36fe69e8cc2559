"""Issues come in and results go out while `holdfast` is killed: counted at the tracker, none lost, none doubled."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from holdfast.integrations.outbox.publish import PUBLISH_POINTS
from holdfast.integrations.trackers.sync import SYNC_POINTS
from holdfast.integrations.trackers.write_back import WRITE_BACK_POINTS
from kit.forge_double import ForgeDouble
from kit.forge_runs import EVERYTHING, connect, expect_each_once, live, run_to_the_end, scripted
from kit.program import holdfast
from kit.project import sound, state

KILLS = int(os.environ.get("HOLDFAST_KILLS", "6"))
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
ENTRIES = ("task_added", "message_queued", "task_publish_intent", "task_publish_confirmed")


@pytest.mark.heavy
@pytest.mark.parametrize(
    "point",
    [
        *(f"{name}:1" for name in (*SYNC_POINTS, *WRITE_BACK_POINTS, PUBLISH_POINTS[1])),
        *(f"append.{name}.{when}:1" for name in ENTRIES for when in ("before", "after")),
        # The last of its three messages.
        f"{PUBLISH_POINTS[1]}:3",
    ],
)
def test_a_kill_at_each_point_loses_and_doubles_nothing(repo: Path, point: str) -> None:
    with ForgeDouble() as forge:
        connect(repo, forge, **EVERYTHING)
        numbers = {forge.open(f"Issue {name}", scripted(name), labels=["agent"]) for name in "ab"}
        assert live(repo, HOLDFAST_CRASH_AT=point) == -signal.SIGKILL, "the fault did not fire"
        sound(repo)
        run_to_the_end(repo)
        expect_each_once(repo, forge, numbers)


@pytest.mark.heavy
@pytest.mark.parametrize("point", [name for name in SYNC_POINTS if name != "sync.fetched"])
def test_a_kill_of_the_command_adds_and_cancels_nothing_twice(repo: Path, point: str) -> None:
    with ForgeDouble() as forge:
        connect(repo, forge, label="agent")
        first, second = (forge.open(f"Issue {name}", "x", labels=["agent"]) for name in "ab")
        assert live(repo, "sync", HOLDFAST_CRASH_AT=f"{point}:1") == -signal.SIGKILL, "the fault did not fire"
        assert live(repo, "sync") == 0
        assert {name: task.state for name, task in state(repo).tasks.items()} == {"gh-1": "OPEN", "gh-2": "OPEN"}
        forge.edit(first, state="closed")
        forge.edit(second, body="y")
        assert live(repo, "sync", HOLDFAST_CRASH_AT=f"{point}:1") == -signal.SIGKILL, "the fault did not fire"
        assert live(repo, "sync") == 0
        assert {name: task.state for name, task in state(repo).tasks.items()} == {"gh-1": "CANCELLED", "gh-2": "OPEN"}
        sound(repo)


@pytest.mark.heavy
def test_a_kill_while_a_lost_answer_is_asked_for_repeats_nothing(repo: Path) -> None:
    with ForgeDouble() as forge:
        connect(repo, forge, **EVERYTHING)
        number = forge.open("Issue a", scripted("a"), labels=["agent"])
        # The comment is written, and the run dies before it hears of it.
        assert live(repo, HOLDFAST_CRASH_AT="publish.sent:1") == -signal.SIGKILL
        assert len(forge.comments[number]) == 1, "the fault did not fire"
        for key in state(repo).outbox:
            holdfast(repo, "outbox", "--retry", key)
        assert live(repo, HOLDFAST_CRASH_AT="publish.asked:1") == -signal.SIGKILL, "nobody asked for it"
        run_to_the_end(repo)
        expect_each_once(repo, forge, {number})


@pytest.mark.heavy
@pytest.mark.timeout(3600)
def test_kills_at_random_moments_lose_and_double_nothing(repo: Path) -> None:
    """Real processes, killed with SIGKILL; the tracker is slow, answers 5xx and limits, and loses answers."""
    chance = random.Random(SEED)
    facts: Counter[str] = Counter()
    with ForgeDouble(seed=SEED, fault_rate=0.12, latency_s=0.05) as forge:
        connect(repo, forge, **EVERYTHING)
        wanted: set[int] = set()
        while facts["kills"] < KILLS:
            is_over = {number for number in wanted if forge.issues[number]["state"] == "closed"}
            if len(wanted - is_over) < 3:
                wanted.add(forge.open("An issue", scripted(f"f{len(wanted)}"), labels=["agent"]))
            what = ("sync",) if chance.random() < 0.2 else ("run", "--plain")
            code = live(repo, *what, kill_after_s=chance.uniform(0.3, 6.0))
            facts["kills" if code == -signal.SIGKILL else "ends"] += 1
            facts[f"killed {what[0]}"] += code == -signal.SIGKILL
        forge._rate = 0.0
        run_to_the_end(repo)
        expect_each_once(repo, forge, wanted)
        facts += Counter({f"fault {name}": count for name, count in forge.fired.items()})
        facts["issues"] = len(wanted)
        facts["requests"] = len(forge.requests)
        print(f"\n{dict(sorted(facts.items()))}: 0 lost, 0 doubled")
        assert forge.fired or KILLS < 10, "no fault fired"
