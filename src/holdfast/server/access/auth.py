"""Tokens: whose request it is, and what it may do.

All tokens are made from one secret in `runtime/secret/server.key`, which only its owner can read, and nothing that runs
in a sandbox. An agent's names its attempt and claim, survives a restart as the agent does, and is worth nothing once
that claim is over. The operator's and the reader's are for people and their programs, and are new with each run:
while no server is alive anybody may take its port, and an open page goes on sending its token there.

So that such a page need not ask a person again, it is given a key by the server that it is signed in to. The key is
never sent back: after a restart the server proves with it that it is the one, at this very address, and both make the
new token of it.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec

from holdfast.domain.state import State
from holdfast.domain.task import AT_WORK
from holdfast.layout import Layout
from holdfast.server.operations import Operation, Principal
from holdfast.server.problems import Problem
from holdfast.storage.files import disk
from holdfast.storage.files.json_file import read_json

PREFIX = "hf"
ROLES = {"operator": "o", "reader": "r"}


class Secret(msgspec.Struct, frozen=True):
    """`operator` and `reader` count how often their tokens were revoked."""

    secret: str
    operator: int = 1
    reader: int = 1


def load_secret(layout: Layout) -> Secret:
    """The secret of this data root, made where there is none."""
    path = layout.server_key
    if path.exists() and path.stat().st_mode & 0o077 == 0 and (known := read_json(path, Secret)) is not None:
        return known
    return _save(path, Secret(secrets.token_hex(32)))


def _save(path: Path, secret: Secret) -> Secret:
    disk.mkdir(path.parent, 0o700)
    disk.replace(path, msgspec.json.encode(secret), 0o600)
    return secret


class Tokens:
    def __init__(self, layout: Layout, state: State) -> None:
        self._path = layout.server_key
        self._secret = load_secret(layout)
        self._state = state
        self.start = secrets.token_hex(16)

    def key(self, role: str) -> str:
        """The key with which a page signs itself in again; the same until it is revoked."""
        return self._sign("key", role, str(getattr(self._secret, role)))

    def of_role(self, role: str) -> str:
        return f"{PREFIX}{ROLES[role]}_{_signed(self.key(role), 'token', self.start)}"

    def prove(self, role: str, url: str, nonce: str) -> str:
        """That we know the role's key, for a page of this address: what is passed on from elsewhere proves nothing."""
        return _signed(self.key(role), "server", url, nonce, self.start)

    def of_agent(self, attempt: str, claim: int) -> str:
        """The token of an attempt's agent, good while it has this claim of its task."""
        return f"{PREFIX}a_{attempt}.{claim}.{self._sign('agent', f'{attempt}/{claim}')}"

    def revoke(self, role: str) -> None:
        """No token of this role that was given out before is worth anything any more."""
        more = {role: getattr(self._secret, role) + 1}
        self._secret = _save(self._path, msgspec.structs.replace(self._secret, **more))

    def principal(self, token: str) -> Principal | None:
        """Whose token this is; None where it is nobody's, or nobody's any more."""
        for role in ROLES:
            if _same(token, self.of_role(role)):
                return Principal(role, role)  # type: ignore[arg-type]
        head, attempt, claim, sign = _parts(token)
        if head != f"{PREFIX}a" or not claim.isdecimal() or not _same(sign, self._sign("agent", f"{attempt}/{claim}")):
            return None
        task = attempt.rpartition(".")[0]
        known = self._state.tasks.get(task)
        is_alive = known is not None and known.attempt.id == attempt and known.claim.number == int(claim)
        if known is None or not is_alive or known.state not in AT_WORK:
            return None
        return Principal("agent", attempt, task, attempt)

    def standing(self, principal: Principal) -> Callable[[], bool]:
        """Tells, from now on, whether the token that this one came with is still worth something."""
        if principal.role == "agent":
            task = self._state.tasks[principal.task]
            claims = task.claim.number
            return lambda: task.state in AT_WORK and (task.attempt.id, task.claim.number) == (principal.attempt, claims)
        role, generation = principal.role, getattr(self._secret, principal.role)
        return lambda: bool(getattr(self._secret, role) == generation)

    def _sign(self, *words: str) -> str:
        return _signed(self._secret.secret, *words)


def attempt_of(token: str) -> str:
    """The attempt that an agent's token names, whatever it is worth."""
    return _parts(token)[1]


def _parts(token: str) -> tuple[str, str, str, str]:
    head, _, rest = token.partition("_")
    attempt, _, sign = rest.rpartition(".")
    attempt, _, claim = attempt.rpartition(".")
    return head, attempt, claim, sign


def _signed(key: str, *words: str) -> str:
    return hmac.new(key.encode(), "\0".join(words).encode(), sha256).hexdigest()[:40]


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def permit(operation: Operation, principal: Principal, path: dict[str, str]) -> None:
    """Refuses what the token does not reach."""
    if principal.role == "operator" or operation.right == "any":
        return
    if principal.role == "reader":
        if operation.right == "read":
            return
        raise Problem(403, "token_reads_only", "This token may only read. Ask with the operator's token.")
    own = path.get("task") == principal.task or path.get("attempt", "").rpartition(".")[0] == principal.task
    if operation.right in ("read", "work") and own:
        return
    raise Problem(
        403, "not_your_task", f"This token reaches the task {principal.task} only, for the agent that works on it."
    )
