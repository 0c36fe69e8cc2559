"""Tokens: whose this one is, and making all of a kind worthless."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.decisions.context import DecisionContext
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, Operation, Role
from holdfast.storage.files import disk


class Me(msgspec.Struct, frozen=True):
    role: Role
    task: str
    attempt: str


class Key(msgspec.Struct, frozen=True):
    """The key with which a page signs itself in after a restart. The page keeps it in memory only,
    and sends it to nobody else."""

    role: Role
    key: str


class StartQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["operator", "reader"]
    nonce: Annotated[str, Meta(pattern="^[0-9a-f]{32}\\Z")]


class Start(msgspec.Struct, frozen=True):
    """`proof`: the first 40 hexadecimal digits of HMAC-SHA256 under the role's key over `server`, the server's
    address, the nonce and `start`, joined by zero bytes; the token ends with the same over `token` and `start`."""

    start: str
    proof: str


class Revoke(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["operator", "reader"]


class Revoked(msgspec.Struct, frozen=True):
    role: str
    note: str


def me(api: Api, ask: Ask) -> Me:
    return Me(ask.principal.role, ask.principal.task, ask.principal.attempt)


def key(api: Api, ask: Ask) -> Key:
    return Key(ask.principal.role, api.tokens.key(ask.principal.role))


def start(api: Api, ask: Ask) -> Start:
    return Start(api.tokens.start, api.tokens.prove(ask.query.role, api.url, ask.query.nonce))


def revoke(decision: DecisionContext, ask: Ask) -> Revoked:
    api: Api = ask.api
    role = ask.body.role
    # On record first, and synced: what is answered here can be relied on, also after a crash.
    api.context.auditor.record("tokens_revoked", {"role": role, "by": ask.principal.name})
    api.tokens.revoke(role)
    api.logs.register(api.tokens.of_role(role), api.tokens.key(role))
    # The command line finds its token there.
    if (path := api.layout.server).exists():
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        tokens = {"token": api.tokens.of_role("operator"), "reader_token": api.tokens.of_role("reader")}
        disk.replace(path, msgspec.json.encode({**found, **tokens}), 0o600)
    return Revoked(role, "the new token is in runtime/secret/server.json of the data root")


OPERATIONS = [
    Operation("GET", "/auth/me", "show_me", "Whose token this is.", me, answer=Me, right="any", tag="auth", early=True),
    Operation("GET", "/auth/key", "show_key", "What a page signs itself in with again after a restart.", key,
              answer=Key, right="read", tag="auth", early=True),
    Operation("GET", "/auth/start", "prove_start", "Proof that this server knows a role's key.", start, answer=Start,
              right="public", query=StartQuery, tag="auth", early=True),
    Operation("POST", "/auth/revoke", "revoke_tokens", "Make all tokens of a role worthless; new ones are made.",
              revoke, answer=Revoked, right="operate", lane="loop", body=Revoke, tag="auth"),
]  # fmt: skip
