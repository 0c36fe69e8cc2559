"""Secrets that an agent or a gate prints, or says to the API, are not kept: not in logs, journal, blobs or streams."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import uuid
from pathlib import Path

import pytest

from holdfast.domain.attempt_records import Ending, Launch
from holdfast.storage.records import redact
from holdfast.storage.records.redact import REDACTED, Flow, Scrubber
from kit.program import holdfast
from kit.project import add, layout, make_repo, settings
from kit.runner import Bench
from kit.server import served
from kit.waiting import wait_for

plain = Scrubber(environ={})
R = "Zq7xK9mW2vB4nR8tY1uP5sD3"
HEX = hashlib.md5(b"x").hexdigest()
# Put together here, so that no scanner takes this file for a leak.
SECRETS = {
    "AWS id and secret": f"AKIAIOSFODNN7EXAMPLE,{(R + R)[:40]}",
    "AWS variable": f"AWS_SECRET_ACCESS_KEY={(R + R)[:40]}",
    "GitHub": f"ghp_{R}{R}",
    "GitHub, fine": f"github_pat_11AB_{R}",
    "GitLab": f"glpat-{R}",
    "GitLab runner": f"glrt-{R}",
    "Slack": f"xoxb-123456-{R}",
    "Slack app": f"xapp-1-A012-345-{R}",
    "Slack hook": f"https://hooks.slack.com/services/T000/B000/{R}",
    "Discord hook": f"https://discord.com/api/webhooks/1234/{R}",
    "Google": f"AIza{R}{R}",
    "Google client": f"GOCSPX-{R}",
    "Google access": f"ya29.{R}",
    "Stripe": f"sk_live_{R}",
    "Stripe hook": f"whsec_{R}{R}",
    "OpenAI": f"sk-proj-{R}",
    "Anthropic": f"sk-ant-api03-{R}",
    "npm": f"npm_{R}{R}",
    "npm settings": f"//registry.npmjs.org/:_auth={R}==",
    "PyPI": f"pypi-AgEI{R}{R}",
    "SendGrid": f"SG.{R}.{R}",
    "Twilio": f"SK{HEX}",
    "Telegram": f"123456789:AA{(R + R)[:33]}",
    "DigitalOcean": f"dop_v1_{HEX}{HEX}",
    "Docker": f"dckr_pat_{R}abc",
    "Databricks": f"dapi{HEX}",
    "Vault": f"hvs.{R}",
    "Hugging Face": f"hf_{R}{R}",
    "age": f"AGE-SECRET-KEY-1{R.upper()}",
    "Azure": f"AccountKey={R}{R}==;EndpointSuffix=core",
    "JWT": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx{R}.{R}",
    "in a URL": f"https://me:{R}@example.org/",
    "Authorization": f"Authorization: Bearer {R}",
    "token variable": f"DEPLOY_TOKEN={R}",
    "secret variable": f"export APP_SECRET='{R}'",
    "password variable": f"SMTP_PASSWORD: {R}",
    "short password variable": f"DB_PASS={R}",
    "pwd variable": f"MYSQL_PWD={R}",
    "private key": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{R}\n{R}\n-----END OPENSSH PRIVATE KEY-----",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_common_secret_is_replaced_where_it_stands_and_in_any_two_pieces(name: str) -> None:
    secret = SECRETS[name]
    for text in (secret, f"a\n{secret}\nb\n", json.dumps({"out": f"x {secret} y"})):
        cleaned = plain.clean_text(text)
        assert REDACTED in cleaned and R not in cleaned and HEX not in cleaned and R.upper() not in cleaned
    printed = f"a\n{secret}\nb\n".encode()
    wanted = plain.clean_text(printed.decode()).encode()
    for place in range(len(printed)):
        flow = Flow(plain)
        assert flow.feed(printed[:place]) + flow.feed(printed[place:]) + flow.rest() == wanted, place


def test_code_and_hashes_stay_as_they_are() -> None:
    source = Path(redact.__file__).read_bytes()
    digests = [f"{kind}: {getattr(hashlib, kind)(source).hexdigest()}" for kind in ("md5", "sha1", "sha256", "sha512")]
    ids = [str(uuid.UUID(hashlib.md5(bytes([number])).hexdigest())) for number in range(50)]
    words = [
        "assert test_pass == True and all_pass: true; basic_auth: true, use_auth=False",
        "TASK5f2a DISKS SKIP skeleton-key-frames-are-good risk-assessment-of-everything",
        "token_count=17 max_tokens: 4096 keyboard=qwerty author: Ada <ada@example.org>",
        "ssh://git@github.com/owner/repository.git https://example.org:8080/a@b",
        "index 3f786850e387..9ae4b1c1a3de 100644 --- a/src/x.py +++ b/src/x.py @@ -1,3 +1,4 @@",
        "sha512-" + base64.b64encode(hashlib.sha512(source).digest()).decode(),
        "10:AABB 12:30:AA-00 def pass_(self): pass; _PASS_COUNT = 3",
    ]
    for text in (*digests, *ids, *words, base64.b64encode(source).decode(), base64.encodebytes(source).decode()):
        assert plain.clean_text(text) == text


def test_a_flow_keeps_bytes_that_are_no_text_and_holds_no_more_than_its_most() -> None:
    flow, data = Flow(plain), bytes(range(256)) * 20_000
    out = b"".join(flow.feed(data[start : start + 9999]) for start in range(0, len(data), 9999))
    assert len(out) >= len(data) - redact.HELD_BYTES_MAX
    assert out + flow.rest() == data
    endless = b"-----BEGIN RSA PRIVATE KEY-----\n" + b"QUJD\n" * 400_000
    flow = Flow(plain)
    out = b"".join(flow.feed(endless[start : start + 99_999]) for start in range(0, len(endless), 99_999))
    assert out.startswith(REDACTED.encode()) and len(out + flow.rest()) < len(endless)


PRINTS = """
import sys, os, time
for part in ({first!r}, {second!r}):
    os.write(1, part.encode())
    os.write(2, b"beside\\n")
    while not os.path.exists("seen") and part == {first!r}:
        time.sleep(0.01)
sys.exit(1)
"""


def test_the_output_of_an_agent_is_kept_without_its_secrets(bench: Bench, tmp_path: Path) -> None:
    """In two pieces, with another stream between them; and as the reason for its end."""
    first, second = f"begun\nthe key is sk-ant-{R[:12]}", f"{R[12:]} as told\nDEPLOY_TOKEN={R}"
    script = tmp_path / "prints.py"
    script.write_text(PRINTS.format(first=first, second=second))
    order = bench.order(agent="command", launch=Launch((sys.executable, str(script))))
    runner = bench.start(order)
    wait_for(lambda: bench.files.output.exists() and b"beside" in bench.files.output.read_bytes(), "the first piece")
    assert R[:12].encode() not in bench.files.output.read_bytes()
    (bench.worktree / "seen").touch()
    assert runner.wait(120) == 0
    ended = bench.exit()
    assert ended.ending is Ending.FAILED
    for path in bench.files.root.rglob("*"):
        kept = path.read_bytes() if path.is_file() else b""
        assert R.encode() not in kept and R[12:].encode() not in kept, (path, kept)
    lines = bench.files.output.read_text().splitlines()
    assert sorted(lines) == ["DEPLOY_TOKEN=[redacted]", "begun", "beside", "beside", "the key is [redacted] as told"]


def test_the_output_of_a_gate_is_kept_without_its_secrets(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    out = tmp_path / "out.txt"
    out.write_text(f"token {SECRETS['GitHub']}\n{SECRETS['private key']}\nits own: value-of-mine-1\n")
    settings(repo, max_agents=1, max_attempts=1, gates=[{"name": "judge", "command": f"cat {out}; exit 1"}])
    add(repo, "t", "write a.txt x")
    told = holdfast(repo, "run", "--plain", code=None, env={"MY_API_KEY": "value-of-mine-1"})
    told += holdfast(repo, "gates", "t", "--full") + holdfast(repo, "show", "t", "--json")
    assert "[redacted]" in told and "its own: " in told
    files = [path for path in layout(repo).root.rglob("*") if path.is_file() and "worktrees" not in path.parts]
    for text in (told.encode(), *(path.read_bytes() for path in files)):
        assert R.encode() not in text and b"value-of-mine-1" not in text


def test_a_workers_words_are_journalled_without_its_secrets(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    for name in ("t", "u"):
        add(repo, name, "write a x")
    with served(repo) as server:
        ask = server.operator
        claim = ask.post("/tasks/t/claim", {"worker": "w"})["claim"]
        ask.post("/tasks/t/start", {"claim": claim})
        ask.post("/tasks/t/progress", {"claim": claim, "message": f"with {SECRETS['OpenAI']}"})
        assert ask.get("/tasks/t")["task"]["progress"] == "with [redacted]"
        ask.post("/tasks/t/fail", {"claim": claim, "reason": f"refused: {SECRETS['in a URL']}"})
        claim = ask.post("/tasks/u/claim", {"worker": "w"})["claim"]
        ask.post("/tasks/u/complete", {"claim": claim, "summary": f"done by {SECRETS['GitLab']}"})
    for path in layout(repo).root.rglob("*"):
        assert not path.is_file() or R.encode() not in path.read_bytes(), path
