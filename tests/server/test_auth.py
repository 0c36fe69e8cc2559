"""Tokens, each asked for by itself: an agent's is worth something for one claim of one attempt, while that lasts."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import get_args

import pytest

from holdfast.domain.task import TaskEvent, TaskState
from holdfast.ledgers.files import FileLedger
from holdfast.server.access.auth import Tokens, permit
from holdfast.server.operations import Operation, Principal, Right
from holdfast.server.problems import Problem
from holdfast.storage.records.server_secret import load_secret
from kit.states import append, moves, opened

S, E = TaskState, TaskEvent
AGENT = Principal("agent", "t.1", "t", "t.1")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[FileLedger]:
    with opened(tmp_path, t=S.OPEN) as ledger:
        yield ledger


def claim(ledger: FileLedger) -> int:
    ledger.claim("scripted", "t", lease_s=60)
    return ledger.state.tasks["t"].claim.number


def test_a_token_of_an_earlier_claim_is_worth_nothing_though_the_attempt_is_the_same(ledger: FileLedger) -> None:
    tokens = Tokens(ledger.layout, ledger.state)
    first = tokens.of_agent("t.1", claim(ledger))
    assert tokens.principal(first) == AGENT
    stands = tokens.standing(AGENT)
    assert stands()

    append(ledger, *moves("t", S.CLAIMED, E.UNCLAIM))
    assert tokens.principal(first) is None and not stands()

    second = tokens.of_agent("t.1", claim(ledger))
    assert ledger.state.tasks["t"].attempt.id == "t.1", "the same attempt goes on"
    assert tokens.principal(second) == AGENT
    assert tokens.principal(first) is None, "the old token is locked out"
    assert not stands() and tokens.standing(AGENT)()


@pytest.mark.parametrize("to", S)
def test_an_agents_token_is_good_while_its_task_is_worked_on_and_in_no_other_state(
    tmp_path: Path, to: TaskState
) -> None:
    with opened(tmp_path, t=to) as ledger:
        tokens = Tokens(ledger.layout, ledger.state)
        found = tokens.principal(tokens.of_agent("t.1", 1))
    assert found == (AGENT if to in (S.CLAIMED, S.IN_PROGRESS) else None)


def test_a_token_names_its_attempt_and_claim_and_cannot_be_changed_into_another(ledger: FileLedger) -> None:
    tokens = Tokens(ledger.layout, ledger.state)
    good = tokens.of_agent("t.1", claim(ledger))
    append(ledger, *moves("t", S.CLAIMED, E.UNCLAIM))
    claim(ledger)
    head, claimed, sign = good.rsplit(".", 2)
    for forged in (
        f"{head}.2.{sign}",
        f"hfa_t.2.{claimed}.{sign}",
        good.replace("hfa", "hfo"),
        f"{good}0",
        good[:-1],
        "",
    ):
        assert tokens.principal(forged) is None, forged
    for foreign in (tokens.of_agent("t.2", 2), tokens.of_agent("other.1", 1), tokens.of_agent("t.1", 3)):
        assert tokens.principal(foreign) is None, foreign
    assert tokens.principal(tokens.of_agent("t.1", 2)) == AGENT


def test_a_token_of_another_data_root_opens_nothing(ledger: FileLedger, tmp_path: Path) -> None:
    tokens, claimed = Tokens(ledger.layout, ledger.state), claim(ledger)
    with opened(tmp_path / "other", t=S.CLAIMED) as other:
        foreign = Tokens(other.layout, other.state)
        assert foreign.principal(foreign.of_agent("t.1", claimed)) == AGENT
        for token in (foreign.of_agent("t.1", claimed), foreign.of_role("operator"), foreign.of_role("reader")):
            assert tokens.principal(token) is None, token
        assert tokens.key("operator") not in (foreign.key("operator"), tokens.key("reader"))


def test_a_task_may_have_dots_and_underscores_in_its_name(tmp_path: Path) -> None:
    with opened(tmp_path, **{"a_b.c": S.CLAIMED}) as ledger:
        tokens = Tokens(ledger.layout, ledger.state)
        found = tokens.principal(tokens.of_agent("a_b.c.1", 1))
    assert found == Principal("agent", "a_b.c.1", "a_b.c", "a_b.c.1")
    work = Operation("GET", "/x", "x", "X", function=print, answer=None, right="work")
    permit(work, found, {"attempt": "a_b.c.2"})
    with pytest.raises(Problem):
        permit(work, found, {"attempt": "a_b.1"})


def test_an_agents_token_survives_a_restart_and_those_of_people_do_not(ledger: FileLedger) -> None:
    first, second = Tokens(ledger.layout, ledger.state), Tokens(ledger.layout, ledger.state)
    of_agent = first.of_agent("t.1", claim(ledger))
    assert second.principal(of_agent) == AGENT
    for role in ("operator", "reader"):
        assert first.principal(first.of_role(role)) == Principal(role, role)
        assert second.principal(first.of_role(role)) is None
        assert first.key(role) == second.key(role), "a page signs itself in again with it"


@pytest.mark.parametrize(("role", "other"), [("operator", "reader"), ("reader", "operator")])
def test_revoking_ends_every_token_of_the_role_and_no_other(ledger: FileLedger, role: str, other: str) -> None:
    tokens = Tokens(ledger.layout, ledger.state)
    before = {each: (tokens.of_role(each), tokens.standing(Principal(each, each))) for each in (role, other)}
    tokens.revoke(role)
    assert tokens.principal(before[role][0]) is None and not before[role][1]()
    assert tokens.principal(before[other][0]) == Principal(other, other) and before[other][1]()
    assert tokens.key(role) == Tokens(ledger.layout, ledger.state).key(role), "and that is on disk"


# -- what a token reaches ---------------------------------------------------------------------------------------------

EVERYBODY, READS, OWN = {"operator", "reader", "agent"}, {"operator", "reader"}, {"operator", "agent"}
READER, OPERATOR = Principal("reader", "reader"), Principal("operator", "operator")
# Who may, by the right that an operation needs and by whether it is about the agent's own task.
RIGHTS: dict[tuple[Right, bool], set[str]] = {
    ("any", True): EVERYBODY,
    ("any", False): EVERYBODY,
    ("read", True): EVERYBODY,
    ("read", False): READS,
    ("work", True): OWN,
    ("work", False): {"operator"},
    ("operate", True): {"operator"},
    ("operate", False): {"operator"},
}


@pytest.mark.parametrize("principal", [OPERATOR, READER, AGENT], ids=lambda each: each.role)
@pytest.mark.parametrize(("right", "is_own"), RIGHTS)
def test_every_right_is_for_those_whom_the_table_names(principal: Principal, right: Right, is_own: bool) -> None:
    operation = Operation("GET", "/x", "x", "X", function=print, answer=None, right=right)
    paths = [{"task": "t"}, {"attempt": "t.7"}] if is_own else [{}, {"task": "t.1"}, {"attempt": "other.1"}]
    for path in paths:
        if principal.role in RIGHTS[right, is_own]:
            permit(operation, principal, path)
            continue
        with pytest.raises(Problem) as refused:
            permit(operation, principal, path)
        wanted = "token_reads_only" if principal.role == "reader" else "not_your_task"
        assert (refused.value.document.status, refused.value.document.code) == (403, wanted)


def test_the_table_has_every_right() -> None:
    assert {right for right, _ in RIGHTS} == set(get_args(Right)) - {"public"}, "those ask for no token"


# -- the secret, and how a page knows the server again ----------------------------------------------------------------


def test_a_proof_is_for_one_role_one_address_one_question_and_one_start(ledger: FileLedger) -> None:
    tokens, later = Tokens(ledger.layout, ledger.state), Tokens(ledger.layout, ledger.state)
    asked = ("operator", "http://127.0.0.1:1", "n")
    proof = tokens.prove(*asked)
    # As the page computes it, from the key that it was given.
    words = "\0".join(("server", *asked[1:], tokens.start))
    assert proof == hmac.new(tokens.key("operator").encode(), words.encode(), sha256).hexdigest()[:40]
    others = [("reader", *asked[1:]), (asked[0], "http://127.0.0.1:2", "n"), (*asked[:2], "m")]
    assert proof not in [tokens.prove(*each) for each in others] and proof != later.prove(*asked)
    token = hmac.new(tokens.key("operator").encode(), f"token\0{tokens.start}".encode(), sha256).hexdigest()[:40]
    assert tokens.of_role("operator") == f"hfo_{token}", "and so does it make the new token"


def test_the_secret_is_for_its_owner_only_and_one_that_others_could_read_is_replaced(ledger: FileLedger) -> None:
    path = ledger.layout.server_key
    first = load_secret(ledger.layout)
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert len(first.secret) == 64 and load_secret(ledger.layout) == first
    path.chmod(0o640)
    second = load_secret(ledger.layout)
    assert second.secret != first.secret and path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"{torn")
    assert load_secret(ledger.layout).secret not in (first.secret, second.secret)
