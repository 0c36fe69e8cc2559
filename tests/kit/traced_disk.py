"""A power cut under real programs: strace notes what they, and every git that they start, do to a folder; then the
folder is built anew as a cut at any moment could have left it.

- Content that was not synced is gone ("lost": the file is empty, or as long as its last sync made it) or half there
  ("torn"); a file's name says nothing about its content.
- "unnamed": a name that was made, moved or removed since its folder was last synced is as it was before.
- `syncfs` makes all of it certain, `fsync` and `fdatasync` a file's content or a folder's names. A name in a folder
  that was made is certain only once the folder's own name is.

What the calls add up to is compared with what the program left, so that a call that is not understood is seen.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from holdfast import identity

Variant = Literal["lost", "torn", "unnamed"]
VARIANTS: tuple[Variant, ...] = ("lost", "torn", "unnamed")
_CALLS = (
    "openat,open,creat,write,pwrite64,ftruncate,fsync,fdatasync,syncfs,rename,renameat,renameat2,link,linkat,unlink,"
    "unlinkat,mkdir,mkdirat,rmdir,chdir"
)
_LINE = re.compile(r"^(?P<pid>\d+) +(?P<call>\w+)\((?P<args>.*)\) += (?P<code>-?\d+)")
_UNFINISHED = re.compile(r"^(?P<pid>\d+) +(?P<begin>\w+\(.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(?P<pid>\d+) +<\.\.\. \w+ resumed>(?P<rest>.*)$")
_CWD = re.compile(r"AT_FDCWD<([^>]*)>")
_DATA = re.compile(r'^\d+<[^>]*>, "((?:[^"\\]|\\.)*)"(?:, (\d+)(?:, (\d+))?)?')
_FD = re.compile(r"^(\d+)<([^>]*)>")
_PATHS = re.compile(r'(?:(AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')


@dataclass(eq=False)
class Node:
    """One file: what programs read in it, and what the disk has of it for sure."""

    content: bytes = b""
    synced: bytes = b""


@dataclass
class Moment:
    """What is on the disk behind one call. `names`: what programs see; `certain`: what the disk has for sure."""

    call: str
    # What the program had said by then.
    acknowledged: str
    names: dict[str, Node]
    certain: dict[str, Node]
    contents: dict[Node, tuple[bytes, bytes]]
    # Names that were removed.
    gone: frozenset[str]
    # Folders that were made, and those of them whose names are not certain.
    folders: frozenset[str] = frozenset()
    uncertain: frozenset[str] = frozenset()
    is_said: bool = False

    def unsynced(self) -> list[str]:
        return [path for path, node in self.names.items() if self.contents[node][0] != self.contents[node][1]]

    @property
    def name(self) -> str:
        """The system call."""
        return self.call.split("(")[0].split()[-1]

    def left(self, variant: Variant) -> dict[str, bytes]:
        """What the cut leaves of each file that the program touched and that still has a name."""
        found = {}
        for path, node in (self.certain if variant == "unnamed" else self.names).items():
            content, kept = self.contents[node]
            if variant == "torn" and content != kept:
                kept = content[: (len(kept) + len(content)) // 2]
            found[path] = kept
        return found


@dataclass
class Traced:
    """`base` is the folder as it was before, `final` as the program left it; `top` is its place."""

    base: Path
    final: Path
    top: Path
    moments: list[Moment] = field(default_factory=list)

    def build(self, moment: Moment, variant: Variant) -> list[str]:
        """Puts what the cut left in the folder's place; returns the names of files that lost content or their name."""
        folder = self.top
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.base, folder, symlinks=True)
        left = moment.left(variant)
        for path in moment.folders:
            if variant != "unnamed" or not _is_at_or_below(path, moment.uncertain):
                (folder / path).mkdir(parents=True, exist_ok=True)
        for path in [each for each in {*moment.names, *moment.certain, *moment.gone} if each not in left]:
            (folder / path).unlink(missing_ok=True)
        for path, kept in left.items():
            target = folder / path
            mode = target.stat().st_mode if target.is_file() else 0o644
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.write_bytes(kept)
            target.chmod(mode)
        seen = {path: moment.contents[node][0] for path, node in moment.names.items()}
        return sorted(path for path in {*seen, *left} if seen.get(path) != left.get(path))

    def boot(self) -> None:
        """The machine was started anew: files and names that have the boot's id are of another. (The journal has it
        nowhere.)"""
        now = identity.boot_id()
        other = now.translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))
        found = [Path(parent, name) for parent, *names in os.walk(self.top) for name in itertools.chain(*names)]
        # What is deepest first: a folder's own name changes last.
        for path in sorted(found, key=lambda each: -len(each.parts)):
            if path.is_file() and not path.is_symlink() and now.encode() in (content := path.read_bytes()):
                path.write_bytes(content.replace(now.encode(), other.encode()))
            if now[:8] in path.name:
                path.rename(path.with_name(path.name.replace(now, other).replace(now[:8], other[:8])))

    def cuts(self) -> list[tuple[Moment, Variant]]:
        """The moments at which most can be lost, and those at which something was said; each different disk once.

        Between two syncs nothing becomes certain, so the moment before the second has all that is at risk.
        """
        ends = {"fsync", "fdatasync", "syncfs"}
        found: dict[int, tuple[Moment, Variant]] = {}
        for moment, after in zip(self.moments, [*self.moments[1:], None], strict=True):
            if after is None or after.name in ends or after.acknowledged != moment.acknowledged or moment.is_said:
                for variant in VARIANTS:
                    folders = moment.folders, moment.uncertain if variant == "unnamed" else None
                    files = frozenset(moment.left(variant).items())
                    disk = hash((moment.acknowledged, files, folders, moment.gone))
                    found.setdefault(disk, (moment, variant))
        return list(found.values())

    def differences(self) -> list[str]:
        """Files that the program left otherwise than the calls say."""
        last, files = self.moments[-1], {}
        for folder in (self.base, self.final):
            paths = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
            files[folder] = {str(path.relative_to(folder)): path for path in paths}
        told = {path: each.read_bytes() for path, each in files[self.base].items() if path not in last.gone}
        told |= {path: last.contents[node][0] for path, node in last.names.items()}
        left = {path: each.read_bytes() for path, each in files[self.final].items()}
        return sorted(path for path in {*told, *left} if told.get(path) != left.get(path))


def trace(command: Sequence[str], top: Path, base: Path, env: dict[str, str]) -> Traced:
    """Runs the command on `top`, of which `base` becomes a copy; each write to its standard output acknowledges."""
    shutil.copytree(top, base, symlinks=True)
    log = base.parent / f"{base.name}.strace"
    tracing = ["strace", "-f", "-y", "-s", str(1 << 24), "-o", str(log), "-e", f"trace={_CALLS}"]
    done = subprocess.run([*tracing, *command], cwd=top, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    final = base.parent / f"{base.name}-final"
    disk = _Disk(Traced(base, final, top))
    for line in _whole_lines(log.read_text(errors="replace").splitlines()):
        disk.take(line)
    top.rename(final)
    assert disk.traced.differences() == [], "calls of the program were missed"
    return disk.traced


def _whole_lines(lines: Sequence[str]) -> list[str]:
    """Calls that another process's calls came between are one line again, where they ended."""
    begun: dict[str, str] = {}
    found = []
    for line in lines:
        if unfinished := _UNFINISHED.match(line):
            begun[unfinished["pid"]] = unfinished["begin"]
        elif resumed := _RESUMED.match(line):
            found.append(f"{resumed['pid']} {begun.pop(resumed['pid'], '')}{resumed['rest'].lstrip()}")
        else:
            found.append(line)
    return found


class _Disk:
    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        self.names: dict[str, Node] = {}
        self.certain: dict[str, Node] = {}
        self.gone: set[str] = set()
        self.folders: set[str] = set()
        # Folders that were made or moved, whose names are not certain yet: where they were before.
        self._folders: dict[str, str | None] = {}
        self._folders_gone: set[str] = set()
        self._cwd: dict[str, str] = {}
        self._acknowledged = ""
        # The program itself; what it starts writes to pipes of its own.
        self._first = ""

    def take(self, line: str) -> None:
        found = _LINE.match(line)
        if found is None or int(found["code"]) < 0:
            return
        pid, call, args, code = found["pid"], found["call"], found["args"], int(found["code"])
        if cwd := _CWD.search(args):
            self._cwd[pid] = cwd[1]
        is_named = call not in ("write", "pwrite64")
        found_paths = _PATHS.finditer(args) if is_named else ()
        paths = [path for each in found_paths if (path := self._inside(pid, each)) is not None]
        fd = _FD.match(args)
        if call == "chdir" and (words := _PATHS.search(args)):
            self._cwd[pid] = str(Path(self._cwd.get(pid, str(self.traced.top)), words[3]))
            return
        self._first = self._first or pid
        is_said = call == "write" and fd is not None and fd[1] == "1" and pid == self._first
        if is_said:
            self._acknowledged += _written(args).decode()
        elif not self._change(call, args, code, paths, self._relative(fd[2]) if fd else None):
            return
        contents = {node: (node.content, node.synced) for node in (*self.names.values(), *self.certain.values())}
        certain = {path: node for path, node in self.certain.items() if not _is_at_or_below(path, self._folders)}
        moment = Moment(
            line[:200], self._acknowledged, dict(self.names), certain, contents, frozenset(self.gone),
            frozenset(self.folders), frozenset(self._folders), is_said,
        )  # fmt: skip
        self.traced.moments.append(moment)

    def _change(self, call: str, args: str, code: int, paths: list[str], at: str | None) -> bool:
        if call in ("openat", "open", "creat"):
            if not paths or "O_CREAT" not in args or "O_DIRECTORY" in args:
                return False
            node = self._node(paths[0])
            if node is None:
                self.names[paths[0]] = Node()
            elif "O_TRUNC" in args and node.content:
                node.content = b""
            else:
                return False
            return True
        if call.startswith("mkdir") and paths:
            self._folders[paths[0]] = None
            self.folders.add(paths[0])
            return False
        if call == "rmdir" or (call == "unlinkat" and "AT_REMOVEDIR" in args):
            for path in paths:
                self._folders.pop(path, None)
            self.folders.difference_update(paths)
            self._folders_gone.update(paths)
            return False
        if call in ("write", "pwrite64"):
            node = self._node(at) if at is not None else None
            if node is None:
                return False
            written, data = _DATA.match(args), _written(args)[:code]
            assert written is not None
            at_byte = int(written[3]) if call == "pwrite64" and written[3] else len(node.content)
            node.content = node.content[:at_byte].ljust(at_byte, bytes(1)) + data + node.content[at_byte + len(data) :]
            return True
        if call == "ftruncate":
            node = self._node(at) if at is not None else None
            if node is not None:
                node.content = node.content[: int(args.rpartition(", ")[2])]
            return node is not None
        if call in ("fsync", "fdatasync"):
            if at is None:
                return False
            if at == "." or (self.traced.top / at).is_dir():
                self._settle({at})
            elif (node := self._node(at)) is not None:
                node.synced = node.content
            return True
        if call == "syncfs":
            if at is None:
                return False
            for node in self.names.values():
                node.synced = node.content
            self._settle(None)
            return True
        if call.startswith("rename") and len(paths) == 2:
            if (self.traced.top / paths[1]).is_dir() or any(each.startswith(f"{paths[0]}/") for each in self._all()):
                return self._move_folder(*paths)
            node, _ = self._node(paths[0]), self._node(paths[1])
            self._remove(paths[0])
            if node is not None:
                self.names[paths[1]] = node
            return node is not None
        if call.startswith("link") and len(paths) == 2:
            node = self._node(paths[0])
            if node is not None:
                self.names[paths[1]] = node
            return node is not None
        if call.startswith("unlink") and paths:
            self._remove(paths[0])
            return True
        return False

    def _all(self) -> set[str]:
        """Every file that programs see, touched or not."""
        top = self.traced.base
        before = (str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())
        return {*self.names, *(path for path in before if path not in self.gone)}

    def _move_folder(self, old: str, new: str) -> bool:
        for path in [each for each in self._all() if each.startswith(f"{old}/")]:
            node = self._node(path)
            assert node is not None
            self._remove(path)
            self.names[new + path.removeprefix(old)] = node
        self.folders = {new + each.removeprefix(old) if _is_at_or_below(each, {old}) else each for each in self.folders}
        self._folders[new] = self._folders.pop(old, old)
        return True

    def _settle(self, folders: set[str] | None) -> None:
        """The names of these folders, or of all, are certain from now on."""
        for folder in list(self._folders):
            before = self._folders[folder]
            if folders is None or str(Path(folder).parent) in folders:
                del self._folders[folder]
                moved = [path for path in self.certain if before and path.startswith(f"{before}/")]
                for path in moved:
                    self.certain[folder + path.removeprefix(str(before))] = self.certain.pop(path)
        for folder in list(self._folders_gone):
            if folders is None or str(Path(folder).parent) in folders:
                self._folders_gone.discard(folder)
                for path in [each for each in self.certain if each.startswith(f"{folder}/") and each not in self.names]:
                    del self.certain[path]
        for path in {*self.names, *self.certain}:
            if folders is None or str(Path(path).parent) in folders:
                if path in self.names:
                    self.certain[path] = self.names[path]
                else:
                    self.certain.pop(path, None)

    def _remove(self, path: str) -> None:
        self._node(path)
        self.names.pop(path, None)
        self.gone.add(path)

    def _node(self, path: str) -> Node | None:
        """The file of this name; one that was there before the program is certain."""
        if path not in self.names and path not in self.gone and (before := self.traced.base / path).is_file():
            self.names[path] = self.certain[path] = Node(before.read_bytes(), before.read_bytes())
        return self.names.get(path)

    def _inside(self, pid: str, found: re.Match[str]) -> str | None:
        folder = found[2] or self._cwd.get(pid, str(self.traced.top))
        return self._relative(str(Path(folder, found[3])))

    def _relative(self, path: str) -> str | None:
        try:
            return str(Path(path.removesuffix(" (deleted)")).relative_to(self.traced.top))
        except ValueError:
            return None


def _written(args: str) -> bytes:
    """What a `write` wrote."""
    found = _DATA.match(args)
    assert found is not None, args[:200]
    return found[1].encode("latin-1", "replace").decode("unicode_escape").encode("latin-1")


def _is_at_or_below(path: str, folders: Collection[str]) -> bool:
    return path in folders or any(str(folder) in folders for folder in Path(path).parents)
