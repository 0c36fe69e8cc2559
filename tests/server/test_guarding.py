"""Who is let in, how far, and what is put on record of it."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.task import TaskState
from holdfast.server.access import denials, subtask_limits
from holdfast.server.serving import read_address
from kit.program import HOLDFAST, environment, holdfast
from kit.project import add, layout, make_repo, settings, sound, state
from kit.server import Server, add_asking, served
from kit.waiting import wait_for

pytestmark = pytest.mark.usefixtures("task_t")
# What an agent asks in the test below.
QUESTIONS = """
ask "$HOLDFAST_URL/tasks/a/progress" -d '{"message":"half"}'
ask "$HOLDFAST_URL/tasks/a/heartbeat" -d '{}'
ask "$HOLDFAST_URL/tasks/a/release" -d '{}'
ask "$HOLDFAST_URL/tasks/a"
ask "$HOLDFAST_URL/tasks/b"
ask "$HOLDFAST_URL/tasks"
ask "$HOLDFAST_URL/tasks/b/progress" -d '{"message":"half"}'
"""


def test_the_tokens_are_for_their_owner_only(server: Server) -> None:
    for path in (layout(server.repo).server, layout(server.repo).server_key):
        assert path.stat().st_mode & 0o777 == 0o600, path


@pytest.mark.parametrize("token", ["", "nonsense", "hfo_" + "0" * 40, "hfa_t.1.1." + "0" * 40, "hfa_", "é"])
def test_a_client_without_a_token_learns_nothing(server: Server, token: str) -> None:
    header = {"authorization": f"Bearer {token}"} if token else {}
    for path in ("/tasks", "/tasks/t", "/status", "/events", "/metrics", "/journal"):
        answer = server.nobody.ask("GET", path, **{name: value.encode() for name, value in header.items()})
        assert answer.status == 401 and answer.code in ("token_missing", "token_unknown")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_a_reader_changes_nothing(server: Server) -> None:
    assert server.reader.get("/tasks")["total"] == 1
    for path, body in (("/tasks", {"goal": "x"}), ("/tasks/t/cancel", {}), ("/tasks/claim", {"worker": "w"})):
        answer = server.reader.ask("POST", path, body)
        assert (answer.status, answer.code) == (403, "token_reads_only")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]", ""])
def test_a_foreign_name_that_leads_here_gets_nothing(server: Server, host: str) -> None:
    answer = server.operator.ask("GET", "/tasks", host=host)
    assert answer.status in (400, 421)


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec_fetch_site": "cross-site"}]
)
def test_a_page_of_another_origin_changes_nothing(server: Server, headers: dict[str, str]) -> None:
    answer = server.operator.ask("POST", "/tasks", {"goal": "x"}, **headers)
    assert (answer.status, answer.code) == (403, "origin_foreign")
    assert server.operator.get("/tasks")["total"] == 1


def test_the_servers_own_page_may_ask(server: Server) -> None:
    assert server.operator.ask("GET", "/tasks", origin=server.address.url).status == 200


def test_the_page_can_run_nothing_but_its_own_files(server: Server) -> None:
    for path in ("/", "/docs"):
        answer = server.nobody.ask("GET", path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    for path in ("/web/..%2f..%2fauth.py", "/web/%2e%2e/api.py", "/web/nothing.js", "/web/"):
        assert server.nobody.ask("GET", path).status == 404


def test_refusals_are_logged_without_the_token(server: Server) -> None:
    server.reader.ask("POST", "/tasks/t/cancel", {})
    log = layout(server.repo).audit

    def told() -> list[str]:
        return [path.read_text() for path in log.glob("*.jsonl")]

    wait_for(lambda: "token_reads_only" in "".join(told()), "the denial in the audit log")
    text = "".join(told())
    assert "server_started" in text and server.address.token not in text and server.address.reader_token not in text


def test_an_agents_token_reaches_its_own_task_and_dies_with_it(tmp_path: Path) -> None:
    """The agent itself says so: it asks with what it was given, and writes down what it got."""
    repo = make_repo(tmp_path)
    add_asking(repo, "a", QUESTIONS)
    add(repo, "b", "write b.txt x", depends_on=["a"])
    with served(repo, "run", "--stay", "--plain") as server:
        wait_for((repo / "codes").exists, "its answers")
        assert (repo / "codes").read_text().split() == ["200", "200", "409", "200", "403", "403", "403"]
        assert server.operator.get("/tasks/a")["task"]["progress"] == "half"
        agent = server.with_token((repo / "token").read_text().strip())
        assert agent.get("/auth/me") == {"role": "agent", "task": "a", "attempt": "a.1"}
        begun = server.operator.get("/journal?limit=1")["next"]
        stream = agent.frames("/events", Last_Event_ID=begun)
        told = [json.loads(next(stream)["data"])]
        (repo / "go").touch()
        # It ends by itself: with the claim the token is void, and the stream with it.
        told += [json.loads(frame["data"]) for frame in stream]
        assert {each["task"] for each in told} == {"a"} and "task_closed" not in {each["kind"] for each in told}
        wait_for(lambda: state(repo).tasks["b"].state is TaskState.CLOSED, "both tasks closed")
        late = agent.ask("GET", "/tasks/a")
        assert (late.status, late.code) == (401, "token_unknown")
    audited = "".join(path.read_text() for path in layout(repo).audit.glob("*.jsonl"))
    assert audited.count('"token_issued"') == 2 and agent.token not in audited
    sound(repo)


def on_record(repo: Path, event: str) -> list[dict[str, Any]]:
    lines = [line for path in sorted(layout(repo).audit.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [each for line in lines if f'"{event}"' in line for each in [json.loads(line)]]


def test_a_revocation_is_on_record_when_it_is_answered(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    with served(repo) as server:
        for number in range(1, 11):
            server.operator.post("/auth/revoke", {"role": "reader"})
            assert len(on_record(repo, "tokens_revoked")) == number


def test_many_denials_hide_none_of_somebody_known_and_are_told_by_their_number(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    with served(repo) as server:
        strangers = server.with_token("hfo_wrong")
        for number in range(denials.STRANGERS_MAX + 30):
            assert (strangers if number % 2 else server.nobody).ask("GET", "/tasks").status == 401
        assert server.reader.ask("POST", "/tasks/x/cancel", {}).status == 403
        wait_for(lambda: any("token_reads_only" in str(each) for each in on_record(repo, "access_denied")), "a denial")
        told = server.operator.ask("GET", "/metrics").content.decode()
        assert f"holdfast_access_denied_total {denials.STRANGERS_MAX + 31}.0" in told
    found = on_record(repo, "access_denied")
    assert len(found) == denials.STRANGERS_MAX + 1 and any("token_missing" in str(each) for each in found)
    (more,) = on_record(repo, "access_denied_more")
    assert "30" in str(more) and "nobody" in str(more)
    sound(repo)


def test_a_server_answers_to_the_address_that_it_prints(tmp_path: Path) -> None:
    """127.0.0.2 is no name of loopback's to it, and yet this machine's."""
    repo = make_repo(tmp_path)
    with served(repo, "serve", "--host", "127.0.0.2", "--plain-beyond-loopback") as server:
        assert server.address.url.startswith("http://127.0.0.2:")
        assert server.operator.get("/tasks")["total"] == 0
        assert server.operator.ask("GET", "/tasks", host="evil.example").code == "host_unknown"


def test_an_agents_subtasks_are_its_own_agents_and_share_its_budget(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    settings(repo, routes=[{"role": "risky", "agent": "gemini", "model": "huge"}])
    add_asking(repo, "a", "touch answers", budget_usd=1, parent="top")
    add(repo, "top", "write t.txt x")
    add(repo, "other-task", "write b.txt x", depends_on=["a"])
    with served(repo, "run", "--stay", "--plain") as server:
        wait_for((repo / "codes").exists, "an agent that waits")
        agent = server.with_token((repo / "token").read_text())
        blocked = agent.ask("POST", "/tasks/a/block", {"on": ["other-tas"]})
        assert blocked.code == "task_unknown" and "other-task" not in blocked.json["detail"]
        below = [{"goal": "x", "parent": "top", "not_before": 4e9} for _ in range(subtask_limits.DESCENDANTS_MAX - 4)]
        server.operator.post("/tasks/batch", {"tasks": below})
        new = [{"id": f"sub{number}", "goal": "x", "role": "risky"} for number in range(4)]
        wide = agent.ask("POST", "/tasks/a/split", {"tasks": new})
        assert (wide.status, wide.code) == (403, "split_too_wide")
        agent.post("/tasks/a/split", {"tasks": new[:3]})
        for number in range(3):
            made = server.operator.get(f"/tasks/sub{number}")["definition"]
            assert (made["agent"], made["role"], made["budget_usd"]) == ("scripted", "risky", 0.333333)
    sound(repo)


def test_an_agent_splits_only_so_deep(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    names = [f"p{number}" for number in range(subtask_limits.DEPTH_MAX)]
    for name, parent in zip(names, [None, *names], strict=False):
        add(repo, name, "write x.txt x", **({"parent": parent} if parent else {}))
    add_asking(repo, "a", 'ask "$HOLDFAST_URL/tasks/a/split" -d \'{"tasks":[{"goal":"x"}]}\'', parent=names[-1])
    with served(repo, "run", "--stay", "--plain") as server:
        wait_for((repo / "codes").exists, "its answer")
        assert (repo / "codes").read_text().split() == ["403"]
        agent = server.with_token((repo / "token").read_text())
        assert agent.ask("POST", "/tasks/a/split", {"tasks": [{"goal": "x"}]}).code == "split_too_deep"
        (repo / "go").touch()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_server_without_a_certificate_does_not_listen_beyond_loopback(tmp_path: Path, host: str) -> None:
    repo = make_repo(tmp_path)
    said = holdfast(repo, "serve", "--host", host, code=2, env={"X": "1"})
    assert "tls_cert" in said and "Nothing was started" in said


def test_a_stop_answers_what_was_asked_and_leaves_agents_at_work(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    add(repo, "a", "run while [ ! -e ../../../go ]; do sleep 0.05; done; echo x > made.txt")
    with served(repo, "run", "--stay", "--plain") as server:
        wait_for(lambda: "a" in state(repo).tasks and state(repo).tasks["a"].state is TaskState.IN_PROGRESS, "an agent")
        begun = server.operator.get("/journal?limit=1")["next"]
        follower = server.operator.frames("/events", Last_Event_ID=begun)
        assert next(follower)["event"]
        server.process.send_signal(signal.SIGTERM)
        # It is let go in order: its stream comes to an end, and is not cut off.
        list(follower)
        assert server.process.wait(120) == 20
    assert state(repo).tasks["a"].state is TaskState.IN_PROGRESS
    assert not layout(repo).server.exists()
    (repo / "go").touch()
    holdfast(repo, "run")
    assert state(repo).tasks["a"].state is TaskState.CLOSED and state(repo).tasks["a"].start.number == 1
    sound(repo)


@pytest.mark.heavy
def test_beyond_loopback_with_tls(tmp_path: Path) -> None:
    repo, cert, key = make_repo(tmp_path), tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*made, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    command = [*HOLDFAST, "serve", "--host", "0.0.0.0", "--tls-cert", str(cert), "--tls-key", str(key)]
    process = subprocess.Popen(command, cwd=repo, env=environment(repo), stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: read_address(layout(repo)) is not None, "its address")
        address = read_address(layout(repo))
        assert address is not None and address.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(cert))
        port = int(address.url.rpartition(":")[2])
        connection = http.client.HTTPSConnection("localhost", port, context=trusting, timeout=60)
        connection.request("GET", "/tasks", headers={"authorization": f"Bearer {address.token}"})
        assert connection.getresponse().status == 200
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health/live", timeout=60)
    finally:
        process.terminate()
        assert process.wait(120) == 0


def test_a_certificate_that_is_none_is_reported(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    said = holdfast(repo, "serve", "--tls-cert", str(tmp_path / "none"), "--tls-key", "none", code=2, env={"X": "1"})
    assert "certificate" in said and "Nothing was started" in said
