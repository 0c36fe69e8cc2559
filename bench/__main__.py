"""`make bench`: prints the table as it fills, and writes it to build/bench.json."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import tempfile
from pathlib import Path

from bench.harness import Row

PARTS = ("journal", "blobs", "snapshot", "tasks", "cli", "engine", "preparation", "judging", "server")
REPOSITORY = Path(__file__).parent.parent
MARK = "<!-- from `make bench ARGS=--docs` -->"


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and a smaller journal: a look, not a result")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part only")
    parser.add_argument("--docs", action="store_true", help="also put the rows into docs/benchmarks.md")
    options = parser.parse_args()
    build = REPOSITORY / "build"
    build.mkdir(exist_ok=True)
    rows: list[Row] = []
    print(line_of(HEADINGS), flush=True)
    for part in options.only or PARTS:
        # Inside the repository: a temporary folder may be in memory, where a sync costs nothing.
        with tempfile.TemporaryDirectory(prefix="bench-", dir=build) as folder:
            for row in importlib.import_module(f"bench.{part}").rows(Path(folder), quick=options.quick):
                rows.append(row)
                print(line_of(cells(row)), flush=True)
    (build / "bench.json").write_text(json.dumps([as_json(row) for row in rows], indent=2) + "\n")
    missed = [row for row in rows if not row.holds]
    print(f"\n{len(rows) - len(missed)} of {len(rows)} bars hold; written to build/bench.json")
    if options.docs:
        write_docs(rows)


HEADINGS = ("what", "ratio", "bar", "holds", "against", "measured")
WIDTHS = (52, 8, 14, 6, 42, 0)


def cells(row: Row) -> tuple[str, ...]:
    bar = f"at {'most' if row.at_most else 'least'} {row.bar:g}"
    return row.name, f"{row.ratio:.2f}", bar, "yes" if row.holds else "NO", row.reference, row.detail


def line_of(texts: tuple[str, ...]) -> str:
    return "  ".join(text.ljust(width) for text, width in zip(texts, WIDTHS, strict=True)).rstrip()


def as_json(row: Row) -> dict[str, object]:
    bar = {"name": row.name, "ratio": round(row.ratio, 3), "bar": row.bar, "holds": row.holds}
    return {**bar, "at_most": row.at_most, "reference": row.reference, "detail": row.detail}


def write_docs(rows: list[Row]) -> None:
    """Puts the rows into the table; one that was not measured this time stays as it is."""
    path = REPOSITORY / "docs" / "benchmarks.md"
    before, _, after = path.read_text().partition(MARK)
    known = {line.split(" | ")[0]: line for line in after.splitlines() if line.startswith("| ")}
    known |= {line.split(" | ")[0]: line for line in (f"| {' | '.join(cells(row))} |" for row in rows)}
    heading = f"| {' | '.join(HEADINGS)} |"
    known.pop(heading.split(" | ")[0], None)
    where = f"Python {platform.python_version()}, {platform.system()} {platform.release()}, 2 cores."
    table = [heading, "|---|---:|---|---|---|---|", *known.values()]
    path.write_text(f"{before}{MARK}\n{where}\n\n" + "\n".join(table) + "\n")


if __name__ == "__main__":
    main()
