"""A power cut under real programs: strace notes what they, and every git that they start, do to a folder; then the
folder is built anew as a cut at any moment could have left it.

- Content that was not synced is gone ("lost": the file is empty, or as long as its last sync made it) or half there
  ("torn"); a file's name says nothing about its content.
- "unnamed": a name that was made, moved or removed since its folder was last synced is as it was before.
- `syncfs` makes all of it certain, `fsync` and `fdatasync` a file's content or a folder's names.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Variant = Literal["lost", "torn", "unnamed"]
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
    acknowledged: int
    names: dict[str, Node]
    certain: dict[str, Node]
    contents: dict[Node, tuple[bytes, bytes]]
    # Names that were removed.
    gone: frozenset[str]

    def unsynced(self) -> list[str]:
        return [path for path, node in self.names.items() if self.contents[node][0] != self.contents[node][1]]


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
        names = moment.certain if variant == "unnamed" else moment.names
        lost = [path for path in moment.names if moment.certain.get(path) is not moment.names[path]]
        dropped = lost if variant == "unnamed" else []
        for path in [each for each in {*moment.names, *moment.certain, *moment.gone} if each not in names]:
            (folder / path).unlink(missing_ok=True)
        for path, node in names.items():
            content, kept = moment.contents[node]
            if variant == "torn" and content != kept:
                kept = content[: (len(kept) + len(content)) // 2]
            if variant != "unnamed" and kept != content:
                dropped.append(path)
            target = folder / path
            mode = target.stat().st_mode if target.is_file() else 0o644
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.write_bytes(kept)
            target.chmod(mode)
        return dropped


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
        self._cwd: dict[str, str] = {}
        self._acknowledged = 0
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
        if call == "write" and fd and fd[1] == "1" and pid == self._first:
            self._acknowledged += 1
        elif not self._change(call, args, code, paths, self._relative(fd[2]) if fd else None):
            return
        contents = {node: (node.content, node.synced) for node in (*self.names.values(), *self.certain.values())}
        moment = Moment(
            line[:200], self._acknowledged, dict(self.names), dict(self.certain), contents, frozenset(self.gone)
        )
        self.traced.moments.append(moment)

    def _change(self, call: str, args: str, code: int, paths: list[str], at: str | None) -> bool:
        if call in ("openat", "open", "creat"):
            if not paths or "O_CREAT" not in args or "O_DIRECTORY" in args:
                return False
            if self._node(paths[0]) is None:
                self.names[paths[0]] = Node()
                return True
            return False
        if call in ("write", "pwrite64"):
            node = self._node(at) if at is not None else None
            if node is None:
                return False
            written = _DATA.match(args)
            assert written is not None, args[:200]
            data = written[1].encode("latin-1", "replace").decode("unicode_escape").encode("latin-1")[:code]
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
            for node in self.names.values():
                node.synced = node.content
            self._settle(None)
            return True
        if call.startswith("rename") and len(paths) == 2:
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

    def _settle(self, folders: set[str] | None) -> None:
        """The names of these folders, or of all, are certain from now on."""
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
