"""The server: what durability costs its clients, whether a claim stays cheap, followers, and how soon it is ready."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.engine import Repo, Used, nanoseconds, wait_for
from bench.harness import Row, alternate
from holdfast.server.serving import Address, read_address

CONNECTIONS = 64
BATCH = 1000
FOLLOWERS, EVENTS_PER_S = 200, 1000
KEPT, WARM_S = 1000, 3
READY_S = 0.5
POLL_S = 0.002
FILING_S = 0.05


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    yield durable(folder / "durable", 1_000 if quick else 4_000, 2 if quick else 7)
    yield claims(folder / "claims", 10_000 if quick else 100_000, 100 if quick else 300, 2 if quick else 5)
    yield from following(folder / "following", 4 if quick else 15)
    yield ready(folder / "ready", 2_000 if quick else 10_000, 3 if quick else 9)


class Served:
    """A repository with `holdfast serve` over it; `module` is what takes the place of `holdfast`."""

    def __init__(self, folder: Path, module: str = "holdfast", **settings: int) -> None:
        self.repo = Repo(folder)
        self._argv = [sys.executable, "-m", module, "serve"]
        self._env = {**self.repo.env, **{f"HOLDFAST_SERVER__{name.upper()}": str(n) for name, n in settings.items()}}
        self._env["PYTHONPATH"] = str(Path(__file__).parent.parent)
        # As after an installation: the modules are there as bytecode.
        self._env.pop("PYTHONDONTWRITEBYTECODE", None)
        self._env["PYTHONPYCACHEPREFIX"] = str(folder.parent / "bytecode")

    @contextlib.contextmanager
    def serving(self) -> Iterator[Served]:
        with (self.repo.path.parent / f"{self.repo.path.name}.log").open("ab") as log:
            process = subprocess.Popen(
                self._argv, cwd=self.repo.path, env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.pid = process.pid
        try:
            wait_for(lambda: process.poll() is not None or self._is_ready(), POLL_S)
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with {process.returncode}; see {self.repo.path}.log")
            yield self
        finally:
            # Told nothing, because one that keeps no journal cannot end in order.
            process.kill()
            process.wait()

    def _is_ready(self) -> bool:
        found = read_address(self.repo.layout)
        if found is None or found.process.pid != self.pid:
            return False
        self.address: Address = found
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"{found.url}/health/ready").status == 200
        return False

    def ask(self, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(
            f"{self.address.url}{path}", content, {"Authorization": f"Bearer {self.address.token}"}
        )
        with urllib.request.urlopen(asked) as answer:
            found = answer.read()
        return json.loads(found) if path != "/metrics" else found.decode()

    def metric(self, name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.ask("/metrics"), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def fill(self, count: int) -> None:
        """So many open tasks, in batches, each with its file."""
        for first in range(0, count, BATCH):
            tasks = [{"id": f"t{first + number}", "goal": "x"} for number in range(min(BATCH, count - first))]
            self.ask("/tasks/batch", {"tasks": tasks})
        self.settle()

    def settle(self) -> None:
        """Waits until every task has its file, and nothing is being moved."""
        wait_for(lambda: self.metric("holdfast_tasks_unfiled") == 0, FILING_S)
        self.rest()

    def rest(self) -> None:
        """Waits until it has nothing to do."""
        used = -1.0
        while (now := Used(self.pid).own) > used + 0.03:
            used = now
            time.sleep(0.2)

    def load(self, **told: Any) -> dict[str, float]:
        line = json.dumps({"url": self.address.url, "token": self.address.token, **told})
        argv = [sys.executable, "-m", "bench.load"]
        done = subprocess.run(argv, cwd=Path(__file__).parent.parent, input=line, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return dict(json.loads(done.stdout))


# -- what it costs that an answer means durable -----------------------------------------------------------------------


def durable(folder: Path, count: int, rounds: int) -> Row:
    numbers = itertools.count()
    slow: dict[str, list[float]] = {"p50": [], "p99": []}

    def rate(server: Served) -> float:
        bodies = [{"id": f"t{next(numbers)}", "goal": "Mend the login, and say how"} for _ in range(count)]
        found = server.load(do="post", requests=[("/tasks", body) for body in bodies], connections=CONNECTIONS)
        if server is kept:
            for name, values in slow.items():
                values.append(found[name] * 1e3)
        server.settle()
        return found["rate"]

    with Served(folder / "kept").serving() as kept, Served(folder / "not", "bench.unjournalled").serving() as forgotten:
        ratio, mine, theirs = alternate(lambda: rate(kept), lambda: rate(forgotten), rounds)
    p50, p99 = (statistics.median(values) for values in slow.values())
    detail = f"{mine:,.0f}/s against {theirs:,.0f}/s; p50 {p50:.0f} ms, p99 {p99:.0f} ms; files written meanwhile"
    name = f"durable POST /tasks, {CONNECTIONS} connections"
    return Row(name, "same app, append replaced by nothing", ratio, 0.5, False, detail)


# -- whether a claim stays cheap --------------------------------------------------------------------------------------


def claims(folder: Path, many: int, count: int, rounds: int) -> Row:
    """One client, one connection. The time is the server's own, from its histogram; the CPU is all that it uses."""
    few = 1_000 + (rounds + 1) * count
    cpu: dict[str, list[float]] = {"many": [], "few": []}

    def cost(server: Served, which: str) -> float:
        name = 'holdfast_request_seconds_sum{operation="claim_next",status="200"}'
        before = server.metric(name)
        server.rest()
        used = nanoseconds(server.pid)
        server.load(do="post", requests=[("/tasks/claim", {"worker": "ann"})] * count, connections=1)
        server.rest()
        cpu[which].append((nanoseconds(server.pid) - used) / count / 1e6)
        return (server.metric(name) - before) / count

    with Served(folder / "few").serving() as small, Served(folder / "many").serving() as large:
        small.fill(few)
        large.fill(many)
        ratio, mine, theirs = alternate(lambda: cost(large, "many"), lambda: cost(small, "few"), rounds)
    spent = [statistics.median(cpu[which]) for which in ("many", "few")]
    detail = (
        f"{mine * 1e3:.2f} ms against {theirs * 1e3:.2f} ms, sync included; "
        f"CPU {spent[0]:.1f} ms against {spent[1]:.1f} ms, the move of the file included"
    )
    return Row(f"claim the next of {many:,} tasks", f"of {few:,}", ratio, 2, True, detail)


# -- followers --------------------------------------------------------------------------------------------------------


def following(folder: Path, span_s: int) -> Iterator[Row]:
    """Progress comes at a steady rate. One more follower never reads; in the end it gets more than it can hold."""
    served = Served(folder, followers_per_client_max=FOLLOWERS + 10, events_kept=KEPT)
    with served.serving() as server:
        server.ask("/tasks", {"id": "t", "goal": "x"})
        claim = server.ask("/tasks/t/claim", {"worker": "ann"})["claim"]
        server.settle()
        tell(server, claim, WARM_S)
        before = Used(server.pid).memory
        with sleeper(server):
            found = tell(server, claim, span_s)
            after = Used(server.pid).memory
            long = {"claim": claim, "message": "x" * 9_900}
            server.load(do="post", requests=[("/tasks/t/progress", long)] * (2 * KEPT), connections=CONNECTIONS)
            wait_for(lambda: server.metric("holdfast_followers_dropped_total") == 1)
    events = span_s * EVENTS_PER_S
    name = f"{FOLLOWERS} followers, {EVENTS_PER_S:,} events/s: all have all"
    detail = (
        f"{events:,} events told in {found['posted']:.1f} s, the last follower had all {found['late'] * 1e3:.0f} ms "
        "later, each once; beside them one that never read, and was let go"
    )
    yield Row(name, f"the {span_s} s they come in", (found["posted"] + found["late"]) / span_s, 1.1, True, detail)
    detail = f"{after:.1f} MiB against {before:.1f} MiB"
    yield Row(f"the server's memory after {events:,} events to each", "before", after / before, 1.3, True, detail)


def tell(server: Served, claim: str, seconds: int) -> dict[str, float]:
    """Tells progress to new followers, for so long."""
    found = server.load(
        do="follow", after=server.ask("/status")["cursor"], path="/tasks/t/progress", claim=claim, message="x" * 300,
        count=seconds * EVENTS_PER_S, rate=EVENTS_PER_S, posters=CONNECTIONS, followers=FOLLOWERS, patience=60,
    )  # fmt: skip
    if found["faults"] or found["behind"]:
        raise RuntimeError(f"followers did not see every event once: {found}")
    return found


@contextlib.contextmanager
def sleeper(server: Served) -> Iterator[None]:
    """A follower that never reads."""
    host, port = server.address.url.removeprefix("http://").split(":")
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.connect((host, int(port)))
        head = f"GET /events HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {server.address.token}\r\n\r\n"
        made.sendall(head.encode())
        yield


# -- how soon it is ready ---------------------------------------------------------------------------------------------


def ready(folder: Path, count: int, rounds: int) -> Row:
    """Until a list of tasks was asked for and given, and is right: all are counted, and what their files say is there.

    `/health/ready` says so before, so that is part of the time. What was read of the files is in the cache; without it,
    after an upgrade for example, all of them are read.
    """
    served = Served(folder)
    with served.serving() as server:
        server.fill(count)
    taken: dict[str, list[float]] = {"cached": [], "anew": []}
    for which, _ in itertools.product(taken, range(rounds)):
        if which == "anew":
            served.repo.layout.definitions.unlink(missing_ok=True)
        began = time.perf_counter()
        with served.serving() as server:
            page = server.ask("/tasks?limit=1000")
            taken[which].append(time.perf_counter() - began)
            if page["total"] != count or not all(each.get("title") for each in page["tasks"]):
                raise RuntimeError("the first list of tasks is not whole")
    median, anew = (statistics.median(values) for values in taken.values())
    detail = f"{median * 1e3:.0f} ms; {anew * 1e3:.0f} ms where the cache of definitions is gone"
    return Row(f"start to the first GET /tasks, {count:,} tasks", f"{READY_S} s", median / READY_S, 1, True, detail)
