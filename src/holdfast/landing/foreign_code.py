"""Finds gates that test another checkout of the repository than the worktree in which they run.

A gate `/path/to/checkout/.venv/bin/pytest` imports the project from that checkout, where it is installed in editable
mode: it passes whatever the candidate changes. Nothing is run to find that out: only the gate's text, the first line of
its program, and the few files of an environment that name another folder are read. What lies in the gate's own worktree
an agent may have written: reads are bounded, and pipes and devices count as missing.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from holdfast.config.settings import Config
from holdfast.domain.definition import Definition
from holdfast.git import command as git
from holdfast.landing.gate_kinds import gates_of
from holdfast.landing.gates import PASSED_ON, Gate
from holdfast.landing.shell_words import SimpleCommand, simple_commands
from holdfast.layout import Layout
from holdfast.storage.files import plain
from holdfast.worktrees.content import judging_worktrees

FILE_BYTES_MAX = 256 << 10
LINE_BYTES_MAX = 4096
ENTRIES_MAX = 5000
_QUOTED = re.compile(r"""['"](/[^'"\n]+)['"]""")
_INTERPRETERS = re.compile(r"(python|pypy)[\d.]*|sh|bash|dash|zsh|node|ruby|perl")
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_NODE = frozenset(("node", "npm", "npx", "yarn", "pnpm", "bun"))
# Options of many programs that name the folder to work in.
_FOLDER_OPTIONS = ("-C", "--project", "--prefix", "--directory", "--cwd", "--rootdir", "--manifest-path")
_SEARCHED = {"PYTHONPATH": "python", "NODE_PATH": "node"}


class ForeignCode(msgspec.Struct, frozen=True):
    """`path` is what the gate uses of another `checkout`; `how` says in which way, `kind` what to do instead."""

    gate: str
    command: str
    path: str
    checkout: str
    how: str
    kind: str = ""

    def sentence(self) -> str:
        proves = "It tests that checkout and not the candidate: it passes whatever an agent has changed."
        return f"the gate {self.gate} (`{self.command}`) {self.how} in another checkout, {self.checkout}. {proves}"

    def advice(self) -> str:
        match self.kind:
            case "python":
                setup, gate = '"python -m venv .venv", ".venv/bin/pip install -e ."', ".venv/bin/pytest"
            case "node":
                setup, gate = '"npm ci"', "npm test"
            case _:
                return (
                    "have the gate use what is in its own worktree: paths that are relative to its top folder, and an "
                    "environment that `worktree.setup` in config/settings.yaml makes there"
                )
        return (
            f"give each worktree an environment of its own: in config/settings.yaml, `worktree: {{setup: [{setup}]}}` "
            f"and the gate's command `{gate}`"
        )


class Checkouts:
    """The checkouts of a repository. `own` are those in which gates run."""

    def __init__(self, repo: Path, own: Sequence[Path]) -> None:
        self._own = tuple(os.path.realpath(path) for path in own)
        lines = git.discover(repo).run("worktree", "list", "--porcelain", "-z").fields()
        found = (line.removeprefix("worktree ") for line in lines if line.startswith("worktree "))
        self._all = sorted({*map(os.path.realpath, found), *self._own}, key=len, reverse=True)

    def other(self, path: str) -> str:
        """The other checkout in which the path lies, as it is written or by the links of its folder; or empty."""
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        for each in (os.path.normpath(path), real):
            root = next((root for root in self._all if each == root or each.startswith(root + "/")), "")
            if root and root not in self._own:
                return root
        return ""


def of_all(repo: Path, layout: Layout, config: Config, definitions: Iterable[Definition]) -> list[ForeignCode]:
    """What the gates of the settings and of these tasks take from other checkouts, each command once."""
    found = [gate for made in (Definition("none"), *definitions) for gate in gates_of(made, config)]
    gates = list({(gate.name, gate.command): gate for gate in found}.values())
    if not gates:
        return []
    places = judging_worktrees(layout)
    checkouts = Checkouts(repo, places)
    return foreign_code(gates, checkouts, places[0])


def foreign_code(
    gates: Sequence[Gate], checkouts: Checkouts, folder: Path, environ: Mapping[str, str] = os.environ
) -> list[ForeignCode]:
    """What gates that run in `folder` take from other checkouts: the first thing of each gate."""
    passed_on = {name: environ[name] for name in PASSED_ON if name in environ} | {"HOLDFAST_WORKTREE": str(folder)}
    found = []
    for gate in gates:
        commands = simple_commands(gate.command, passed_on)
        uses = (each for command in commands for each in _CommandUses(checkouts, folder, passed_on, command).all())
        if (first := next(uses, None)) is not None:
            path, how, kind = first
            shown = gate.command if isinstance(gate.command, str) else shlex.join(gate.command)
            found.append(ForeignCode(gate.name, shown, path, checkouts.other(path), how, kind=kind))
    return found


class _CommandUses:
    """One simple command. Each thing that it takes from elsewhere is a path, how it is used, and the kind of code."""

    def __init__(self, checkouts: Checkouts, folder: Path, environ: Mapping[str, str], command: SimpleCommand) -> None:
        self._other, self._command = checkouts.other, command
        self._folder = os.path.normpath(os.path.join(folder, command.folder))
        self._top = str(folder)
        activated = [os.path.dirname(path) for path in command.sourced if os.path.basename(path).startswith("activate")]
        assigned = command.variables.get("PATH", environ.get("PATH", os.defpath))
        self._path = os.pathsep.join([*(self._at(each) for each in reversed(activated)), assigned])

    def all(self) -> Iterator[tuple[str, str, str]]:
        name = self._command.words[0]
        if name == "cd":
            if self._other(self._folder + "/."):
                yield self._folder + "/.", f"runs in {self._folder}", ""
            return
        for variable, kind in _SEARCHED.items():
            for entry in filter(None, self._command.variables.get(variable, "").split(os.pathsep)):
                if self._other(self._at(entry) + "/."):
                    yield self._at(entry) + "/.", f"imports from {entry}, which lies", kind
        yield from self._of_options()
        program = self._at(name) if "/" in name else shutil.which(name, path=self._path) or ""
        if program and os.path.lexists(program):
            yield from self._of_program(program)
        if name in _NODE or "/node_modules/" in program:
            yield from self._of_node()

    def _of_options(self) -> Iterator[tuple[str, str, str]]:
        for word, value in itertools.pairwise((*self._command.words[1:], "")):
            option, is_joined, joined = word.partition("=")
            if option in _FOLDER_OPTIONS and self._other(self._at(joined if is_joined else value) + "/."):
                path = self._at(joined if is_joined else value)
                yield path + "/.", f"works with {path}, which lies", ""

    def _of_program(self, program: str) -> Iterator[tuple[str, str, str]]:
        base = os.path.basename(program)
        shebang = _interpreter(program, self._path)
        prefixes = dict.fromkeys(os.path.dirname(os.path.dirname(path)) for path in (program, shebang) if path)
        is_python = bool(_PYTHON.fullmatch(base) or _PYTHON.fullmatch(os.path.basename(shebang)))
        for prefix in prefixes:
            if is_python or os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
                for path in _linked_from(prefix):
                    if self._other(path + "/.") and not path.startswith(f"{os.path.realpath(prefix)}/"):
                        yield path + "/.", f"runs {program}, which imports the project from {path},", "python"
        is_python = is_python or any(os.path.isfile(os.path.join(prefix, "pyvenv.cfg")) for prefix in prefixes)
        kind = "python" if is_python else "node" if "/node_modules/" in program else ""
        for path in filter(None, (program, shebang)):
            if self._other(path):
                yield path, f"runs {path}, which lies", kind
        if _INTERPRETERS.fullmatch(base):
            script = next((word for word in self._command.words[1:] if not word.startswith("-")), "")
            # `python -m module`: what follows is no script.
            is_file = script and "-m" not in self._command.words[1 : self._command.words.index(script)]
            if is_file and "/" in script and self._other(self._at(script)):
                yield self._at(script), f"runs {script}, which lies", ""

    def _of_node(self) -> Iterator[tuple[str, str, str]]:
        """Links in node_modules lead to packages of another checkout, where that is linked or was copied."""
        for top in dict.fromkeys((self._folder, self._top)):
            modules = os.path.join(top, "node_modules")
            if self._other(os.path.join(modules, ".")):
                yield os.path.join(modules, "."), f"uses {modules}, a link to what lies", "node"
            for path in _links(modules):
                target = os.path.realpath(path)
                if self._other(target):
                    yield target, f"imports {target} through {path}, which lies", "node"

    def _at(self, path: str) -> str:
        return os.path.normpath(os.path.join(self._folder, path))


# -- reading ----------------------------------------------------------------------------------------------------------


def _read(path: str) -> str:
    with contextlib.suppress(OSError, ValueError):
        return plain.read(Path(os.path.realpath(path)), FILE_BYTES_MAX).decode(errors="replace")
    return ""


def _interpreter(program: str, path: str) -> str:
    """The interpreter that the program's first line names; empty where there is none."""
    try:
        with plain.opened(Path(os.path.realpath(program))) as file:
            line = file.readline(LINE_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""
    words = line.removeprefix("#!").split() if line.startswith("#!") else []
    if words and os.path.basename(words[0]) == "env":
        names = [word for word in words[1:] if not word.startswith("-")]
        return (shutil.which(names[0], path=path) or "") if names else ""
    return words[0] if words and os.path.isabs(words[0]) else ""


def _sites(prefix: str) -> tuple[str, ...]:
    tops = [prefix, os.path.join(prefix, "local")]
    if not os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
        # Outside of an environment, what the user installed for themselves counts, too.
        tops.append(os.path.expanduser("~/.local"))
    found = (path for top in tops for path in sorted(Path(top).glob("lib*/python3*")))
    return tuple(str(path / name) for path in found for name in ("site-packages", "dist-packages"))


def _linked_from(prefix: str) -> Iterator[str]:
    """The folders elsewhere from which an environment imports: editable installs of every kind."""
    for site in _sites(prefix):
        names = _names(site)
        for name in names:
            path = os.path.join(site, name)
            if name.endswith((".pth", ".egg-link")):
                lines = (line.strip() for line in _read(path).splitlines())
                yield from (line for line in lines if os.path.isabs(line))
            elif name.startswith("__editable__") and name.endswith(".py"):
                yield from _QUOTED.findall(_read(path))
            elif name.endswith(".dist-info"):
                yield from _editable(os.path.join(path, "direct_url.json"))


def _editable(path: str) -> Iterator[str]:
    with contextlib.suppress(msgspec.DecodeError, ValueError):
        found = msgspec.json.decode(_read(path) or "{}", type=dict[str, object])
        place, where = found.get("dir_info"), urlsplit(str(found.get("url", "")))
        if isinstance(place, dict) and place.get("editable") and where.scheme == "file":
            yield unquote(where.path)


def _names(folder: str) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        return sorted(entry.name for entry in itertools.islice(found, ENTRIES_MAX))
    return []


def _links(modules: str) -> Iterator[str]:
    for name in _names(modules):
        path = os.path.join(modules, name)
        for each in (os.path.join(path, inner) for inner in _names(path)) if name.startswith("@") else (path,):
            if os.path.islink(each):
                yield each
