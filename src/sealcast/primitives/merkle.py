"""Merkle trees as RFC 9162 (Certificate Transparency 2.0), section 2.1, defines them: one signature for many events.

A leaf's hash is SHA-256(0x00 | entry), an inner node's is SHA-256(0x01 | left | right): the first byte keeps a node
from passing for an entry. Our messages start with 0x00 themselves (`wire.records`), so the hash of a message as it
stands is its leaf hash. A message also starts with a random salt, so that the hashes in a path say nothing about the
neighbours.

`build` returns all nodes in one piece, level by level from the leaves up, 32 bytes each:

    level 0: the n leaf hashes | level 1: ceil(n/2) nodes | level 2: ceil(n/4) | ... | the root

A last node without a partner moves up unchanged, which is RFC 9162's tree exactly. The sibling of node i is node i
XOR 1, so a path is a handful of slices and nothing is hashed twice.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Misuse

if TYPE_CHECKING:
    from hashlib import _Hash

HASH_BYTES: Final = 32
#: Of a tree; wire limits are far below. Keeps sizes and path lengths small numbers.
MAX_LEAVES: Final = 1 << 24

_LEAF_OF_MESSAGE: Final = hashlib.sha256()
_INNER: Final = hashlib.sha256(b"\x01")
_HASH: Final = np.dtype(f"V{HASH_BYTES}")
_PAIR: Final = np.dtype(f"V{2 * HASH_BYTES}")


def leaf_hash(entry: bytes) -> bytes:
    """The leaf hash of an entry that does not start with its 0x00 yet."""
    return hashlib.sha256(b"\x00" + entry).digest()


def hash_messages(messages: Iterable[bytes]) -> list[bytes]:
    """The leaf hashes of messages, which start with 0x00 already (not checked here: parsing a message checks it)."""
    return _digests(_LEAF_OF_MESSAGE, messages)


def build(leaf_hashes: Sequence[bytes]) -> bytes:
    """All nodes of the tree over `leaf_hashes`, in the layout above."""
    count = len(leaf_hashes)
    level = b"".join(leaf_hashes)
    if len(level) != _levels(count)[0] * HASH_BYTES:
        raise Misuse(f"a leaf hash has {HASH_BYTES} bytes")
    levels = [level]
    while len(level) > HASH_BYTES:
        pairs = len(level) // (2 * HASH_BYTES)
        # numpy takes the level apart in one call; slices in a loop cost a fifth of the whole tree.
        parents = _digests(_INNER, np.frombuffer(level, _PAIR, pairs).tolist())
        level = b"".join(parents) + level[pairs * 2 * HASH_BYTES :]
        levels.append(level)
    return b"".join(levels)


def size(count: int) -> int:
    """How many bytes the nodes of a tree of `count` leaves take."""
    return HASH_BYTES * sum(_levels(count))


def root(nodes: bytes | memoryview, count: int) -> bytes:
    """The root: the last node."""
    _check(nodes, count)
    return bytes(nodes[-HASH_BYTES:])


def path(nodes: bytes | memoryview, count: int, index: int) -> tuple[bytes, ...]:
    """The siblings from the leaf to the root: what proves that leaf `index` is in the tree."""
    _check(nodes, count)
    if not 0 <= index < count:
        raise Misuse(f"a tree of {count} leaves has no leaf {index}")
    siblings: list[bytes] = []
    start = 0
    for width in _levels(count)[:-1]:
        sibling = index ^ 1
        if sibling < width:
            at = start + sibling * HASH_BYTES
            siblings.append(bytes(nodes[at : at + HASH_BYTES]))
        start += width * HASH_BYTES
        index >>= 1
    return tuple(siblings)


def joined_paths(nodes: bytes, count: int) -> list[bytes]:
    """`path` of every leaf, each in one piece: for whoever proves all leaves of a tree at once."""
    _check(nodes, count)
    if count == 1:
        return [b""]
    split: list[bytes] = np.frombuffer(nodes, dtype=f"V{HASH_BYTES}").tolist()
    return [b"".join(siblings(split)) for siblings in _siblings(count)]


@lru_cache(maxsize=16)
def _siblings(count: int) -> list[Callable[[list[bytes]], tuple[bytes, ...]]]:
    """What picks each leaf's path out of the nodes of a tree of so many leaves."""
    found: list[Callable[[list[bytes]], tuple[bytes, ...]]] = []
    for leaf in range(count):
        at, start, siblings = leaf, 0, []
        for width in _levels(count)[:-1]:
            if at ^ 1 < width:
                siblings.append(start + (at ^ 1))
            start += width
            at >>= 1
        # A slice, as one number alone would give a hash instead of a tuple of one.
        found.append(itemgetter(*siblings) if len(siblings) > 1 else itemgetter(slice(siblings[0], siblings[0] + 1)))
    return found


def pruned(nodes: bytes | memoryview, count: int, indices: Iterable[int]) -> bytes:
    """The nodes with zeros for all that no path of these leaves needs: the same layout, and the same paths."""
    _check(nodes, count)
    kept = bytearray(len(nodes))
    kept[-HASH_BYTES:] = nodes[-HASH_BYTES:]
    wanted, start = set(indices), 0
    for width in _levels(count)[:-1]:
        for sibling in {index ^ 1 for index in wanted}:
            if sibling < width:
                at = start + sibling * HASH_BYTES
                kept[at : at + HASH_BYTES] = nodes[at : at + HASH_BYTES]
        start += width * HASH_BYTES
        wanted = {index >> 1 for index in wanted}
    return bytes(kept)


def verify(root: bytes, leaf_hash: bytes, index: int, count: int, path: Sequence[bytes]) -> bool:
    """Whether `path` proves that `leaf_hash` is leaf `index` of the tree of `count` leaves with that root.

    The path must have exactly the length that index and count call for, each hash its 32 bytes: there is one proof.
    """
    if not 0 < count <= MAX_LEAVES or not 0 <= index < count or len(leaf_hash) != HASH_BYTES:
        return False
    node, at, used = leaf_hash, index, 0
    for width in _levels(count)[:-1]:
        sibling = at ^ 1
        if sibling < width:
            if used == len(path) or len(path[used]) != HASH_BYTES:
                return False
            pair = path[used] + node if at & 1 else node + path[used]
            node = hashlib.sha256(b"\x01" + pair).digest()
            used += 1
        at >>= 1
    return used == len(path) and hmac.compare_digest(node, root)


def verify_paths(
    root: bytes, count: int, indices: Sequence[int], leaf_hashes: Sequence[bytes], paths: Sequence[bytes]
) -> list[bool]:
    """`verify` for each of these leaves of one tree, with a path of its own, whose hashes are joined.

    Paths meet below the root, and what is above is hashed once. There a leaf is proven if it leads to the node that was
    proven before, and goes on by the same hashes: with others, no path leads to the root, unless SHA-256 collides.
    """
    if not 0 < count <= MAX_LEAVES:
        return [False] * len(indices)
    #: By level and place: a node that is in the tree, and the path on which it was proven, from there on.
    proven: dict[tuple[int, int], tuple[bytes, bytes]] = {}
    widths = _levels(count)[:-1]

    def is_proven(at: int, node: bytes, path: bytes) -> bool:
        if not 0 <= at < count or len(node) != HASH_BYTES:
            return False
        passed = list[tuple[tuple[int, int], tuple[bytes, bytes]]]()
        for level, width in enumerate(widths):
            if (known := proven.get((level, at))) is not None:
                if known != (node, path):
                    return False
                break
            passed.append(((level, at), (node, path)))
            if at ^ 1 < width:
                sibling, path = path[:HASH_BYTES], path[HASH_BYTES:]
                if len(sibling) != HASH_BYTES:
                    return False
                (node,) = _digests(_INNER, (sibling + node if at & 1 else node + sibling,))
            at >>= 1
        else:
            if path or not hmac.compare_digest(node, root):
                return False
        proven.update(passed)
        return True

    return [is_proven(*each) for each in zip(indices, leaf_hashes, paths, strict=True)]


def verify_many(
    roots: Sequence[bytes],
    count: int,
    nodes: Sequence[bytes],
    trees: NDArray[np.int64],
    indices: NDArray[np.int64],
    leaf_hashes: Sequence[bytes],
) -> bool:
    """Whether `verify` holds for each of these leaves with its path in the `nodes` of its tree, for trees of one size.

    `trees` and `indices` say of each leaf where it stands; they ascend, and each tree has one at least. What several
    paths share is hashed once, so that all leaves of a tree cost about one hash each. A node that was computed and is
    part of another leaf's path must be the one in `nodes`: no leaf is proven by a path that it would not be proven by
    alone. False does not say which leaf fails.
    """
    if not _placed(trees, indices, len(roots), count) or {*map(len, nodes)} != {size(count)}:
        return False
    # A hash more than there are: a last node without a partner is taken together with what follows it.
    given = np.frombuffer(b"".join((*nodes, bytes(HASH_BYTES))), _HASH)
    with_next = np.ndarray((given.size - 1,), _PAIR, given, strides=(HASH_BYTES,))
    known = np.frombuffer(b"".join(leaf_hashes), _HASH)
    if len(nodes) != len(roots) or known.size != indices.size:
        return False
    tree, at, start = trees * sum(_levels(count)), indices, 0  # where its tree begins, and its place in its level
    for width in _levels(count)[:-1]:
        parent, side = at >> 1, at & 1
        left = tree + parent
        both = np.flatnonzero(left[1:] == left[:-1])
        left += parent + start
        row = np.arange(at.size)
        if both.size:
            # Of two siblings that are both known, each is on the other's path.
            shared = np.concatenate((both, both + 1))
            if given.take((left + side)[shared]).tobytes() != known[shared].tobytes():
                return False
            first = np.ones(at.size, np.bool_)
            first[both + 1] = False
            row = np.cumsum(first) - 1
            tree, parent, left = tree[first], parent[first], left[first]
        pairs = with_next[left]
        pairs.view(_HASH)[2 * row + side] = known
        # The last node may have no partner, and moves up: what is beside it here belongs to nobody's path.
        alone = 2 * parent + 1 == width if width & 1 else None
        if alone is not None and alone.any():
            known = pairs.view(_HASH)[::2].copy()
            known[~alone] = _inner(pairs[~alone])
        else:
            known = _inner(pairs)
        at, start = parent, start + width
    return hmac.compare_digest(known.tobytes(), b"".join(roots))


def _inner(pairs: NDArray[np.void]) -> NDArray[np.void]:
    """The nodes above pairs of nodes."""
    return np.frombuffer(b"".join(_digests(_INNER, pairs.tolist())), _HASH)


def _placed(trees: NDArray[np.int64], indices: NDArray[np.int64], most: int, count: int) -> bool:
    """Whether these are leaves in order, none twice, of each tree one at least."""
    if not 0 < count <= MAX_LEAVES or not indices.size or trees.size != indices.size:
        return False
    within = int(indices.min()) >= 0 and int(indices.max()) < count
    every = int(trees[0]) == 0 and int(trees[-1]) == most - 1 and set(np.diff(trees).tolist()) <= {0, 1}
    return within and every and bool((np.diff(trees * count + indices) > 0).all())


def _digests(start: _Hash, pieces: Iterable[bytes]) -> list[bytes]:
    """The hash of each piece after what `start` took in. Copying it skips OpenSSL's look-up, a quarter of the cost."""
    digests: list[bytes] = []
    copy, append = start.copy, digests.append
    for piece in pieces:
        state = copy()
        state.update(piece)
        append(state.digest())
    return digests


@lru_cache(maxsize=1024)
def _levels(count: int) -> tuple[int, ...]:
    """How many nodes each level has, leaves first."""
    if not 0 < count <= MAX_LEAVES:
        raise Misuse(f"a tree has 1 to {MAX_LEAVES} leaves, not {count}")
    widths = [count]
    while widths[-1] > 1:
        widths.append((widths[-1] + 1) // 2)
    return tuple(widths)


def _check(nodes: bytes | memoryview, count: int) -> None:
    if len(nodes) != size(count):
        raise Misuse(f"the nodes of a tree of {count} leaves take {size(count)} bytes, not {len(nodes)}")
