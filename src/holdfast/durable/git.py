"""Running the git command line, with nothing of the caller's environment that could change what it does.

Only a few variables are passed on; every `GIT_*` of the caller is dropped, messages are in English, and nothing asks
on a terminal. Settings travel in `GIT_CONFIG_COUNT` variables, which win over every configuration file and need no
quoting. Hooks and filesystem monitors never run, no index is written but the one that was named.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.errors import GitFailed, GitUnusable

# The first with `core.fsync`: an older git would take the setting and sync nothing.
MINIMUM = (2, 36)
_PASSED_ON = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR")
_ALWAYS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.logAllRefUpdates": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}


class Result(msgspec.Struct, frozen=True):
    code: int
    out: bytes
    failure: GitFailed | None

    @property
    def line(self) -> str:
        return os.fsdecode(self.out).removesuffix("\n")

    def fields(self) -> list[str]:
        """The parts of an answer given with `-z`. A name is bytes to git, and stays itself through `os.fsencode`."""
        return os.fsdecode(self.out).split("\0")[:-1]


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
) -> Result:
    """Runs git to its end. Any code but `codes` raises; a code other than 0 comes with the error, not raised."""
    import subprocess

    try:
        ended = subprocess.run(
            ["git", *args], cwd=cwd, env=env, input=stdin, capture_output=True, pass_fds=inherit, check=False
        )
    except OSError as error:
        if not cwd.is_dir():
            raise GitFailed(command=" ".join(args), path=cwd, code=-1, stderr="the folder is missing") from error
        raise GitUnusable(reason=f"`git` cannot be run: {error.strerror}", minimum=_dotted(MINIMUM)) from error
    failure = None
    if ended.returncode:
        stderr = ended.stderr.decode(errors="replace").strip()
        failure = GitFailed(command=" ".join(args), path=cwd, code=ended.returncode, stderr=stderr)
        if ended.returncode not in codes:
            raise failure
    return Result(ended.returncode, ended.stdout, failure)


@functools.cache
def require_minimum() -> None:
    found = run("--version", cwd=Path("/"), env=environment({})).line
    version = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if version < MINIMUM:
        raise GitUnusable(reason=f"this is {found}", minimum=_dotted(MINIMUM))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
