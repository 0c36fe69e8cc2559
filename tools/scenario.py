"""Records what a fixed scenario gives: the journal, and what every command prints and exits with.

    python tools/scenario.py OUT [HOLDFAST]

`make scenario OUT=…` does that. Run it with two versions of the program and compare the two files: where nothing was to
change, they are the same. Times, hashes, pids and whatever else differs between two runs of one version is replaced by
a name; the same value has the same name throughout, so that what belongs together still does.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

SETTINGS = "sandbox: none\nmax_agents: 1\nserver:\n  enabled: false\n"
TASKS = {
    "first": "title: Write a file\nscript: |\n  say I begin.\n  write one.txt 1\n  write two.txt 2\n",
    "second": "title: Wait for the first\ndepends_on: [first]\nscript: |\n  write three.txt 3\n",
    "third": "title: Fail\nmax_attempts: 1\nverify: [{command: 'false'}]\nscript: |\n  write four.txt y\n",
    "fourth": "title: Ask first\napprove: true\nscript: |\n  write five.txt 5\n",
    "fifth": "title: Nobody wants it\nscript: |\n  write six.txt 6\n",
}
COMMANDS = """
list --json --all
list
status --json
status
show first --json
show third
history
history third
history --json
log
gates third --full
turns first --json
turns first
diff first
snapshots first --json
approve fourth
run --plain
retry third
cancel fifth
cancel nosuch
add
add --agent nosuch goal
run --plain
list --all
undo third --turn 1
fork first --turn 1 --id sixth
run --plain
resolve first --happened
promote third
costs --json
check --json
check
seal
prove 2020-01-01 1
doctor --json
prompt sixth
gc --json
log --at 1:3
run --json
check
nosuch
"""
# In this order: the first that fits names the value.
VOLATILE = [
    ("entry", r"\b\d+-20\d{6}T\d{6}Z(?::\d+ *)?"),
    ("seal", r"seal-\d{8}T[\d.]+Z"),
    # Lengths of lines and counts of what has the same content depend on how long things took.
    ("seq", r'"(?:seq|synced|offset|end_offset|bytes|traces|provenance|entries|referenced)": ?-?\d+'),
    ("count", r"(?:entries|referenced) \d+|\d+ entries"),
    ("span", r"\b\d+:\d\d(?= of work)"),
    ("time", r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"),
    ("date", r"\b20\d\d-\d\d-\d\d\b|\b20\d{6}\b"),
    ("hash", r"\b[0-9a-f]{64}\b|\b[0-9a-f]{40}\b|\b[0-9a-f]{32}\b"),
    ("uuid", r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"),
    ("short", r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,16}\b"),
    ("number", r"\b\d+\.\d+(?:e-?\d+)?\b|\b\d{4,}\b"),
    ("clock", r"\b\d\d:\d\d(?::\d\d)?\b"),
]


class Names:
    """The same value has the same name; times and numbers have one name for all, because two may happen to be equal."""

    def __init__(self, folder: Path, program: str) -> None:
        self._folder, self._venv, self._known = str(folder), str(Path(program).parent), dict[str, str]()
        self._pattern = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in VOLATILE))

    def plain(self, text: str) -> str:
        """Lines about the audit log's own notes are left out: they come whenever a day's seal is due."""
        lines = text.replace(self._folder, "FOLDER").replace(self._venv, "VENV").splitlines(keepends=True)
        return self._pattern.sub(self._name, "".join(line for line in lines if "audit_noted" not in line))

    def _name(self, found: re.Match[str]) -> str:
        kind = str(found.lastgroup)
        if kind not in ("hash", "uuid"):
            return f"<{kind}>"
        return self._known.setdefault(found[0], f"<{kind} {len(self._known)}>")


def run(folder: Path, *words: str, program: str) -> tuple[int, str]:
    who = {f"GIT_{role}_{what}": "tester" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    home = {"HOME": str(folder), "TZ": "UTC", "PATH": os.environ["PATH"], "COLUMNS": "100", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [program, *words], cwd=folder / "repo", env={**home, **who}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def recorded(folder: Path, program: str) -> Iterator[str]:
    names, repo = Names(folder, program), folder / "repo"
    repo.mkdir()
    for words in ("init -q -b main", "commit -q --allow-empty -m start"):
        run(folder, *words.split(), program="git")
    run(folder, "init", program=program)
    (repo / ".sdd" / "config" / "settings.yaml").write_text(SETTINGS)
    # One after another: of two at the same time either may be first.
    for task, text in TASKS.items():
        (repo / ".sdd" / "backlog" / "open" / f"{task}.yaml").write_text(f"id: {task}\n{text}")
        code, said = run(folder, "run", "--plain", program=program)
        yield f"$ holdfast run --plain\n{names.plain(said)}exit {code}\n"
    for line in COMMANDS.strip().splitlines():
        code, said = run(folder, *line.split(), program=program)
        yield f"$ holdfast {line}\n{names.plain(said)}exit {code}\n"
    for file in sorted((repo / ".sdd" / "runtime" / "wal").glob("*.jsonl")):
        yield f"# {names.plain(file.name)}\n"
        yield from (names.plain(line) + "\n" for line in file.read_text().splitlines())
    yield "# /openapi.json\n"
    yield from (line + "\n" for line in _document(folder, program).splitlines())


def _document(folder: Path, program: str) -> str:
    env = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    serving = subprocess.Popen(
        [program, "serve", "--json"], cwd=folder / "repo", env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert serving.stdout is not None
        found = (re.search(r"https?://[\w.:\[\]]+", line) for line in serving.stdout)
        url = next(each[0] for each in found if each)
        with contextlib.closing(urllib.request.urlopen(f"{url}/openapi.json")) as answer:
            return json.dumps(json.load(answer), indent=1, sort_keys=True)
    finally:
        serving.terminate()
        serving.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        text = "".join(recorded(Path(place).resolve(), sys.argv[2] if len(sys.argv) > 2 else "holdfast"))
    with open(sys.argv[1], "w") as out:
        out.write(text)
