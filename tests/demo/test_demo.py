"""The demo kills by the number of steps, so that something is always left to kill; it says what did not hold."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.demo.lives import AT_A_POINT, AT_A_STEP, FIRST_MAX, MORE_MAX, Lives, Stuck, ending
from holdfast.demo.sample import ALL_STEPS, MAX_AGENTS, STEPS, Sample, SampleStep
from holdfast.demo.sums import sums
from holdfast.storage.journal.entry import Ref
from kit.program import type_in
from kit.waiting import wait_for


def test_something_is_left_to_land_for_every_kill_whatever_the_seed() -> None:
    """Each agent may take one step more than is allowed, and each kill of an agent or a runner costs one anew."""
    lines = FIRST_MAX + MAX_AGENTS
    for _ in range(AT_A_STEP - 1):
        lines += MORE_MAX + MAX_AGENTS
    left = ALL_STEPS - lines
    # `release` comes after all others; what is left besides it belongs to so many tasks at least.
    assert 1 + -(-(left - 1) // STEPS) >= len(AT_A_POINT)


def sample_in(folder: Path) -> Sample:
    sample = Sample(folder)
    sample.make()
    return sample


@pytest.mark.parametrize("name", ["demo", "it's a $HOME of one's own"])
def test_a_step_ends_only_when_its_line_is_allowed(tmp_path: Path, name: str) -> None:
    sample = sample_in(tmp_path / name)
    sample.allow(1)
    command = sample._step(1, "true").removeprefix("run ")
    env = {**os.environ, "HOLDFAST_ATTEMPT": "login.1"}
    assert subprocess.run(["sh", "-c", command], env=env, check=False).returncode == 0
    with subprocess.Popen(["sh", "-c", command], env=env) as second:
        wait_for(lambda: len(sample.steps()) == 2, "the second step")
        assert second.poll() is None
        sample.allow(2)
        assert second.wait() == 0
    assert sample.steps()[0] == SampleStep("login.1", 1, os.getpid())


def test_a_step_waits_for_no_demo_that_is_gone(tmp_path: Path) -> None:
    """The demo was killed itself: its agents do not wait for ever."""
    code = "import sys; from pathlib import Path; from holdfast.demo.sample import Sample; "
    code += "s = Sample(Path(sys.argv[1])); s.make(); s.allow(0); print(s._step(1, 'true').removeprefix('run '))"
    told = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    env = {**os.environ, "HOLDFAST_ATTEMPT": "login.1"}
    assert subprocess.run(["sh", "-c", told.stdout], env=env, timeout=120, check=False).returncode == 0
    assert len(Sample(tmp_path).steps()) == 1


def test_a_run_that_ends_too_early_is_reported(tmp_path: Path) -> None:
    """There is no data root, so `holdfast run` ends at once: the kill that was to come is missed, and that is said."""
    lives = Lives(sample_in(tmp_path), random.Random(1), lambda line: None)
    with pytest.raises(Stuck, match=r"step \d was waited for, and `holdfast run` ended with code 2 before it"):
        lives.live_and_die()


def test_help_has_an_example_and_a_seed(tmp_path: Path) -> None:
    said = type_in(tmp_path, "demo", "--help")
    assert said.returncode == 0 and "holdfast demo --seed 7" in said.stdout


@pytest.mark.crash
def test_the_demo_ends_with_what_to_do_next_and_leaves_nothing(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path), "HOLDFAST_MAX_AGENTS": "1"}
    said = subprocess.run(
        [sys.executable, "-m", "holdfast", "demo", "--seed", "5"], env=env, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert "1 agent, 1 runner" in said.stdout and "Sound." in said.stdout and "holdfast init" in said.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.crash
def test_the_sums_tell_what_was_lost_and_what_was_repeated(tmp_path: Path) -> None:
    sample = sample_in(tmp_path / "a demo")
    App.find(sample.repo, environ=sample.environment()).init()
    sample.add_tasks()
    lives = Lives(sample, random.Random(3), lambda line: None)
    with ending(lives):
        assert lives.live_and_die() == 0
        assert sums(lives, 0.0).problems == []
        store, (attempt, line) = sample.layout.snapshots, next(lives.turn_lines())
        snapshot = json.loads(line)["snapshot"]
        refs = sample.git("for-each-ref", f"--points-at={snapshot}", "--format=%(refname)", cwd=store).splitlines()
        for ref in refs:
            sample.git("update-ref", "-d", ref, cwd=store)
        assert f"lost: the snapshot of turn 1 of {attempt}" in sums(lives, 0.0).problems
        for ref in refs:
            sample.git("update-ref", ref, snapshot, cwd=store)
        lives.seen.add(Ref("000001-gone", 7, "0" * 64))
        assert "lost: entry 7 of run 000001-gone" in sums(lives, 0.0).problems
        lives.seen.clear()
        with (sample.folder / "steps").open("a") as steps:
            steps.write("login.1 2 1\n")
        told = sums(lives, 0.0).problems
        assert any("login.1 was started" in each for each in told) and any("redone too often" in each for each in told)
        (sample.repo / "login.txt").write_text("not what landed\n")
        sample.git("commit", "-qam", "again", "--trailer", "Holdfast-Task: login")
        told = sums(lives, 0.0).problems
        assert "repeated: login landed 2 times" in told and "repeated: login.txt does not hold each step once" in told


@pytest.mark.crash
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    demo = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "demo", "--json"], env=env, stdout=subprocess.PIPE, text=True
    )
    wait_for(lambda: bool(list(tmp_path.glob("*/repo/.sdd/attempts/*/process.json"))), "an agent")
    began = list(tmp_path.glob("*/repo/.sdd/attempts/*/process.json"))
    pids = [json.loads(path.read_text())["agent"]["pid"] for path in began]
    demo.send_signal(number)
    demo.communicate()
    assert demo.returncode in (130, 143) and list(tmp_path.iterdir()) == []
    assert pids and not any(Path(f"/proc/{pid}/cwd").exists() for pid in pids)
