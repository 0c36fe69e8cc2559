"""Finds what may be wrong with a data root and its machine, each with the command to type. Changes nothing.

`check` proves that what is on disk fits together; this looks at everything around it: the owner of the lock, leftovers
of agents and of git, and whether the machine can do the work.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from holdfast.checks import witnesses
from holdfast.checks.gc import is_left_by_cancelling
from holdfast.config.settings import Config
from holdfast.domain.definition import Definition
from holdfast.domain.state import State
from holdfast.domain.task import AT_WORK, OVER
from holdfast.domain.task_record import Task
from holdfast.domain.wording import fault_words, plural, size
from holdfast.errors import AuditKeyUnusable, NoTarget, SubmoduleMissing
from holdfast.git import lock_files, objects
from holdfast.git.command import readable
from holdfast.git.lock_files import stale_locks
from holdfast.identity import boot_id, is_stopped
from holdfast.landing import foreign_code
from holdfast.landing.lost_landings import lost_landings
from holdfast.landing.refresh import left_words
from holdfast.layout import Attempt, Layout
from holdfast.preparation.setup import unignored_words
from holdfast.processes import bwrap, cgroups, host, resources
from holdfast.snapshots import after_boot
from holdfast.snapshots.store import Store
from holdfast.storage.audit import key, notes
from holdfast.storage.audit.days import day_files
from holdfast.storage.files import filesystems, urgency
from holdfast.storage.journal.entry import Ref
from holdfast.storage.journal.lock import live_owner, read_holder
from holdfast.storage.journal.reader import plain_files
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.at_work import lines_from
from holdfast.storage.records.attempt_folder import Liveness
from holdfast.worktrees import merges
from holdfast.worktrees.factory import worktrees_of
from holdfast.worktrees.stamps import read_stamp
from holdfast.worktrees.worktrees import Worktrees

DISK_BYTES_MIN = 1 << 30
CLOCK_S_MAX = 60.0
_TAIL_BYTES = 1 << 20
RUN = "holdfast run"


class Finding(msgspec.Struct, frozen=True):
    """Something to do: what was found, and the exact command to type next."""

    said: str
    next: str


class Part(msgspec.Struct, frozen=True):
    """One thing that was examined. `fact` describes it on one line."""

    name: str
    fact: str
    findings: list[Finding] = []


# -- the machine ------------------------------------------------------------------------------------------------------


def disk_part(layout: Layout) -> Part:
    usage = shutil.disk_usage(layout.root)
    fact = f"{size(usage.free)} free of {size(usage.total)}"
    findings = []
    if usage.free < DISK_BYTES_MIN:
        findings.append(Finding(f"only {size(usage.free)} are free where {layout.root} is", "holdfast gc --dry-run"))
    return Part("disk", fact, findings)


def filesystems_part(layout: Layout, repo: Path) -> Part:
    """The filesystems of the data root and the repository, and whether what is synced there outlasts a power cut."""
    places = {"the data root": layout.root, "the repository": repo}
    facts, findings = [], []
    for what, path in places.items():
        kind = filesystems.kind_of(path) or "an unknown filesystem"
        trust = filesystems.trust_of(kind)
        facts.append(f"{what} is on {kind}" + (" (trusted)" if trust == "durable" else f" ({trust})"))
        look = f"findmnt -T {shlex.quote(str(path))}"
        if trust == "not durable":
            findings.append(
                Finding(f"{what} {path} is on {kind}, which is gone with the power: move it to a disk", look)
            )
        elif trust == "unknown":
            said = f"{what} {path} is on {kind}, where Holdfast cannot vouch for what a power cut leaves; each file is"
            findings.append(Finding(f"{said} synced by itself there, which is slower. A local disk is better", look))
    return Part("filesystems", "; ".join(facts), findings)


def cgroups_part() -> Part:
    """With a control group, even processes that hide from their runner are ended."""
    return Part("control groups", cgroups.in_words())


def limits_part(config: Config) -> Part:
    """Limits of one attempt, and what enforces them here."""
    return Part("limits", resources.in_words(config.limits.resources))


def host_part(config: Config) -> Part:
    """Memory and cores: the room for another agent, and whether the journal waits for a core."""
    room, least = host.measure(), config.memory_free_min
    short = host.shortage(room, least)
    fact = f"{size(room.memory_free)} of memory free" if room.memory_free is not None else "free memory is unknown"
    fact += f", and an agent is started where {size(least)} are (memory_free_min)" if least is not None else ""
    findings = [Finding(short.removesuffix("."), "end other programs, or lower memory_free_min")] if short else []
    return Part("host", f"{fact}; {urgency.in_words()}", findings)


def watches_part() -> Part:
    """Tries to make one more watch on files, and shows the limits."""
    import ctypes

    limits = [_number(Path("/proc/sys/fs/inotify") / name) for name in ("max_user_instances", "max_user_watches")]
    fact = f"{limits[0]} instances, {limits[1]} watches allowed"
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_CLOEXEC)
    if fd < 0:
        why = os.strerror(ctypes.get_errno())
        more = f"sudo sysctl fs.inotify.max_user_instances={max(1024, 2 * limits[0])}"
        return Part("inotify", fact, [Finding(f"no more files can be watched ({why})", more)])
    os.close(fd)
    return Part("inotify", fact)


def clock_part(layout: Layout, now: float) -> Part:
    """Finds a clock that was set back: new entries would seem older than those before them."""
    newest = _newest_moment(layout)
    if newest is None:
        return Part("clock", "no entry in the journal to compare with")
    behind = newest - now
    if behind <= CLOCK_S_MAX:
        return Part("clock", "not behind the newest entry of the journal")
    said = f"the clock is {behind:.0f} s behind the newest entry of the journal"
    return Part("clock", said, [Finding(f"{said}; set it right", "timedatectl status")])


def _newest_moment(layout: Layout) -> float | None:
    for path in reversed(plain_files(layout.wal)):
        end = [each.get("timestamp") for each in lines_from(path, max(0, path.stat().st_size - _TAIL_BYTES))]
        if moments := [each for each in end if isinstance(each, int | float)]:
            return float(moments[-1])
    return None


# -- agents at work ---------------------------------------------------------------------------------------------------


def lock_part(layout: Layout) -> Part:
    holder = live_owner(layout.lock)
    if holder is None:
        named = read_holder(layout.lock)
        if named is not None and named.host != os.uname().nodename and named.boot_id != boot_id():
            said = f"the lock names pid {named.pid} on {named.host}, which cannot be looked at from here"
            return Part("lock", said, [Finding(said, f"ssh {shlex.quote(named.host)} ps {named.pid}")])
        return Part("lock", "free: nobody runs")
    fact = f"held by pid {holder.pid}, run {holder.run}"
    if is_stopped(holder.pid):
        said = f"the run with pid {holder.pid} is stopped (SIGSTOP, or Ctrl-Z), and nothing goes on meanwhile"
        return Part("lock", fact + ", which is stopped", [Finding(said, f"kill -CONT {holder.pid}")])
    return Part("lock", fact)


def attempts_part(layout: Layout, tasks: Collection[Task]) -> Part:
    """Agents that live without a run, and claims whose agent is gone."""
    is_run = live_owner(layout.lock) is not None
    current = {task.attempt.id: task for task in tasks if task.state in AT_WORK}
    findings, living = [], 0
    for attempt in sorted(_folders(layout.attempts) | current.keys()):
        files, task = layout.attempt_files(attempt), current.get(attempt)
        start = task.start.number if task else attempt_folder.last_start(files)
        seen = attempt_folder.liveness(files, start, task.start.intent if task else "")
        living += seen is Liveness.ALIVE
        if task is None and seen in (Liveness.ALIVE, Liveness.HEADLESS):
            findings.append(Finding(f"{attempt} is alive, though no task is in it any more", _ending(files, start)))
        elif task is not None and not is_run:
            how = "works on" if seen is Liveness.ALIVE else "has ended" if seen is Liveness.ENDED else "is dead"
            findings.append(Finding(f"{attempt} {how}, and no run follows it", RUN))
    return Part("attempts", f"{living} alive", findings)


def _ending(files: Attempt, start: int) -> str:
    """The command that ends what is left of an attempt: its runner, which ends all of it, or the agent."""
    runner, running = attempt_folder.read_start(files, start), attempt_folder.read_process(files)
    agent = running.agent if running else None
    alive = next((each for each in (runner, agent) if each is not None and each.is_alive()), None)
    return f"kill {alive.pid}" if alive else RUN


# -- what is left -----------------------------------------------------------------------------------------------------


def decisions_part(state: State, steps: Mapping[str, str], open_intents: int, is_run: bool) -> Part:
    """`steps`: what to type, by task."""
    parked = [task for task in state.tasks.values() if task.parked]
    findings = [Finding(f"{task.id} waits for you: {task.parked}", steps[task.id]) for task in parked]
    waiting = [task for task in state.tasks.values() if task.landing.waits]
    findings += [
        Finding(
            f"the landing of {task.id} waits: you have changed {', '.join(task.landing.waits[:5])} in your checkout",
            f"git commit, or holdfast promote {task.id} --branch NAME, or holdfast cancel {task.id}",
        )
        for task in waiting
    ]
    going = (task for task in state.tasks.values() if not task.parked and task.state not in OVER)
    held = {task.id: said for task in going if (said := fault_words(task.cause, task.not_before))}
    findings += [Finding(f"{name} is {said}", steps[name]) for name, said in held.items()]
    if open_intents and not is_run:
        what = f"{plural(open_intents, 'effect')} {'was' if open_intents == 1 else 'were'} begun without a known end"
        findings.append(Finding(what, RUN))
    return Part(
        "decisions", f"{len(parked)} parked, {len(held)} held up, {plural(open_intents, 'intent')} open", findings
    )


def trees_part(repo: Path, layout: Layout, tasks: Collection[Task]) -> Part:
    """Reads the tree with which each unfinished task continues to its end; `check` reads every turn's."""
    live = {task.attempt.tree or task.candidate: task for task in tasks if task.state not in OVER}
    live.pop("", None)
    store = Store.of(layout.snapshots, repo)
    lost = store.incomplete(live.keys(), is_older=True)
    bases = objects.present(store.seen, {task.attempt.base for task in live.values() if task.attempt.base})
    whole = sorted(live.keys() - lost.keys())
    damaged = objects.unreadable(store.seen, whole, bases)
    findings = [
        Finding(f"the work of {live[commit].id}, commit {commit}, is not whole: {why}", "holdfast check")
        for commit, why in lost.items()
    ]
    is_due = after_boot.is_due(layout)
    findings += [
        Finding(
            f"the object {each.name} cannot be read: {each.reason}",
            RUN if each.is_kept and is_due else "holdfast check",
        )
        for each in damaged
    ]
    return Part("trees", f"{len(live)} to go on with", findings)


def landings_part(repo: Path, state: State, snapshots: Path) -> Part:
    lost = lost_landings(repo, state.tasks.values(), snapshots)
    findings = [Finding(said, _between_ticks(said) or "git fetch --all") for said in lost.values()]
    landed = sum(bool(task.landing.commit) for task in state.tasks.values())
    return Part("landings", f"{landed} landed, {len(lost)} lost", findings)


def worktrees_part(repo: Path, layout: Layout, config: Config, tasks: Collection[Task]) -> Part:
    known = {task.id for task in tasks if task.state not in OVER}
    closed = {task.id: task for task in tasks if task.state in OVER}
    trees, findings = worktrees_of(repo, layout, config), []
    for tree in trees.unneeded(known):
        task = closed.get(tree.task)
        if task is not None and is_left_by_cancelling(layout, trees, task):
            findings.append(Finding(f"{tree.path} is of a cancelled task; gc keeps it as a snapshot", "holdfast gc"))
        elif task is not None and task.candidate and trees.is_spent(tree.task, landed=task.candidate):
            findings.append(Finding(f"{tree.path} is of a closed task and holds nothing else", "holdfast gc"))
        else:
            look = f"git -C {shlex.quote(str(tree.path))} status"
            findings.append(Finding(f"{tree.path} has no open task, and is kept: {tree.reason}", look))
    return Part("worktrees", f"{len(known & _folders(layout.worktrees))} in use, {len(findings)} orphaned", findings)


def setups_part(repo: Path, layout: Layout, config: Config, tasks: Collection[Task]) -> Part:
    """What setups made in the worktrees of unfinished tasks and git still does not ignore: it would land."""
    trees, findings, looked = worktrees_of(repo, layout, config), [], 0
    for task in tasks:
        path, stamp = trees.path(task.id), read_stamp(trees.private(task.id))
        if task.state in OVER or stamp is None or not path.is_dir():
            continue
        looked += 1
        # Git runs over the files of an agent.
        others = trees.others_in(path, is_confined=not bwrap.trouble()) if stamp.unignored else ()
        if left := sorted({*stamp.unignored} & {*map(readable, others)}):
            exclude = shlex.quote(str(trees.store.repository.common_dir / "info" / "exclude"))
            way = f"echo {shlex.quote(f'/{left[0]}')} >> {exclude}"
            findings.append(Finding(f"{task.id}: {unignored_words(left)}", way))
    return Part("setups", f"{plural(looked, 'worktree')} set up", findings)


def submodules_part(repo: Path, layout: Layout, config: Config) -> Part:
    """Checks that the repository has all submodules, where they are to be set up in worktrees."""
    try:
        missing = missing_submodule(repo, layout, config)
    except NoTarget:
        return Part("submodules", "not asked: there is no branch to land on")
    return Part("submodules", "one is missing", [missing]) if missing else Part("submodules", "in every worktree")


def missing_submodule(repo: Path, layout: Layout, config: Config, base: str = "") -> Finding | None:
    """A missing submodule of `base`, or else of the newest target, that keeps attempts from starting."""
    try:
        base = base or merges.newest(repo, merges.target_branch(repo, config))
        Worktrees(repo, layout, config.submodules).expect_submodules(base)
    except SubmoduleMissing as error:
        return Finding(str(error), _between_ticks(str(error)))
    return None


def git_locks_part(repo: Path) -> Part:
    findings = [
        Finding(left_words(lock), "holdfast run")
        if lock_files.is_left_by_us(lock)
        else Finding(f"{lock} was left by a git that died", f"rm {shlex.quote(str(lock))}")
        for lock in stale_locks(repo)
    ]
    return Part("git locks", f"{len(findings)} stale", findings)


def gates_part(repo: Path, layout: Layout, config: Config, definitions: Collection[Definition]) -> Part:
    """Gates that test another checkout than the candidate's: they would let anything land."""
    found = foreign_code.of_all(repo, layout, config, definitions)
    findings = [Finding(each.sentence(), each.advice()) for each in found]
    count = len(config.gates) + sum(len(made.verify) for made in definitions)
    return Part("gates", f"{plural(count, 'gate')} configured, {len(found)} of another checkout", findings)


def witnesses_part(layout: Layout, state: State, end: Ref | None, repo: Path | None) -> Part:
    """The files beside the journal; not checked while a run is active, which writes them all the time."""
    findings = []
    if found := witnesses.contradictions(layout, state, end, read_holder(layout.lock), repo):
        said = (
            f"The journal is older than the files beside it: {witnesses.in_short(found)}. Put the newer journal back."
        )
        findings.append(Finding(f"{said} If it is lost:", "holdfast resolve --journal-restored"))
    if state.audit is not None and not notes.holds(layout, state.audit):
        said = f"{notes.cut(layout, state.audit)} Put it back from a backup. If it is lost:"
        findings.append(Finding(said, "holdfast resolve --audit-lost"))
    return Part("witnesses", "differ from the journal" if findings else "agree with the journal", findings)


def audit_part(layout: Layout, environ: Mapping[str, str] = os.environ, key_path: Path | None = None) -> Part:
    """Checks that runs can sign their records."""
    days = day_files(layout.audit)
    try:
        key.load_key(layout.root, key_path, environ, create=False)
    except AuditKeyUnusable as error:
        path = key_path or key.default_path(environ)
        if key.VARIABLE in environ:
            return Part("audit", "the key cannot be used", [Finding(str(error), f"unset {key.VARIABLE}")])
        if os.path.lexists(path):
            return Part("audit", "the key cannot be used", [Finding(str(error), f"ls -l {shlex.quote(str(path))}")])
        if days:
            said = f"the key {path} is gone, which has signed the audit log of {plural(len(days), 'day')}: put it back"
            return Part("audit", "the key is missing", [Finding(said, "holdfast check")])
        above = next(each for each in path.parents if each.exists())
        if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
            said = f"the audit key {path} cannot be made: {above} cannot be written to, so no run is put on record"
            return Part("audit", "no key can be made", [Finding(said, f"ls -ld {shlex.quote(str(above))}")])
        return Part("audit", f"no key yet; the first run makes {path}")
    return Part("audit", f"{plural(len(days), 'day')} signed, and the key is here" if days else "the key is here")


def quarantine_part(layout: Layout) -> Part:
    names = sorted(_folders(layout.quarantine, files=True))
    kept = [name for name in names if not name.endswith(".reason.txt")]
    findings = []
    for name in kept:
        path, reason = layout.quarantine / name, layout.quarantine / f"{name}.reason.txt"
        command = f"cat {shlex.quote(str(reason))}" if reason.exists() else f"ls -la {shlex.quote(str(path))}"
        findings.append(Finding(f"{path} was set aside; delete it when you need it no more", command))
    return Part("quarantine", f"{len(kept)} set aside", findings)


# -- small questions --------------------------------------------------------------------------------------------------


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _folders(folder: Path, *, files: bool = False) -> set[str]:
    if not folder.is_dir():
        return set()
    return {path.name for path in folder.iterdir() if not path.name.startswith(".") and (files or path.is_dir())}


def _between_ticks(text: str) -> str:
    return (text.split("`")[1::2] or [""])[0]
