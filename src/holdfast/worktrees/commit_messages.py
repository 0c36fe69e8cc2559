"""Commit messages of what lands: the agent's own text, the task's goal, or a template; and always our trailers.

The agent's text is read from the files that `git commit` leaves in the worktree's git folder, `logs/HEAD` and
`COMMIT_EDITMSG`: no git of ours runs over a folder that an agent may have written to.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Protocol

from holdfast.config.settings import Config
from holdfast.domain import template
from holdfast.domain.definition import Definition
from holdfast.domain.task_record import Task
from holdfast.git import command as git
from holdfast.storage.files import plain
from holdfast.worktrees import merges
from holdfast.worktrees.worktrees import Worktrees

FIELDS = ("title", "goal", "message", "task", "attempt", "agent")
SETTING = "git.commit_template"
BYTES_MAX = 1 << 16
WORDS_MAX = 20_000
# A line in the log of HEAD about a commit: old, new, author, time; and the subject.
_COMMIT = re.compile(r"^[0-9a-f]{40,64} [0-9a-f]{40,64} .*\tcommit(?: \((?:initial|amend|merge)\))?: (.*)$")
_OURS = re.compile(r"^Holdfast-[A-Za-z]+:.*$\n?", re.MULTILINE)


class Site(Protocol):
    """The facts that messages need of their caller: a run, or a decision."""

    @property
    def repo(self) -> Path: ...
    @property
    def config(self) -> Config: ...
    @property
    def worktrees(self) -> Worktrees: ...


def of_candidate(site: Site, task: Task, made: Definition) -> str:
    """The message of the candidate that the attempt has just made."""
    return _compose(site.config, task, made, agent_words(site, task))


def of_landing(site: Site, task: Task, made: Definition) -> str:
    """The message of the candidate on top of the target: the candidate's own message, with our trailers."""
    asked = site.worktrees.store.seen.run("cat-file", "commit", task.candidate, codes=(0, 128))
    words = asked.out.decode(errors="replace").partition("\n\n")[2] if not asked.code else ""
    if words and f"Holdfast-Attempt: {task.attempt.id}" in words:
        return words
    # A commit that a remote worker made.
    return _compose(site.config, task, made, _cleaned(words))


def agent_words(site: Site, task: Task) -> str:
    """The message of the agent's own commits; empty where it made none."""
    for folder in _git_folders(site, task):
        subjects = [
            found[1].strip() for line in _read(folder / "logs" / "HEAD", folder) if (found := _COMMIT.match(line))
        ]
        if not subjects:
            continue
        words = _cleaned(
            "\n".join(line for line in _read(folder / "COMMIT_EDITMSG", folder) if not line.startswith("#"))
        )
        if " ".join(words.partition("\n\n")[0].split()) != subjects[-1]:
            words = subjects[-1]
        others = [each for each in dict.fromkeys(subjects) if each != subjects[-1]]
        listed = "\n".join(f"- {each}" for each in others)
        return _cleaned(f"{words}\n\nBefore that:\n{listed}" if others else words)
    return ""


def _compose(config: Config, task: Task, made: Definition, own: str) -> str:
    usual = merges.message(task.id, task.attempt.id, made)
    words, trailers = usual.rstrip("\n").rsplit("\n\n", 1)
    how = config.git.commit_message
    if how == "agent" and own:
        words = own
    elif how == "template":
        title, _, goal = words.partition("\n\n")
        names = dict(zip(FIELDS, (title, goal, own, task.id, task.attempt.id, task.claim.worked_by), strict=True))
        words = _cleaned(template.render(config.git.commit_template, names, SETTING)) or words
    return f"{words}\n\n{trailers}\n"


def _cleaned(words: str) -> str:
    """Removes lines that only we write, and cuts the rest to the length limit."""
    return _OURS.sub("", words.replace("\0", "").replace("\r\n", "\n"))[:WORDS_MAX].strip()


def _git_folders(site: Site, task: Task) -> list[Path]:
    """The folders in which the agent's git keeps its files: its own one in a sandbox, and the worktree's."""
    own = site.worktrees.private(task.id) / "own" / task.attempt.id / "git"
    found = [own] if own.is_dir() and not own.is_symlink() else []
    worktree = site.worktrees.path(task.id)
    link = next(iter(_read(worktree / ".git", worktree)), "")
    folder = Path(os.path.normpath(link.removeprefix("gitdir:").strip()))
    # The agent may have rewritten the link.
    inside = git.discover(site.repo).common_dir / "worktrees"
    return [*found, folder] if folder.is_absolute() and folder.parent.resolve() == inside.resolve() else found


def _read(path: Path, top: Path) -> list[str]:
    """The last lines of a plain file; none where it is missing, or a link is on the way from `top`."""
    try:
        with plain.opened(path, top) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - BYTES_MAX))
            return file.read(BYTES_MAX).decode(errors="replace").splitlines()
    except OSError:
        return []
