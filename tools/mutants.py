"""Mutation testing: changes the code in small ways, and counts how many of the changes a test notices.

mutmut makes the mutants, of function bodies only: tables and records at the top of a module are not changed. It works
in a copy below build/, so nothing is left in the source. For each part it runs the fast tests of that part, and for
each mutant only those that reach the changed function. All mutants of all parts take hours: by default a sample is
tried, the same for the same seed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

TOP = Path(__file__).parent.parent
PLACE = TOP / "build" / "mutants"
# For each part: the files that are changed, and the tests that are to notice it.
PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "domain": (("src/holdfast/domain/*",), ("tests/domain", "tests/engine/test_plan.py", "tests/engine/test_board.py")),
    "journal": (("src/holdfast/storage/journal/*",), ("tests/storage/journal", "tests/ledgers/test_files.py")),
    "landing": (
        ("src/holdfast/landing/*", "src/holdfast/engine/landing.py"),
        (
            "tests/engine/test_landing.py",
            *(
                f"tests/landing/test_{name}.py"
                for name in ("branch", "gate_results", "lost_landings", "refresh", "verify")
            ),
        ),
    ),
    "effects": (("src/holdfast/engine/effects.py",), ("tests/engine/test_effects.py",)),
    "auth": (("src/holdfast/server/access/auth.py",), ("tests/server/test_auth.py",)),
}
BESIDE = ("tests", "tools", "docs", "ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "pyproject.toml")
SETTINGS = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = {files}
also_copy = {beside}
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-m", "{marks}", "-p", "no:xdist", "--timeout", "60"]
# A mutant's process begins where no test has run yet: what an earlier test had cached would hide the change.
process_isolation = "forkserver"
timeout_multiplier = 4.0
timeout_constant = 2.0
"""
# The property tests of the journal and of landing take too long to be run for every mutant.
MARKS, MARKS_ELSEWHERE = {"domain": "not heavy and not crash"}, "not heavy and not crash and not fuzz"
# How mutmut calls what became of a mutant.
KINDS = {"killed": {1, 3}, "timed out": {-24, 24, 36, 152, 255}, "survived": {0}, "unreached": {5, 33}}
LEFT_OUT = 34
MATCHES_NONE = "-"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=100, help="mutants to try of each part; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--time", type=float, default=0, help="seconds that each part may take; 0: as long as it does")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this one; may be given again")
    parser.add_argument("--show", action="store_true", help="print each change that no test noticed")
    asked = parser.parse_args(arguments)
    for part in asked.part or PARTS:
        began = time.monotonic()
        copy = prepare(part)
        chosen, known = choose(copy, asked.sample, asked.seed)
        run(copy, timeout_s=asked.time or None)
        report(part, copy, chosen, known, time.monotonic() - began, asked)
    return 0


def prepare(part: str) -> Path:
    """A copy of the source and its tests, with the mutants of this part and what mutmut knows of the tests."""
    copy = PLACE / part
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    # All but src for mutmut's own copy: some tests hold the documents against the code.
    for name in ("src", *BESIDE):
        source = TOP / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
    files, tests = PARTS[part]
    settings = SETTINGS.format(
        files=json.dumps(files),
        tests=json.dumps(tests),
        beside=json.dumps(BESIDE),
        marks=MARKS.get(part, MARKS_ELSEWHERE),
    )
    (copy / "pyproject.toml").write_text((TOP / "pyproject.toml").read_text() + settings)
    # With a name that no mutant has, mutmut makes them all, finds out which test reaches which function, and ends.
    run(copy, MATCHES_NONE)
    if "nothing matches" not in (copy / "log").read_text():
        print((copy / "log").read_text()[-3000:], file=sys.stderr)
        raise SystemExit(f"mutmut cannot run the tests of {part}: see {copy / 'log'}")
    return copy


def run(copy: Path, *names: str, timeout_s: float | None = None) -> None:
    variables = {**os.environ, "HOLDFAST_EXAMPLES": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(Path(sys.executable).parent / "mutmut"), "run", "--max-children", "2", *names]
    with (copy / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=copy, env=variables, stdout=log, stderr=log, start_new_session=True)
        try:
            process.wait(timeout_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as ended:
            process.send_signal(signal.SIGINT)
            process.wait()
            if isinstance(ended, KeyboardInterrupt):
                raise


def choose(copy: Path, sample: int, seed: int) -> tuple[list[str], int]:
    """Leaves out all mutants but a sample; returns that, and how many there are."""
    metas = sorted((copy / "mutants" / "src").rglob("*.meta"))
    names = sorted(name for meta in metas for name in json.loads(meta.read_text())["exit_code_by_key"])
    chosen = set(random.Random(seed).sample(names, min(sample or len(names), len(names))))
    for meta in metas:
        content = json.loads(meta.read_text())
        codes = content["exit_code_by_key"]
        content["exit_code_by_key"] = {name: None if name in chosen else LEFT_OUT for name in codes}
        meta.write_text(json.dumps(content))
    return sorted(chosen), len(names)


def report(part: str, copy: Path, chosen: Sequence[str], known: int, seconds: float, asked: argparse.Namespace) -> None:
    codes: dict[str, int | None] = {}
    for meta in (copy / "mutants" / "src").rglob("*.meta"):
        codes |= json.loads(meta.read_text())["exit_code_by_key"]
    by_module: dict[str, Counter[str]] = {}
    for name in chosen:
        by_module.setdefault(name.rpartition(".")[0].removeprefix("holdfast."), Counter())[judged(codes.get(name))] += 1
    total = sum(by_module.values(), Counter())
    kind = f"{len(chosen)} of {known} mutants, seed {asked.seed}" if len(chosen) < known else f"all {known} mutants"
    print(f"{part}: {score(total)}  ({kind}, {seconds:.0f} s)")
    for module, found in sorted(by_module.items()):
        print(f"    {module:<40} {score(found)}")
    for name in (name for name in chosen if asked.show and judged(codes.get(name)) in ("survived", "unreached")):
        shown = subprocess.run(
            [str(Path(sys.executable).parent / "mutmut"), "show", name], cwd=copy, capture_output=True, text=True
        ).stdout
        print("\n".join([f"  {name}: {judged(codes.get(name))}", *(f"    {line}" for line in changed(shown))]))


def judged(code: int | None) -> str:
    return "untried" if code is None else next((kind for kind, codes in KINDS.items() if code in codes), "unclear")


def score(found: Counter[str]) -> str:
    """Of those that were tried. A test that does not end has noticed; what no test reaches counts as not noticed."""
    tried, noticed = found.total() - found["untried"], found["killed"] + found["timed out"]
    rest = ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()) if kind != "killed")
    percent = f"{100 * noticed / tried:.0f} %" if tried else "-"
    return f"{percent:>5}  {noticed} of {tried} noticed" + (f" ({rest})" if rest else "")


def changed(diff: str) -> list[str]:
    return [line for line in diff.splitlines() if line[:1] in ("+", "-") and line[:3] not in ("+++", "---")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
