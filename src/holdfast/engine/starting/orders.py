"""The order for a runner: all that it needs to know for one start."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from holdfast.config.permissions import policy_of
from holdfast.domain.attempt_records import AttemptLimits, Launch, Order
from holdfast.domain.conversations.conversation_records import Message
from holdfast.domain.definition import Definition
from holdfast.domain.spend import Caps
from holdfast.domain.task_record import Task
from holdfast.engine.context import RunContext
from holdfast.ports import Agent, Work
from holdfast.processes.resources import of_machine
from holdfast.questions.records import Question
from holdfast.storage.audit.key import configured_path
from holdfast.storage.records import ledger


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
    tokens_in, tokens_out, usd = _counted(context, task, facts.session)
    work = Work(
        task=task.id,
        attempt=task.attempt.id,
        prompt=facts.prompt,
        definition=made,
        model=task.claim.model,
        session=facts.session,
        turn=task.attempt.turn,
        counted=(tokens_in, tokens_out),
        counted_usd=usd,
        policy=policy_of(context.config, made, agent.name),
        answers=facts.answers,
    )
    return Order(
        task=task.id,
        attempt=task.attempt.id,
        start=task.start.number + 1,
        agent=agent.name,
        launch=(agent.interactive(work) or shell()) if facts.is_interactive else agent.launch(work),
        worktree=str(context.worktrees.path(task.id)),
        base=facts.base,
        private=str(context.worktrees.private(task.id)),
        turn=task.attempt.turn,
        done=task.attempt.turn - task.attempt.undone,
        limits=_limits(context, made, facts.caps),
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


def shell() -> Launch:
    return Launch((os.environ.get("SHELL") or "/bin/sh",), uses_model=False)


def _counted(context: RunContext, task: Task, session: str) -> tuple[int, int, float]:
    """The tokens in and out, and the cost, that the conversation has reported, whichever attempt it was then."""
    tokens_in, tokens_out, usd = 0, 0, 0.0
    for number in range(1, task.attempts + 1) if session else ():
        path = context.layout.attempt_files(f"{task.id}.{number}").spend
        for line in ledger.LineLedger(path).read() if path.exists() else ():
            if line.record.get("session") == session:
                tokens_in += line.record["tokens_in"]
                tokens_out += line.record["tokens_out"]
                usd += line.record["usd"]
    return tokens_in, tokens_out, usd


def _limits(context: RunContext, made: Definition, caps: Caps) -> AttemptLimits:
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
        resources=of_machine(config.limits.resources),
    )
