"""Open tasks without a file: did somebody delete it, or is it only away?

The backlog is versioned by git, and the journal is not: a checkout of another branch takes files away, and brings them
back. So git is asked, once for all of them, before anything final is decided. A task whose file is away stays as it is.
It is reported, with what brings the file back, and a task that a problem names is not worked on.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

from holdfast.domain.file_problem import FileProblem
from holdfast.domain.task import FOLDER_OF
from holdfast.domain.task_record import Task
from holdfast.errors import GitFailed
from holdfast.ports import BacklogFolder, BacklogScan

TRIES = 3

if TYPE_CHECKING:
    from holdfast.git.repository import Gone

# Where the files of open tasks stand.
FOLDERS = ("open", "issues")


def without_file(tasks: Mapping[str, Task], scan: BacklogScan) -> list[str]:
    """The tasks that neither a file nor a problem of one speaks of."""
    spoken_of = {name for problem in scan.problems for name in problem.tasks}
    return [name for name in tasks if not (name in scan.tasks or name in scan.moved or name in spoken_of)]


def only_away(
    backlog: BacklogFolder, scan: BacklogScan, tasks: Mapping[str, Task], texts: Mapping[str, bytes]
) -> list[FileProblem]:
    """Problems for the open tasks that stay though their files are missing. `texts`: empty where lost."""
    gone = _looked_for(backlog, tasks, texts)
    away = [
        _problem(
            name,
            "a checkout took this file away, so its task stays and waits: "
            f"`{command}` brings it back, `holdfast cancel {name}` gives it up",
        )
        for name, command in gone.carried_off.items()
        if name not in gone.stashed
    ]
    if scan.unread:
        return [*away, *(_held(name, scan) for name in texts if name not in gone.carried_off)]
    others = tuple(name for name in texts if name not in gone.carried_off and name not in gone.removed)
    lost = "there is neither this file nor its copy in cas/, so its task stays and waits: bring one of them back"
    return [*away, *(_problem(name, lost) for name in others if not texts[name])]


def swept(backlog: BacklogFolder, tasks: Mapping[str, Task], texts: Mapping[str, bytes]) -> Set[str]:
    """Those of the tasks whose file may have gone without anybody meaning it: with its whole folder, or with a command
    of git.

    `git stash -u` and `git clean` take what git neither tracks nor ignores, some files or all, and a crash or a stash
    that is dropped leaves no trace of it. So only the deletion of a file that is safe from them is a person's word.
    """
    if not texts:
        return set()
    gone = _looked_for(backlog, tasks, texts)
    folders = {True: ("failed",), False: FOLDERS}
    missing = {
        is_failed: not all((backlog.folder / folder).is_dir() for folder in places)
        for is_failed, places in folders.items()
    }
    with_folder = {name for name in texts if missing[FOLDER_OF[tasks[name].state] == "failed"]}
    return gone.stashed | ((with_folder | gone.unprotected) - gone.removed)


def removed(backlog: BacklogFolder, tasks: Mapping[str, Task], texts: Mapping[str, bytes]) -> Set[str]:
    """Those of the tasks whose file a person deleted with git's knowledge."""
    return _looked_for(backlog, tasks, texts).removed


def carried_off(backlog: BacklogFolder, tasks: Mapping[str, Task], texts: Mapping[str, bytes]) -> Set[str]:
    """Those of the tasks whose file, whatever their state, went with a checkout."""
    gone = _looked_for(backlog, tasks, texts)
    return gone.carried_off.keys() - gone.stashed


def _looked_for(backlog: BacklogFolder, tasks: Mapping[str, Task], texts: Mapping[str, bytes]) -> Gone:
    # Asks git, which read-only commands do without.
    from holdfast.git.repository import Gone, find_gone

    if not backlog.folder.is_dir():
        # Git took it as a whole, and can be asked nothing there.
        return Gone()
    for tries_left in reversed(range(TRIES)):
        # Somebody's git may drop a stash, delete a ref or take the folder while ours is asked about it.
        try:
            return find_gone(backlog.folder, texts, lambda name: tasks[name].added_at)
        except GitFailed:
            if not backlog.folder.is_dir():
                break
            if not tries_left:
                raise
    return Gone()


def _held(name: str, scan: BacklogScan) -> FileProblem:
    files = " and ".join(scan.unread)
    it_might = "one of them might be, or hold," if len(scan.unread) > 1 else "it might be, or hold,"
    told = f"there is no such file, and {name} is not cancelled while {files} cannot be used: {it_might} its file"
    return _problem(name, told)


def _problem(name: str, told: str) -> FileProblem:
    return FileProblem(1, 1, told, file=f"open/{name}.yaml", tasks=(name,))


def absent(tasks: Mapping[str, Task], scan: BacklogScan) -> list[FileProblem]:
    """Every open task without a file, for read-only callers that do not wait for git."""
    told = (
        "there is no file of this task: `holdfast check` tells whether it is away, or deleted, which cancels the task"
    )
    # What came through the API has none until a run writes it, and nobody has to do anything about that.
    open_tasks = (name for name in without_file(tasks, scan) if FOLDER_OF[tasks[name].state] == "open")
    names = [name for name in open_tasks if not tasks[name].unfiled]
    return [_held(name, scan) if scan.unread else _problem(name, told) for name in names]
