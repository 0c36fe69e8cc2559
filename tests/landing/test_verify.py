"""The verdict: every kind by name, gates that misbehave, and a crash at every step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.clock import Deadline
from holdfast.config import settings
from holdfast.config.settings import Config
from holdfast.domain.definition import Check, Definition
from holdfast.landing import gate_kinds, gate_results, gates, verify
from holdfast.landing.gates import Gate
from holdfast.landing.verify import VERIFY_POINTS, GateVerdict
from holdfast.layout import Attempt, Layout
from holdfast.ports import DidNotHappen, Happened, InDoubt
from holdfast.processes import cgroups
from holdfast.snapshots.store import Store
from holdfast.storage.journal.intents import OpenIntent
from holdfast.storage.records.blobs import Blobs
from kit import TESTS
from kit.git import git, repository, with_files
from kit.verdicts import effect, intent
from kit.waiting import wait_for

DEADLINE_S = 60.0


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    top = with_files(repository(tmp_path / "repo"), a="1\n", b="2\n")
    (top / "a").write_text("work\n")
    (top / "src").mkdir()
    (top / "src" / "new").write_text("new\n")
    (top / ".gitignore").write_text(".sdd/\n")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "the candidate")
    return top


def commits(repo: Path) -> tuple[str, str]:
    return git(repo, "rev-parse", "HEAD~1"), git(repo, "rev-parse", "HEAD")


def blobs_of(repo: Path) -> Blobs:
    return Blobs(Layout(repo / ".sdd").cas)


def judge(repo: Path, *wanted: Gate, **more: Any) -> GateVerdict:
    """Performs, and asserts that every place has the same verdict."""
    made = intent(repo, *commits(repo), *wanted, **more)
    result = effect(repo).perform(made)
    verdict = verify.read_verdict(blobs_of(repo), result["verdict"])
    assert result == {
        **{name: getattr(verdict, name) for name in ("passed", "merged", "target", "kind", "detail")},
        "verdict": result["verdict"],
    }
    assert effect(repo).reconcile(made) == Happened(result)
    assert not verdict.detail.endswith(".")
    return verdict


def output(repo: Path, verdict: GateVerdict, number: int = 0) -> bytes:
    return blobs_of(repo).get(verdict.results[number].output)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def pid_in(path: Path) -> int:
    wait_for(lambda: path.exists() and path.read_text().endswith("\n"), f"a pid in {path}")
    return int(path.read_text())


# -- every kind -------------------------------------------------------------------------------------------------------


def test_gates_judge_the_very_commit(repo: Path, tmp_path: Path) -> None:
    (repo / "a").write_text("the user's own\n")
    (repo / "untracked").write_text("u")
    see = f"cat a > {tmp_path}/seen; ls -A >> {tmp_path}/seen; git rev-parse HEAD >> {tmp_path}/seen; rm -rf a src"
    verdict = judge(repo, Gate("see", see), Gate("second", ("sh", "-c", "! test -e a")))
    assert verdict.passed and verdict.kind == "passed" and verdict.detail == "2 of 2 gates passed"
    assert [(result.name, result.outcome, result.code) for result in verdict.results] == [
        ("see", "passed", 0),
        ("second", "passed", 0),
    ]
    assert (tmp_path / "seen").read_text() == f"work\n.git\n.gitignore\na\nb\nsrc\n{commits(repo)[1]}\n"
    assert (repo / "a").read_text() == "the user's own\n"
    for kind in ("merged", "candidates"):
        assert git(repo / ".sdd" / "snapshots.git", "rev-parse", f"refs/{kind}/T-1.1") == commits(repo)[1]


def test_a_gc_of_the_users_right_behind_the_handing_over_is_no_fault(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in the repository leads to the commit before the gates' worktree does."""
    target, merged = commits(repo)
    store = Store.of(Layout(repo / ".sdd").snapshots, repo)
    with store.working() as folder:
        store.borrow(git(repo, "rev-list", "--objects", "--no-object-names", merged, f"^{target}").split(), folder)
        store.publish(folder)
    git(repo, "reset", "-q", "--hard", target)
    hand_over, pruned = Store.hand_over, []

    def prune_behind(self: Store, commit: str, onto: str) -> None:
        hand_over(self, commit, onto)
        git(repo, "reflog", "expire", "--expire=now", "--all")
        git(repo, "gc", "-q", "--prune=now")
        pruned.append(subprocess.run(["git", "cat-file", "-e", merged], cwd=repo, capture_output=True).returncode)

    monkeypatch.setattr(Store, "hand_over", prune_behind)
    seen = effect(repo).perform(intent(repo, target, merged, Gate("see", f"git show HEAD:a > {tmp_path}/seen")))
    assert seen["passed"] and (tmp_path / "seen").read_text() == "work\n"
    # The first time it was really gone.
    assert pruned[0] != 0 and pruned[-1] == 0


def test_without_gates_it_passes(repo: Path) -> None:
    verdict = judge(repo)
    assert verdict.passed and verdict.detail == "there is no gate"


def test_a_gate_that_fails_is_reported_with_its_output(repo: Path) -> None:
    verdict = judge(
        repo,
        Gate("first", "true"),
        Gate("tests", "echo out; echo err >&2; exit 3"),
        Gate("later", "true"),
    )
    assert not verdict.passed and verdict.kind == "gate_failed"
    assert verdict.detail == "the gate tests (`echo out; echo err >&2; exit 3`) ended with code 3"
    assert [result.outcome for result in verdict.results] == ["passed", "failed", "not_run"]
    assert output(repo, verdict, 1) == b"out\nerr\n"
    told = gate_results.feedback(verdict, blobs_of(repo))
    assert "Gate tests: `echo out; echo err >&2; exit 3` ended with code 3" in told and "out\nerr" in told
    assert "first" not in told


def test_an_advisory_gate_stops_nothing(repo: Path) -> None:
    verdict = judge(repo, Gate("style", "echo ugly; false", required=False), Gate("tests", "true"))
    assert verdict.passed and verdict.detail == "1 of 2 gates passed; advisory, and failed: style"
    assert [result.outcome for result in verdict.results] == ["failed", "passed"]
    assert "advisory" in gate_results.feedback(verdict, blobs_of(repo)) and "ugly" in gate_results.feedback(
        verdict, blobs_of(repo)
    )


def test_a_gate_killed_by_a_signal_has_failed(repo: Path) -> None:
    assert judge(repo, Gate("dies", "kill -9 $$")).results[0].code == 128 + 9


def test_a_gate_that_cannot_be_run_has_failed(repo: Path) -> None:
    verdict = judge(repo, Gate("absent", ("/nonexistent/program",)))
    assert verdict.kind == "gate_failed" and verdict.results[0].code == 127
    assert b"cannot be run" in output(repo, verdict)


def test_paths_out_of_the_rules(repo: Path, tmp_path: Path) -> None:
    verdict = judge(repo, Gate("never", f"touch {tmp_path}/ran"), paths=("src/", "*.md"))
    assert (verdict.kind, verdict.files) == ("paths_violated", [".gitignore", "a"])
    assert "(src/, *.md)" in verdict.detail and not (tmp_path / "ran").exists()
    assert "  .gitignore\n  a\n" in gate_results.feedback(verdict, blobs_of(repo))
    assert judge(repo, paths=("src/", "a", ".gitignore")).passed


def test_an_empty_change_does_not_pass(repo: Path) -> None:
    target, _ = commits(repo)
    git(repo, "commit", "-q", "--allow-empty", "-m", "nothing")
    merged = git(repo, "rev-parse", "HEAD")
    result = effect(repo).perform(intent(repo, git(repo, "rev-parse", "HEAD~1"), merged, Gate("g", "false")))
    assert result["kind"] == "empty_change" and not result["passed"]
    assert effect(repo).perform(intent(repo, target, target))["kind"] == "empty_change"


def test_a_missing_candidate_does_not_pass(repo: Path) -> None:
    verdict = judge(repo, candidate="")
    assert verdict.kind == "no_candidate" and not verdict.passed
    assert verify.no_candidate().detail in gate_results.feedback(verdict, blobs_of(repo))


def test_a_conflict_names_its_files(repo: Path) -> None:
    base, candidate = commits(repo)
    git(repo, "checkout", "-q", "--detach", base)
    (repo / "a").write_text("theirs\n")
    git(repo, "commit", "-q", "-a", "-m", "theirs")
    made = intent(repo, git(repo, "rev-parse", "HEAD"), "", candidate=candidate)
    result = effect(repo).perform(made)
    assert result["kind"] == "conflict" and result["detail"].endswith("landed meanwhile in a")
    assert effect(repo).reconcile(made) == Happened(result)
    told = gate_results.feedback(verify.read_verdict(blobs_of(repo), result["verdict"]), blobs_of(repo))
    assert "\n  a\n" in told and "<<<<<<<" in told
    assert verify.conflict(["a"]).files == ["a"]


def test_a_gate_finds_its_names_and_nothing_of_ours(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s")
    monkeypatch.setenv("HOLDFAST_TOKEN", "t")
    monkeypatch.setenv("LC_TIME", "C")
    verdict = judge(repo, Gate("env", "env"))
    found = dict(line.split("=", 1) for line in output(repo, verdict).decode().splitlines())
    assert found["HOLDFAST_TASK"] == "T-1" and found["HOLDFAST_ATTEMPT"] == found["HOLDFAST_GATE"] == "T-1.1"
    assert found["PATH"] == os.environ["PATH"] and found["LC_TIME"] == "C"
    assert not {"SECRET", "HOLDFAST_TOKEN"} & found.keys()


# -- gates that misbehave ---------------------------------------------------------------------------------------------


def test_a_gate_has_nothing_to_read(repo: Path) -> None:
    """Also where its orchestrator has: what a person types there is not for a gate."""
    made = intent(repo, *commits(repo), Gate("reads", "cat; echo end; readlink /proc/self/fd/0"))
    with begin(repo, made, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        result = msgspec.json.decode(process.stdout.read())
    verdict = verify.read_verdict(blobs_of(repo), result["verdict"])
    assert verdict.passed and output(repo, verdict) == b"end\n/dev/null\n"


def test_a_stopped_process_is_woken_to_end_by_itself(repo: Path, tmp_path: Path) -> None:
    child = f"trap 'echo ended > {tmp_path}/ended; exit' TERM; echo $$ > {tmp_path}/pid; kill -STOP $$"
    script = tmp_path / "child.sh"
    script.write_text(child)
    stopped = f"setsid sh {script} & while ! grep -q ' T ' /proc/$!/stat; do sleep 0.01; done"
    made = intent(repo, *commits(repo), Gate("stops", stopped))
    assert effect(repo, grace_s=DEADLINE_S).perform(made)["passed"]
    assert (tmp_path / "ended").read_text() == "ended\n" and not is_alive(pid_in(tmp_path / "pid"))


def test_a_gate_that_hangs_is_ended_with_all_it_started(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate and its child do not hear SIGTERM; the child is in another session, and stopped."""
    child = f"trap '' TERM; echo $$ > {tmp_path}/child; kill -STOP $$"
    command = f"trap '' TERM; echo begun; setsid sh -c \"{child.replace('$', chr(92) + '$')}\" & sleep 1000; sleep 1000"
    until = tmp_path / "child"

    class Until(Deadline):
        """Its time is over once the child is there, however busy the machine is."""

        def left_s(self) -> float:
            return 0.0 if until.exists() and until.read_text().endswith("\n") else DEADLINE_S

    def deadline(seconds: float, look_s: float) -> Deadline:
        return Until(seconds, look_s) if seconds == 1000.0 else Deadline(seconds, look_s)

    monkeypatch.setattr(gates, "Deadline", deadline)
    verdict = judge(repo, Gate("hangs", command, timeout_s=1000.0), Gate("later", "true"))
    assert verdict.kind == "gate_timed_out" and "had not ended after" in verdict.detail
    assert [(result.outcome, result.code) for result in verdict.results] == [("timed_out", None), ("not_run", None)]
    assert output(repo, verdict) == b"begun\n"
    assert not is_alive(pid_in(tmp_path / "child"))
    assert "was ended after" in gate_results.feedback(verdict, blobs_of(repo))


@pytest.mark.parametrize(
    "daemon",
    [
        "setsid sh -c 'echo $$ > {pid}; sleep 1000'",
        "env -i PATH=$PATH setsid sh -c 'echo $$ > {pid}; sleep 1000'",
        "setsid {python} -c 'import os, time; os.closerange(0, 100); time.sleep(0)\n"
        'open("{pid}", "w").write(str(os.getpid()) + chr(10)); time.sleep(1000)\'',
    ],
    ids=["with our mark", "with our lock alone", "with our mark alone"],
)
def test_a_daemon_ends_with_its_gate(repo: Path, tmp_path: Path, daemon: str) -> None:
    pid = tmp_path / "pid"
    started = daemon.format(pid=pid, python=sys.executable)
    verdict = judge(repo, Gate("forks", f"{started} >/dev/null 2>&1 &\nwhile ! test -s {pid}; do sleep 0.01; done"))
    assert verdict.passed
    assert not is_alive(pid_in(pid))


needs_cgroup = pytest.mark.skipif(not cgroups.homes(), reason="there is no control group to be had")
# A session of its own, nothing in its environment, and every descriptor closed.
HIDDEN = (
    "env -i setsid {python} -c 'import os, time; os.closerange(0, 1000)\n"
    'open("{pid}", "w").write(str(os.getpid()) + chr(10)); time.sleep(1000)\' &\n'
)


@needs_cgroup
@pytest.mark.parametrize("as_shell", [True, False])
def test_a_daemon_that_hides_ends_with_its_gate(repo: Path, tmp_path: Path, as_shell: bool) -> None:
    pid = tmp_path / "pid"
    line = HIDDEN.format(pid=pid, python=sys.executable) + f"while ! test -s {pid}; do sleep 0.01; done"
    verdict = judge(repo, Gate("hides", line if as_shell else ("sh", "-c", line)), Gate("later", "true"))
    assert verdict.passed and not is_alive(pid_in(pid))
    name = cgroups.name_of(Layout(repo / ".sdd").attempt_files("T-1.1"), "T-1.1", cgroups.GATES)
    assert not [home for home in cgroups.homes() if (home / name).exists()]


@needs_cgroup
def test_a_daemon_that_hides_does_not_outlive_a_killed_orchestrator(repo: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    made = intent(repo, *commits(repo), Gate("hides", HIDDEN.format(pid=pid, python=sys.executable) + "sleep 1000"))
    with begin(repo, made) as process:
        daemon = pid_in(pid)
        process.kill()
        process.wait()
        assert is_alive(daemon)
        assert effect(repo).reconcile(made) == DidNotHappen()
        assert not is_alive(daemon)


def test_a_daemon_that_keeps_the_pipe_holds_nothing_up(repo: Path) -> None:
    verdict = judge(repo, Gate("forks", "setsid sleep 1000 & echo done"))
    assert verdict.passed and output(repo, verdict) == b"done\n"


def test_only_the_ends_of_a_long_output_are_kept(repo: Path) -> None:
    verdict = judge(repo, Gate("loud", "echo first; yes 0123456789 | head -c 20000000; echo; echo last"))
    kept = output(repo, verdict)
    assert verdict.passed and len(kept) < gates.OUTPUT_BYTES_MAX + 100
    assert kept.startswith(b"first\n0123") and kept.endswith(b"\nlast\n")
    dropped = int(kept.partition(b"[holdfast: ")[2].partition(b" ")[0])
    gap = b"\n[holdfast: %d bytes are left out here]\n" % dropped
    assert len(kept) - len(gap) + dropped == len("first\n\nlast\n") + 20_000_000


def test_a_process_of_another_data_root_is_left_alone(repo: Path, tmp_path: Path) -> None:
    env = {**os.environ, "HOLDFAST_GATE": "T-1.1", "HOLDFAST_WORKTREE": str(tmp_path / "other")}
    with subprocess.Popen(["sleep", "1000"], env=env) as other:
        try:
            assert judge(repo, Gate("g", "true")).passed
            assert other.poll() is None
        finally:
            other.kill()


# -- which gates ------------------------------------------------------------------------------------------------------


def test_gates_come_from_the_task_and_then_from_the_settings() -> None:
    made = Definition("T-1", goal="g", verify=(Check("a"), Check(("b", "c"), "lint", 5.0, False), Check("d", "lint")))
    config = Config(
        gates=(settings.GateSettings("lint", "x", 7.0, False), settings.GateSettings("tests", "y", repeatable=False))
    )
    assert gate_kinds.gates_of(made, config) == (
        Gate("verify-1", "a"),
        Gate("lint", ("b", "c"), 5.0, True, False),
        Gate("lint-2", "d"),
        Gate("lint-3", "x", 7.0, False),
        Gate("tests", "y", repeatable=False),
    )


def test_the_gates_are_pinned(repo: Path) -> None:
    blobs = blobs_of(repo)
    one = verify.pin([Gate("a", "b")], ["src/"], blobs)
    assert one == verify.pin([Gate("a", "b")], ["src/"], blobs)
    assert one not in (verify.pin([Gate("a", "c")], ["src/"], blobs), verify.pin([Gate("a", "b")], [], blobs))


def test_feedback_holds_the_last_lines(repo: Path) -> None:
    verdict = judge(repo, Gate("loud", "seq 1000; false"))
    told = gate_results.feedback(verdict, blobs_of(repo)).splitlines()
    assert "801" in told and "1000" in told and "800" not in told


# -- crashes ----------------------------------------------------------------------------------------------------------


def begin(repo: Path, made: OpenIntent, stdin: int = subprocess.DEVNULL, **env: str) -> subprocess.Popen[bytes]:
    file = repo.parent / "intent.json"
    file.write_bytes(msgspec.json.encode(made.entry.inputs))
    program = [sys.executable, "-m", "kit.verdicts", str(repo), str(file)]
    env = {**os.environ, "PYTHONPATH": str(TESTS), **env}
    return subprocess.Popen(program, env=env, stdin=stdin, stdout=subprocess.PIPE)


GATES = (Gate("one", "echo one", repeatable=False), Gate("two", "echo two"))


@pytest.mark.parametrize("point", VERIFY_POINTS)
def test_killed_at_every_point_the_world_tells(repo: Path, tmp_path: Path, point: str) -> None:
    made = intent(repo, *commits(repo), *GATES)
    log = tmp_path / "log"
    with begin(repo, made, HOLDFAST_CRASH_AT=f"{point}:1", HOLDFAST_CRASH_LOG=str(log)) as process:
        process.wait()
    assert f"killed {point}\n" in log.read_text()
    answer = effect(repo).reconcile(made)
    assert effect(repo).reconcile(made) == answer
    reached = VERIFY_POINTS.index(point)
    if point == "verify.verdict.after":
        assert isinstance(answer, Happened) and answer.result["passed"]
    elif reached >= VERIFY_POINTS.index("verify.begun.after"):
        assert isinstance(answer, InDoubt) and "one must not run twice" in answer.reason
    else:
        assert answer == DidNotHappen()
    result = effect(repo).perform(made)
    assert result["passed"] and effect(repo).reconcile(made) == Happened(result)


def test_gates_that_may_run_twice_are_never_in_doubt(repo: Path, tmp_path: Path) -> None:
    made = intent(repo, *commits(repo), Gate("one", "true"))
    for point in ("verify.gate.before", "verify.gate.after", "verify.verdict.before"):
        with begin(repo, made, HOLDFAST_CRASH_AT=f"{point}:1") as process:
            assert process.wait() == -signal.SIGKILL
        assert effect(repo).reconcile(made) == DidNotHappen()


def test_a_gate_that_outlived_its_orchestrator_is_ended_first(repo: Path, tmp_path: Path) -> None:
    pids = tmp_path / "gate", tmp_path / "daemon"
    wait = f"setsid sh -c 'echo $$ > {pids[1]}; sleep 1000' & echo $$ > {pids[0]}; sleep 1000"
    made = intent(repo, *commits(repo), Gate("waits", wait))
    with begin(repo, made) as process:
        gate, daemon = map(pid_in, pids)
        process.kill()
        process.wait()
        assert is_alive(gate) and is_alive(daemon)
        assert effect(repo).reconcile(made) == DidNotHappen()
        assert not is_alive(gate) and not is_alive(daemon)


def test_a_begin_that_cannot_be_read_is_in_doubt(repo: Path) -> None:
    made = intent(repo, *commits(repo), *GATES)
    files = Layout(repo / ".sdd").attempt_files("T-1.1")
    files.root.mkdir(parents=True)
    files.gates_begun.write_bytes(b"{")
    assert isinstance(effect(repo).reconcile(made), InDoubt)
    assert effect(repo).perform(made)["passed"]


def test_a_surviving_gate_is_ended_before_gates_run_again(repo: Path, tmp_path: Path) -> None:
    once = f"mkdir {tmp_path}/first && {{ echo $$ > {tmp_path}/pid; sleep 1000; }}; true"
    made = intent(repo, *commits(repo), Gate("waits", once))
    with begin(repo, made) as process:
        gate = pid_in(tmp_path / "pid")
        process.kill()
        process.wait()
        assert is_alive(gate)
        assert effect(repo).perform(made)["passed"]
        assert not is_alive(gate)


def test_a_verdict_counts_for_its_own_commit_and_gates(repo: Path) -> None:
    made = intent(repo, *commits(repo), Gate("g", "true"))
    result = effect(repo).perform(made)
    assert effect(repo).reconcile(made) == Happened(result)
    assert effect(repo).reconcile(intent(repo, *commits(repo), Gate("g", "false"))) == DidNotHappen()
    git(repo, "commit", "-q", "--allow-empty", "-m", "newer")
    newer = git(repo, "rev-parse", "HEAD")
    assert effect(repo).reconcile(intent(repo, commits(repo)[0], newer, Gate("g", "true"))) == DidNotHappen()
    Layout(repo / ".sdd").attempt_files("T-1.1").verdict.write_bytes(b"{}")
    assert effect(repo).reconcile(made) == DidNotHappen()


def test_an_earlier_verdict_is_gone_before_a_gate_begins(repo: Path, tmp_path: Path) -> None:
    flaky = f"test -e {tmp_path}/second || exit 0; echo $$ > {tmp_path}/pid; sleep 1000"
    made = intent(repo, *commits(repo), Gate("flaky", flaky))
    assert effect(repo).perform(made)["passed"]
    (tmp_path / "second").touch()
    with begin(repo, made) as process:
        pid_in(tmp_path / "pid")
        process.kill()
    assert effect(repo).reconcile(made) == DidNotHappen()


def test_a_child_of_ours_is_not_taken_for_a_gate(repo: Path) -> None:
    """Another thread may be starting a process, which has every descriptor until its exec."""
    files = Layout(repo / ".sdd").attempt_files("T-1.1")
    files.root.mkdir(parents=True)
    with files.gates_lock.open("w") as lock:
        other = subprocess.Popen(["sleep", "1000"], pass_fds=(lock.fileno(),))
    try:
        assert judge(repo, Gate("g", "setsid sleep 1000 & true")).passed
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


# -- in words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["conflict", "conflict_markers", "paths_violated"])
@pytest.mark.parametrize("count", [1, gate_results.FILES_SHOWN_MAX, gate_results.FILES_SHOWN_MAX + 3])
def test_feedback_lists_the_files_and_how_many_more_there_are(repo: Path, kind: verify.Kind, count: int) -> None:
    files = [f"file-{number:04}" for number in range(count)]
    verdict = GateVerdict("c", "t", "m", "g", passed=False, kind=kind, detail="why", files=files)
    told = gate_results.feedback(verdict, blobs_of(repo))
    assert told.startswith("Your work was not taken: why.\n\n")
    shown = [line.strip() for line in told.splitlines() if line.startswith("  ")]
    more = [f"… and {count - gate_results.FILES_SHOWN_MAX} more"] if count > gate_results.FILES_SHOWN_MAX else []
    assert shown == [*files[: gate_results.FILES_SHOWN_MAX], *more]
    assert ("remove the markers" in told) is kind.startswith("conflict")


def test_conflict_markers_are_found_and_named(repo: Path) -> None:
    (repo / "a").write_text("<<<<<<< ours\n1\n=======\n2\n>>>>>>> theirs\n")
    git(repo, "commit", "-qam", "half merged")
    verdict = judge(repo, Gate("g", "true"))
    assert (verdict.kind, verdict.passed, verdict.files) == ("conflict_markers", False, ["a"])
    assert verdict.detail == "it leaves conflict markers in a"


@pytest.mark.parametrize(
    ("parked", "begun", "wanted"),
    [
        ("task_refresh_unknown", None, ["refresh"]),
        ("task_land_unknown", ["one"], []),
        ("", ["one"], []),
        ("task_verify_unknown", ["one", "three"], ["gate:one", "gate:three"]),
        # Not known: all that must not run twice.
        ("task_verify_unknown", None, ["gate:one"]),
    ],
)
def test_effects_that_happened_as_a_person_said_are_not_performed_again(
    files: Attempt, parked: str, begun: list[str] | None, wanted: list[str]
) -> None:
    if begun is not None:
        files.gates_begun.write_bytes(msgspec.json.encode({"merged": "m", "gates": "g", "names": begun}))
    assert verify.not_again(parked, files, GATES) == wanted


def test_gates_that_have_begun_are_all_named_in_doubt(repo: Path) -> None:
    gates = (Gate("one", "true", repeatable=False), Gate("two", "true", repeatable=False))
    made = intent(repo, *commits(repo), *gates)
    effect(repo).perform(made)
    files = Layout(repo / ".sdd").attempt_files("T-1.1")
    files.verdict.unlink()
    answer = effect(repo).reconcile(made)
    assert isinstance(answer, InDoubt) and "one and two must not run twice" in answer.reason
    assert effect(repo).reconcile(intent(repo, *commits(repo), gates[0])) == DidNotHappen(), "others have begun nothing"


def test_a_gate_that_is_not_run_keeps_its_name_command_and_weight() -> None:
    for required in (True, False):
        result = Gate("g", "make", 1.0, required).without_run("passed", told=True)
        assert (result.name, result.command, result.required, result.outcome, result.told) == (
            "g", "make", required, "passed", True,
        )  # fmt: skip
    assert not Gate("g", "make").without_run("not_run").told
