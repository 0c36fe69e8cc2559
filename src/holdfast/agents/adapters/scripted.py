"""The scripted agent: carries out a task's `script:` step by step. For demonstrations, and for tests."""

from __future__ import annotations

import sys

from holdfast.domain.attempt_records import Can, Launch
from holdfast.domain.definition import Definition
from holdfast.ports import Work


class Scripted:
    name = "scripted"
    # It needs no history: it begins behind the turns that were completed.
    resumes = True
    can = Can(resume=True, cost="reported")
    permission = None
    install = sign_in = ""

    def find(self) -> str | None:
        return sys.executable

    def version(self, wait_s: float = 0.0) -> str:
        return ""

    def is_signed_in(self) -> bool | None:
        return True

    def endpoint(self, model: str) -> str:
        return ""

    def missing(self, definition: Definition) -> str:
        message = f"The task {definition.id} has no `script:`; write one, or name another agent."
        return "" if definition.script else message

    def launch(self, work: Work) -> Launch:
        return Launch(
            (sys.executable, "-m", "holdfast.agents.adapters.script"),
            stdin=work.definition.script or "",
            uses_model=False,
        )
