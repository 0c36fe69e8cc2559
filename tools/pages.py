"""Pages of prose with places for what is generated:

    <!-- generated: task diagram -->
    …
    <!-- end -->

Everything between the two lines is replaced; the prose around them is left alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from holdfast.storage.files import disk

PLACE = re.compile(r"(?P<begin><!-- generated: (?P<name>[^\n]+) -->\n)(?P<old>.*?)(?P<end><!-- end -->\n)", re.DOTALL)


def update(page: Path, render: Callable[[str], str], source: str, arguments: Sequence[str]) -> int:
    """Writes the page anew. With `--check` nothing is written, and the exit code says whether it is up to date."""
    old = page.read_text()
    new = render(old)
    if new == old:
        return 0
    if "--check" in arguments:
        print(f"{page} is not what the {source} say; run `make docs`", file=sys.stderr)
        return 1
    disk.replace(page, new.encode())
    print(f"{page} written")
    return 0


def fill(page: str, wanted: Collection[str], part_of: Callable[[str], str | None]) -> str:
    """The page with every generated part made anew; one that is None stays as it is.

    Each part must have its place, and each place its part.
    """
    found = [place["name"] for place in PLACE.finditer(page)]
    if sorted(found) != sorted(wanted):
        sys.exit(f"The page has places for {sorted(found)}, and {sorted(wanted)} are generated. Nothing was written.")

    def filled(place: re.Match[str]) -> str:
        part = part_of(place["name"])
        return place["begin"] + (place["old"] if part is None else f"\n{part}\n") + place["end"]

    return PLACE.sub(filled, page)
