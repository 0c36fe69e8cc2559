"""Merkle trees in the shape of RFC 6962, as pure functions without I/O.

    leaf = SHA-256(0x00 || data)          node = SHA-256(0x01 || left || right)

The first byte keeps the two apart, so that an inner node can never be passed off as a leaf. A tree of n leaves splits
at the largest power of two below n; no leaf is ever doubled, so two different lists never share a root. The tree of no
leaves is SHA-256 of nothing.

A root does not say how many leaves it has: the checker of a path must have the count from a source that it trusts as
much as the root. (An audit seal commits to the number of records inside each day's leaf.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from holdfast.errors import ProofInvalid


def leaf_hash(data: bytes) -> bytes:
    return hashlib.sha256(b"\0" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


class MerkleTree:
    """Grows leaf by leaf in constant memory: it keeps only the roots of its full subtrees, largest first.

    With `watch`, it also collects the path of that one leaf while it grows.
    """

    def __init__(self, watch: int = -1) -> None:
        self.count = 0
        self._peaks: list[tuple[bytes, int]] = []
        self._watch = watch
        self._path: list[bytes] = []

    def add(self, data: bytes) -> None:
        right, size = leaf_hash(data), 1
        self.count += 1
        while self._peaks and self._peaks[-1][1] == size:
            left, _ = self._peaks.pop()
            if self._watch >= 0:
                self._path += _sibling(
                    self._watch, self.count - 2 * size, self.count - size, self.count, left, right=right
                )
            right, size = node_hash(left, right), 2 * size
        self._peaks.append((right, size))

    def root(self) -> bytes:
        return self._fold()[0]

    def path(self) -> list[bytes]:
        """The siblings of the watched leaf, from the bottom up."""
        if not 0 <= self._watch < self.count:
            raise IndexError(f"a tree of {self.count} leaves has no leaf {self._watch}")
        return self._path + self._fold()[1]

    def _fold(self) -> tuple[bytes, list[bytes]]:
        if not self._peaks:
            return hashlib.sha256().digest(), []
        path: list[bytes] = []
        right, size = self._peaks[-1]
        middle = self.count - size
        for left, size in reversed(self._peaks[:-1]):
            start = middle - size
            path += _sibling(self._watch, start, middle, self.count, left, right=right)
            right, middle = node_hash(left, right), start
        return right, path


def _sibling(watch: int, start: int, middle: int, end: int, left: bytes, right: bytes) -> list[bytes]:
    """The sibling that the watched leaf needs to climb to the node over [start, end), if it is below that node."""
    if not start <= watch < end:
        return []
    return [right] if watch < middle else [left]


def root(leaves: Iterable[bytes]) -> bytes:
    return _tree(leaves).root()


def path(leaves: Iterable[bytes], index: int) -> list[bytes]:
    return _tree(leaves, index).path()


def _tree(leaves: Iterable[bytes], watch: int = -1) -> MerkleTree:
    tree = MerkleTree(watch)
    for data in leaves:
        tree.add(data)
    return tree


def verify(leaf: bytes, index: int, count: int, path: Sequence[bytes]) -> bytes:
    """The root of the tree of `count` leaves that has `leaf` at `index`: compare it with the root you trust."""
    if not 0 <= index < count:
        raise ProofInvalid(reason=f"there is no leaf {index} in a tree of {count}")
    climbed, position, last = leaf_hash(leaf), index, count - 1
    for sibling in path:
        if last == 0:
            raise ProofInvalid(reason=f"a path of {len(path)} hashes is too long for leaf {index} of {count}")
        if position % 2 == 1 or position == last:
            climbed = node_hash(sibling, climbed)
            # The last node of an odd level has no sibling there and moves up as it is.
            while position % 2 == 0 and position > 0:
                position, last = position // 2, last // 2
        else:
            climbed = node_hash(climbed, sibling)
        position, last = position // 2, last // 2
    if last != 0:
        raise ProofInvalid(reason=f"a path of {len(path)} hashes is too short for leaf {index} of {count}")
    return climbed
