"""Counts the results of the demo in the journal, the attempts' folders, git, and the file of steps."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.demo.lives import Lives, many
from holdfast.demo.sample import ALL, PLAIN, STEPS
from holdfast.domain.fsm import Reason
from holdfast.domain.wording import plural
from holdfast.errors import HoldfastError
from holdfast.storage.journal.entry import Entry, Ref

Journalled = list[tuple[Ref, Entry]]


class Sums(msgspec.Struct, frozen=True):
    """`figures` by name, as in the table; `problems`: what must not have happened."""

    figures: dict[str, str]
    problems: list[str]


def sums(lives: Lives, seconds: float) -> Sums:
    try:
        entries = lives.entries()
    except HoldfastError as error:
        return Sums({}, [str(error)])
    landed = lives.sample.landed()
    if missing := sorted(set(ALL) - set(landed)):
        return Sums({}, [f"not landed: {', '.join(missing)}"])
    turns = len(set(lives.turn_lines()))
    lost, repeated, redone = _records_lost(lives, entries), _effects_repeated(lives, entries), _turns_redone(lives)
    output = _check(lives)
    problems = [f"lost: {each}" for each in lost] + [f"repeated: {each}" for each in repeated]
    problems += _wrong_ending(lives, redone, output)
    counts = Counter(entry.decision_type for _, entry in entries)
    if counts["task_orphaned"] > lives.killed_attempts.total():
        problems.append(f"{counts['task_orphaned']} orphans, where {lives.killed_attempts.total()} were made")
    rejected = sum(entry.inputs.get("reason") == Reason.VERIFICATION_FAILED for _, entry in entries)
    if not rejected:
        problems.append("the first answer passed its gate")
    figures = {
        "killed with SIGKILL": ", ".join(many(count, what) for what, count in lives.kills.items()),
        "tasks landed": f"{len(landed)} of {len(ALL)}, {_merged(entries)} of them merged onto a newer main",
        "gates failed": f"{rejected}, and the next attempt was told why",
        "agents adopted": f"{lives.adopted}, with the same pid before a kill and after the next start",
        "orphans continued": f"{counts['task_orphaned']}, each at its last turn",
        "turns redone": f"{len(redone)} of {turns}, at most one for each agent or runner killed",
        "effects repeated": f"{len(repeated)} of {sum(not entry.committed for _, entry in entries)}",
        "records lost": f"{len(lost)} of {len(lives.seen)} entries and {len(lives.seen_turns)} turns seen at a kill",
        "seconds": f"{seconds:.0f}",
        "holdfast check": (output.splitlines() or ["nothing"])[-1],
    }
    return Sums(figures, problems)


def _merged(entries: Journalled) -> int:
    lands = [entry.inputs for _, entry in entries if entry.decision_type == "task_land_intent"]
    bases = {entry.inputs["attempt"]: entry.inputs["base"] for _, entry in entries if entry.inputs.get("base")}
    return len({each["task"] for each in lands if each["old"] != bases[each["attempt"]]})


def _check(lives: Lives) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "check"],
        cwd=lives.sample.repo, env=lives.sample.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def _records_lost(lives: Lives, entries: Journalled) -> list[str]:
    """Entries and turns that were seen before a kill and are gone; turns that the journal or git does not have."""
    now = {ref for ref, _ in entries}
    lost = [f"entry {ref.seq} of run {ref.run}" for ref in lives.seen - now]
    turns = set(lives.turn_lines())
    lost += [f"a turn of {name}" for name, _ in lives.seen_turns - turns]
    journalled = {
        (entry.inputs["attempt"], entry.inputs["turn"]): entry.inputs["snapshot"]
        for _, entry in entries
        if entry.decision_type == "turn_completed"
    }
    store = lives.sample.layout.snapshots
    kept = set(lives.sample.git("for-each-ref", "--format=%(objectname)", "refs/attempts", cwd=store).splitlines())
    for name, line in sorted(turns):
        made: dict[str, Any] = json.loads(line)
        if journalled.get((name, made["turn"])) != made["snapshot"]:
            lost.append(f"turn {made['turn']} of {name}, which the journal does not have")
        elif made["snapshot"] not in kept:
            lost.append(f"the snapshot of turn {made['turn']} of {name}")
    return lost


def _effects_repeated(lives: Lives, entries: Journalled) -> list[str]:
    """Effects that happened more often than decided: landings, moves of the branch, starts, lines in a landed file."""
    sample = lives.sample
    repeated = [f"{name} landed {count} times" for name, count in Counter(sample.landed()).items() if count > 1]
    moves = sample.git("reflog", "show", "--format=%H", "main").splitlines()
    repeated += [f"main was moved to {new} {count} times" for new, count in Counter(moves).items() if count > 1]
    decided = Counter(entry.inputs["attempt"] for _, entry in entries if entry.decision_type == "task_spawn_intent")
    agents = Counter(attempt for attempt, _ in {(step.attempt, step.pid) for step in sample.steps()})
    repeated += [f"{name} was started {agents[name]} times" for name in agents if agents[name] > decided[name]]
    for name in PLAIN:
        expected = [f"{name} {number}" for number in range(1, STEPS + 1)]
        if sample.git("show", f"main:{name}.txt").splitlines() != expected:
            repeated.append(f"{name}.txt does not hold each step once")
    return repeated


def _turns_redone(lives: Lives) -> list[tuple[str, int]]:
    taken = Counter((step.attempt, step.number) for step in lives.sample.steps())
    return [step for step, count in taken.items() for _ in range(count - 1)]


def _wrong_ending(lives: Lives, redone: list[tuple[str, int]], check: str) -> Iterator[str]:
    for name, count in Counter(attempt for attempt, _ in redone).items():
        if count > lives.killed_attempts[name]:
            yield f"redone too often: {plural(count, 'turn')} of {name}"
    if changed := lives.sample.git("status", "--porcelain"):
        yield f"the checkout is not as the branch: {changed}"
    page = lives.sample.git("show", "main:page.txt").splitlines()
    if (page[0], page[-1]) != ("a title", "a footer"):
        yield "page.txt does not hold both changes"
    if "Sound." not in check:
        yield f"`holdfast check` says:\n{check}"
