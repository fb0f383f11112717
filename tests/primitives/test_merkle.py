"""Merkle trees: Certificate Transparency's published tree, the RFC's recursion, and the attacks it must withstand."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Misuse
from sealcast.primitives import merkle

# The reference tree of Certificate Transparency: entries, and the root after each.
ENTRIES = [bytes.fromhex(e) for e in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")] + [
    bytes(range(0x60, 0x70))
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
#: (leaf, tree size): its audit path.
PATHS = {
    (0, 1): [],
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
}


def tree_hash(entries: list[bytes]) -> bytes:
    """RFC 9162, section 2.1.1, as it is written there."""
    if len(entries) == 1:
        return hashlib.sha256(b"\x00" + entries[0]).digest()
    split = 1 << (len(entries) - 1).bit_length() - 1
    return hashlib.sha256(b"\x01" + tree_hash(entries[:split]) + tree_hash(entries[split:])).digest()


def audit_path(index: int, entries: list[bytes]) -> list[bytes]:
    """RFC 9162, section 2.1.3.1."""
    if len(entries) == 1:
        return []
    split = 1 << (len(entries) - 1).bit_length() - 1
    if index < split:
        return [*audit_path(index, entries[:split]), tree_hash(entries[split:])]
    return [*audit_path(index - split, entries[split:]), tree_hash(entries[:split])]


def built(entries: list[bytes]) -> tuple[list[bytes], bytes, bytes]:
    leaves = [merkle.leaf_hash(e) for e in entries]
    nodes = merkle.build(leaves)
    return leaves, nodes, merkle.root(nodes, len(entries))


@pytest.mark.parametrize("count", range(1, 9))
def test_published_roots(count: int) -> None:
    assert built(ENTRIES[:count])[2].hex() == ROOTS[count - 1]


@pytest.mark.parametrize(("index", "count"), PATHS)
def test_published_paths(index: int, count: int) -> None:
    _, nodes, _ = built(ENTRIES[:count])
    assert [h.hex() for h in merkle.path(nodes, count, index)] == PATHS[index, count]


@given(st.lists(st.binary(max_size=8), min_size=1, max_size=70))
@settings(max_examples=50)
def test_is_the_tree_of_the_rfc_and_every_leaf_proves_itself(entries: list[bytes]) -> None:
    count = len(entries)
    leaves, nodes, root = built(entries)
    assert root == tree_hash(entries)
    assert len(nodes) == merkle.size(count)
    assert nodes[: 32 * count] == b"".join(leaves)
    for index in range(count):
        path = merkle.path(memoryview(nodes), count, index)
        assert list(path) == audit_path(index, entries)
        assert merkle.verify(root, leaves[index], index, count, path)


def test_messages_are_entries_with_their_zero_byte() -> None:
    assert merkle.hash_messages([b"\x00" + e for e in ENTRIES]) == [merkle.leaf_hash(e) for e in ENTRIES]


@given(st.integers(1, 40), st.data())
def test_a_proof_is_for_one_leaf_at_one_place_of_one_tree(count: int, data: st.DataObject) -> None:
    entries = [i.to_bytes(2, "big") for i in range(count)]
    leaves, nodes, root = built(entries)
    index = data.draw(st.integers(0, count - 1))
    path = merkle.path(nodes, count, index)
    assert not merkle.verify(root, merkle.leaf_hash(b"other"), index, count, path)
    assert not merkle.verify(os.urandom(32), leaves[index], index, count, path)
    assert not merkle.verify(root, leaves[index], index, count, (*path, bytes(32)))
    for other in range(-1, count + 2):
        if other != index:
            assert not merkle.verify(root, leaves[index], other, count, path)
    for at in range(len(path)):
        bent = [*path[:at], bytes(32), *path[at + 1 :]]
        assert not merkle.verify(root, leaves[index], index, count, bent)
        assert not merkle.verify(root, leaves[index], index, count, path[:at])
        assert not merkle.verify(root, leaves[index], index, count, [*path[:at], path[at][:31], *path[at + 1 :]])
    assert not merkle.verify(root, leaves[index][:31], index, count, path)
    assert not merkle.verify(root, leaves[index], index, 0, path)
    assert not merkle.verify(root, leaves[index], index, merkle.MAX_LEAVES + 1, path)


def test_misuse() -> None:
    _, nodes, _ = built(ENTRIES)
    for call in (
        lambda: merkle.build([]),
        lambda: merkle.build([bytes(31)]),
        lambda: merkle.path(nodes, 8, 8),
        lambda: merkle.path(nodes, 8, -1),
        lambda: merkle.path(nodes, 7, 0),
        lambda: merkle.root(nodes[:-1], 8),
        lambda: merkle.size(0),
    ):
        with pytest.raises(Misuse):
            call()


# --- attacks ------------------------------------------------------------------------------------


def weak_hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def test_an_inner_node_passes_for_an_event_only_without_the_first_byte() -> None:
    """Second preimage: two events a, b of a signed tree, and a forged event made of their hashes."""
    a, b = b"pay alice", b"pay bob"

    # A tree without domain separation: the "event" hash(a) | hash(b) has the very hash of the node above a and b.
    weak_root = weak_hash(weak_hash(a) + weak_hash(b))
    forged = weak_hash(a) + weak_hash(b)
    assert weak_hash(forged) == weak_root  # a valid tree of one event, under the same signature

    _, nodes, root = built([a, b])
    forged = merkle.leaf_hash(a) + merkle.leaf_hash(b)
    assert not merkle.verify(root, merkle.leaf_hash(forged), 0, 1, ())
    assert nodes[-32:] == root
    # Nor does a message that begins with the inner byte: messages begin with 0x00, which parsing checks.
    assert merkle.hash_messages([b"\x01" + forged]) == [root]
    assert b"\x01" + forged != b"\x00" + forged


def test_a_neighbour_tests_guesses_only_where_there_is_no_salt() -> None:
    """A subscriber of event 0 sees the hash of event 1 in its path, and knows that a price has few values."""
    guesses = [f"price={p}".encode() for p in range(1000)]
    secret = guesses[733]

    _, unsalted, _ = built([b"mine", secret])
    (sibling,) = merkle.path(unsalted, 2, 0)
    assert [g for g in guesses if merkle.leaf_hash(g) == sibling] == [secret]

    salted = merkle.build(merkle.hash_messages([b"\0" + os.urandom(16) + e for e in (b"mine", secret)]))
    (sibling,) = merkle.path(salted, 2, 0)
    assert [g for g in guesses if merkle.leaf_hash(g) == sibling] == []
    assert [g for g in guesses if merkle.leaf_hash(bytes(16) + g) == sibling] == []


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13, 64, 100])
def test_all_paths_at_once_are_those_of_each_leaf(count: int) -> None:
    nodes = merkle.build([merkle.leaf_hash(b"%d" % i) for i in range(count)])
    assert merkle.joined_paths(nodes, count) == [b"".join(merkle.path(nodes, count, i)) for i in range(count)]


@given(st.data(), st.integers(1, 40), st.integers(1, 3))
def test_many_leaves_are_proven_if_each_is_by_its_own_path(data: st.DataObject, count: int, trees: int) -> None:
    """Also where a node was altered: a neighbour's leaf does not stand in for the node that was given."""
    roots, nodes, placed = list[bytes](), list[bytes](), list[tuple[int, int, bytes]]()
    for tree in range(trees):
        leaves = merkle.hash_messages(bytes([0, tree, number]) for number in range(count))
        own = bytearray(merkle.build(leaves))
        roots.append(bytes(own[-merkle.HASH_BYTES :]))
        picked = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
        if data.draw(st.booleans()):
            own = bytearray(merkle.pruned(own, count, picked))
        if data.draw(st.integers(0, 2)) == 0:
            own[data.draw(st.integers(0, len(own) - 1))] ^= 1
        nodes.append(bytes(own))
        placed += [(tree, index, leaves[index]) for index in picked]
    if data.draw(st.integers(0, 2)) == 0:
        at = data.draw(st.integers(0, len(placed) - 1))
        placed[at] = (*placed[at][:2], merkle.leaf_hash(b"another"))
    expected = all(
        merkle.verify(roots[tree], leaf, at, count, merkle.path(nodes[tree], count, at)) for tree, at, leaf in placed
    )
    which, where = (np.array([each[part] for each in placed]) for part in (0, 1))
    assert merkle.verify_many(roots, count, nodes, which, where, [leaf for _, _, leaf in placed]) is expected


@pytest.mark.parametrize(
    ("trees", "indices"),
    [([], []), ([0, 0], [1, 0]), ([0, 0], [0, 0]), ([0, 0], [-1, 0]), ([0, 0], [0, 5]), ([0], [0]), ([1, 1], [0, 1]),
     ([0, 1], [0, 1]), ([0, 0, 0], [0, 1])],
)  # fmt: skip
def test_many_leaves_are_in_order_and_in_the_tree(trees: list[int], indices: list[int]) -> None:
    leaves = merkle.hash_messages(bytes([0, number]) for number in range(5))
    nodes, both = merkle.build(leaves), leaves[:2]
    places = np.array(trees, np.int64), np.array(indices, np.int64)
    assert not merkle.verify_many([nodes[-32:]], 5, [nodes], *places, both)
    good = np.zeros(2, np.int64), np.arange(2)
    assert merkle.verify_many([nodes[-32:]], 5, [nodes], *good, both)
    assert not merkle.verify_many([nodes[-32:]], 5, [nodes[:-32]], *good, both)
    assert not merkle.verify_many([nodes[-32:]], 0, [nodes], *good, both)


@given(st.data(), st.integers(1, 40))
def test_many_paths_of_one_tree_prove_what_each_proves_alone(data: st.DataObject, count: int) -> None:
    """Whatever is altered in whichever of them: leaves, hashes of paths and their number."""
    leaves = merkle.hash_messages(bytes([0, number]) for number in range(count))
    nodes = merkle.build(leaves)
    root, paths = nodes[-32:], merkle.joined_paths(nodes, count)
    given = list[tuple[int, bytes, bytes]]()
    for index in data.draw(st.lists(st.integers(0, count - 1), max_size=12)):
        leaf, path = leaves[index], bytearray(paths[index])
        for kind in data.draw(st.lists(st.sampled_from(["leaf", "path", "short", "long", "place"]), max_size=1)):
            if kind == "leaf":
                leaf = merkle.leaf_hash(b"another")
            elif kind == "path" and path:
                path[data.draw(st.integers(0, len(path) - 1))] ^= 1
            elif kind == "short":
                del path[len(path) - 32 :]
            elif kind == "long":
                path += root
            else:
                index = data.draw(st.integers(-1, count))
        given.append((index, leaf, bytes(path)))

    def alone(index: int, leaf: bytes, path: bytes) -> bool:
        return merkle.verify(root, leaf, index, count, [path[at : at + 32] for at in range(0, len(path), 32)])

    indices, hashes, joined = ([each[part] for each in given] for part in range(3))
    assert merkle.verify_paths(root, count, indices, hashes, joined) == [alone(*each) for each in given]
    assert merkle.verify_paths(root, 0, indices, hashes, joined) == [False] * len(given)
