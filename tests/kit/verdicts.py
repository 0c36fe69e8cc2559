"""What the tests of the verdict share: a repository with a candidate, and intents to judge it. Run as a program, it
performs the intent that is read from a file."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from holdfast.domain.effect_entries import VerifyIntended
from holdfast.landing import verify
from holdfast.landing.gates import Gate
from holdfast.landing.verify import Verify
from holdfast.layout import Layout
from holdfast.processes import sandbox as sandboxes
from holdfast.processes.cgroups import NO_LIMITS
from holdfast.storage.journal.intents import OpenIntent
from holdfast.storage.records.blobs import Blobs
from holdfast.worktrees.worktrees import Worktrees
from kit import landing as intents


def effect(repo: Path, grace_s: float = 0.3) -> Verify:
    layout = Layout(repo / ".sdd")
    confine, worktrees = sandboxes.gate, Worktrees(repo, layout)
    return Verify(
        repo, layout, Blobs(layout.cas), worktrees, passed_on=(), grace_s=grace_s, confine=confine, resources=NO_LIMITS
    )


def intent(
    repo: Path,
    target: str,
    merged: str,
    *gates: Gate,
    paths: tuple[str, ...] = (),
    candidate: str | None = None,
    sandbox: str = "none",
) -> OpenIntent:
    digest = verify.pin(gates, paths, Blobs(Layout(repo / ".sdd").cas), sandbox)
    candidate = merged if candidate is None else candidate
    intended = VerifyIntended(
        task="T-1",
        attempt="T-1.1",
        candidate=candidate,
        target=target,
        merged=merged,
        gates=digest,
        repeatable=all(g.repeatable for g in gates),
    )
    return intents.intent("verify", **msgspec.to_builtins(intended))


if __name__ == "__main__":
    inputs = msgspec.json.decode(Path(sys.argv[2]).read_bytes())
    print(msgspec.json.encode(effect(Path(sys.argv[1])).perform(intents.intent("verify", **inputs))).decode())
