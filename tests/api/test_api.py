"""Whatever is asked, the server answers as its OpenAPI document says: no fault of ours, no other status or shape.

HOLDFAST_EXAMPLES is how many requests are made up for each operation, of each kind.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

from holdfast.domain.task import TaskState
from holdfast.server.serving import read_address
from kit.project import add, layout, make_repo, settings, sound, state
from kit.server import Server, served
from kit.waiting import wait_for

SCHEMATHESIS = os.environ["HOLDFAST_SCHEMATHESIS"]
EXAMPLES = os.environ.get("HOLDFAST_EXAMPLES", "8")
HERE = Path(__file__).parent
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance",
)  # fmt: skip
OPERATIONS_MIN, WELL_MIN = 50, 35
# Claimed from outside: what is completed, failed or released is no longer there for the others.
MINE = [f"mine{number}" for number in range(12)]


def test_the_server_does_what_its_document_says(tmp_path: Path) -> None:
    """An agent that works is left by a run that is killed; the server that follows it starts none of its own.

    So nothing that is made up here is ever run as a command.
    """
    repo = make_repo(tmp_path / "repo")
    at_work(repo, tmp_path / "go")
    with served(repo) as server:
        known = work_outside(server)
        done = schemathesis(server, known, tmp_path)
        print(done.stdout)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        tested = re.search(r"Tested: (\d+)", done.stdout)
        assert tested is not None and int(tested[1]) >= OPERATIONS_MIN
        assert len(went_well(server)) >= WELL_MIN
        assert server.nobody.ask("GET", "/health/ready").status == 200
        (tmp_path / "go").touch()
    sound(repo)


def went_well(server: Server) -> set[str]:
    """The operations that were not only refused: without ids that exist, most would be."""
    now = read_address(layout(server.repo))
    assert now is not None
    text = server.with_token(now.token).ask("GET", "/metrics").content.decode()
    asked = re.findall(r'holdfast_request_seconds_count\{operation="(\w+)",status="(\d+)"\}', text)
    well = {name for name, status in asked if status < "300"}
    print("only refused:", *sorted({name for name, _ in asked} - well))
    return well


def at_work(repo: Path, gate: Path) -> None:
    """One task has landed, one has failed, one waits for a person, and one is worked on."""
    settings(repo, max_attempts=1, max_agents=2)
    add(repo, "landed", "write a x\nsay it costs\nwrite a y", verify=["test -f a"])
    add(repo, "failed", "fail")
    add(repo, "asks", "write b x", approve=True)
    add(repo, "works", f"write c x\nrun while ! test -e {gate}; do sleep 0.05; done", depends_on=["landed"])
    wanted = {"landed": TaskState.CLOSED, "failed": TaskState.FAILED, "asks": TaskState.PENDING_APPROVAL}
    with served(repo, "run", "--stay", "--plain") as run:
        wait_for(lambda: {name: state(repo).tasks[name].state for name in wanted} == wanted, "the ends of three")
        wait_for(lambda: state(repo).tasks["works"].spent.turns > 0, "a turn of the fourth")
        run.kill()


def work_outside(server: Server) -> dict[str, list[str]]:
    ask = server.operator
    for name in (*MINE, "free", "waits"):
        ask.post("/tasks", {"id": name, "goal": "x", "depends_on": ["free"] if name == "waits" else []})
    claims = [ask.post(f"/tasks/{name}/claim", {"worker": "ann"})["claim"] for name in MINE]
    blobs = [ask.ask("POST", "/blobs", text).json["digest"] for text in (b"some text", b"\x00\xff")]
    attempts = ["landed.1", "failed.1", "asks.1", "works.1", "mine0.1"]
    tasks = [each["id"] for each in ask.get("/tasks")["tasks"]]
    return {"task": tasks, "attempt": attempts, "digest": blobs, "claim": claims}


def schemathesis(server: Server, known: dict[str, list[str]], folder: Path) -> subprocess.CompletedProcess[str]:
    argv = [
        SCHEMATHESIS, "run", f"{server.address.url}/openapi.json", "--phases", "examples,coverage,fuzzing,stateful",
        "--checks", ",".join(CHECKS), "--exclude-path", "/events", "--max-examples", EXAMPLES, "--mode", "all",
        "--request-timeout", "60", "--continue-on-failure", "--suppress-health-check", "all", "--no-color",
    ]  # fmt: skip
    env = {
        **os.environ,
        "HOLDFAST_API_KNOWN": json.dumps(known),
        "HOLDFAST_API_ADDRESS": str(layout(server.repo).server),
        "SCHEMATHESIS_HOOKS": "hooks",
        "PYTHONPATH": str(HERE),
    }
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=3000, check=False)
