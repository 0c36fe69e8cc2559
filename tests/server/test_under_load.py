"""SIGKILL for the server while 64 clients ask and others follow: what was answered is there, once; no gap, no double.

A kill comes after a seeded number of answers, so there is load whatever the machine; HOLDFAST_SEED chooses the seed of
a campaign that is to be seen again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import resource
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from holdfast.server.serving import read_address
from holdfast.storage.journal.entry import Entry
from holdfast.storage.journal.reader import Chain
from kit.load import Load, Request
from kit.program import HOLDFAST, environment
from kit.project import layout, make_repo, sound, state
from kit.server import served
from kit.waiting import WAIT_S_MAX, wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy

KILLS = int(os.environ.get("HOLDFAST_KILLS", "500"))
# So many in one repository: the journal and the backlog grow with every life, and each start reads them.
KILLS_A_ROUND = 25
CLIENTS, FOLLOWERS = 64, 5
ANSWERS = (20, 600)
CUT_OFF_MIN = 5
EARLY_SHARE, EARLY_S = 0.15, 1.0
ENDED = {TaskState.DONE, TaskState.CLOSED}


@pytest.mark.crash
def test_answered_requests_outlive_two_kills_under_load(tmp_path: Path) -> None:
    facts = Round(tmp_path, os.environ.get("HOLDFAST_SEED", "short"), 2).run()
    assert facts["kills under load"] == 2


@pytest.mark.crash
def test_answered_requests_outlive_any_kill_under_load(tmp_path: Path) -> None:
    seed, left, facts = os.environ.get("HOLDFAST_SEED", str(time.time_ns())), KILLS, Counter[str]()
    print(f"HOLDFAST_SEED={seed}")
    for number in range(0, KILLS, KILLS_A_ROUND):
        found = Round(tmp_path / str(number), f"{seed} {number}", min(left, KILLS_A_ROUND)).run()
        left -= found["kills under load"]
        facts += found
    print(dict(facts))
    assert facts["kills under load"] == KILLS


def test_the_second_file_that_a_kill_left_of_a_task_goes_with_the_next_start(tmp_path: Path) -> None:
    """A move puts the new file down before it removes the old one; here the kill comes in between."""
    repo = make_repo(tmp_path)
    old, new = (folder / "t.yaml" for folder in (layout(repo).backlog_open, layout(repo).backlog_claimed))
    with served(repo) as first:
        first.operator.post("/tasks", {"id": "t", "goal": "x"})
        wait_for(old.exists, "the file of the task")
        text = old.read_bytes()
        first.operator.post("/tasks/t/claim", {"worker": "ann"})
        wait_for(lambda: new.exists() and not old.exists(), "its file among those that are claimed")
        first.kill()
    old.write_bytes(text)
    with served(repo):
        wait_for(lambda: not old.exists(), "one file")
    assert new.exists()
    sound(repo)


def test_a_batch_of_more_tasks_than_files_may_be_open_gets_its_files(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    with served(repo) as server:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (512, 512))
        tasks = [{"id": f"t{number}", "goal": "x"} for number in range(1000)]
        server.operator.post("/tasks/batch", {"tasks": tasks})
        wait_for(lambda: len(list(layout(repo).backlog_open.glob("*.yaml"))) == len(tasks), "all files")
        assert server.operator.get("/tasks?limit=1")["total"] == len(tasks)
    sound(repo)


class Round:
    """One repository, and the lives of its server."""

    def __init__(self, folder: Path, seed: str, kills: int) -> None:
        folder.mkdir(exist_ok=True)
        self.repo, self.log = make_repo(folder / "repo"), folder / "server.log"
        self.seed, self.chance, self.kills = seed, random.Random(seed), kills

    def run(self) -> Counter[str]:
        first = self.start()
        wait_for(lambda: self.log.read_text() != "" and read_address(layout(self.repo)) is not None, "a server")
        address = read_address(layout(self.repo))
        assert address is not None

        def token() -> str:
            found = read_address(layout(self.repo))
            return found.token if found is not None else ""

        self.load = Load(address.url, token, self.seed)
        begun = journal(self.repo)[0][0]
        self.seen = [[begun] for _ in range(FOLLOWERS)]
        asyncio.run(self.all(first))
        self.judge()
        return self.load.facts

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            env = environment(self.repo, HOLDFAST_SERVER__ENABLED="true")
            argv = [*HOLDFAST, "serve"]
            return subprocess.Popen(argv, cwd=self.repo, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    # -- the lives ----------------------------------------------------------------------------------------------------

    async def all(self, server: subprocess.Popen[bytes]) -> None:
        followers = [asyncio.create_task(self.load.follower(seen)) for seen in self.seen]
        clients = asyncio.gather(*(self.load.client(number) for number in range(CLIENTS)))
        lives = asyncio.create_task(self.lives(server, clients))
        # One failure ends it for all: a client that is gone would be waited for in vain.
        done, _ = await asyncio.wait([clients, lives, *followers], return_when=asyncio.FIRST_COMPLETED)
        for each in (*done, lives):
            await each
        for each in followers:
            each.cancel()
        await asyncio.wait(followers)

    async def lives(self, server: subprocess.Popen[bytes], clients: asyncio.Future[list[None]]) -> None:
        try:
            for _ in range(self.kills):
                await self.answers(server)
                in_flight = self.load.mark_in_flight()
                server.kill()
                self.load.facts["kills under load"] += 1
                self.load.facts["in flight"] += in_flight
                server.wait()
                if self.chance.random() < EARLY_SHARE:
                    await self.kill_early()
                server = self.start()
            await self.answers(server)
            self.load.over = True
            await clients
            await self.followers_see_the_end()
        finally:
            server.terminate()
            server.wait()
        assert server.returncode == 0, self.log.read_text()[-2000:]

    async def answers(self, server: subprocess.Popen[bytes]) -> None:
        """Waits for a number of answers of this life."""
        wanted = len(self.load.answered) + self.chance.randint(*ANSWERS)
        async with asyncio.timeout(WAIT_S_MAX):
            while len(self.load.answered) < wanted:
                assert server.poll() is None, self.log.read_text()[-2000:]
                await asyncio.sleep(0.001)

    async def kill_early(self) -> None:
        """While it begins, or recovers."""
        server = self.start()
        await asyncio.sleep(self.chance.uniform(0, EARLY_S))
        self.load.mark_in_flight()
        server.kill()
        server.wait()
        self.load.facts["kills while it begins"] += 1

    async def followers_see_the_end(self) -> None:
        last = journal(self.repo)[-1][0]
        async with asyncio.timeout(WAIT_S_MAX):
            while not all(last in seen[-1000:] for seen in self.seen):
                await asyncio.sleep(0.02)

    # -- afterwards ---------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        load, entries = self.load, journal(self.repo)
        load.facts["answered"] = len(load.answered)
        load.facts["unknown to their clients"] = len(load.unknown)
        print(dict(load.facts))
        assert load.facts["cut off"] >= CUT_OFF_MIN * self.kills and load.facts["sent again"]
        judge_changes(load, [entry for _, entry in entries])
        judge_claims(load, [entry for _, entry in entries])
        order = [cursor for cursor, _ in entries]
        for seen in self.seen:
            assert seen == order[: len(seen)]
        now = state(self.repo).tasks
        assert all(now[each.mark].state in ENDED for each in load.answered if each.kind == "task_done")
        sound(self.repo)


def journal(repo: Path) -> list[tuple[str, Entry]]:
    return [(f"{run}:{entry.seq}", entry) for run, entry in Chain(layout(repo).wal).entries()]


def judge_changes(load: Load, entries: list[Entry]) -> None:
    """Each answer has its entry, and no request has two, also when nobody knows what became of it."""
    by_key = Counter((each.decision_type, key) for each in entries if (key := each.inputs.get("idempotency_key")))
    assert max(by_key.values()) == 1
    marks: dict[str, Counter[str]] = defaultdict(Counter)
    for each in entries:
        marks[each.decision_type][each.inputs.get("message") or each.inputs.get("task", "")] += 1
    for each in load.answered:
        assert marks[each.kind][each.mark] == 1, each
        if each.key:
            assert by_key[each.kind, kept_key(each.key)] == 1, each
    assert all(marks[each.kind][each.mark] <= 1 for each in load.unknown)
    keys = {kept_key(each.key) for each in load.answered if each.key}
    ours = {key for (kind, key), _ in by_key.items() if kind == "request_answered"}
    assert keys <= ours


def judge_claims(load: Load, entries: list[Entry]) -> None:
    """No lease runs out here, so every task is claimed at most once, by one client, under one key."""
    claimed = Counter(each.inputs["task"] for each in entries if each.decision_type == "task_claimed")
    assert max(claimed.values()) == 1
    holders: dict[str, set[str]] = defaultdict(set)
    for each in claims(load):
        holders[each.json["claim"]].add(each.key)
    assert holders and all(len(keys) == 1 for keys in holders.values())
    assert len(holders) == len({each.json["task"]["id"] for each in claims(load)})


def claims(load: Load) -> Iterator[Request]:
    return (each for each in load.answered if each.kind == "task_claimed")


def kept_key(key: str) -> str:
    """A key as the journal has it: the operator's own."""
    return hashlib.sha256(f"operator\0\0{key}".encode()).hexdigest()[:32]
