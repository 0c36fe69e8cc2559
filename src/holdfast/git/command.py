"""Runs the git command line, without anything of the caller's environment that could change what it does.

Only a few variables are passed on: every `GIT_*` of the caller is dropped, messages are in English, and git never
prompts on a terminal. Settings travel in `GIT_CONFIG_COUNT` variables, which win over every configuration file and
need no quoting. Hooks and filesystem monitors never run, and git writes no index but the one that was named.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from holdfast.errors import GitFailed, GitFault, GitSyncFailed, GitUnusable, NotAWorktree, SandboxFailed
from holdfast.identity import signal_name
from holdfast.storage.files.disk import in_memory

# Wraps a command line that runs in a folder, so that it runs in a sandbox.
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

# Lines on git's standard error that mean a fault of the machine, not of the request.
# As text: compiled only where git has failed.
_ERRORS_BYTES_MAX = 1 << 16
_SYNC_FAILED = r"^(?:fatal|error): fsync error on .*$"
_FAULT = (
    r"^.*: (?:No space left on device|Disk quota exceeded|Input/output error|Read-only file system"
    r"|Cannot allocate memory|Too many open files(?: in system)?|Resource temporarily unavailable)$"
    # A failed write for which git gives no reason.
    r"|^(?:fatal|error): (?:couldn't write '|unable to write (?:file|new.index|loose|sha1|object)|.* write error).*$"
    r"|^fatal: Out of memory, .*$"
)


# Runs in each git process between fork and exec: an attempt's runner has git join the attempt's control group.
_before_exec: Callable[[], None] | None = None


def run_before_exec(before_exec: Callable[[], None]) -> None:
    """Sets what every git of this process runs between fork and exec: only where there are no threads."""
    global _before_exec
    _before_exec = before_exec


class GitResult(msgspec.Struct, frozen=True):
    code: int
    out: bytes
    failure: GitFailed | None
    stderr: str = ""  # git's standard error, which also has warnings

    @property
    def line(self) -> str:
        return os.fsdecode(self.out).removesuffix("\n")

    def fields(self) -> list[str]:
        """The parts of output given with `-z`. A name is bytes to git, and stays itself through `os.fsencode`."""
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
    """Runs git to its end. Raises for any exit code not in `codes`; a result with another code than 0 has `failure`.

    A fault of the machine (a full disk, a failed sync, a signal that ended git) always raises.
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
            preexec_fn=_before_exec,
        )
    except OSError as error:
        if not cwd.is_dir():
            raise GitFailed(command=" ".join(args), path=cwd, code=-1, stderr="the folder is missing") from error
        raise GitUnusable(reason=f"`{argv[0]}` cannot be run: {error.strerror}", minimum=_dotted(MINIMUM)) from error
    failure = None
    if ended.returncode:
        stderr = ended.stderr.decode(errors="replace").strip()
        failure = _failure(args, cwd, ended.returncode, stderr, sandbox="" if confine is None else argv[0])
        if ended.returncode not in codes or isinstance(failure, GitFault):
            raise failure
    return GitResult(ended.returncode, ended.stdout, failure, os.fsdecode(ended.stderr))


@contextlib.contextmanager
def listed(
    *args: str, cwd: Path, env: Mapping[str, str], inherit: Sequence[int] = (), confine: Confine | None = None
) -> Iterator[Iterator[str]]:
    """Yields the names that git lists with `-z` one by one, so memory does not grow with their number."""
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
            preexec_fn=_before_exec,
        )
        with asking as asked:
            assert asked.stdout is not None
            try:
                yield _names(asked.stdout)
            except BaseException:
                asked.kill()
                raise
        if asked.returncode:
            stderr = os.pread(errors, _ERRORS_BYTES_MAX, 0).decode(errors="replace").strip()
            raise _failure(args, cwd, asked.returncode, stderr, sandbox="" if confine is None else argv[0])
    finally:
        os.close(errors)


def _names(listing: IO[bytes]) -> Iterator[str]:
    rest = b""
    while data := listing.read(1 << 16):
        *names, rest = (rest + data).split(b"\0")
        yield from map(os.fsdecode, names)


def _failure(args: Sequence[str], cwd: Path, code: int, stderr: str, sandbox: str) -> GitFailed:
    """`sandbox`: the program that git ran in, or empty. Raises where that one, or a sync, has failed."""
    if sandbox and stderr.startswith(f"{sandbox}: "):
        raise SandboxFailed(reason=stderr.partition("\n")[0])
    if sandbox and code > 129:
        # A sandbox reports a signal by this code; git's own codes end with 129.
        code = 128 - code
    facts = {"command": " ".join(args), "path": cwd, "code": code, "stderr": stderr}
    if code < 0:
        return GitFault(**facts, reason=f"it was ended by {signal_name(-code)}")
    if found := re.search(_SYNC_FAILED, stderr, re.MULTILINE):
        raise GitSyncFailed(**facts, operation="sync", reason=found[0])
    if found := re.search(_FAULT, stderr, re.MULTILINE):
        return GitFault(**facts, reason=f"{found[0]} ({_free_space(cwd)})")
    return GitFailed(**facts)


def _free_space(folder: Path) -> str:
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return f"{folder} cannot be looked at: {error.strerror}"
    return f"{found.f_bavail * found.f_frsize // 1_000_000} MB and {found.f_favail} inodes are free there"


@functools.cache
def require_minimum() -> None:
    found = run("--version", cwd=Path("/"), env=environment({})).line
    version = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if version < MINIMUM:
        raise GitUnusable(reason=f"this is {found}", minimum=_dotted(MINIMUM))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


class Repository(msgspec.Struct, frozen=True):
    """Paths of the user's repository. `stores` are its object folders, alternates included."""

    worktree: Path
    git_dir: Path
    common_dir: Path
    stores: tuple[Path, ...]
    hash_name: str
    env: dict[str, str]

    def run(
        self, *args: str, stdin: bytes = b"", codes: tuple[int, ...] = (0,), inherit: tuple[int, ...] = ()
    ) -> GitResult:
        """Runs git on the repository itself: only to read, or for refs under refs/holdfast/."""
        return run(*args, cwd=self.worktree, env=self.env, stdin=stdin, codes=codes, inherit=inherit)

    def with_objects(self, objects: Path, alternates: str) -> Repository:
        """A copy with another object folder before its own. `alternates`: all of them, as git's variable names them."""
        variables = {"GIT_OBJECT_DIRECTORY": str(objects), "GIT_ALTERNATE_OBJECT_DIRECTORIES": alternates}
        return msgspec.structs.replace(self, stores=(objects, *self.stores), env={**self.env, **variables})

    def first_bytes(self, most: int, *args: str) -> bytes:
        """The first bytes of git's output; git is killed where there is more."""
        import subprocess

        asking = subprocess.Popen(
            ["git", *args],
            cwd=self.worktree,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=_before_exec,
        )
        with asking as asked:
            assert asked.stdout is not None
            output = asked.stdout.read(most)
            asked.kill()
        return output


def discover(worktree: Path) -> Repository:
    """Finds the parts of the repository. Asks git again when a file that its answer depends on has changed."""
    require_minimum()
    key = (str(worktree.absolute()), *(os.environ.get(name, "") for name in _PASSED_ON))
    # Read before git is asked: a change in between then makes the cached answer stale.
    inputs = _inputs(worktree)
    known = _discovered.get(key)
    if known is not None and known[0] == inputs:
        return known[1]
    found = _ask_git(worktree)
    if inputs is not None:
        if len(_discovered) >= _DISCOVERED_MAX:
            _discovered.clear()
        _discovered[key] = inputs, found
    return found


_DISCOVERED_MAX, _INPUT_BYTES_MAX = 64, 1 << 16
_discovered: dict[tuple[str, ...], tuple[tuple[object, ...], Repository]] = {}


def _inputs(worktree: Path) -> tuple[object, ...] | None:
    """Reads what git's answer depends on; None where that cannot be told from these few files."""
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
    """Reads a small file that may be an agent's: never blocks, and raises OSError for anything but a small file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        content = os.read(descriptor, _INPUT_BYTES_MAX)
        if len(content) == _INPUT_BYTES_MAX or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EFBIG, "is no small file", path)
        return content
    finally:
        os.close(descriptor)


def _ask_git(worktree: Path) -> Repository:
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
