"""The common part of all sandboxes, an agent's, a gate's and that of a git over their files: the flags of bubblewrap
for what is shut, and what is covered.

Later flags lie on top of earlier ones: what a sandbox opens comes after these, and after /tmp.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.git import command as git
from holdfast.storage.audit import key as audit_key

PROGRAM = "bwrap"
# The kernel lets root write here without any capability: `core_pattern` names a program that is run outside.
_OF_THE_KERNEL = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr", "dynamic_debug")
_SHUT = (
    "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev",
    # With the terminal in hand it could type for its user.
    "--dev-bind", "/dev/null", "/dev/tty", "--proc", "/proc", "--tmpfs", "/tmp", "--setenv", "TMPDIR", "/tmp",
    *(part for name in _OF_THE_KERNEL for part in ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")),
)  # fmt: skip
# In a namespace of users that it makes itself it would have every capability, and with that could mount the machine's
# control groups, and lift what bounds it.
_NO_OTHER_USERS = ("--unshare-user", "--disable-userns")
# Inside, these are others.
_COVERED = (Path("/tmp"), Path("/dev"))
# What is tried is gone at once: a machine on which that takes longer is not asked for ever.
TRIED_S_MAX = 60.0
# The machine can make sandboxes, and cannot make more of them now: no reason to do without.
_FOR_NOW = ("No space left on device", "Resource temporarily unavailable", "Cannot allocate memory")
# Sockets by which something is started, or typed, outside: of the user's session and terminals, of the machine's own
# managers, of containers. Network is no wall to them, and a file system that is read-only is none either.
_SESSIONS = (Path("/run/user"), Path("/run/screen"), Path("/run/dbus"))
_MANAGERS = (
    Path("/run/docker.sock"), Path("/run/podman/podman.sock"), Path("/run/containerd/containerd.sock"),
    Path("/run/crio/crio.sock"), Path("/run/buildkit/buildkitd.sock"), Path("/run/systemd/private"),
    Path("/run/snapd.socket"), Path("/run/libvirt/libvirt-sock"), Path("/var/lib/lxd/unix.socket"),
    Path("/var/snap/lxd/common/lxd/unix.socket"), Path("/var/lib/incus/unix.socket"),
)  # fmt: skip
# Sockets in the home, by pattern: a client can have something signed, or a container started.
_OF_HOME = (
    ".gnupg/S.*", ".ssh/*", ".docker/run/*.sock", ".docker/desktop/*.sock", ".colima/*.sock", ".colima/*/*.sock",
    ".lima/*/sock/*.sock", ".orbstack/run/*.sock", ".rd/*.sock", ".1password/*.sock",
)  # fmt: skip
_NAMED = ("SSH_AUTH_SOCK", "DOCKER_HOST", "CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS")
_ADDRESS = re.compile(r"(?:unix:(?:path=|//)?)?(/[^,;]+)")


@functools.cache
def trouble() -> str:
    """The reason why no sandbox can be made here, as a part of a sentence; empty where one can. Tried once."""
    if shutil.which(PROGRAM) is None:
        return f"there is no program `{PROGRAM}`"
    told = _tried(shut())
    return told and f"`{PROGRAM}` may not make one on this machine ({told})"


@functools.cache
def shut() -> tuple[str, ...]:
    """The flags of every sandbox: what is shut. No namespaces of users can be made inside, where this bubblewrap (from
    0.8 on, and not setuid) can see to that. It is tried once in a process."""
    strict = (*_NO_OTHER_USERS, *_SHUT)
    return _SHUT if _tried(strict) and not _tried(_SHUT) else strict


def has_no_other_users() -> bool:
    return _NO_OTHER_USERS[1] in shut()


def _tried(flags: Sequence[str]) -> str:
    """The error of a sandbox with these flags; empty where it can be made, if not now."""
    try:
        tried = subprocess.run(
            [PROGRAM, *flags, "--", "true"], capture_output=True, text=True, timeout=TRIED_S_MAX, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    told = tried.stderr.strip()
    is_fine = tried.returncode == 0 or any(words in told for words in _FOR_NOW)
    return "" if is_fine else told or str(tried.returncode)


def own_failure(code: int | None, said: bytes) -> str:
    """The failure of bubblewrap itself, by the first words of the error stream; empty where it did its part.

    A confined program can print the same, and is then tried again like a fault of the machine: it gains nothing else.
    """
    line = said.decode(errors="replace").partition("\n")[0].strip()
    # A program that cannot be called so is no fault of the machine.
    is_own = code == 1 and line.startswith(f"{PROGRAM}: ") and not line.endswith(os.strerror(errno.E2BIG))
    return line if is_own else ""


def shown_below_covered(repository: Path) -> list[Path]:
    """Holdfast and its Python, the home, the programs on the PATH and the repository, where they lie below /tmp or
    /dev/shm: they are shown to read. What is shut comes after."""
    found = [Path(sys.prefix), Path(sys.base_prefix), Path(__file__).resolve().parents[2], Path.home(), repository]
    for name in filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep)):
        path = Path(name)
        # What is called from there lies beside it: in a virtual environment, and among the modules of node.
        found += [path.parent, path] if path.name in ("bin", ".bin") else [path]
    paths = sorted({path.resolve() for path in found if path.is_dir()}, key=lambda path: len(path.parts))
    shown: list[Path] = []
    for path in paths:
        is_below = any(top in path.parents for top in (*_COVERED, Path("/dev/shm"))) and path != Path("/dev/shm")
        if is_below and not any(path.is_relative_to(other) for other in shown):
            shown.append(path)
    return shown


def flat(binds: Sequence[tuple[str, Path, Path]]) -> list[str]:
    return [str(part) for bind in binds for part in bind]


def without_sessions() -> list[str]:
    """Hides the sockets of the user's session. A task that needs one names it in `sandbox_writable`."""
    covered = [part for path in _SESSIONS if path.is_dir() for part in ("--tmpfs", str(path))]
    sockets = [path for path in (*_MANAGERS, *_of_the_user()) if path.is_socket()]
    # What is gone with its folder cannot be covered once more.
    apart = [path for path in sockets if not any(top in path.parents for top in (*_SESSIONS, *_COVERED))]
    return covered + [part for path in apart for part in ("--ro-bind", "/dev/null", str(path))]


def _of_the_user() -> list[Path]:
    """Those in the home, and those that the environment names."""
    home, named = Path.home(), (os.environ.get(name, "") for name in _NAMED)
    found = [path for pattern in _OF_HOME for path in home.glob(pattern)]
    found += [Path(match[1]) for value in named if (match := _ADDRESS.match(value))]
    return list(dict.fromkeys(Path(os.path.realpath(path)) for path in found))


def data_roots(root: Path) -> list[Path]:
    """This one, and those of other repositories that share a folder with it."""
    beside = (found.parent for found in root.parent.glob("+*/format.json"))
    return [root, *(path for path in beside if path != root)]


def without_audit_key(configured: str) -> list[str]:
    """Its folder, and the file itself where a link leads elsewhere. Before the data root: that may lie below it.

    Of a key that the settings put elsewhere only the file is covered: its folder may be one that the agent needs.
    """
    path = audit_key.default_path(os.environ)
    folder, key = path.parent.resolve(), path.resolve()
    covered = ["--tmpfs", str(folder)] if folder.is_dir() else []
    if key.is_file() and not key.is_relative_to(folder):
        # Bound without its device: it cannot even be opened.
        covered += ["--ro-bind", "/dev/null", str(key)]
    if configured and (other := Path(configured).resolve()).is_file() and not other.is_relative_to(folder):
        covered += ["--ro-bind", "/dev/null", str(other)]
    return covered


# -- git over an agent's files ----------------------------------------------------------------------------------------
# Git runs programs that settings and files name: filters, and git itself inside a nested repository. Over a tree that a
# confined agent or gate has written it therefore runs in a sandbox like theirs. It reads what the agent can read,
# without the data root and the key of the audit log; so a symbolic link that appears while git reads leads to nothing
# that the agent may not know. It writes in the worktree and in the few folders that it is given.


def confine_git(
    repository: git.Repository, root: Path, key: str, shown: Sequence[Path], opened: Sequence[Path] = ()
) -> git.Confine:
    """Makes of git's command line one that is confined. `root`: the data root, of which only the worktree is there,
    `shown` to read, and `opened` to write. `key`: where the settings put the key of the audit log."""

    covered = [*without_audit_key(key), *without_sessions()]
    covered += [part for path in data_roots(root.resolve()) if path.is_dir() for part in ("--tmpfs", str(path))]

    def confine(argv: Sequence[str], folder: Path) -> list[str]:
        binds = _git_binds(repository, shown, opened)
        return [PROGRAM, *shut(), *covered, *binds, "--chdir", str(folder), "--", *argv]

    return confine


def _git_binds(repository: git.Repository, shown: Sequence[Path], opened: Sequence[Path]) -> list[str]:
    """Later ones lie on top of earlier ones."""
    worktree = repository.worktree
    reading = [path.resolve() for path in (repository.common_dir, *repository.stores, *shown)]
    binds = [("--ro-bind", path) for path in reading if path.exists()]
    binds += [("--bind", path.resolve()) for path in (worktree, *opened)]
    binds += [("--ro-bind-try", worktree / ".git")]
    return [part for how, path in binds for part in (how, str(path), str(path))]
