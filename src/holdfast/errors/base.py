"""The base class of all errors, and the errors of bad input."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any, ClassVar


class HoldfastError(Exception):
    """Something went wrong: {detail}."""

    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls, exit_code: int | None = None) -> None:
        if exit_code is not None:
            cls.exit_code = exit_code

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        super().__init__(_sentence(type(self), facts))

    def __reduce__(self) -> tuple[Any, ...]:
        # copy and pickle pass positional arguments, and this class takes none.
        return functools.partial(type(self), **self.facts), (), self.__dict__

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["facts"][name]
        except KeyError:
            raise AttributeError(name) from None


def _sentence(kind: type[HoldfastError], facts: dict[str, Any]) -> str:
    # `python -OO` strips docstrings; the facts alone still say what happened.
    template = kind.__doc__ or kind.__name__ + ": " + ", ".join(f"{name} {{{name}}}" for name in facts)
    return " ".join(inspect.cleandoc(template).split("\n")).format(**facts)


def within(error: BaseException) -> str:
    """An error's words for a sentence of another: without the full stop, which that has itself."""
    return str(error).removesuffix(".")


def code_of(error: BaseException) -> str:
    """The kind of an error for programs: the name of its class, as `task_unknown`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(error).__name__).lower()


# -- input ------------------------------------------------------------------------------------------------------------


class InputError(HoldfastError, exit_code=2):
    """The input cannot be used: {detail}. Nothing was changed."""


class PathEscapes(InputError):
    """The path {name!r} leads out of {root}. Nothing was read or written; give a relative path that stays inside."""


class InvalidName(InputError):
    """{what} {name!r} cannot be used: {rule}. Nothing was changed."""


class NotABlobId(InputError):
    """{digest!r} is not a blob id: 64 lower-case hexadecimal digits were expected. Nothing was read."""


class RootUnusable(InputError):
    """The data root {path} cannot be used: {reason}. Nothing was changed; name another with --data-root."""


class NewerFormat(InputError):
    """{path} was written in format {found}, and this Holdfast reads up to format {known}. Nothing was changed;
    use the newer Holdfast that wrote it."""


class FormatBroken(InputError):
    """{path} cannot be read: {reason}. Nothing was changed; restore this file from a backup, or, if its folder is no
    data root, name another with --data-root."""


class FormatMissing(InputError):
    """{path} is missing, though {wal} holds a journal. Nothing was changed; restore that file from a backup or with
    git, or type `holdfast init`, which writes a new one and leaves all else as it is."""


class RootOfAnother(InputError):
    """The data root {path} belongs to the repository whose first commit is {recorded}, and {repo} does not have that
    commit: it {first}. Nothing was changed; name another data root with --data-root, or, if {repo} is that repository
    with its history rewritten, set `root_commit` in {file} to "" and start again."""


class RootTracked(InputError):
    """The data root {path} was refused: git tracks {file} in it ({count} in all), so it may come from somebody else and
    decide what runs here. Git may carry only its .gitignore, backlog/ and config/. Nothing was changed; if it is yours,
    take it out of git with `{command}` and the like, and commit that; else name another with --data-root."""


class ConfigError(InputError):
    """{place} sets {key} to {value}. Allowed is {allowed}. Nothing was changed; correct it, then start again."""


class SettingUnknown(ConfigError):
    """{place} sets {key} to {value}, and there is no such setting there. {allowed} Nothing was changed; correct it,
    then start again."""


class SettingTwice(ConfigError):
    """{place} sets {key} to {value}, but {first} sets it too. Allowed is {allowed}. Nothing was changed; remove one,
    then start again."""


class ConfigUnreadable(ConfigError):
    """{place} cannot be read as configuration: {reason}. Allowed is {allowed}. Nothing was changed; correct the file,
    then start again."""


class NotInRepository(InputError):
    """{path} is not in a git work tree ({reason}). Nothing was changed; go to your repository, or make one with
    `git init`."""


class NotInitialised(InputError):
    """There is no Holdfast in {repo} yet: {path} is missing. Nothing was changed; type `holdfast init`."""


class BacklogAlone(NotInitialised):
    """There is a backlog in {path}, but no Holdfast yet: git carries what people write, and each machine makes the
    rest. Nothing was changed; type `holdfast init`, which makes it and keeps every file as it is."""


class RepositoryMoved(NotInitialised):
    """There is no Holdfast in {repo} yet: {path} is missing. But {found} belongs to a repository with the same first
    commit, which is no longer where it was. Nothing was changed; if you moved it here, type `{command}`, otherwise
    `holdfast init`."""
