"""Blobs: what a batch saves over single puts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Row, alternate, seconds
from holdfast.storage.records.blobs import Blobs

COUNT = 64


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    store = Blobs(folder / "cas")
    # Every two-digit folder is made before anything is measured.
    store.put_many([b"%d" % number for number in range(3000)])

    def singly() -> float:
        contents = [os.urandom(300) for _ in range(COUNT)]
        return COUNT / seconds(lambda: [store.put(content) for content in contents])

    def together() -> float:
        contents = [os.urandom(300) for _ in range(COUNT)]
        return COUNT / seconds(lambda: store.put_many(contents))

    ratio, mine, theirs = alternate(together, singly, 3 if quick else 15)
    detail = f"{mine:,.0f}/s against {theirs:,.0f}/s"
    yield Row(f"put_many of {COUNT} small blobs", f"{COUNT} single puts", ratio, 2.5, False, detail)
