"""Agents that are only a command: that of a task's `command:`, those declared in the settings, and the scripted one."""

from __future__ import annotations

import os
import re
import shutil
import sys

from holdfast.agents.common import environment
from holdfast.config.sections import DeclaredAgent
from holdfast.domain.attempt_records import Can, Launch
from holdfast.domain.definition import Definition
from holdfast.ports import Work
from holdfast.questions.rules import PermissionPolicy


class _Plain:
    """The defaults of an agent that is only a command."""

    can = Can()
    permission = None
    install = sign_in = ""

    def find(self) -> str | None:
        return shutil.which("sh")

    def version(self, wait_s: float = 0.0) -> str:
        return ""

    def is_signed_in(self) -> bool | None:
        return None

    def endpoint(self, model: str) -> str:
        return ""

    def interactive(self, work: Work) -> Launch | None:
        return None


class Command(_Plain):
    """A task's own command. It can read the prompt from the file that HOLDFAST_PROMPT_FILE names."""

    name = "command"

    def missing(self, definition: Definition, policy: PermissionPolicy | None = None) -> str:
        if definition.command is None:
            return f"The task {definition.id} has no `command:`; write one, or name another agent."
        return _not_found(_argv(definition)[0], f"the `command:` of {definition.id}")

    def launch(self, work: Work) -> Launch:
        return Launch(_argv(work.definition), prompt=work.prompt, uses_model=False)


def _argv(definition: Definition) -> tuple[str, ...]:
    command = definition.command or ()
    return ("sh", "-c", command) if isinstance(command, str) else command


def _not_found(program: str, place: str) -> str:
    if shutil.which(program) is not None:
        return ""
    return f"There is no program {program!r}, which {place} calls; install it, or write where it is."


class Declared(_Plain):
    """An agent of the settings' `agents`."""

    def __init__(self, declared: DeclaredAgent) -> None:
        self._declared = declared
        self.name = declared.name
        reports_tokens = not {"spent.tokens_in", "spent.tokens_out"}.isdisjoint(declared.events)
        cost = "reported" if "spent.usd" in declared.events else "estimated" if reports_tokens else ""
        self.can = Can(resume=bool(declared.resume), cost=cost)

    def find(self) -> str | None:
        return shutil.which(self._declared.command[0]) if self._declared.command else None

    def missing(self, definition: Definition, policy: PermissionPolicy | None = None) -> str:
        if not self._declared.command:
            return (
                f"The settings' `agents` name {self.name} without a `command`, and Holdfast knows no CLI of that name; "
                "give it one, or mend the name."
            )
        if unset := environment.unset(self._declared, os.environ):
            return f"The settings give {self.name} a value of the variable {unset}, which is not set; set it."
        return _not_found(self._declared.command[0], f"the agent {self.name}")

    def launch(self, work: Work) -> Launch:
        declared = self._declared
        by_argument = declared.prompt == "argument"
        given = {"{prompt}": work.prompt if by_argument else "", "{model}": work.model, "{session}": work.session}
        parts = (*declared.command, *(declared.resume if work.session else ()))
        argv = [_filled(part, given) for part in parts]
        if by_argument and not any("{prompt}" in part for part in declared.command):
            argv.append(work.prompt)
        launch = Launch(
            tuple(argv),
            stdin=work.prompt if declared.prompt == "stdin" else "",
            prompt=work.prompt if declared.prompt == "file" else "",
            events=dict(declared.events),
            model=work.model,
        )
        return environment.with_settings(launch, declared)


class Scripted(_Plain):
    """Carries out a task's `script:` step by step. For demonstrations, and for tests."""

    name = "scripted"
    # It needs no history: it begins behind the turns that were completed.
    can = Can(resume=True, cost="reported", asks="deferred")

    def find(self) -> str | None:
        return sys.executable

    def is_signed_in(self) -> bool | None:
        return True

    def missing(self, definition: Definition, policy: PermissionPolicy | None = None) -> str:
        message = f"The task {definition.id} has no `script:`; write one, or name another agent."
        return "" if definition.script else message

    def launch(self, work: Work) -> Launch:
        return Launch(
            (sys.executable, "-m", "holdfast.agents.adapters.script"),
            stdin=work.definition.script or "",
            uses_model=False,
            policy=work.policy or PermissionPolicy(),
            # A script that asks gets the answers on its standard input.
            talks=is_asking(work.definition.script or ""),
        )


def is_asking(script: str) -> bool:
    """Whether a step of the script asks a person, or may."""
    return re.search(r"\bask(-later)? ", script) is not None


def _filled(part: str, given: dict[str, str]) -> str:
    """Fills in placeholders once: a prompt may itself contain {model}."""
    return re.sub(r"\{(?:prompt|model|session)\}", lambda found: given[found[0]], part)
