"""Measures the way of a task: runs one `command:` task from its YAML file to closed, and prints what its code passes.

    python tools/walk.py [--order]

The orchestrator and its runner are profiled, once with the task and once with an empty backlog. A file is on the task's
way where a function of it is entered for the task and not in the empty run; the others that are entered open and close
the run. Its lines are those of the whole file; `passed` are those of its functions that are entered. Not counted: what
runs while a module is imported, and what only the command line asks.

`WALK` are the rooms that a reader of the way reads; all others are mechanisms, known by what they promise. The order is
that in which their modules on the way are first entered, constructors aside. A jump back is a call between two of them
of a function that was not entered before and stands in a module that comes earlier: a reader who follows that order has
to turn back. Calls of `SHARED` and of `domain/` are none: they are the objects and the words that every step has in its
hands. `--order` prints the functions in the order of their first entries.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

import rooms

PACKAGE = rooms.SOURCE / "holdfast"
SHARED = ("engine.context", "engine.board", "engine.effects", "ledgers.files")
WALK = ("wiring", "orchestrator", "backlog", "ledgers", "engine", "agents.runner", "landing", "domain")
TASK = "id: first\ntitle: Write a file\ncommand: echo 1 > one.txt\nverify: [{command: test -f one.txt}]\n"
SETTINGS = "sandbox: none\nserver:\n  enabled: false\n"
# Loaded by every Python that is started with its folder in PYTHONPATH; writes each pair of caller and function once.
HOOK = """
import json, os, sys, threading, time
_package, _seen = os.environ["WALK_PACKAGE"], set()
_file = os.open(os.environ["WALK_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)

def _name(code):
    return code.co_filename, code.co_firstlineno, max(line for *_, line in code.co_lines() if line), code.co_qualname

def _is_ours(code):
    return code.co_filename.startswith(_package) and code.co_flags & 2 and code.co_name != "<module>"

def _profile(frame, event, _):
    if event == "call" and _is_ours(frame.f_code):
        if frame.f_code.co_qualname == "run_context":
            _seen.clear()  # what was called before is called again for the task
        caller = frame.f_back
        while caller is not None and not _is_ours(caller.f_code):
            if caller.f_code.co_name == "<module>" and caller.f_globals["__name__"].startswith("holdfast."):
                return
            caller = caller.f_back
        pair = caller and caller.f_code, frame.f_code
        if pair not in _seen:
            _seen.add(pair)
            names = [time.monotonic(), pair[0] and _name(pair[0]), _name(pair[1])]
            os.write(_file, json.dumps(names).encode() + b"\\n")

threading.setprofile(_profile)
sys.setprofile(_profile)
"""


class Function(msgspec.Struct, frozen=True):
    """`module` is its name below the package; nested functions and comprehensions are within their function's lines."""

    module: str
    name: str
    first: int
    last: int

    @property
    def room(self) -> str:
        return "wiring" if self.module == "wiring" else rooms.room_of(f"holdfast.{self.module}")


Calls = list[tuple[Function | None, Function]]


def recorded(files: dict[str, str]) -> Calls:
    """Each pair of caller and function of one run, from `run_context` on, in the order of their first calls."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        repo, trace = folder / "repo", folder / "trace"
        repo.mkdir()
        (folder / "sitecustomize.py").write_text(HOOK)
        who = {f"GIT_{role}_{what}": "walker" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        env = {"HOME": str(folder), "PATH": os.environ["PATH"], **who}
        hook = {"PYTHONPATH": f"{folder}:{rooms.SOURCE}", "WALK_PACKAGE": f"{PACKAGE}/", "WALK_FILE": str(trace)}
        holdfast = (sys.executable, "-m", "holdfast")
        start = ("git", "commit", "-q", "--allow-empty", "-m", "start")
        for words in (("git", "init", "-q", "-b", "main"), start, (*holdfast, "init")):
            subprocess.run(words, cwd=repo, env=env, check=True, capture_output=True)
        (repo / ".sdd/config/settings.yaml").write_text(SETTINGS)
        for name, text in files.items():
            (repo / ".sdd/backlog/open" / name).write_text(text)
        subprocess.run((*holdfast, "run", "--plain"), cwd=repo, env=env | hook, check=True, capture_output=True)
        assert all((repo / ".sdd/backlog/closed" / name).exists() for name in files), "a task was not closed"
        lines = sorted(map(json.loads, trace.read_text().splitlines()), key=lambda line: line[0])
    calls = [(_function(*caller) if caller else None, _function(*called)) for _, caller, called in lines]
    begin = next(number for number, (_, called) in enumerate(calls) if called.name == "run_context")
    # The command line begins the run; what else it asks is for its screen.
    return [pair for pair in calls[begin:] if not pair[0] or pair[0].room != "cli" or pair[1].room in WALK[:2]]


def _function(path: str, first: int, last: int, name: str) -> Function:
    return Function(".".join(Path(path).relative_to(PACKAGE).with_suffix("").parts), name, first, last)


def jumps_back(calls: Calls) -> Iterator[str]:
    order: list[str] = []
    known: set[Function] = set()
    for caller, called in calls:
        if called in known or "__init__" in called.name:
            continue
        known.add(called)
        if called.module not in order:
            order.append(called.module)
        elif caller is not None and caller.module in order[order.index(called.module) + 1 :]:
            yield f"back: {caller.module}:{caller.name} -> {called.module}:{called.name}"


def main(arguments: Sequence[str]) -> int:
    calls, empty = recorded({"first.yaml": TASK}), {called for _, called in recorded({})}
    functions = list(dict.fromkeys(called for _, called in calls))
    modules = list(dict.fromkeys(each.module for each in functions))
    on_way = {each.module for each in functions if each not in empty} | {"wiring"}
    passed: dict[str, set[int]] = {module: set() for module in modules}
    for each in functions:
        passed[each.module].update(range(each.first, each.last + 1))
    paths = {name: PACKAGE / f"{name.replace('.', '/')}.py" for name in modules}
    size = {name: len(path.read_text().splitlines()) for name, path in paths.items()}
    room_of = {each.module: each.room for each in functions}
    if "--order" in arguments:
        print(*(f"{each.module}:{each.name}" for each in functions if each.room in WALK), sep="\n")
    for module in modules:
        if module in on_way and room_of[module] in WALK:
            print(f"  {module:30} {size[module]:5} {len(passed[module]):5}")
    known = [*WALK, *sorted({room for room in room_of.values() if room not in WALK})]
    totals = [("the walk", WALK), ("mechanisms", known[len(WALK) :]), ("all", known)]
    print(f"{'':18} on the way: files  lines passed   of the run: files  lines passed")
    for title, names in [*((name, (name,)) for name in known), *totals]:
        inside = [module for module in modules if room_of[module] in names]
        line = f"{title:18}"
        for part in ([name for name in inside if name in on_way], [name for name in inside if name not in on_way]):
            line += f" {len(part):17} {sum(map(size.get, part)):6} {sum(len(passed[name]) for name in part):6}"
        print(line)
    steps = {name for name in on_way if room_of[name] in WALK and room_of[name] != "domain"} - set(SHARED)
    back = list(jumps_back([pair for pair in calls if pair[1].module in steps]))
    print(f"jumps back: {len(back)}", *back, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
