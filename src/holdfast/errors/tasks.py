"""Errors about tasks and their files."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.errors.base import HoldfastError, InputError

# -- tasks ------------------------------------------------------------------------------------------------------------


class IllegalTransition(HoldfastError, exit_code=9):
    """{what} in state {state} cannot take the event {event}; the legal moves there: {moves}. Nothing was changed."""


class MoveRefused(IllegalTransition):
    """{what} cannot be {verb}: it is {state}. It stays as it is, and the refusal is on record; `holdfast show` says
    what can be done with it."""


class TaskUnknown(InputError):
    """There is no task {task!r} here. Nothing was changed; {hint}"""

    @classmethod
    def among(cls, task: str, known: Iterable[str]) -> TaskUnknown:
        """Names the known task whose id is most like it."""
        import difflib

        near = difflib.get_close_matches(task, known, 1)
        return cls(task=task, hint=f"did you mean {near[0]}?" if near else "`holdfast list` shows all.")


class NothingParked(HoldfastError, exit_code=9):
    """Nothing of the task {task} waits for a decision: it is {state}. Nothing was changed; `holdfast show {task}` says
    what it waits for."""


class DecisionRefused(HoldfastError, exit_code=9):
    """The task {task} cannot be {verb}: {reason}. Nothing was changed; {hint}"""


class NotFinished(HoldfastError, exit_code=9):
    """The work on {task} cannot be taken as finished: {reason}. It was given back, with its worktree saved as it was
    left, and waits for you; {hint}"""


class QuestionUnknown(InputError):
    """There is no question {question!r}. Nothing was changed; `holdfast questions` shows those that wait for an
    answer."""


class QuestionClosed(HoldfastError, exit_code=9):
    """The question {question} {how}. Nothing was changed; `holdfast questions` shows those that wait for an answer."""


class ReviewStale(DecisionRefused, exit_code=9):
    """Your review of {candidate} came too late: the newest result of {task} is {newest}. Nothing was decided; your
    comments were kept as a draft, and `holdfast review {task}` shows them beside the newest result."""


class ReviewTextUnfit(InputError):
    """Line {line} of your review cannot be used: {reason}. Nothing was submitted; your text is kept in {path}, and
    `holdfast review {task}` goes on with it."""


class ReviewEditorFailed(InputError):
    """{detail}, so the review of {task} is not finished. Nothing was submitted; {kept}. Type `holdfast review {task}`
    to go on, `EDITOR=nano holdfast review {task}` for another editor, or give the words with `-m`, which opens none."""


class TurnUnknown(InputError):
    """There is no turn {turn} of {attempt}: it {known}. Nothing was changed; `holdfast turns {attempt}` shows what
    there is."""


class TaskIsFinal(HoldfastError, exit_code=9):
    """The task {task} is {state}, so an edit of its definition would have no effect. Nothing was written; add a new
    task."""


# -- backlog ----------------------------------------------------------------------------------------------------------


class DefinitionInvalid(InputError):
    """The task file {name} cannot be used: {problems}. Nothing was written; correct that, then try again."""


class DefinitionLost(HoldfastError, exit_code=4):
    """The definition that {task} was claimed with cannot be read: {reason} The task waits, and all others continue;
    restore that file and type `holdfast resolve {task} --retry`, or give the task up with `holdfast resolve {task}
    --abandon`."""


class TaskExists(InputError):
    """There is a task {task!r} already, in {path}. Nothing was written; choose another id, or edit that task."""


class TaskFileMissing(InputError):
    """There is no usable file of a task {task!r} in {path}. Nothing was changed; `holdfast list` shows what there is
    and which files have problems."""


class TaskFileChanged(HoldfastError, exit_code=10):
    """{path} has changed since it was read. It was left as it is; read it again, then make the change anew."""


class TaskFilesDiffer(HoldfastError, exit_code=10):
    """Several files claim to be the task {task!r}, and they differ: {paths}. All were kept; join what they say in one
    of them, and remove the others."""


class BacklogBusy(HoldfastError, exit_code=7):
    """Another Holdfast has been writing a task's file for {seconds:g} s: it holds {path}. No file was written; see who
    that is with `fuser -v {path}`, then try again."""


class BlockUnfit(HoldfastError, exit_code=10):
    """The block `{block}:` cannot be written to {path} without changing what else the file says. It was left as it
    is; write its keys one per line, then try again."""


class BacklogFolderMissing(HoldfastError, exit_code=10):
    """The folder {path} is gone, and with it the files of open tasks. Nothing was written, and no task is cancelled for
    it; `holdfast run` puts it back with its files, and so does every command that decides something."""
