"""What a confined agent, and a confined gate, can reach: its worktree, a /tmp of its own, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.domain.attempt_records import AttemptLimits, Ending, Launch
from holdfast.landing.gates import Gate
from holdfast.processes import starts
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.attempt_folder import Liveness
from holdfast.worktrees.worktrees import Worktrees
from kit.confined import needs_bwrap
from kit.git import git, repository
from kit.program import begin, holdfast
from kit.project import add, layout, make_repo, settings, state
from kit.runner import Bench, is_dead, kill
from kit.verdicts import effect, intent
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = [needs_bwrap, pytest.mark.heavy]


def commit(repo: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (repo / name).write_text(text)
    git(repo, "add", *files)
    git(repo, "commit", "-q", "-m", "x")
    return git(repo, "rev-parse", "HEAD")


def content(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


# Where the agent's own git dir and the repository are, as a script's line can say it.
GIT = 'd=$(git rev-parse --absolute-git-dir) c=$(cd "$(git rev-parse --git-common-dir)" && pwd)'


# -- the repository ---------------------------------------------------------------------------------------------------


def test_a_confined_agent_commits_and_cannot_harm_the_repository(bench: Bench) -> None:
    before = content(bench.repo / ".git")
    script = f"""
        write b mine
        run git add b && git -c user.name=x -c user.email=x@x commit -qm mine && git log -1 --format=%s
        run git show HEAD:b HEAD:a
        run {GIT}; rm -rf "$c"/objects/??
        run {GIT}; chmod -R u+w "$c"/objects; rm -rf "$c"/objects/* "$c"/refs "$c"/HEAD "$c"/logs; test -e "$c"/HEAD
        run {GIT}; for f in config hooks/post-checkout packed-refs info/attributes; do echo x >> "$c/$f"; done; true
        run git init -q /tmp/other && cd /tmp/other && echo 1 > n && git add n && test -d .git/objects/d0
    """
    ended = bench.run(script, sandbox="bwrap")
    tools = [each for each in bench.records(bench.files.traces) if each["kind"] == "tool"]
    assert ended.ending is Ending.DONE and tools[1]["output"] == "mine\n" and tools[2]["output"] == "mine\na\n"
    assert tools[4]["ok"] and tools[6]["ok"], tools
    after = content(bench.repo / ".git")
    assert {name for name in before if after.get(name) != before[name]} == set()
    ours = ("objects/",)
    assert {name for name in after.keys() - before.keys() if not name.startswith(ours)} == set()
    git(bench.repo, "fsck", "--full")
    git(bench.repo, "gc", "-q", "--prune=now")
    assert git(bench.repo, "show", f"{ended.snapshot}:b") == "mine"


def test_a_confined_agent_goes_on_with_its_own_commits(bench: Bench) -> None:
    """And what it added by force is in the snapshot, ignored or not."""
    first = """
        run echo dist > .gitignore; echo 1 > dist; git add -f . && git -c user.name=x -c user.email=x@x commit -qm one
        crash
    """
    ended = bench.run(first, sandbox="bwrap")
    assert ended.ending is Ending.CRASHED and bench.tree(ended.snapshot) == {"a", ".gitignore", "dist"}
    again = bench.run("run git log -1 --format=%s; git status --porcelain", sandbox="bwrap", start=2)
    assert again.ending is Ending.DONE
    assert [each["output"] for each in bench.records(bench.files.traces)][-1] == "one\n"


PLANTED = {
    "config.worktree": 'git config --file "$d/config.worktree" filter.x.clean "touch {mark}; cat"',
    "commondir": 'mkdir evil && cp -r "$c"/. evil && git config --file evil/config filter.x.clean "touch {mark}; cat"'
    ' && echo "$PWD/evil" > "$d/commondir"',
    ".git": 'git config --file .git filter.x.clean y; cp -r "$c" evil && rm -f .git && mv evil .git'
    ' && git config filter.x.clean "touch {mark}; cat"',
    "index": 'rm "$d/index"; ln -s {mark} "$d/index"; ln -s {mark} "$d/holdfast-index"; ln -s {mark} "$d/logs/HEAD"',
}


@pytest.mark.parametrize("what", PLANTED)
def test_files_that_a_confined_agent_plants_are_never_run_by_ours(bench: Bench, tmp_path: Path, what: str) -> None:
    git(bench.repo, "config", "extensions.worktreeConfig", "true")
    mark = tmp_path / "mark"
    plant = PLANTED[what].replace("{mark}", str(mark))
    script = f"run echo '* filter=x' > .gitattributes; {GIT}; {plant}\nwrite c c\nwrite a changed"
    ended = bench.run(script, sandbox="bwrap")
    assert ended.ending is Ending.DONE and bench.tree(ended.snapshot) >= {"a", "c", ".gitattributes"}
    worktrees = Worktrees(bench.repo, bench.layout)
    worktrees._mark("T", b"")
    worktrees.is_spent("T", landed=ended.snapshot)
    worktrees.prepare("T", bench.base)
    worktrees.reset("T", bench.base, ended.snapshot)
    worktrees.reset("T", bench.base)
    worktrees.remove("T", landed=bench.base)
    assert not mark.exists() and not worktrees.path("T").exists()


def test_our_own_git_runs_no_filter_of_the_worktrees_own_configuration(bench: Bench, tmp_path: Path) -> None:
    """Of an agent that nothing confines, where the repository gives each worktree a configuration of its own."""
    git(bench.repo, "config", "extensions.worktreeConfig", "true")
    mark = tmp_path / "mark"
    for name in ("clean", "smudge", "process"):
        git(bench.worktree, "config", "--worktree", f"filter.x.{name}", f"touch {mark}; cat")
    git(bench.worktree, "config", "--worktree", "filter.x.required", "true")
    (bench.worktree / ".gitattributes").write_text("* filter=x\n")
    ended = bench.run("write a changed\nwrite c c")
    worktrees = Worktrees(bench.repo, bench.layout)
    worktrees._mark("T", b"")
    assert worktrees.is_spent("T", landed=ended.snapshot)
    worktrees.reset("T", bench.base, ended.snapshot)
    worktrees.reset("T", bench.base)
    assert worktrees.is_spent("T", landed=bench.base) and not mark.exists()
    assert (bench.worktree / "a").read_text() == "a\n"


def test_commits_in_a_confined_agents_submodule_keep_its_worktree(bench: Bench) -> None:
    script = f'run {GIT}; git init -q --bare "$d/modules/sub"\nwrite c c'
    ended = bench.run(script, sandbox="bwrap")
    worktrees = Worktrees(bench.repo, bench.layout)
    worktrees._mark("T", b"")
    assert not worktrees.remove("T", landed=ended.snapshot) and bench.is_in("c")()


# -- paths and terminals ----------------------------------------------------------------------------------------------


def test_paths_that_the_settings_name_are_open_to_a_confined_agent(bench: Bench, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".tool").mkdir(parents=True)
    script = "run echo 1 > ~/.tool/session; echo 2 > ~/other; true"
    order = bench.order(script, sandbox="bwrap", sandbox_writable=("~/.tool",))
    assert bench.start(order, HOME=str(home)).wait(120) == 0
    assert (home / ".tool" / "session").read_text() == "1\n" and not (home / "other").exists()


def test_an_open_path_does_not_open_the_repository_or_the_data_root(bench: Bench, tmp_path: Path) -> None:
    script = f"run touch {bench.repo}/.git/x\nrun touch {bench.layout.root}/x\nrun touch {tmp_path}/x"
    bench.run(script, sandbox="bwrap", sandbox_writable=(str(tmp_path),))
    assert [each["ok"] for each in bench.records(bench.files.traces)] == [False, False, True]
    assert (tmp_path / "x").exists()


def test_an_open_path_that_is_missing_is_a_sentence(bench: Bench) -> None:
    ended = bench.run("write b 1", sandbox="bwrap", sandbox_writable=("/no/such/place",))
    assert ended.ending is Ending.NOT_STARTED and "/no/such/place" in ended.detail
    assert "sandbox_writable" in ended.detail and not bench.is_in("b")()


def test_a_hook_is_heard_from_within_the_sandbox(bench: Bench) -> None:
    script = """
        printf '{"tool_name":"Bash","tool_use_id":"t1","tool_input":{"command":"x"}}' > "$HOLDFAST_FILES/call-1.json"
        echo 1 > b
        while [ -e "$HOLDFAST_FILES/call-1.json" ]; do sleep 0.02; done
        echo '{"type":"result","subtype":"success","is_error":false,"result":"ok"}'
    """
    launch = Launch(("sh", "-c", script), files={"x": "y"}, has_hook=True, stream="claude")
    assert bench.run(agent="claude", launch=launch, sandbox="bwrap").ending is Ending.DONE


# -- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_linked", [False, True])
def test_neither_a_confined_agent_nor_a_confined_gate_reads_what_lets_somebody_in(
    tmp_path: Path, is_linked: bool
) -> None:
    """Not what is there at the start, nor what is put there later; the settings open the home for writing."""
    repo, home = make_repo(tmp_path / "repo"), tmp_path / "home"
    secret, key = layout(repo).secret, home / ".config" / "holdfast" / "audit.key"
    real = home / "keys" / "audit" if is_linked else key
    for path in (key, real):
        path.parent.mkdir(parents=True, exist_ok=True)
    real.write_text("k" * 64)
    real.chmod(0o600)
    if is_linked:
        key.symlink_to(real)
    secret.mkdir(mode=0o700)
    for path in (layout(repo).server, layout(repo).server_key):
        path.write_text("secret")
    configured = home / "work" / "configured.key"
    configured.parent.mkdir()
    configured.write_text("c" * 64)
    configured.chmod(0o600)
    reads = f"cat {real} || cat {key} || cat {configured} || ls {secret}/* || ls {home}/.config/holdfast/*"
    waits = "run echo out > ready; while [ ! -e go ]; do sleep 0.02; done; rm -f ready go"
    script = f"{waits}\nrun ! ({reads}) && cat {home}/plain && echo shut > agent.txt"
    (home / "plain").write_text("x")
    verify = [{"command": f"! ({reads}) && cat {home}/plain && grep shut agent.txt"}]
    add(repo, "a", script, sandbox="bwrap", verify=verify, max_attempts=1)
    settings(repo, sandbox_writable=[str(home)], audit={"key_path": str(configured)})
    run = begin(repo, HOME=str(home), XDG_CONFIG_HOME="")
    worktree = layout(repo).worktree("a")
    wait_for(lambda: (worktree / "ready").exists() or run.poll() is not None, "the agent")
    assert layout(repo).decisions.is_socket(), "where a person's decisions are taken"
    for path in (layout(repo).server, layout(repo).server_key):
        path.with_suffix(".new").write_text("newer")
        path.with_suffix(".new").rename(path)
    (worktree / "go").touch()
    said, _ = run.communicate(timeout=120)
    assert state(repo).tasks["a"].state == "CLOSED", said
    assert git(repo, "show", "main:agent.txt") == "shut"


# -- processes --------------------------------------------------------------------------------------------------------


def test_a_confined_agent_sees_and_signals_nothing_outside(bench: Bench) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        script = f"run kill -9 {bystander.pid}\nrun test ! -e /proc/{bystander.pid}/stat\nrun echo x > /dev/tty"
        bench.run(script, sandbox="bwrap")
        assert [each["ok"] for each in bench.records(bench.files.traces)][:2] == [False, True]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_confined_agent_stands_still_while_its_turn_is_taken(bench: Bench) -> None:
    """A child of it writes to two files in turn, without end; a snapshot that takes its time finds them at one step."""
    script = """
        spawn while :; do echo >> b; echo >> z; done
        run until [ -s z ]; do sleep 0.01; done; for i in $(seq 300); do echo $i > f$i; done
        run for i in $(seq 300); do echo $i. > f$i; done
    """
    ended = bench.run(script, sandbox="bwrap")
    assert (ended.ending, ended.turn) == (Ending.DONE, 3)
    for line in bench.turns()[1:]:
        first, last = (int(git(bench.repo, "cat-file", "-s", f"{line.snapshot}:{name}")) for name in "bz")
        assert last > 0 and first - last in (0, 1)


@pytest.mark.parametrize("who", ["runner", "agent", "all"])
def test_a_confined_attempt_that_is_killed_leaves_nothing(bench: Bench, who: str) -> None:
    line = "setsid env -i sh -c 'exec 3>&- 4>&- 5>&- 6>&- 7>&-; echo x > up; exec sleep 4242.5' & trap '' TERM; wait"
    runner = bench.start(bench.order(agent="command", launch=Launch(("sh", "-c", line)), sandbox="bwrap"))
    wait_for(bench.is_in("up"))
    assert attempt_folder.liveness(bench.files, 1) is Liveness.ALIVE and _sleepers()
    if who == "runner":
        runner.kill()
    elif who == "agent":
        kill(bench.agent().pid)
    else:
        starts.end_all(bench.files, "T.1", 1, 0.1)
    runner.wait(120)
    starts.end_all(bench.files, "T.1", 1, 0.1)
    wait_for(lambda: not _sleepers(), "the stray's end")
    # A runner that is asked to end may be quick enough to say how its agent ended.
    wanted = {"runner": {Liveness.DEAD}, "agent": {Liveness.ENDED}, "all": {Liveness.DEAD, Liveness.ENDED}}
    assert attempt_folder.liveness(bench.files, 1) in wanted[who] and not bench.agent().is_alive()


def _sleepers() -> list[str]:
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            command = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if command == b"sleep\x004242.5\x00":
            found.append(name)
    return found


def test_a_limit_ends_a_confined_agent(bench: Bench) -> None:
    ended = bench.run("write b 1\nhang", limits=AttemptLimits(stall_timeout_s=3, grace_s=0.2), sandbox="bwrap")
    # On a busy machine it may be silent for so long before its first turn, too.
    assert ended.ending is Ending.STALLED and is_dead(bench.agent().pid) and ended.turn <= 1


# -- gates ------------------------------------------------------------------------------------------------------------


def test_gates_of_a_confined_task_write_in_the_scratch_worktree_and_nowhere_else(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    base = commit(repo, {"a": "a\n"})
    merged = commit(repo, {"a": "b\n"})
    before = content(repo / ".git")
    command = f"""
        test "$(cat a)" = b && git log -1 --format=%H && echo 1 > made || exit 1
        echo 1 > /tmp/x && test "$TMPDIR" = /tmp || exit 1
        for f in {repo}/.git/config {repo}/.git/objects/x {repo}/.sdd/x ~/holdfast-escaped; do
            (echo x >> "$f") && exit 2
        done
        echo x > {tmp_path}/x; echo x > {repo}/x
        kill -0 {os.getpid()} && exit 3
        echo fine
    """
    verify = effect(repo)
    result = verify.perform(intent(repo, base, merged, Gate("g", command), sandbox="bwrap"))
    assert result["passed"], result
    assert not (Path.home() / "holdfast-escaped").exists()
    assert not (tmp_path / "x").exists() and not (repo / "x").exists()
    after = content(repo / ".git")
    assert {name for name in before if after.get(name) != before[name]} <= {"index"}
    plain = verify.perform(intent(repo, base, merged, Gate("g", f"echo x > {tmp_path}/x")))
    assert plain["passed"] and (tmp_path / "x").exists()


def test_a_confined_gate_that_does_not_end_is_ended_with_all_of_it(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    base, merged = commit(repo, {"a": "a\n"}), commit(repo, {"a": "b\n"})
    gate = Gate("g", "setsid env -i sleep 4242.5 & sleep 600", timeout_s=0.5)
    result = effect(repo).perform(intent(repo, base, merged, gate, sandbox="bwrap"))
    assert result["kind"] == "gate_timed_out"
    wait_for(lambda: not _sleepers(), "the stray's end")


def test_a_whole_task_is_done_and_judged_in_the_sandbox(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    script = "write a.txt x\nrun git add a.txt && git commit -qm mine\nwrite b.txt y"
    verify = [{"command": f"grep x a.txt && ! touch {repo}/.git/escaped"}]
    add(repo, "a", script, sandbox="bwrap", verify=verify)
    holdfast(repo, "run")
    assert git(repo, "show", "main:a.txt") == "x" and git(repo, "show", "main:b.txt") == "y"
    assert state(repo).tasks["a"].state == "CLOSED" and not (repo / ".git" / "escaped").exists()
    assert not (repo / ".sdd" / "worktrees" / "a").exists()
