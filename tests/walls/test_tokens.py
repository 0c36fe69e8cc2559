"""A stranger on the port of a killed server gets a token that is worth nothing from the next start on."""

from __future__ import annotations

import hmac
from hashlib import sha256
from pathlib import Path

from kit.project import make_repo
from kit.server import served

NONCE = "0123456789abcdef" * 2


def signed(key: str, *words: str) -> str:
    return hmac.new(key.encode(), "\0".join(words).encode(), sha256).hexdigest()[:40]


def test_a_token_that_was_sent_to_a_stranger_opens_nothing_after_the_next_start(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    with served(repo) as first:
        sent = first.address
        first.kill()
    with served(repo) as second:
        for token in (sent.token, sent.reader_token):
            assert second.with_token(token).ask("GET", "/auth/me").status == 401
        assert second.operator.get("/auth/me")["role"] == "operator"
        assert second.reader.get("/auth/me")["role"] == "reader"


def test_a_page_signs_in_again_where_the_server_proves_itself_and_sends_nothing_before(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    with served(repo) as first:
        keys = {role: getattr(first, role).get("/auth/key") for role in ("operator", "reader")}
        assert {name: each["role"] for name, each in keys.items()} == {"operator": "operator", "reader": "reader"}
        first.kill()
    with served(repo) as second:
        for role, found in keys.items():
            key = found["key"]
            told = second.nobody.get(f"/auth/start?role={role}&nonce={NONCE}")
            assert told["proof"] == signed(key, "server", second.address.url, NONCE, told["start"])
            token = f"hf{role[0]}_{signed(key, 'token', told['start'])}"
            assert second.with_token(token).get("/auth/me")["role"] == role
            # A relay on another port gets a proof that no page of its own address takes.
            elsewhere = second.nobody.get(f"/auth/start?role={role}&nonce={NONCE}", origin=second.address.url)
            assert elsewhere["proof"] != signed(key, "server", "http://127.0.0.1:1", NONCE, told["start"])
            assert key not in str(told) and token not in str(told)


def test_a_key_is_for_people_and_goes_with_a_revocation(tmp_path: Path) -> None:
    with served(make_repo(tmp_path)) as server:
        assert server.nobody.ask("GET", "/auth/key").status == 401
        before = server.reader.get("/auth/key")["key"]
        server.operator.post("/auth/revoke", {"role": "reader"})
        told = server.nobody.get(f"/auth/start?role=reader&nonce={NONCE}")
        assert told["proof"] != signed(before, "server", server.address.url, NONCE, told["start"])
        assert server.nobody.ask("GET", "/auth/start?role=reader&nonce=x").status == 422
