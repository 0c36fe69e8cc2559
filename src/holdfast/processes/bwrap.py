"""What every sandbox of ours has, an agent's, a gate's and that of a git over their files: the flags of bubblewrap for
what is shut, and what is covered.

Later flags lie on top of earlier ones: what a sandbox opens comes after these, and after /tmp.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.durable import audit_key

PROGRAM = "bwrap"
# The kernel lets root write here without any capability: `core_pattern` names a program that is run outside.
_OF_THE_KERNEL = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr", "dynamic_debug")
SHUT = (
    "--die-with-parent", "--unshare-pid", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev",
    # With the terminal in hand it could type for its user.
    "--dev-bind", "/dev/null", "/dev/tty", "--proc", "/proc", "--tmpfs", "/tmp", "--setenv", "TMPDIR", "/tmp",
    *(part for name in _OF_THE_KERNEL for part in ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")),
)  # fmt: skip
# Sockets of the user's session: who may speak to its manager may start anything.
_SESSIONS = Path("/run/user")


def without_sessions() -> list[str]:
    return ["--tmpfs", str(_SESSIONS)] if _SESSIONS.is_dir() else []


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
