"""Compares what work has left beside the journal with it: the attempts' files, snapshots, landings and blobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path

import msgspec

from holdfast.checks.expectations import OUTPUT, VERDICT, Attempted, Recorded, outputs_in, pinned
from holdfast.checks.report import REPAIR, RESTORE, RUN, Draft
from holdfast.domain.attempt_records import Exit, TurnLine
from holdfast.domain.state import State
from holdfast.domain.task import OVER, TaskState
from holdfast.domain.task_record import open_questions
from holdfast.domain.wording import plural
from holdfast.engine.recovery import find_leftovers
from holdfast.engine.turn_follower import as_file, is_final, new_questions
from holdfast.errors import BlobCorrupt, BlobMissing, BlobUndescribed, DiskError, LandingReverted, NotABlobId
from holdfast.git import command as git
from holdfast.git import lock_files, objects
from holdfast.landing.branch import branch_of, reaches
from holdfast.landing.lost_landings import lost_landings, recognised, undone
from holdfast.landing.refresh import expect_not_reverted, left_words
from holdfast.layout import Attempt, Layout
from holdfast.snapshots.snapshots import ROOT, reference
from holdfast.snapshots.store import Store
from holdfast.storage.records import ledger
from holdfast.storage.records.blobs import Blobs

BLOB_FLAWS = (BlobMissing, BlobCorrupt, BlobUndescribed, NotABlobId, DiskError)
# How many damaged objects are named one by one.
_SHOWN_MAX = 20


# -- questions --------------------------------------------------------------------------------------------------------


def questions(state: State, recorded: Recorded, layout: Layout) -> Draft:
    """Each answer is to a question that was asked, and the only one; and no task that is over asks anything."""
    draft = Draft("questions", asked=len(recorded.asked), answered=len(recorded.answered), open=0)
    for name, count in Counter(recorded.answered).items():
        if name not in recorded.asked:
            draft.findings.append(f"the question {name} was answered and never asked; {RESTORE}")
        if count > 1:
            draft.findings.append(f"the question {name} was answered {count} times; {RESTORE}")
    for task in state.tasks.values():
        waiting = open_questions(task)
        draft.counted["open"] += len(waiting)
        if waiting and task.state in OVER:
            draft.findings.append(f"{task.id} is {task.state}, and its question {waiting[0].id} is open; {RESTORE}")
        if task.attempt.id and task.state not in OVER and new_questions(layout.attempt_files(task.attempt.id), task):
            draft.pending.append(f"the agent of {task.attempt.id} asks what the journal does not have yet; {RUN}")
    return draft


# -- attempts ---------------------------------------------------------------------------------------------------------


def attempts(state: State, recorded: Recorded, layout: Layout) -> Draft:
    """Every attempt that has begun, not only each task's last: its folder, and in it what the journal has recorded."""
    draft = Draft("attempts", attempts=0, turns=0, exits=0, verdicts=0)
    for folder in find_leftovers(layout):
        draft.pending.append(f"{folder} may hold secrets of MCP servers, and its agent has ended; {RUN}")
    for name, known in recorded.attempts.items():
        if not known.has_begun:
            continue
        files, task = layout.attempt_files(name), state.tasks[known.task]
        draft.counted["attempts"] += 1
        if not files.root.is_dir():
            draft.findings.append(f"the folder {files.root} of the attempt {name} is missing; {RESTORE}")
            continue
        _turns(draft, files, name, known)
        _exit(draft, files, known)
        _verdict(draft, files, known, is_last=task.attempt.id == name)
        if task.attempt.id == name and (not files.state.exists() or files.state.read_bytes() != as_file(task)):
            problem = f"{files.state} is not what the journal says of {name}"
            if is_final(task):
                draft.passing.append(f"{problem}; {REPAIR}")
            else:
                draft.pending.append(f"{problem}; {RUN}, or {REPAIR}")
    return draft


def _turns(draft: Draft, files: Attempt, name: str, known: Attempted) -> None:
    """The journal pins each turn by the offset of its line's end, and repeats its figures."""
    if not known.turns:
        return
    count, pin, last = 0, 0, 0
    for line in ledger.LineLedger(files.turns).read() if files.turns.exists() else ():
        if line.cursor > known.offset:
            break
        try:
            made = msgspec.convert(line.record, TurnLine)
        except msgspec.ValidationError:
            continue
        if made.turn > last and known.is_own(made.intent):
            count, last = count + 1, made.turn
            pin = pinned(pin, last, line.cursor, made.snapshot, made.usd, tokens=made.tokens, seconds=made.seconds)
    draft.counted["turns"] += count
    size = ledger.LineLedger(files.turns).end() if files.turns.exists() else 0
    if size < known.offset:
        problem = f"{files.turns} ends at {size}, and the journal has turns up to {known.offset}"
    elif pin != known.pin:
        problem = f"{files.turns} does not hold the {plural(known.turns, 'turn')} that the journal has of {name}"
    else:
        return
    draft.findings.append(f"{problem}; {RESTORE}")


def _exit(draft: Draft, files: Attempt, known: Attempted) -> None:
    """exit.json is only ever replaced, by that of a later start."""
    if not known.ended:
        return
    draft.counted["exits"] += 1
    taken = f"and the journal has taken from it how start {known.ended} ended; {RESTORE}"
    try:
        found = msgspec.json.decode(files.exit.read_bytes(), type=Exit)
    except FileNotFoundError:
        draft.findings.append(f"{files.exit} is missing, {taken}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        draft.findings.append(f"{files.exit} cannot be read ({error}), {taken}")
    else:
        if found.start < known.ended:
            draft.findings.append(f"{files.exit} tells of start {found.start}, {taken}")
        elif not known.is_own(found.intent):
            draft.findings.append(f"{files.exit} is of a start that is not in this journal, {taken}")


def _verdict(draft: Draft, files: Attempt, known: Attempted, *, is_last: bool) -> None:
    if not known.verdict:
        return
    draft.counted["verdicts"] += 1
    # Only a task's last result is ever judged again, and then the old verdict is removed first.
    problem = draft.passing if is_last else draft.findings
    taken = f"the verdict that the journal has taken ({known.verdict[:12]} in cas/)"
    if not files.verdict.exists():
        problem.append(f"{files.verdict} is missing, {taken}; {RESTORE}")
    elif sha256(files.verdict.read_bytes()).hexdigest() != known.verdict:
        problem.append(f"{files.verdict} is not {taken}; {RESTORE}")


# -- snapshots and landings, in git -----------------------------------------------------------------------------------


def snapshots(state: State, recorded: Recorded, store: Store, *, is_older: bool = False, is_due: bool = False) -> Draft:
    """Each turn's tree must be whole. Those of tasks that have ended may be gone, which is only noted.

    `is_older`: the root is of the format that kept them in the user's repository, and the next run moves them.
    `is_due`: the next run reads the objects first, because the machine was restarted.
    """
    refs = store.refs(f"{ROOT}/")
    live: list[tuple[str, str]] = []
    names = (ref.removeprefix(f"{ROOT}/").partition("/") for ref in refs)
    kept = Counter(attempt for attempt, _, name in names if name.startswith("turn-"))
    draft, over = Draft("snapshots", snapshots=0, of_tasks_over=0), 0
    for name, known in recorded.attempts.items():
        if state.tasks[known.task].state in OVER:
            over += max(0, known.snapshots - kept[name])
            draft.counted["of_tasks_over"] += known.snapshots
        else:
            live += [(reference(name, f"turn-{turn}"), commit) for turn, commit in known.trailed()]
    draft.counted["snapshots"] = len(live)
    results = _results(state)
    lost = store.incomplete({commit for _, commit in live} | results.keys(), is_older=is_older)
    if is_older and live:
        draft.pending.append(f"the snapshots move from the repository to {store.path}; {RUN}")
    for commit in results.keys() & lost.keys() - {commit for _, commit in live}:
        back = f"copy {store.path} back from a backup, or go on without it: {RUN}"
        problem = f"{results[commit]}, commit {commit}, which the journal has, is lost ({lost[commit]}); {back}"
        draft.findings.append(problem)
    for ref, commit in live:
        if commit in lost:
            back = f"copy {store.path} back from a backup, or go on without it: {RUN}"
            problem = f"the snapshot {ref}, commit {commit}, which the journal has, is lost ({lost[commit]}); {back}"
            draft.findings.append(problem)
        elif refs.get(ref) != commit and not is_older:
            found = f"is at {refs[ref]}" if ref in refs else "is missing"
            back = f"`git --git-dir {store.path} update-ref {ref} {commit}` puts it back"
            draft.findings.append(f"{ref} {found}, and the journal has the snapshot {commit}; {back}")
    if readable := sorted({commit for _, commit in live} - lost.keys()):
        bases = objects.present(store.seen, {task.attempt.base for task in state.tasks.values() if task.attempt.base})
        _damaged(draft, store.seen, readable, bases, "a snapshot", is_due=is_due)
    if over:
        draft.notes.append(f"{plural(over, 'snapshot')} of tasks that are over: no ref is left, as after `holdfast gc`")
    return draft


def _results(state: State) -> dict[str, str]:
    """The commits beside its turns that a task continues with: its last tree, or what is to land."""
    found: dict[str, str] = {}
    for task in state.tasks.values():
        if task.state in (TaskState.DONE, TaskState.PENDING_APPROVAL) and not task.landing.commit:
            result = (task.candidate, task.landing.verified)
            found |= {each: f"the result of {task.attempt.id}" for each in result if each}
        elif task.continues and task.attempt.tree:
            found[task.attempt.tree] = f"the last tree of {task.attempt.id}"
    return found


def _lost(draft: Draft, state: State, repo: Path, lost: dict[str, str]) -> None:
    to_land_again = {task.id for task in undone(repo, [state.tasks[name] for name in lost])} if lost else set()
    for name, sentence in lost.items():
        task = state.tasks[name]
        commit, how = recognised(repo, task)
        this = f"the landing {task.landing.commit[:12]} of {name}"
        if commit:
            draft.pending.append(f"{this} was rewritten as {commit[:12]} ({how}); {RUN}")
        elif name in to_land_again:
            draft.pending.append(f"{this} was undone by a `git reset` or `git stash` that began before it; {RUN}")
        else:
            draft.findings.append(sentence)


def landings(state: State, repo: Path, layout: Layout) -> Draft:
    """Everything that has landed must still be on its branch."""
    landed = [task for task in state.tasks.values() if task.landing.commit]
    draft = Draft("landings", landings=len(landed), branches=len({branch_of(task) for task in landed}))
    _lost(draft, state, repo, lost_landings(repo, landed, layout.snapshots))
    draft.findings += _reverted(state, repo)
    draft.pending += [f"{left_words(lock)}: `holdfast run`" for lock in lock_files.left_on_indexes(repo)]
    if landed:
        repository = git.discover(repo)
        commits = sorted(objects.present(repository, {task.landing.commit for task in landed}))
        _damaged(draft, repository, commits, _parents(repository, commits), "a landing")
    return draft


def _reverted(state: State, repo: Path) -> list[str]:
    """Landings whose checkouts have not been refreshed yet, according to the journal, and that were reverted."""
    found: list[str] = []
    for task in state.tasks.values():
        landing = task.landing
        if task.state is TaskState.DONE and landing.verified and "refresh" not in task.happened:
            branch = landing.branch or "HEAD"
            try:
                if reaches(repo, branch, landing.verified):
                    expect_not_reverted(git.discover(repo), task.id, branch, landing.verified_on, landing.verified)
            except LandingReverted as error:
                found.append(str(error))
    return found


def _parents(repository: git.Repository, commits: list[str]) -> set[str]:
    """The parents of the commits, but for those among the commits themselves."""
    if not commits:
        return set()
    text = "".join(f"{commit}\n" for commit in commits).encode()
    lines = repository.run("rev-list", "--no-walk", "--parents", "--stdin", stdin=text, codes=(0, 128)).line.split("\n")
    return {parent for line in lines for parent in line.split()[1:]} - set(commits)


def _damaged(
    draft: Draft,
    repository: git.Repository,
    commits: list[str],
    known: Collection[str],
    what: str,
    *,
    is_due: bool = False,
) -> None:
    """Trees and files that the commits name and that cannot be read.

    `is_due`: the next run sets damaged copies aside; then one that is whole in another store is not lost.
    """
    found = objects.unreadable(repository, commits, known)
    kept = [each for each in found if each.is_kept and is_due]
    if kept:
        more = f" and {plural(len(kept) - 1, 'more file')}" if len(kept) > 1 else ""
        problem = f"{kept[0].path} ({kept[0].reason}){more}"
        draft.pending.append(f"objects of {what} have a damaged copy, {problem}, and a whole one; {RUN}")
    lost = [each for each in found if each not in kept]
    for each in lost[:_SHOWN_MAX]:
        draft.findings.append(f"the object {each.name}, of {what}, cannot be read: {each.reason}; {RESTORE}")
    if (rest := len(lost) - _SHOWN_MAX) > 0:
        draft.findings.append(f"{plural(rest, 'more object')} of {what} cannot be read; {RESTORE}")


# -- blobs ------------------------------------------------------------------------------------------------------------


def blobs(recorded: Recorded, store: Blobs) -> Draft:
    """All blobs that the journal names, and that verdicts among them name, must exist, whole and described."""
    draft, seen = Draft("blobs", referenced=0), set()
    todo = [(digest, what, task) for digest, (what, task) in recorded.blobs.items()]
    while todo:
        digest, what, task = todo.pop()
        if digest in seen:
            continue
        seen.add(digest)
        draft.counted["referenced"] += 1
        try:
            store.meta(digest)
            if what == VERDICT:
                todo += [(output, OUTPUT, task) for output in outputs_in(store.get(digest))]
            else:
                for _ in store.open_stream(digest):
                    pass
        except BLOB_FLAWS as error:
            draft.findings.append(f"{what} of {task}: {error} ({RESTORE})")
    return draft
