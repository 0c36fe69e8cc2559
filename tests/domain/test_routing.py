"""The agent and the model of a task, and why: the rules themselves, then a whole run that goes up the cascade."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.common import prices
from holdfast.agents.streams import stream_of
from holdfast.config.layers import load
from holdfast.config.sections import ModelPrice, RouteSettings, StepSettings
from holdfast.config.settings import Config
from holdfast.domain.attempt_records import Launch, Order
from holdfast.domain.definition import Definition
from holdfast.domain.routing import NOT_WEAK, Choice, after_this, choose, model_for
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import LastAttempt, LastClaim, Task
from holdfast.errors import ConfigError
from kit.program import holdfast
from kit.project import add, landed, layout, settings, sound, state

ROUTES = (
    RouteSettings("codex", "gpt", role="backend", priority="<=2"),
    RouteSettings("gemini", role="backend"),
    RouteSettings("claude", "opus", label="hard"),
)
CASCADE = (StepSettings("claude", "haiku"), StepSettings("claude", "opus"), StepSettings("codex"))
RULES = Config(agent="aider", model="mine", routes=ROUTES, cascade=CASCADE)


def task(worked_by: str, model: str = "", failed: str = "", **facts: Any) -> Task:
    claim, attempt = LastClaim(worked_by=worked_by, model=model), LastAttempt("t.1", failed=failed)
    return Task("t", TaskState.OPEN, "", 0.0, 0.0, attempts=1, attempt=attempt, claim=claim, **facts)


def made(**facts: Any) -> Definition:
    return Definition("t", goal="x", **facts)


@pytest.mark.parametrize(
    ("definition", "before", "wanted"),
    [
        (made(agent="mini", model="m", role="backend"), None, Choice("mini", "m", "named by the task")),
        (made(agent="mini"), None, Choice("mini", "", "named by the task")),
        (made(agent="aider"), None, Choice("aider", "mine", "named by the task")),
        (made(command="true"), None, Choice("command", "mine", "the task has a command")),
        (made(script="say x"), None, Choice("scripted", "mine", "the task has a script")),
        (made(role="backend", priority=2), None, Choice("codex", "gpt", "route 1: role=backend, priority<=2")),
        (made(role="backend", priority=3), None, Choice("gemini", "", "route 2: role=backend")),
        # A task without a priority has the usual one.
        (made(role="backend"), None, Choice("gemini", "", "route 2: role=backend")),
        (made(labels=("hard", "ui")), None, Choice("claude", "opus", "route 3: label=hard")),
        (made(role="backend", model="own"), None, Choice("gemini", "own", "route 2: role=backend")),
        (made(), None, Choice("claude", "haiku", "cascade step 1")),
        (made(model="own"), None, Choice("aider", "own", "the default")),
        (
            made(),
            task(worked_by="claude", model="haiku", failed="gate_failed"),
            Choice("claude", "opus", "cascade step 2 after gate_failed"),
        ),
        (
            made(),
            task(worked_by="claude", model="opus", failed="refused"),
            Choice("codex", "", "cascade step 3 after refused"),
        ),
        (
            made(),
            task(worked_by="codex", failed="timeout"),
            Choice("codex", "", "cascade step 3 again after timeout"),
        ),
        # A conflict says nothing about who made it.
        (
            made(),
            task(worked_by="claude", model="opus", failed="conflict"),
            Choice("claude", "opus", "cascade step 2 again after conflict"),
        ),
        # A route begins in the middle of the cascade, and goes on from there; another one stands alone.
        (
            made(labels=("hard",)),
            task(worked_by="claude", model="opus", failed="failed"),
            Choice("codex", "", "cascade step 3 after failed"),
        ),
        (
            made(role="backend"),
            task(worked_by="gemini", failed="failed"),
            Choice("gemini", "", "route 2: role=backend"),
        ),
        # The same attempt goes on as it began, whatever the rules say by now.
        (
            made(role="backend"),
            task(worked_by="claude", model="haiku", continues=True),
            Choice("claude", "haiku", "goes on with t.1"),
        ),
        (
            made(agent="mini"),
            task(worked_by="claude", model="haiku", continues=True),
            Choice("mini", "", "named by the task"),
        ),
        # What the cascade does not know (any more) begins with its first step.
        (made(), task(worked_by="gone", failed="failed"), Choice("claude", "haiku", "cascade step 1")),
    ],
)
def test_the_first_rule_that_fits_decides(definition: Definition, before: Task | None, wanted: Choice) -> None:
    assert choose(definition, RULES, before) == wanted


@pytest.mark.parametrize(("agent", "model"), [("claude", "haiku"), ("codex", ""), ("aider", "mine"), ("gemini", "")])
def test_an_agent_chosen_by_name_has_the_model_of_its_step_or_the_default(agent: str, model: str) -> None:
    assert model_for(agent, RULES) == model


@pytest.mark.parametrize(
    ("worked_by", "model", "wanted"),
    [("claude", "haiku", ("claude", "opus")), ("claude", "opus", ("codex", "")), ("codex", "", None), ("x", "", None)],
)
def test_the_step_behind_the_one_that_works_is_the_next_of_the_cascade(
    worked_by: str, model: str, wanted: tuple[str, str] | None
) -> None:
    assert after_this(RULES, LastClaim(worked_by=worked_by, model=model)) == wanted


def test_without_rules_the_default_has_it() -> None:
    assert choose(made(), Config(agent="aider", model="m")) == Choice("aider", "m", "the default")
    every = Config(routes=(RouteSettings("mini"),))
    assert choose(made(), every) == Choice("mini", "", "route 1: any task")


def test_a_rule_without_a_model_has_the_default_one_for_the_default_agent() -> None:
    rules = Config(
        agent="claude",
        model="opus",
        routes=(RouteSettings("claude", label="x"), RouteSettings("mini", label="y")),
        cascade=(StepSettings("mini"), StepSettings("claude"), StepSettings("codex")),
    )
    assert choose(made(labels=("x",)), rules) == Choice("claude", "opus", "route 1: label=x")
    assert choose(made(labels=("y",)), rules).model == ""
    second = choose(made(), rules, task(worked_by="mini", failed="failed"))
    assert second == Choice("claude", "opus", "cascade step 2 after failed")
    third = choose(made(), rules, task(worked_by="claude", model="opus", failed="failed"))
    assert third == Choice("codex", "", "cascade step 3 after failed")


@pytest.mark.parametrize(
    ("written", "fitting"),
    [(2, {2}), ("2", {2}), ("=2", {2}), ("<2", {1}), ("<=2", {1, 2}), (">2", {3}), (">= 2", {2, 3}), (-1, set())],
)
def test_priorities_are_compared(written: int | str, fitting: set[int]) -> None:
    rules = Config(routes=(RouteSettings("mini", priority=written),))
    assert {number for number in (1, 2, 3) if choose(made(priority=number), rules).agent == "mini"} == fitting


words = st.sampled_from(["a", "b", "c"])
maybe = st.none() | words
priorities = (
    st.none()
    | st.integers(-3, 9)
    | st.builds("{}{}".format, st.sampled_from(["<=", ">=", "<", ">", ""]), st.integers(-3, 9))
)
steps = st.builds(StepSettings, words, maybe)
all_rules = st.builds(
    Config,
    agent=words,
    model=maybe,
    routes=st.lists(st.builds(RouteSettings, words, maybe, maybe, maybe, priorities), max_size=4).map(tuple),
    cascade=st.lists(steps, max_size=4).map(tuple),
)
definitions = st.builds(
    made, agent=maybe, model=maybe, role=maybe, priority=st.none() | st.integers(-3, 9),
    labels=st.lists(words, max_size=2).map(tuple), command=st.none() | st.just("true"),
)  # fmt: skip
tasks = st.none() | st.builds(
    task, worked_by=st.just("") | words, model=st.just("") | words, continues=st.booleans(),
    failed=st.sampled_from(["", "gate_failed", "refused", *sorted(NOT_WEAK)]),
)  # fmt: skip


@given(definitions, all_rules, tasks)
def test_every_task_has_one_agent_and_always_the_same(
    definition: Definition, rules: Config, before: Task | None
) -> None:
    found = choose(definition, rules, before)
    assert found == choose(definition, rules, before)
    known = {rules.agent, *(each.agent for each in (*rules.routes, *rules.cascade)), "command"}
    known |= {definition.agent or "", before.claim.worked_by if before else ""}
    assert found.agent in known and found.agent and found.why
    if definition.agent:
        assert found.agent == definition.agent
    if definition.model:
        assert found.model == definition.model


@given(st.lists(steps, min_size=1, max_size=5, unique=True))
def test_a_task_that_always_fails_sees_every_step_in_order_and_then_the_last(cascade: list[StepSettings]) -> None:
    rules, before, seen = Config(cascade=tuple(cascade)), None, []
    for _ in range(len(cascade) + 2):
        found = choose(made(), rules, before)
        seen.append((found.agent, found.model))
        before = task(worked_by=found.agent, model=found.model, failed="gate_failed")
    wanted = [(each.agent, each.model or "") for each in cascade]
    assert seen == [*wanted, wanted[-1], wanted[-1]]


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("routes: [{role: x}]", r"routes\[0\].*with agent"),
        ("routes:\n  - agent: a\n    priority: soon", r"line 3.*routes\[0\]\.priority.*a whole number, or a text"),
        ("routes: [{agent: a, rule: x}]", r"routes\[0\]\.rule"),
        ("cascade: [claude]", r"cascade\[0\].*a mapping of agent, model"),
        ("cascade:\n  - agent: a\n  - agent: b\n  - agent: a", r"line 4.*cascade\[2\].*that no step before it has"),
        ("agent: a\nmodel: m\ncascade: [{agent: a, model: m}, {agent: a}]", r"cascade\[1\]"),
        ("prices:\n  gpt-5.4:\n    input: 1\n    output: -1", r"line 4.*prices\.gpt-5\.4\.output"),
        ("prices: {m: {input: 1}}", r"prices\.m .*with input and output"),
        ("prices: [1]", "a mapping of up to 100 models with input"),
    ],
)
def test_a_mistake_in_a_rule_is_reported_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    folder = tmp_path / ".sdd" / "config"
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text(text + "\n")
    with pytest.raises(ConfigError, match=f"(?s){told}"):
        load(tmp_path, environ={})


def test_rules_come_from_the_environment_too(tmp_path: Path) -> None:
    environ = {
        "HOLDFAST_ROUTES": '[{"agent":"a","priority":"<=2"}]',
        "HOLDFAST_CASCADE": '[{"agent":"a"},{"agent":"b","model":"m"}]',
        "HOLDFAST_PRICES": '{"m":{"input":1,"output":2,"cached":0.5}}',
    }
    config = load(tmp_path, environ=environ).config
    assert config.routes == (RouteSettings("a", priority="<=2"),) and config.cascade == (
        StepSettings("a"),
        StepSettings("b", "m"),
    )
    assert config.prices == {"m": ModelPrice(1.0, 2.0, 0.5)}
    assert config.prices["m"].per_million == (1.0, 0.5, 1.0, 2.0)


def test_a_price_of_the_settings_reaches_the_runners_estimate() -> None:
    before = prices.usd("gpt-5.4", 1_000_000, 0)
    order = Order(
        task="t",
        attempt="t.1",
        start=1,
        agent="codex",
        launch=Launch(("codex",), stream="codex", model="gpt-5.4"),
        worktree="/w",
        base="b",
        private="/p",
    )
    try:
        stream = stream_of(
            msgspec.structs.replace(order, prices={"gpt-5.4": (8.0, 1.0, 8.0, 9.0), "new": (1, 1, 1, 3)})
        )
        line = b'{"type":"turn.completed","usage":{"input_tokens":500000,"output_tokens":1000000}}'
        spent = [event for event in stream.read(line) if getattr(event, "usd", 0)]
        assert [(event.usd, event.estimated) for event in spent] == [(13.0, True)]  # type: ignore[union-attr]
        assert prices.usd("somebody/new-1", 0, 1_000_000) == 3.0
    finally:
        prices.override({})
    assert prices.usd("gpt-5.4", 1_000_000, 0) == before != 8.0


# -- a whole run ------------------------------------------------------------------------------------------------------

CLAUDE = """#!/bin/sh
echo "claude $*" >> "$HOME/calls"; cat > /dev/null; echo bad >> bad.txt
echo '{"type":"system","subtype":"init","session_id":"s-1","model":"claude-opus-5"}'
echo '{"type":"assistant","message":{"content":[{"type":"text","text":"I looked at the parser."}]}}'
echo '{"type":"result","subtype":"success","result":"done"}'
"""
CODEX = """#!/bin/sh
echo "codex $*" >> "$HOME/calls"; cat > "$HOME/told"; echo good > good.txt
echo '{"type":"thread.started","thread_id":"c-1"}'
echo '{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"There."}}'
echo '{"type":"turn.completed","usage":{"input_tokens":1000,"output_tokens":100}}'
"""


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@pytest.fixture
def repo(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    program(folder, "claude", CLAUDE)
    program(folder, "codex", CODEX)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return repo


def test_a_failure_is_followed_by_the_next_stronger_one_and_the_journal_says_why(repo: Path) -> None:
    cascade = [
        {"agent": "claude", "model": "small"},
        {"agent": "claude", "model": "large"},
        {"agent": "codex", "model": "gpt-5.4"},
    ]
    settings(repo, cascade=cascade)
    (layout(repo).backlog_open / "t.yaml").write_text("goal: Make it good.\nverify: ['test -e good.txt']\n")
    assert "goes to    claude, model small" in holdfast(repo, "show", "t")
    holdfast(repo, "run", "--plain")
    assert landed(repo) == ["t"]
    told = holdfast(repo, "history", "t")
    assert "Given to claude, as attempt t.1, model small (cascade step 1)" in told
    assert "Given to claude, as attempt t.2, model large (cascade step 2 after a failed gate)" in told
    assert "Given to codex, as attempt t.3, model gpt-5.4 (cascade step 3 after a failed gate)" in told
    calls = (repo.parent / "calls").read_text().splitlines()
    assert len(calls) == 3
    # The same agent continues its conversation, also with another model; another agent has what was said in its prompt.
    assert "--resume" not in calls[0] and "--model large --resume s-1" in calls[1]
    assert calls[2].startswith("codex exec") and "resume" not in calls[2] and "s-1" not in calls[2]
    assert "I looked at the parser." in (repo.parent / "told").read_text()
    shown = json.loads(holdfast(repo, "show", "t", "--json"))
    assert shown["worked_by"] == "codex" and shown["why"] == "cascade step 3 after gate_failed"
    assert shown["cost"] == "estimated" and "codex" in holdfast(repo, "show", "t")
    found = state(repo).tasks["t"]
    assert (found.claim.worked_by, found.claim.model, found.session) == ("codex", "gpt-5.4", "c-1")
    sound(repo)


def test_a_prompt_is_for_the_agent_that_the_rules_choose(repo: Path) -> None:
    settings(repo, agent="claude", max_attempts=1)
    (layout(repo).backlog_open / "t.yaml").write_text("goal: x\nverify: ['test -e good.txt']\n")
    holdfast(repo, "run", "--plain", code=None)
    holdfast(repo, "retry", "t")
    assert state(repo).tasks["t"].session == "s-1"
    assert "I looked at the parser." not in holdfast(repo, "prompt", "t"), "it remembers that by itself"
    settings(repo, routes=[{"agent": "codex"}])
    assert "I looked at the parser." in holdfast(repo, "prompt", "t")


def test_a_route_leads_to_an_agent_and_a_missing_one_is_reported(repo: Path) -> None:
    settings(repo, routes=[{"role": "docs", "agent": "nobody"}, {"label": "easy", "agent": "scripted"}])
    add(repo, "own", "write a.txt x", role="docs")
    (layout(repo).backlog_open / "t.yaml").write_text("goal: x\nrole: docs\n")
    told = holdfast(repo, "run", "--plain", code=None)
    assert landed(repo) == ["own"] and "there is no agent called nobody" in told
