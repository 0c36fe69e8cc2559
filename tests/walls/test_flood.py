"""An agent that says the same without end, to a real server: most is refused, and nothing grows with the rest."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

from kit.project import layout, make_repo
from kit.server import add_asking, served
from kit.waiting import wait_for

MESSAGE = "x" * 9_000
MESSAGES = 800


def on_disk(root: Path) -> int:
    """Of all but the server's log, which is rotated."""
    files = (path for path in root.rglob("*") if path.is_file() and "server.log" not in path.name)
    return sum(path.stat().st_size for path in files)


def memory(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def test_a_flood_of_progress_is_refused_and_neither_disk_nor_memory_grow_with_it(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    add_asking(repo, "a", "touch answers")
    with served(repo, "run", "--stay", "--plain") as server, contextlib.ExitStack() as then:
        then.callback((repo / "go").touch)
        wait_for((repo / "codes").exists, "the agent at work")
        agent = server.with_token((repo / "token").read_text())
        # What is made once is there before it is measured.
        assert agent.ask("POST", "/tasks/a/progress", {"message": "begun"}).status == 200
        root = layout(repo).root
        before, had = on_disk(root), memory(server.process.pid)
        answers = Counter(agent.ask("POST", "/tasks/a/progress", {"message": MESSAGE}).status for _ in range(MESSAGES))
        flood = MESSAGES * len(MESSAGE)
        grown, more = on_disk(root) - before, memory(server.process.pid) - had
        assert answers.keys() <= {200, 429} and answers[429] > MESSAGES // 2, answers
        # Each that is taken is in the journal and in the audit log, and there are at most 1 MiB of them.
        assert grown < flood // 4, (grown, flood)
        assert more < flood, (more, flood)
        assert server.operator.get("/tasks/a")["task"]["state"] == "IN_PROGRESS"
