"""A subtask is no way out: it may change no more than the task that asked for it, and all share one budget."""

from __future__ import annotations

from pathlib import Path

from kit.project import make_repo, settings
from kit.server import add_asking, served
from kit.waiting import wait_for

LIMITS = {"turns_per_task": 10, "tokens_per_task": 1000, "seconds_per_task": 600, "usd_per_task": 3}


def test_subtasks_keep_the_paths_and_share_every_budget(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    settings(repo, budgets=LIMITS)
    add_asking(repo, "a", "touch answers", paths=["src/", "docs/*.md"])
    with served(repo, "run", "--stay", "--plain") as server:
        wait_for((repo / "codes").exists, "its token")
        agent = server.with_token((repo / "token").read_text())
        for wider in (["**"], ["src/../x"], ["docs/"], ["src"], ["*.py"], ["src/x", "Makefile"], []):
            asked = agent.ask("POST", "/tasks/a/split", {"tasks": [{"id": "out", "goal": "x", "paths": wider}]})
            assert (asked.status, asked.code) == (403, "paths_too_wide") if wider else asked.status == 200, wider
            if not wider:
                break
        made = server.operator.get("/tasks/out")["definition"]
        assert made["paths"] == ["src/", "docs/*.md"]
        assert made["budget_usd"] <= 3 and made["budget_turns"] <= 10 and made["budget_seconds"] <= 600


def test_three_subtasks_have_a_third_each(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    settings(repo, budgets=LIMITS)
    add_asking(repo, "a", "touch answers")
    with served(repo, "run", "--stay", "--plain") as server:
        wait_for((repo / "codes").exists, "its token")
        agent = server.with_token((repo / "token").read_text())
        refused = agent.ask("POST", "/tasks/a/split", {"tasks": [{"goal": "x", "budget_turns": 99}]})
        assert refused.code == "not_an_agents_to_say"
        agent.post("/tasks/a/split", {"tasks": [{"id": f"s{number}", "goal": "x"} for number in range(3)]})
        made = [server.operator.get(f"/tasks/s{number}")["definition"] for number in range(3)]
    for name, most in (("usd", 3), ("tokens", 1000), ("turns", 10), ("seconds", 600)):
        given = [each[f"budget_{name}"] for each in made]
        assert len(set(given)) == 1 and 0 < sum(given) <= most, (name, given)
