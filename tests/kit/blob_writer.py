"""Puts blobs until it is killed: `python tests/kit/blob_writer.py <cas folder> <seed> [count]`.

Each digest is printed, flushed, on a line of its own after its put returned: what stands on a whole line was
acknowledged. Some contents are drawn from a small pool that all seeds share, so that writers meet on the same blobs.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast.storage.records.blobs import Blobs, NewBlob


def content(chance: random.Random) -> bytes:
    if chance.random() < 0.3:
        return b"shared %d\n" % chance.randrange(20) * 50
    return chance.randbytes(chance.choice([0, 1, 300, 5_000, 200_000]))


def write(folder: Path, seed: int) -> Iterator[str]:
    """Yields each digest once it is acknowledged."""
    chance = random.Random(seed)
    blobs = Blobs(folder)
    while True:
        match chance.randrange(2):
            case 0:
                yield blobs.put(content(chance), content_type="text/plain", metadata={"seed": str(seed)})
            case _:
                many = [content(chance) for _ in range(chance.randrange(1, 12))]
                yield from blobs.put_many(
                    [many[0], *(NewBlob(data, metadata={"seed": str(seed)}) for data in many[1:])]
                )


def main(folder: str, seed: str, count: str = "1000000000") -> None:
    for _, digest in zip(range(int(count)), write(Path(folder), int(seed)), strict=False):
        print(digest, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
