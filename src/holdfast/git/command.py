"""Running the git command line, with nothing of the caller's environment that could change what it does.

Only a few variables are passed on; every `GIT_*` of the caller is dropped, messages are in English, and nothing asks
on a terminal. Settings travel in `GIT_CONFIG_COUNT` variables, which win over every configuration file and need no
quoting. Hooks and filesystem monitors never run, no index is written but the one that was named.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import re
import signal
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from holdfast.errors import GitFailed, GitFault, GitSyncFailed, GitUnusable, NotAWorktree, SandboxFailed
from holdfast.storage.files.disk import in_memory

# Makes of a command line, to be run in a folder, one that is confined.
Confine = Callable[[Sequence[str], Path], Sequence[str]]
# The first with `merge-tree --write-tree`. Older ones without `core.fsync` would take the setting and sync nothing.
MINIMUM = (2, 38)
_PASSED_ON = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR")
_ALWAYS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.logAllRefUpdates": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}

# How git ends its lines on standard error when the machine failed, and not what it was asked for.
# As text: compiled only where git has failed.
_ERRORS_BYTES_MAX = 1 << 16
_SYNC_FAILED = r"^(?:fatal|error): fsync error on .*$"
_FAULT = (
    r"^.*: (?:No space left on device|Disk quota exceeded|Input/output error|Read-only file system"
    r"|Cannot allocate memory|Too many open files(?: in system)?|Resource temporarily unavailable)$"
    # A write that failed, of which git does not say why.
    r"|^(?:fatal|error): (?:couldn't write '|unable to write (?:file|new.index|loose|sha1|object)|.* write error).*$"
    r"|^fatal: Out of memory, .*$"
)


# What each git does of itself before it is one: an attempt's runner has it join the attempt's control group.
_first: Callable[[], None] | None = None


def begin_with(first: Callable[[], None]) -> None:
    """Every git of this process does this first, between fork and exec: only where there are no threads."""
    global _first
    _first = first


class GitResult(msgspec.Struct, frozen=True):
    code: int
    out: bytes
    failure: GitFailed | None
    said: str = ""  # on its standard error, which also has warnings

    @property
    def line(self) -> str:
        return os.fsdecode(self.out).removesuffix("\n")

    def fields(self) -> list[str]:
        """The parts of an answer given with `-z`. A name is bytes to git, and stays itself through `os.fsencode`."""
        return os.fsdecode(self.out).split("\0")[:-1]


def readable(name: str) -> str:
    """A file name as text that can be written anywhere: a byte that is not UTF-8 is shown as `\\xff`."""
    return os.fsencode(name).decode(errors="backslashreplace")


def environment(settings: Mapping[str, str], **variables: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    fixed = {"LC_ALL": "C", "LANG": "C"}
    fixed |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1"}
    pairs = list({**_ALWAYS, **settings}.items())
    numbered = {f"GIT_CONFIG_KEY_{number}": key for number, (key, _) in enumerate(pairs)}
    numbered |= {f"GIT_CONFIG_VALUE_{number}": value for number, (_, value) in enumerate(pairs)}
    return {**kept, **fixed, **numbered, "GIT_CONFIG_COUNT": str(len(pairs)), **variables}


def run(
    *args: str,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes = b"",
    codes: Collection[int] = (0,),
    inherit: Sequence[int] = (),
    confine: Confine | None = None,
) -> GitResult:
    """Runs git to its end. Any code but `codes` raises; a code other than 0 comes with the error, not raised.

    A fault of the machine (a full disk, a failed sync, a signal that ended git) is no answer, and always raises.
    """
    import subprocess

    argv = ["git", *args] if confine is None else confine(["git", *args], cwd)
    try:
        ended = subprocess.run(
            argv,
            cwd=cwd,
            env=env,
            input=stdin,
            capture_output=True,
            pass_fds=inherit,
            check=False,
            preexec_fn=_first,
        )
    except OSError as error:
        if not cwd.is_dir():
            raise GitFailed(command=" ".join(args), path=cwd, code=-1, stderr="the folder is missing") from error
        raise GitUnusable(reason=f"`{argv[0]}` cannot be run: {error.strerror}", minimum=_dotted(MINIMUM)) from error
    failure = None
    if ended.returncode:
        said = ended.stderr.decode(errors="replace").strip()
        failure = _failure(args, cwd, ended.returncode if confine is None else _unwrapped(ended.returncode), said)
        if confine is not None and said.startswith(f"{argv[0]}: "):
            raise SandboxFailed(reason=said.partition("\n")[0])
        if ended.returncode not in codes or isinstance(failure, GitFault):
            raise failure
    return GitResult(ended.returncode, ended.stdout, failure, os.fsdecode(ended.stderr))


@contextlib.contextmanager
def listed(
    *args: str, cwd: Path, env: Mapping[str, str], inherit: Sequence[int] = (), confine: Confine | None = None
) -> Iterator[Iterator[str]]:
    """The names that git lists with `-z`, as they come: however many there are, they are never held together."""
    import subprocess

    argv = ["git", *args] if confine is None else confine(["git", *args], cwd)
    errors = in_memory(b"")
    try:
        asking = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=inherit,
            preexec_fn=_first,
        )
        with asking as asked:
            assert asked.stdout is not None
            try:
                yield _names(asked.stdout)
            except BaseException:
                asked.kill()
                raise
        if asked.returncode:
            said = os.pread(errors, _ERRORS_BYTES_MAX, 0).decode(errors="replace").strip()
            if confine is not None and said.startswith(f"{argv[0]}: "):
                raise SandboxFailed(reason=said.partition("\n")[0])
            raise _failure(args, cwd, asked.returncode if confine is None else _unwrapped(asked.returncode), said)
    finally:
        os.close(errors)


def _names(listing: IO[bytes]) -> Iterator[str]:
    rest = b""
    while data := listing.read(1 << 16):
        *names, rest = (rest + data).split(b"\0")
        yield from map(os.fsdecode, names)


def _unwrapped(code: int) -> int:
    """A sandbox tells as a code which signal has ended git. Git's own codes end with 129."""
    return 128 - code if code > 129 else code


def _failure(args: Sequence[str], cwd: Path, code: int, stderr: str) -> GitFailed:
    facts = {"command": " ".join(args), "path": cwd, "code": code, "stderr": stderr}
    if code < 0:
        return GitFault(**facts, reason=f"it was ended by {_signal_name(-code)}")
    if found := re.search(_SYNC_FAILED, stderr, re.MULTILINE):
        raise GitSyncFailed(**facts, operation="sync", reason=found[0])
    if found := re.search(_FAULT, stderr, re.MULTILINE):
        return GitFault(**facts, reason=f"{found[0]} ({_room(cwd)})")
    return GitFailed(**facts)


def _room(folder: Path) -> str:
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return f"{folder} cannot be looked at: {error.strerror}"
    return f"{found.f_bavail * found.f_frsize // 1_000_000} MB and {found.f_favail} inodes are free there"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@functools.cache
def require_minimum() -> None:
    found = run("--version", cwd=Path("/"), env=environment({})).line
    version = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if version < MINIMUM:
        raise GitUnusable(reason=f"this is {found}", minimum=_dotted(MINIMUM))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


class Repository(msgspec.Struct, frozen=True):
    """Where the parts of the user's repository are. `stores` are its object folders, alternates included."""

    worktree: Path
    git_dir: Path
    common_dir: Path
    stores: tuple[Path, ...]
    hash_name: str
    env: dict[str, str]

    def run(
        self, *args: str, stdin: bytes = b"", codes: tuple[int, ...] = (0,), inherit: tuple[int, ...] = ()
    ) -> GitResult:
        """Runs git on the repository itself: only to ask, or for refs under refs/holdfast/."""
        return run(*args, cwd=self.worktree, env=self.env, stdin=stdin, codes=codes, inherit=inherit)

    def seeing(self, objects: Path, alternates: str) -> Repository:
        """The same with another object folder before its own. `alternates`: all, as git's variable names them."""
        variables = {"GIT_OBJECT_DIRECTORY": str(objects), "GIT_ALTERNATE_OBJECT_DIRECTORIES": alternates}
        return msgspec.structs.replace(self, stores=(objects, *self.stores), env={**self.env, **variables})

    def beginning(self, most: int, *args: str) -> bytes:
        """The first bytes of what git says, and no more: where there is more, git is ended."""
        import subprocess

        asking = subprocess.Popen(
            ["git", *args],
            cwd=self.worktree,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=_first,
        )
        with asking as asked:
            assert asked.stdout is not None
            said = asked.stdout.read(most)
            asked.kill()
        return said


def discover(worktree: Path) -> Repository:
    """Where the parts of the repository are. Git is asked again when a file has changed that its answer rests on."""
    require_minimum()
    key = (str(worktree.absolute()), *(os.environ.get(name, "") for name in _PASSED_ON))
    # Looked at before git looks: what changes meanwhile is another state than the one that is remembered.
    grounds = _grounds(worktree)
    known = _discovered.get(key)
    if known is not None and known[0] == grounds:
        return known[1]
    found = _ask_where(worktree)
    if grounds is not None:
        if len(_discovered) >= _DISCOVERED_MAX:
            _discovered.clear()
        _discovered[key] = grounds, found
    return found


_DISCOVERED_MAX, _GROUND_BYTES_MAX = 64, 1 << 16
_discovered: dict[tuple[str, ...], tuple[tuple[object, ...], Repository]] = {}


def _grounds(worktree: Path) -> tuple[object, ...] | None:
    """What git looks at to find a repository's parts; None where that is more than a look here finds."""
    try:
        dot_git = worktree / ".git"
        link = b"" if os.path.isdir(dot_git) else _content(dot_git)
        if link is None:
            return None
        git_dir = worktree / os.fsdecode(link.removeprefix(b"gitdir:").strip()) if link else dot_git
        common = _content(git_dir / "commondir")
        common_dir = git_dir if common is None else git_dir / os.fsdecode(common.strip())
        if (common_dir / "objects" / "info" / "alternates").exists():
            return None
        folders = (worktree, git_dir, common_dir, common_dir / "objects", common_dir / "refs")
        files = (git_dir / "HEAD", common_dir / "config", git_dir / "config.worktree")
        places = [(found.st_dev, found.st_ino, found.st_uid) for found in map(os.stat, folders)]
        return (link, common, *places, *map(_content, files))
    except OSError:
        return None


def _content(path: Path) -> bytes | None:
    """Of a small file. It may be an agent's: waits for nobody, and what is no such file is an OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        content = os.read(descriptor, _GROUND_BYTES_MAX)
        if len(content) == _GROUND_BYTES_MAX or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EFBIG, "is no small file", path)
        return content
    finally:
        os.close(descriptor)


def _ask_where(worktree: Path) -> Repository:
    settings = {"core.fsync": "all", "core.filesRefLockTimeout": "500"}
    env = environment(settings)
    asked = [["--show-toplevel"], ["--absolute-git-dir"], ["--git-common-dir"], ["--git-path", "objects"]]
    asked.append(["--show-object-format"])

    def ask(*questions: str) -> str:
        return run("rev-parse", "--path-format=absolute", *questions, cwd=worktree, env=env).line

    try:
        found = ask(*itertools.chain(*asked)).split("\n")
        if len(found) != len(asked):
            # A path with a newline in it.
            found = [ask(*question) for question in asked]
    except GitFailed as failure:
        raise NotAWorktree(path=worktree, reason=failure.stderr) from failure
    if not os.path.samefile(found[0], worktree):
        raise NotAWorktree(path=worktree, reason=f"git says {found[0]}")
    top, git_dir, common_dir, objects = map(Path, found[:4])
    env = environment(settings, GIT_DIR=str(git_dir), GIT_WORK_TREE=str(top))
    stores = [objects]
    if (objects / "info" / "alternates").exists():
        counted = run("count-objects", "-v", cwd=top, env=env).line.split("\n")
        stores += [Path(line.removeprefix("alternate: ")) for line in counted if line.startswith("alternate: ")]
    return Repository(top, git_dir, common_dir, tuple(filter(Path.is_dir, stores)), found[4], env=env)
