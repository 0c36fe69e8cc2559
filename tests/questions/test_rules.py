"""Rules: which call each allows, denies, or leaves to a person. A table, without any file."""

from __future__ import annotations

import json

import pytest

from holdfast.config.permissions import policy_of
from holdfast.config.sections import DeclaredAgent, PermissionSettings
from holdfast.config.settings import Config
from holdfast.domain.definition import Definition
from holdfast.questions.records import Question, digest_of, preview_of
from holdfast.questions.rules import PermissionPolicy, PermissionRule, argument_of, exactly

NPM = PermissionRule("allow", "Bash", "npm test*")
SRC = PermissionRule("allow", "Write", "src/*")
NO_RM = PermissionRule("deny", "*", "*rm -rf*")
ALL = PermissionRule("allow", "*")


@pytest.mark.parametrize(
    ("mode", "rules", "tool", "argument", "decision"),
    [
        ("ask", (), "Bash", "ls", "ask"),
        ("skip", (), "Bash", "ls", "allow"),
        ("own", (), "Bash", "ls", "own"),
        ("edits", (), "Bash", "ls", "own"),
        ("ask", (NPM,), "Bash", "npm test", "allow"),
        ("ask", (NPM,), "Bash", "npm test -- --watch", "allow"),
        ("ask", (NPM,), "Write", "npm test", "ask"),
        ("ask", (NPM,), "Bash", "xnpm test", "ask"),
        # What a star of an allowing rule does not stand for.
        *(("ask", (NPM,), "Bash", f"npm test{more}", "ask") for more in ("; x", " && x", "|x", "\nx", " $(x)", " `x`")),
        ("ask", (SRC,), "Write", "src/a/b.py", "allow"),
        ("ask", (SRC,), "Write", "src/../x", "ask"),
        ("ask", (SRC,), "Write", "src/a/..", "ask"),
        ("ask", (SRC,), "Write", "src/..a", "allow"),
        ("ask", (SRC,), "Write", "/etc/passwd", "ask"),
        ("ask", (ALL,), "Bash", "a; b", "allow"),
        # A deny wins, wherever it stands and whatever its star stands for.
        ("ask", (ALL, NO_RM), "Bash", "x; rm -rf /", "deny"),
        ("ask", (NO_RM, ALL), "Bash", "rm -rf /", "deny"),
        ("skip", (NO_RM,), "Bash", "rm -rf /", "deny"),
        ("skip", (NO_RM,), "Bash", "ls", "allow"),
        ("own", (NO_RM,), "Bash", "rm -rf /", "deny"),
        ("skip", (PermissionRule("ask", "Bash", "git push*"),), "Bash", "git push; x", "ask"),
        ("ask", (ALL, PermissionRule("ask", "Bash")), "Bash", "ls", "ask"),
        ("ask", (PermissionRule("allow", "mcp__*"),), "mcp__db__read", "x", "allow"),
    ],
)  # fmt: skip
def test_a_call_is_decided_by_its_rules(
    mode: str, rules: tuple[PermissionRule, ...], tool: str, argument: str, decision: str
) -> None:
    assert PermissionPolicy(mode, rules).decide(tool, argument)[0] == decision  # type: ignore[arg-type]


@pytest.mark.parametrize("argument", ["echo *", "a\\b*", "x; y && z", "", "**", "src/../a"])
def test_an_exact_rule_allows_this_call_and_no_other(argument: str) -> None:
    policy = PermissionPolicy("ask", (exactly("Bash", argument),))
    assert policy.decide("Bash", argument)[0] == "allow"
    others = (f"{argument} ", f"x{argument}", argument.replace("*", "y") + "z")
    assert {policy.decide("Bash", other)[0] for other in others} == {"ask"}


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"command": "make", "description": "d"}, "make"),
        ({"command": ["git", "log"]}, "git log"),
        ({"file_path": "/w/src/a.py", "content": "x"}, "src/a.py"),
        ({"file_path": "/work/a.py"}, "/work/a.py"),
        ({"x": 1}, '{"x": 1}'),
        ("a text", "a text"),
    ],
)
def test_the_argument_of_a_call_is_what_it_does(given: object, argument: str) -> None:
    assert argument_of(given if isinstance(given, str) else json.dumps(given), "/w") == argument


def test_the_task_counts_before_its_role_and_that_before_its_agent() -> None:
    by_role = PermissionSettings("own", role="qa")
    deny = PermissionSettings("deny", "Bash", "curl*", agent="claude")
    config = Config(agents=(DeclaredAgent("claude", permissions="full"),), permissions=(by_role, deny))
    assert policy_of(config, Definition("a"), "codex") == PermissionPolicy("skip")
    assert policy_of(config, Definition("a"), "claude") == PermissionPolicy(
        "skip", (PermissionRule("deny", "Bash", "curl*"),)
    )
    assert policy_of(config, Definition("a", role="qa"), "codex").mode == "own"
    assert policy_of(config, Definition("a", role="qa", permissions="ask"), "codex").mode == "ask"
    own = policy_of(config, Definition("a", permissions=(NPM,)), "claude")
    assert own.mode == "ask" and {rule.do for rule in own.rules} == {"deny", "allow"}


def test_a_question_is_equal_whatever_the_order_of_its_keys_and_not_a_turn_later() -> None:
    one, two = digest_of('{"a": 1, "b": 2}'), digest_of('{"b":2,"a":1}')
    assert one == two != digest_of('{"a": 1, "b": 3}')
    asked = Question(id="a.1.q1", task="a", attempt="a.1", start=1, turn=3, tool="Bash", input="", digest=one)
    assert asked.is_equal("Bash", two, 3) and not asked.is_equal("Bash", two, 4) and not asked.is_equal("Write", two, 3)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"command": "make test"}, "$ make test"),
        ({"file_path": "a", "old_string": "x\ny", "new_string": "x\nz"}, "--- a\n+++ a\n x\n-y\n+z"),
        ({"file_path": "a", "content": "x\ny"}, "--- a\n+++ a\n+x\n+y"),
        ({"questions": [{"question": "Which?", "options": [{"label": "red"}, "blue"]}]}, "Which?\n- red\n- blue"),
        ("plain", "plain"),
    ],
)
def test_a_preview_shows_the_command_the_diff_or_the_words(given: object, shown: str) -> None:
    assert preview_of(given if isinstance(given, str) else json.dumps(given)) == shown
