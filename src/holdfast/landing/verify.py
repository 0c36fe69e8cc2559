"""The verdict: may exactly this commit land?

    attempts/<id>/verdict.json       the last verdict, for exactly the commits and gates that it names
    attempts/<id>/gates-begun.json   the gates that must not run twice and have begun, with their commit
    attempts/<id>/gates.lock         held by the running gates

The gates and the path rules are pinned as a blob, whose digest is in the intent: they judge as they were then, whatever
the files say by now. The order: there is a candidate, it merges, it changes something, only what it may, and then every
gate, until a required one has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.crashpoints import point
from holdfast.domain import path_rules
from holdfast.domain.attempt_records import Resources
from holdfast.domain.wording import plural
from holdfast.errors import JudgingWithdrawn, SetupFailed
from holdfast.git import command as git
from holdfast.git import objects
from holdfast.landing import gates as running
from holdfast.landing.gates import Gate, GatePlace, GateRun
from holdfast.landing.judged_trees import JudgedTree, PreparedTree, PrepareTree, only_tree
from holdfast.layout import Attempt, Layout
from holdfast.ports import DidNotHappen, Happened, InDoubt, Reconciled
from holdfast.snapshots.store import CANDIDATES, MERGED
from holdfast.storage.files import disk
from holdfast.storage.files.json_file import decode_json, read_json
from holdfast.storage.journal.intents import OpenIntent
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.blobs import Blobs
from holdfast.worktrees import merges
from holdfast.worktrees.worktrees import Worktrees

Kind = Literal[
    "passed", "no_candidate", "conflict", "conflict_markers", "empty_change", "paths_violated", "gate_failed",
    "gate_timed_out", "setup_failed",
]  # fmt: skip

VERIFY_POINTS = tuple(
    f"verify.{step}.{when}" for step in ("begin", "scratch", "begun", "gate", "verdict") for when in ("before", "after")
)
Confine = Callable[[Sequence[str], Path, Path, Sequence[str], str], Sequence[str]]
_JSON = "application/json"


class GateVerdict(msgspec.Struct, frozen=True):
    """verdict.json. `files`: those that the kind is about, in conflict or outside the task's paths."""

    candidate: str
    target: str
    merged: str
    gates: str
    passed: bool
    kind: Kind
    detail: str
    results: list[GateRun] = []
    files: list[str] = []


class _Pinned(msgspec.Struct, frozen=True, omit_defaults=True):
    gates: tuple[Gate, ...]
    paths: tuple[str, ...]
    sandbox: str = "none"
    writable: tuple[str, ...] = ()
    network: str = "open"


class _Begun(msgspec.Struct, frozen=True):
    merged: str
    gates: str
    names: list[str]


# -- gates ------------------------------------------------------------------------------------------------------------


def pin(gates: Sequence[Gate], paths: Sequence[str], blobs: Blobs, *confined: Any) -> str:
    """Stores the gates, the path rules and the sandbox (sandbox, writable, network) as a blob; an intent names it."""
    return blobs.put(msgspec.json.encode(_Pinned(tuple(gates), tuple(paths), *confined)), content_type=_JSON)


# -- verdicts ---------------------------------------------------------------------------------------------------------


def no_candidate(candidate: str = "", target: str = "", merged: str = "", gates: str = "") -> GateVerdict:
    detail = "the agent ended without anything that could be judged"
    return GateVerdict(candidate, target, merged, gates, passed=False, kind="no_candidate", detail=detail)


def conflict(
    files: Sequence[str], candidate: str = "", target: str = "", merged: str = "", gates: str = ""
) -> GateVerdict:
    names = [git.readable(name) for name in files]
    detail = f"it conflicts with what landed meanwhile in {_listed(names)}"
    return GateVerdict(candidate, target, merged, gates, passed=False, kind="conflict", detail=detail, files=names)


def read_verdict(blobs: Blobs, digest: str) -> GateVerdict:
    return msgspec.json.decode(blobs.get(digest), type=GateVerdict)


class Verify:
    """The effect. `passed_on`: names of additional variables for the gates. `confine` wraps a gate's command line into
    a sandbox, given the worktree, the data root, the writable paths and the network."""

    def __init__(
        self,
        repo: Path,
        layout: Layout,
        blobs: Blobs,
        worktrees: Worktrees,
        *,
        passed_on: Sequence[str],
        grace_s: float,
        confine: Confine,
        resources: Resources,
    ) -> None:
        self._confine, self._resources = confine, resources
        self._repo, self._layout, self._blobs = repo, layout, blobs
        self._worktrees, self._passed_on, self._grace_s = worktrees, tuple(passed_on), grace_s
        # Asked of a task while its gates run: where it answers no, they are ended, and there is no verdict.
        self.is_wanted: Callable[[str], bool] = lambda task: True
        self.prepare: PrepareTree = only_tree
        # Files that setup depends on: where the candidate changes one, it is judged by whether setup still works.
        self.inputs: tuple[str, ...] = ()

    def perform(self, intent: OpenIntent) -> dict[str, Any]:
        wanted = intent.entry.inputs
        files = self._layout.attempt_files(wanted["attempt"])
        attempt_folder.make_folder(files)
        point("verify.begin.before")
        # A verdict of an earlier try must not count as that of this one.
        disk.unlink(files.gates_begun, missing_ok=True)
        disk.unlink(files.verdict, missing_ok=True)
        point("verify.begin.after")
        verdict = self._judge(wanted, files)
        content = msgspec.json.encode(verdict)
        point("verify.verdict.before")
        digest = self._blobs.put(content, content_type=_JSON)
        disk.replace(files.verdict, content, attempt_folder.PRIVATE)
        point("verify.verdict.after")
        return _result(verdict, digest)

    def reconcile(self, intent: OpenIntent) -> Reconciled:
        """Ends what is left of the gates, then answers by the files that were written."""
        wanted = intent.entry.inputs
        files = self._layout.attempt_files(wanted["attempt"])
        if files.root.is_dir():
            with running.locked(self._place(wanted)):
                pass
        verdict, content = _read(files)
        if verdict is not None and _wanted(wanted) == (
            verdict.candidate,
            verdict.target,
            verdict.merged,
            verdict.gates,
        ):
            return Happened(_result(verdict, self._blobs.put(content, content_type=_JSON)))
        begun = _begun(files, wanted)
        if not begun:
            return DidNotHappen()
        return InDoubt(
            f"{begun} must not run twice, had begun to judge {wanted['merged'][:12]}, and left no verdict: look at "
            "what it did, then say that it has passed with --happened, let it run again with --retry, or give the "
            "attempt up with --abandon"
        )

    # -- judging ------------------------------------------------------------------------------------------------------

    def _judge(self, wanted: dict[str, Any], files: Attempt) -> GateVerdict:
        names = _wanted(wanted)
        candidate, target, merged, _ = names
        if not candidate:
            return no_candidate(*names)
        if not merged:
            who = merges.GitAuthor("holdfast", "holdfast@localhost")
            found = merges.merge(self._worktrees.store, target, candidate, "merge", who)
            return conflict(found.conflicts, *names)
        for kind, commit in ((CANDIDATES, candidate), (MERGED, merged)):
            merges.keep(self._worktrees.store, kind, wanted["attempt"], commit)
        store = self._worktrees.store
        store.hand_over(merged, target)
        # In both stores: the user's `git gc` may remove the commit from theirs at any moment.
        objects.require_whole(store.seen, merged, [target])
        changed = merges.changed(store.seen, target, merged)
        if not changed:
            detail = "it changes nothing: the target is already so"
            return GateVerdict(*names, passed=False, kind="empty_change", detail=detail)
        if told := [git.readable(name) for name in path_rules.reserved(changed, self._layout.within(self._repo))]:
            detail = f"it changes {_listed(told)}, which decides what Holdfast runs here: only a person changes that"
            return GateVerdict(*names, passed=False, kind="paths_violated", detail=detail, files=told)
        pinned = msgspec.json.decode(self._blobs.get(wanted["gates"]), type=_Pinned)
        if outside := path_rules.outside(changed, pinned.paths):
            told = [git.readable(name) for name in outside]
            detail = f"it changes what the task's paths ({', '.join(pinned.paths)}) do not allow: {_listed(told)}"
            return GateVerdict(*names, passed=False, kind="paths_violated", detail=detail, files=told)
        if marked := merges.conflict_markers(store.seen, target, merged):
            told = [git.readable(name) for name in marked]
            detail = f"it leaves conflict markers in {_listed(told)}"
            return GateVerdict(*names, passed=False, kind="conflict_markers", detail=detail, files=told)
        try:
            return self._run(wanted, files, pinned)
        except SetupFailed as failed:
            self._expect_wanted(wanted)
            if not set(self.inputs) & set(changed):
                raise
            # It works on the target, and the candidate has changed what it depends on.
            return GateVerdict(*names, passed=False, kind="setup_failed", detail=f"{failed.what}: {failed.lines}")

    def _run(self, wanted: dict[str, Any], files: Attempt, pinned: _Pinned) -> GateVerdict:
        names, gates = _wanted(wanted), pinned.gates
        results: list[GateRun] = []
        broken: GateRun | None = None
        if gates:
            with running.locked(self._place(wanted)) as place, self._prepared(wanted, pinned) as prepared:
                place = msgspec.structs.replace(
                    self._confined(place, pinned), variables=prepared.variables, leases=prepared.descriptors
                )
                begun: list[str] = []
                for gate in gates:
                    if broken is not None:
                        results.append(gate.without_run("not_run"))
                        continue
                    if gate.name in wanted.get("happened", ()):
                        results.append(gate.without_run("passed", told=True))
                        continue
                    self._expect_wanted(wanted)
                    self._note_begin(wanted, files, gate, begun)
                    point("verify.gate.before")
                    result = running.run(gate, place, self._blobs, self._passed_on)
                    point("verify.gate.after")
                    self._expect_wanted(wanted)
                    results.append(result)
                    broken = result if gate.required and result.outcome != "passed" else None
        kind: Kind = "passed"
        if broken is not None:
            kind = "gate_timed_out" if broken.outcome == "timed_out" else "gate_failed"
        detail = _passed_detail(results) if broken is None else _broken_detail(broken)
        return GateVerdict(*names, passed=broken is None, kind=kind, detail=detail, results=results)

    def _expect_wanted(self, wanted: dict[str, Any]) -> None:
        if not self.is_wanted(wanted["task"]):
            raise JudgingWithdrawn(task=wanted["task"], behind=wanted.get("behind", "") or "another")

    def _prepared(self, wanted: dict[str, Any], pinned: _Pinned) -> AbstractContextManager[PreparedTree]:
        def make_tree() -> None:
            point("verify.scratch.before")
            self._worktrees.scratch(wanted["merged"], _place_of(wanted), is_confined=pinned.sandbox != "none")
            # The worktree's HEAD keeps it from here on; a `git gc` before may have removed it.
            self._worktrees.store.hand_over(wanted["merged"], wanted["target"])
            point("verify.scratch.after")

        judged = JudgedTree(
            wanted["task"],
            wanted["attempt"],
            self._worktrees.judging_path(_place_of(wanted)),
            # The rules of a commit that has not landed do not count: an agent may have written them.
            target=wanted.get("branch_at", "") or wanted["target"],
            merged=wanted["merged"],
            confinement=(pinned.sandbox, pinned.writable, pinned.network),
            is_wanted=lambda: self.is_wanted(wanted["task"]),
        )
        return self.prepare(judged, make_tree)

    def _confined(self, place: GatePlace, pinned: _Pinned) -> GatePlace:
        if pinned.sandbox == "none":
            return place
        confine, root, writable, network = self._confine, self._layout.root, pinned.writable, pinned.network
        return msgspec.structs.replace(place, confine=lambda argv: confine(argv, place.folder, root, writable, network))

    def _note_begin(self, wanted: dict[str, Any], files: Attempt, gate: Gate, begun: list[str]) -> None:
        """Notes on disk that the gate begins, so that a crash cannot make it run twice unnoticed."""
        if not gate.repeatable:
            begun.append(gate.name)
            begun_now = msgspec.json.encode(_Begun(wanted["merged"], wanted["gates"], begun))
            point("verify.begun.before")
            disk.replace(files.gates_begun, begun_now, attempt_folder.PRIVATE)
            point("verify.begun.after")

    def _place(self, wanted: dict[str, Any]) -> GatePlace:
        attempt, folder = wanted["attempt"], self._worktrees.judging_path(_place_of(wanted))
        files = self._layout.attempt_files(attempt)
        return GatePlace(
            wanted["task"],
            attempt,
            files,
            folder,
            grace_s=self._grace_s,
            resources=self._resources,
            is_wanted=lambda: self.is_wanted(wanted["task"]),
        )


def _place_of(inputs: dict[str, Any]) -> int:
    """The number of the worktree in which its gates run."""
    return int(inputs.get("place", 0))


def _wanted(inputs: dict[str, Any]) -> tuple[str, str, str, str]:
    """The commits and gates that an intent is about: a verdict counts for exactly these."""
    return inputs["candidate"], inputs["target"], inputs["merged"], inputs["gates"]


def _result(verdict: GateVerdict, digest: str) -> dict[str, Any]:
    named = {name: getattr(verdict, name) for name in ("passed", "merged", "target", "kind", "detail")}
    return {**named, "verdict": digest}


def _read(files: Attempt) -> tuple[GateVerdict | None, bytes]:
    """The verdict, and the bytes that it was read from."""
    try:
        content = files.verdict.read_bytes()
    except FileNotFoundError:
        return None, b""
    return decode_json(content, GateVerdict), content


def not_again(parked: str, files: Attempt, gates: Sequence[Gate]) -> list[str]:
    """The names, as in `Task.happened`, of what is not performed again once a person said that it happened.

    For gates: those that had begun and must not run twice, as far as that is known.
    """
    if parked.startswith("task_refresh_"):
        return ["refresh"]
    if not parked.startswith("task_verify_"):
        return []
    begun = read_json(files.gates_begun, _Begun)
    names = begun.names if begun is not None else [gate.name for gate in gates if not gate.repeatable]
    return [f"gate:{name}" for name in names]


def _begun(files: Attempt, wanted: dict[str, Any]) -> str:
    """The gates that must not run twice and have begun to judge this, in words; empty where none has."""
    try:
        begun = decode_json(files.gates_begun.read_bytes(), _Begun)
    except FileNotFoundError:
        return ""
    if begun is None:
        return f"a gate whose name in {files.gates_begun} cannot be read"
    is_this = (begun.merged, begun.gates) == (wanted["merged"], wanted["gates"])
    return " and ".join(begun.names) if is_this else ""


# -- in words ---------------------------------------------------------------------------------------------------------


def _listed(names: Sequence[str], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def shown_command(command: str | tuple[str, ...]) -> str:
    import shlex

    return command if isinstance(command, str) else shlex.join(command)


def _passed_detail(results: Sequence[GateRun]) -> str:
    passed = sum(result.outcome == "passed" for result in results)
    failed = [result.name for result in results if result.outcome != "passed"]
    told = f"{passed} of {plural(len(results), 'gate')} passed" if results else "there is no gate"
    if by_word := [result.name for result in results if result.told]:
        told += f"; not run again, because a person said that it happened: {', '.join(by_word)}"
    return f"{told}; advisory, and failed: {', '.join(failed)}" if failed else told


def _broken_detail(broken: GateRun) -> str:
    if broken.outcome == "timed_out":
        return f"the gate {broken.name} (`{shown_command(broken.command)}`) had not ended after {broken.seconds:.0f} s"
    return f"the gate {broken.name} (`{shown_command(broken.command)}`) ended with code {broken.code}"
