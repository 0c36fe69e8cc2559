"""Tokens: whose this one is, and making all of a kind worthless."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.durable import disk
from holdfast.engine.decisions import Desk
from holdfast.server.context import Api
from holdfast.server.operations import Ask, Operation, Role


class Me(msgspec.Struct, frozen=True):
    role: Role
    task: str
    attempt: str


class Revoke(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["operator", "reader"]


class Revoked(msgspec.Struct, frozen=True):
    role: str
    note: str


def me(api: Api, ask: Ask) -> Me:
    return Me(ask.principal.role, ask.principal.task, ask.principal.attempt)


def revoke(api: Api) -> Any:
    def function(desk: Desk, ask: Ask) -> Revoked:
        role = ask.body.role
        # On record first, and synced: what is answered here can be relied on, also after a crash.
        api.shop.put_on_record("tokens_revoked", {"role": role, "by": ask.principal.name})
        api.tokens.revoke(role)
        api.logs.register(api.tokens.of_role(role))
        _rewrite_address(api)
        return Revoked(role, "the new token is in runtime/secret/server.json of the data root")

    return function


def _rewrite_address(api: Api) -> None:
    """The command line finds its token there."""
    path = api.layout.server
    if path.exists():
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        tokens = {"token": api.tokens.of_role("operator"), "reader_token": api.tokens.of_role("reader")}
        disk.replace(path, msgspec.json.encode({**found, **tokens}), 0o600)


def operations(api: Api) -> list[Operation]:
    return [
        Operation("GET", "/auth/me", "show_me", "Whose token this is.", me, Me, "any", tag="auth",
                  early=True),
        Operation("POST", "/auth/revoke", "revoke_tokens", "Make all tokens of a role worthless; new ones are made.",
                  revoke(api), Revoked, "operate", "loop", body=Revoke, tag="auth"),
    ]  # fmt: skip
