from __future__ import annotations

import hashlib
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.errors import ProofInvalid
from holdfast.storage.audit import merkle

some_leaves = st.lists(st.binary(max_size=40), min_size=1, max_size=70)
unique_leaves = st.lists(st.binary(max_size=40), min_size=2, max_size=70, unique=True)


def test_the_known_roots_of_certificate_transparency() -> None:
    """The reference vectors of RFC 6962 implementations: any other of them verifies our proofs."""
    leaves = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    roots = [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ]
    for count, expected in enumerate(roots):
        assert merkle.root(bytes.fromhex(leaf) for leaf in leaves[:count]).hex() == expected


def root_by_definition(leaves: list[bytes]) -> bytes:
    if len(leaves) == 1:
        return merkle.leaf_hash(leaves[0])
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return merkle.node_hash(root_by_definition(leaves[:half]), root_by_definition(leaves[half:]))


@given(some_leaves)
def test_the_growing_tree_has_the_root_of_the_definition(leaves: list[bytes]) -> None:
    tree = merkle.MerkleTree()
    for count, leaf in enumerate(leaves, 1):
        tree.add(leaf)
        assert tree.root() == root_by_definition(leaves[:count])


@given(some_leaves)
def test_every_leaf_proves_with_a_short_path(leaves: list[bytes]) -> None:
    root = merkle.root(leaves)
    for index, leaf in enumerate(leaves):
        path = merkle.path(leaves, index)
        assert len(path) <= math.ceil(math.log2(len(leaves)))
        assert merkle.verify(leaf, index, len(leaves), path) == root


def proves(root: bytes, leaf: bytes, index: int, count: int, path: list[bytes]) -> bool:
    try:
        return merkle.verify(leaf, index, count, path) == root
    except ProofInvalid:
        return False


def flipped(data: bytes, bit: int) -> bytes:
    return bytes(byte ^ (1 << bit % 8 if at == bit // 8 else 0) for at, byte in enumerate(data))


@given(unique_leaves, st.data())
def test_any_flipped_bit_fails(leaves: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    root, path, leaf = merkle.root(leaves), merkle.path(leaves, index), leaves[index]
    step = data.draw(st.integers(0, len(path) - 1))
    bit = data.draw(st.integers(0, 255))
    assert proves(root, leaf, index, len(leaves), path)
    changed = [*path[:step], flipped(path[step], bit), *path[step + 1 :]]
    assert not proves(root, leaf, index, len(leaves), changed)
    assert not proves(flipped(root, bit), leaf, index, len(leaves), path)
    if leaf:
        assert not proves(root, flipped(leaf, bit % (8 * len(leaf))), index, len(leaves), path)


@given(unique_leaves, st.data())
def test_a_wrong_index_or_another_leaf_fails(leaves: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    other = data.draw(st.integers(-3, len(leaves) + 3).filter(lambda number: number != index))
    root, path = merkle.root(leaves), merkle.path(leaves, index)
    assert not proves(root, leaves[index], other, len(leaves), path)
    assert not proves(root, leaves[other % len(leaves)], index, len(leaves), path) or other % len(leaves) == index
    assert not proves(root, data.draw(st.binary().filter(lambda x: x != leaves[index])), index, len(leaves), path)


@given(unique_leaves, st.data())
def test_a_path_of_the_wrong_length_fails(leaves: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    path = merkle.path(leaves, index)
    for wrong in (path[:-1], path[1:], [*path, bytes(32)]):
        assume(wrong != path)
        with pytest.raises(ProofInvalid, match=r"too (short|long)"):
            merkle.verify(leaves[index], index, len(leaves), wrong)


@given(unique_leaves)
def test_a_node_cannot_be_passed_off_as_a_leaf(leaves: list[bytes]) -> None:
    """The two halves of an inner node, given as a leaf's data, would prove in a tree without domain separation."""
    root, half = merkle.root(leaves), 1 << (len(leaves) - 1).bit_length() - 1
    left, right = merkle.root(leaves[:half]), merkle.root(leaves[half:])
    assert merkle.node_hash(left, right) == root
    for forged in (left + right, b"\1" + left + right):
        assert merkle.root([forged]) != root and not proves(root, forged, 0, 1, [])
    assert hashlib.sha256(b"\0" + left + right).digest() != root


@given(some_leaves)
def test_a_doubled_last_leaf_changes_the_root(leaves: list[bytes]) -> None:
    assert merkle.root(leaves) != merkle.root([*leaves, leaves[-1]])


def test_a_leaf_that_is_not_there_has_no_path() -> None:
    for index in (-1, 3):
        with pytest.raises(IndexError, match="has no leaf"):
            merkle.path([b"a", b"b", b"c"], index)
        with pytest.raises(ProofInvalid, match="there is no leaf"):
            merkle.verify(b"a", index, 3, [])
