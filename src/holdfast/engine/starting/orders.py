"""The order for a runner: all that it needs to know for one start."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Protocol

import msgspec

from holdfast.config.permissions import policy_of
from holdfast.config.settings import Config
from holdfast.domain.attempt_records import AttemptLimits, Launch, Order
from holdfast.domain.conversations.conversation_records import Message
from holdfast.domain.definition import Definition
from holdfast.domain.spend import Caps
from holdfast.domain.task_record import Task
from holdfast.engine.context import RunContext
from holdfast.engine.prompt import WayBack
from holdfast.layout import Layout
from holdfast.ports import Agent, Work
from holdfast.processes.resources import of_machine
from holdfast.questions.records import Question
from holdfast.storage.audit.key import configured_path
from holdfast.storage.records.session_use import SessionUse, idle_turns, is_rotating, left, rotation, session_use


class StartFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`made`: the definition with which the attempt began. `variables`: those of its worktree. `told`, `answered`: what
    people had told and answered when the prompt was written; `answers`: such an answer is what the start is for.
    `is_interactive`: a person talks to the agent, or has a shell where its program has no such mode."""

    made: Definition
    agent: Agent
    base: str
    prompt: str
    session: str
    caps: Caps
    variables: Mapping[str, str] = {}
    told: tuple[Message, ...] = ()
    answered: tuple[Question, ...] = ()
    answers: bool = False
    is_interactive: bool = False


def make_order(context: RunContext, task: Task, facts: StartFacts) -> Order:
    made, agent = facts.made, facts.agent
    has_tools = context.has_tools and agent.can.mcp and not facts.is_interactive
    if has_tools:
        context.ready_tools()
    used = session_use(context.layout, task.id, task.attempts, facts.session)
    work = Work(
        task=task.id,
        attempt=task.attempt.id,
        prompt=facts.prompt,
        definition=made,
        model=task.claim.model,
        session=facts.session,
        turn=task.attempt.turn,
        counted=(used.tokens_in, used.tokens_out),
        counted_usd=used.usd,
        policy=policy_of(context.config, made, agent.name),
        answers=facts.answers,
        has_tools=has_tools,
    )
    launch = (agent.interactive(work) or shell()) if facts.is_interactive else agent.launch(work)
    # A task's own command, started anew, would do everything again; and a person's conversation is the person's.
    rotates = (agent.can.resume or launch.uses_model) and is_rotating(task) and not facts.is_interactive
    return Order(
        task=task.id,
        attempt=task.attempt.id,
        start=task.start.number + 1,
        agent=agent.name,
        launch=launch,
        worktree=str(context.worktrees.path(task.id)),
        base=facts.base,
        private=str(context.worktrees.private(task.id)),
        turn=task.attempt.turn,
        done=task.attempt.turn - task.attempt.undone,
        limits=_limits(context, made, facts.caps, used if rotates else None),
        idle_turns=idle_turns(context.layout.attempt_files(task.attempt.id)),
        passed_on=tuple(context.config.agent_env),
        exclude=context.worktrees.left_out(task.id),
        sandbox=context.sandbox_of(made),
        sandbox_writable=context.config.sandbox_writable,
        sandbox_network=context.config.sandbox_network,
        answered=facts.answered,
        audit_key=str(configured_path(context.repo, context.config.audit.key_path) or ""),
        told=facts.told,
        prices={name: price.per_million for name, price in context.config.prices.items()},
        variables=dict(facts.variables),
    )


class Served(Protocol):
    """What is known of the server beside a run: whether it answers, and whether it has our tools."""

    @property
    def config(self) -> Config: ...
    @property
    def serves(self) -> bool: ...
    @property
    def has_tools(self) -> bool: ...


def way_back(agent: Agent, served: Served) -> WayBack:
    """By what the agent speaks to the run; empty where that does not serve, or the settings refuse the tools."""
    if not served.config.mcp_tools or not served.serves:
        return ""
    return "tools" if agent.can.mcp and served.has_tools else "command"


def shell() -> Launch:
    return Launch((shutil.which(os.environ.get("SHELL", "")) or "/bin/sh",), uses_model=False)


def _limits(context: RunContext, made: Definition, caps: Caps, used: SessionUse | None) -> AttemptLimits:
    """`used`: what the conversation has had before this start; None where it is not to be followed by another."""
    config = context.config
    return AttemptLimits(
        caps=caps,
        timeout_s=made.timeout_s or config.timeout_s,
        stall_timeout_s=config.stall_timeout_s,
        grace_s=config.grace_s,
        heartbeat_s=config.heartbeat_s,
        same_calls_max=config.same_calls_max,
        idle_turns_max=config.idle_turns_max,
        output_bytes_max=config.output_bytes_max,
        retry_timeout_s=config.retry_timeout_s,
        session_turns=left(config.session_turns_max, used and used.turns),
        session_tokens=left(config.session_tokens_max, used and used.tokens),
        resources=of_machine(config.limits.resources),
    )


def full_session_of(layout: Layout, config: Config, task: Task, agent: Agent) -> str:
    """The reason why the task's conversation is not resumed by this start; empty where there is none, or none yet."""
    most = config.session_turns_max, config.session_tokens_max
    return rotation(layout, task, *most) if agent.can.resume else ""
