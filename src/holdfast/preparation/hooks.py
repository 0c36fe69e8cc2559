"""Runs the commands of the settings that prepare or leave a worktree, confined like gates, and keeps their output.

attempts/<id>/hooks.json    the runs of an attempt's hooks, the newest last; their output is in blobs
attempts/<id>/hook-now.json the command that runs at this moment, for `holdfast watch`; nothing depends on it
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import msgspec

from holdfast import identity
from holdfast.clock import wall
from holdfast.landing import gate_results
from holdfast.landing import gates as running
from holdfast.landing.gates import Gate, GatePlace, GateRun
from holdfast.layout import Attempt
from holdfast.storage.files import disk
from holdfast.storage.files.json_file import read_json
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.blobs import Blobs

KEPT_MAX = 200
LINES_MAX, LINES_CHARS_MAX = 6, 1000


class HookRun(msgspec.Struct, frozen=True):
    """One command. `worktree`: the path that it ran in. `run`: how it came out, and the blob with what it printed."""

    hook: str
    worktree: str
    at: float
    run: GateRun


class RunningHook(msgspec.Struct, frozen=True):
    """A command that runs now, since `at`. `by`: the process that waits for it; without that one it is of a run that
    died, and says nothing."""

    hook: str
    command: str
    worktree: str
    at: float
    by: identity.Identity

    @property
    def words(self) -> str:
        is_gates = self.worktree.rpartition("/")[2].startswith(".")
        where = "the worktree for its gates" if is_gates else "its worktree"
        what = f"setting up {where}" if self.hook == "setup" else f"{self.hook} in {where}"
        return f"{what}: {self.command}"


class HookSet(msgspec.Struct, frozen=True):
    """The commands of one setting. `passed_on`: names of additional variables for them."""

    name: str
    commands: tuple[str, ...]
    timeout_s: float
    passed_on: tuple[str, ...] = ()


def run(hook: HookSet, place: GatePlace, blobs: Blobs) -> list[GateRun]:
    """Runs the commands in order until one fails; `place` is locked. Each result is on disk before the next begins."""
    results: list[GateRun] = []
    for command in hook.commands:
        began = wall()
        with _shown(place.files, RunningHook(hook.name, command, str(place.folder), began, identity.current())):
            result = running.run(Gate(hook.name, command, hook.timeout_s), place, blobs, hook.passed_on)
        results.append(result)
        keep(place.files, HookRun(hook.name, str(place.folder), began, result))
        if result.outcome != "passed":
            break
    return results


@contextlib.contextmanager
def _shown(files: Attempt, now: RunningHook) -> Iterator[None]:
    disk.replace(files.hook_now, msgspec.json.encode(now), attempt_folder.PRIVATE)
    try:
        yield
    finally:
        disk.unlink(files.hook_now, missing_ok=True)


def running_now(files: Attempt) -> RunningHook | None:
    found = read_json(files.hook_now, RunningHook, lenient=True)
    return found if found is not None and found.by.is_alive() else None


def keep(files: Attempt, ended: HookRun) -> None:
    attempt_folder.make_folder(files)
    kept = [*recorded(files), ended][-KEPT_MAX:]
    disk.replace(files.hooks, msgspec.json.encode(kept), attempt_folder.PRIVATE)


def recorded(files: Attempt) -> list[HookRun]:
    return read_json(files.hooks, list[HookRun], lenient=True) or []


def broken(results: Sequence[GateRun]) -> GateRun | None:
    return results[-1] if results and results[-1].outcome != "passed" else None


def in_words(result: GateRun) -> str:
    """How a command failed."""
    if result.outcome == "timed_out":
        return f"`{result.command}` had not ended after {result.seconds:.0f} s"
    return f"`{result.command}` ended with code {result.code}"


def last_lines(blobs: Blobs, result: GateRun) -> str:
    lines = gate_results.last_lines(blobs, result, LINES_MAX, with_words=True)
    return " / ".join(line.strip() for line in lines)[-LINES_CHARS_MAX:] or "it printed nothing"
