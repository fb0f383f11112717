"""The logical key hierarchy (paper 000, sections 3 and 5): a tree over the subscribers with a key at every node.

A group is served by the fewest nodes that cover it exactly: every node whose leaves are all members and whose parent's
are not. There is no cache and nothing to be lucky with; 0.36 N encryptions for random groups.

The tree is packed: a node over n > 1 leaves gives its children d^h leaves each, the largest power below n, and the last
one the rest. Hence nodes are aligned runs of d^h leaves, cut off at the end: level by level, covers are found for all
groups at once. With several trees (over different orders of the subscribers) a group uses the one that covers it best.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Misuse
from sealcast.filters import bits
from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.clusters import beyond, fit, permute
from sealcast.groupkeys.handed import DELIVERED, Handed
from sealcast.groupkeys.interface import GroupKey, KeyPlan, events_of
from sealcast.groupkeys.plans import OWN, assign

Flags = NDArray[np.bool_]

#: Groups unpacked at a time: a flag a subscriber.
_AT_ONCE = 1_024


class KeyTree:
    """One or several trees of keys; members in no tree (they came later) are served under their pair keys."""

    name = "key-tree"
    clusters = None

    def __init__(self, subscribers: int, arity: int = 2, trees: int = 1, seed: int = 0) -> None:
        if arity < 2 or trees < 1:
            raise Misuse(f"a key tree has two or more children a node and there is one or more of it: {arity}, {trees}")
        self._subscribers = subscribers
        self._arity = arity
        #: The slot at each leaf, per tree; the first tree is in the order of slots.
        shuffle = np.random.default_rng(seed).permutation
        self._orders = [np.arange(subscribers), *(shuffle(subscribers) for _ in range(trees - 1))]
        #: Nodes whose keys their members have: (tree, first leaf, end).
        self._handed = Handed()

    @property
    def keys(self) -> int:
        """Nodes that hold a key of their own: leaves have pair keys."""
        inner, width = 0, self._subscribers
        while width > 1:
            blocks = -(-width // self._arity)
            # The last node of a level may have a single child: then it is that child.
            inner += blocks - (width % self._arity == 1)
            width = blocks
        return inner * len(self._orders)

    def count(self, groups: Words, group_of: Indices | None = None) -> Indices:
        cost: Indices = np.min(self._costs(groups), axis=0)
        return (cost + beyond(groups, self._subscribers))[events_of(groups, group_of)]

    def plan(self, groups: Words, group_of: Indices | None = None, tag: int = DELIVERED) -> KeyPlan:
        best = np.argmin(self._costs(groups), axis=0)
        group, slot = bits.pairs(groups)
        tree = np.where(slot < self._subscribers, best[group], -1)
        start, end = np.zeros(slot.size, np.int64), np.ones(slot.size, np.int64)
        for t, order in enumerate(self._orders):
            mine = np.flatnonzero(tree == t)
            start[mine], end[mine] = self._runs(groups, order, group[mine], slot[mine])

        key = np.full(slot.size, OWN, np.int64)
        several = np.flatnonzero(end - start > 1)
        width = self._subscribers + 1
        name = (tree[several] * width + start[several]) * width + end[several]
        nodes, key[several] = np.unique(name, return_inverse=True)
        node_tree, rest = np.divmod(nodes, width * width)
        named = list(zip(node_tree.tolist(), (rest // width).tolist(), (rest % width).tolist(), strict=True))
        refs = [GroupKey(tuple(sorted(self._orders[t][a:b].tolist()))) for t, a, b in named]
        new = np.array([not self._handed.holds(node, tag) for node in named], np.bool_)
        self._handed.add(named, tag)
        return assign(groups.shape[0], group, slot, key, refs, new)

    def settle(self, tag: int, delivered: bool) -> None:
        self._handed.settle(tag, delivered)

    def _costs(self, groups: Words) -> Indices:
        """Trees x groups: nodes in the cover."""
        costs = np.zeros((len(self._orders), groups.shape[0]), np.int64)
        for t, order in enumerate(self._orders):
            for rows, leaves in self._leaves(groups, order):
                levels = list(self._levels(leaves))
                for full, above in zip(levels, [*levels[1:], None], strict=True):
                    costs[t, rows] += full.sum(axis=1)
                    if above is not None:
                        # Of each full node above, its children's counting is taken back.
                        costs[t, rows] -= above @ self._children(full.shape[1], above.shape[1])
        return costs

    def _runs(self, groups: Words, order: Indices, group: Indices, slot: Indices) -> tuple[Indices, Indices]:
        """For members: the leaves [start, end) of the highest full node above each."""
        place = np.empty(order.size, np.int64)
        place[order] = np.arange(order.size)
        start = place[slot]
        end = start + 1
        for rows, leaves in self._leaves(groups, order):
            alive = np.arange(*np.searchsorted(group, (rows.start, rows.stop)))
            size = 1
            for full in self._levels(leaves):
                block = place[slot[alive]] // size
                # A full node's children are full: who is out on one level is out on all above.
                inside = full[group[alive] - rows.start, block]
                alive, block = alive[inside], block[inside]
                start[alive] = block * size
                end[alive] = np.minimum((block + 1) * size, order.size)
                size *= self._arity
        return start, end

    def _leaves(self, groups: Words, order: Indices) -> Iterator[tuple[slice, Flags]]:
        for first in range(0, groups.shape[0], _AT_ONCE):
            rows = slice(first, min(first + _AT_ONCE, groups.shape[0]))
            placed = permute(fit(groups[rows], order.size), order)
            raw = placed.astype("<u8", copy=False).view(np.uint8)
            yield rows, np.unpackbits(raw, axis=1, count=order.size, bitorder="little").view(np.bool_)

    def _levels(self, leaves: Flags) -> Iterator[Flags]:
        """Which nodes are full, from the leaves to the root."""
        full = leaves
        yield full
        while full.shape[1] > 1:
            missing = -full.shape[1] % self._arity
            # What is not there does not stand in the way.
            padded = np.pad(full, ((0, 0), (0, missing)), constant_values=True)
            full = np.logical_and.reduce(padded.reshape(full.shape[0], -1, self._arity), axis=2)
            yield full

    def _children(self, below: int, above: int) -> Indices:
        """How many nodes each node has below it: all have d, the last one the rest."""
        children = np.full(above, self._arity, np.int64)
        children[-1] = below - self._arity * (above - 1)
        return children
