"""Mosaic, the planner: learns a layout, covers groups, remembers what it handed out.

    tiles       a dozen subscribers each; every pattern of a tile has a key that its members derive from what they were
                given once, so that a part in a tile is one encryption whatever the pattern
    tree        keys of parts that come again, above the tiles, each grown out of the key of one of its sides
    memory      fingerprints of the parts whose keys are out, bounded in bytes; who is worth most stays
    gates       where the tree is worth it

Until so many groups were seen, tiles are made of consecutive slots; then once by likeness, if that pays. Everything
here may be lost at any time: keys are derived again and handed out again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from sealcast.filters import bits
from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.handed import DELIVERED
from sealcast.groupkeys.interface import KeyPlan, Outline, events_of
from sealcast.groupkeys.mosaic.assemble import CoverBatch, assemble, concatenated
from sealcast.groupkeys.mosaic.cover import HELD, NEW, THROUGH, TILE, WHOLE, Cover, Coverer, Fingerprints
from sealcast.groupkeys.mosaic.gates import SHARE, Gates
from sealcast.groupkeys.mosaic.layout import MAX_LINKED, MAX_TILES, Patterns, TileLayout, by_id, by_similarity
from sealcast.groupkeys.mosaic.memory import Memory
from sealcast.groupkeys.mosaic.tables import TileTables

#: Groups to learn the layout from, and at most this share of the memory's bytes for them; how many go through at once.
LEARN_FROM: Final = 512
LEARN_SHARE: Final = 0.25
BATCH: Final = 512
#: A layout by likeness is worth an empty memory and new tables if groups would cost at most this share of what they do.
WORTH_MOVING: Final = 0.5
#: Where groups cost less than this on average, there is nothing to be learnt.
WORTH_LEARNING: Final = 1.5
#: Subscribers in a tile. More would cost fewer encryptions and more memory: a part of a table has 2^n / n labels.
TILE_SIZE: Final = 12
#: Groups times tiles that are covered at once: bounds a worker's memory when subscribers are many.
CELLS_AT_ONCE: Final = 1 << 21
#: Tiles of newcomers, before the tree is balanced anew.
MOST_UNBALANCED: Final = 8
#: A tile's and a node's own counters.
_FIXED_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class CoverCost:
    """Encryptions of each group of a batch: with its first event, when keys are made, and with any later one."""

    first: Indices
    later: Indices
    #: Of each part: how many encryptions bring another key to its members.
    wraps: Indices


class Mosaic:
    """Our algorithm. `memory_bytes` bounds all that is remembered between batches."""

    name = "mosaic"

    def __init__(
        self, subscribers: int, memory_bytes: int, *, tile: int = TILE_SIZE, learn: bool = True, seed: int | None = None
    ) -> None:
        self._tile = tile
        self._budget = memory_bytes
        self._rng = np.random.default_rng(seed)
        self._keys_given = 0
        self._sample: list[Words] = []
        row_bytes = 8 * bits.words_for(subscribers)
        #: Groups still to be seen before the layout is learnt.
        self._to_learn = min(LEARN_FROM, int(LEARN_SHARE * memory_bytes) // row_bytes)
        if not learn or subscribers > MAX_LINKED:
            self._to_learn = 0
        self._sample_bytes = self._to_learn * row_bytes
        self._settle_in(by_id(subscribers, tile))

    def _settle_in(self, layout: TileLayout) -> None:
        self._layout = layout
        self._newcomers: set[int] = set()
        #: Tiles that were there when the tree was last balanced.
        self._balanced = len(layout.tiles)
        self._tables = TileTables([len(tile) for tile in layout.tiles])
        self._fingerprints = Fingerprints(len(layout.tiles), self._rng)
        self._gates = Gates(layout.high - layout.low, int(SHARE * self._budget))
        self._memory = Memory(self._room(layout))

    def _room(self, layout: TileLayout) -> int:
        """For fingerprints. What is kept a tile and a node is small and fixed."""
        taken = self._sample_bytes + int(SHARE * self._budget) + _FIXED_BYTES * len(layout.tiles)
        return max(0, self._budget - taken)

    @property
    def clusters(self) -> int | None:
        return len(self._layout.tiles)

    @property
    def nbytes(self) -> int:
        """What is remembered between batches, in bytes, at its fullest."""
        return self._memory.nbytes + self._gates.nbytes + self._tables.nbytes + self._sample_bytes

    def keys_per_subscriber(self) -> tuple[float, float]:
        """What a subscriber has been given, on average: labels of its table, and keys besides, were it to keep all."""
        sizes = np.array([len(tile) for tile in self._layout.tiles], np.float64)
        labels = float((2.0 ** sizes[self._tables.bought] - 1).sum())
        subscribers = max(1.0, float(sizes.sum()))
        return labels / subscribers, self._keys_given / subscribers

    # --- counting -----------------------------------------------------------------------------------

    def count(self, groups: Words, group_of: Indices | None = None) -> Indices:
        """The encryptions of each event: what `plan` would make, without making it."""
        events = events_of(groups, group_of)
        total = np.zeros(events.size, np.int64)
        for start in range(0, events.size, BATCH):
            here = slice(start, start + BATCH)
            rows, of_event = bits.unique_rows(groups[events[here]])
            cost = self._cost_of(rows)
            total[here] = cost.later[of_event]
            _, first = np.unique(of_event, return_index=True)
            total[start + first] = cost.first
        return total

    def _cost_of(self, rows: Words) -> CoverCost:
        self._seat(rows)
        patterns = self._layout.patterns(rows)
        coverer = self._coverer(patterns, DELIVERED)
        cover = coverer.cover()
        cost = cost_of(cover, rows.shape[0])
        outside = bits.count(rows) - np.bitwise_count(patterns).sum(axis=1, dtype=np.int64)
        self._remember(coverer, cover, cost, DELIVERED)
        self._learn(rows, cost.first)
        return CoverCost(cost.first + outside, cost.later + outside, cost.wraps)

    def _coverer(self, patterns: Patterns, tag: int) -> Coverer:
        return Coverer(self._layout, patterns, self._fingerprints, self._memory, self._gates, self._tables, tag)

    # --- planning -----------------------------------------------------------------------------------

    def plan(self, groups: Words, group_of: Indices | None = None, tag: int = DELIVERED) -> KeyPlan:
        """Groups come in the order of their first events, as `bits.unique_rows` leaves them."""
        self._seat(groups)
        at_once = max(1, CELLS_AT_ONCE // max(1, len(self._layout.tiles)))
        plans, costs = [], []
        for start in range(0, max(1, groups.shape[0]), at_once):
            plan, cost = self._plan(groups[start : start + at_once], tag)
            plans.append(plan)
            costs.append(cost.first)
        self._learn(groups, np.concatenate(costs))
        return concatenated(plans)

    def _plan(self, groups: Words, tag: int) -> tuple[KeyPlan, CoverCost]:
        patterns = self._layout.patterns(groups)
        coverer = self._coverer(patterns, tag)
        cover = coverer.cover()
        head, tail = coverer.fingerprint(cover.group, cover.first, cover.last)
        plan = assemble(CoverBatch(self._layout, groups, patterns, cover, head, tail, self._tables, tag))
        cost = cost_of(cover, groups.shape[0])
        self._remember(coverer, cover, cost, tag)
        return plan, cost

    def learn(self, outline: Outline, groups: Words, table_of: Indices, table_slot: Indices) -> None:
        """What others have delivered: groups each of which has a key of its own by now, and parts of tables.

        Only of a layout that is the same: keys are named by it.
        """
        mine = self._layout.outline
        pairs = ((mine.sizes, outline.sizes), (mine.runs, outline.runs), (mine.joins, outline.joins))
        if not all(np.array_equal(one, other) for one, other in pairs):
            return
        patterns = self._layout.patterns(groups)
        inside = np.bitwise_count(patterns).sum(axis=1, dtype=np.int64) == bits.count(groups)
        head, tail = (sums[inside, -1] for sums in self._fingerprints.sums(patterns))
        saves = np.count_nonzero(patterns[inside], axis=1) - 1
        _, first = np.unique(head, return_index=True)
        held, _ = self._memory.ask(head[first], tail[first])
        fresh = first[~held]
        self._memory.tell(head[fresh], tail[fresh], saves[fresh])
        self._tables.bought[table_of] = True
        self._tables.give(self._layout.place_of[table_slot], DELIVERED)

    def settle(self, tag: int, delivered: bool) -> None:
        self._memory.settle(tag, delivered)
        self._tables.settle(tag, delivered)

    # --- remembering --------------------------------------------------------------------------------

    def _remember(self, coverer: Coverer, cover: Cover, cost: CoverCost, tag: int) -> None:
        new = np.flatnonzero(cover.kind == NEW)
        self._keys_given += coverer.members(cover.group[new], cover.first[new], cover.last[new])
        head, tail = coverer.fingerprint(cover.group[new], cover.first[new], cover.last[new])
        self._memory.tell(head, tail, cost.wraps[new] - 1, tag)
        inner = cover.node[new] != TILE
        self._gates.made(cover.node[new[inner]])
        self._gates.settle()

    def _seat(self, rows: Words) -> None:
        """Newcomers are served under their pair keys until there are enough of them for a tile of their own."""
        wanted = np.bitwise_or.reduce(rows, axis=0, keepdims=True)
        _, slots = bits.pairs(wanted)
        placed = self._layout.place_of
        self._newcomers |= {int(s) for s in slots if s >= placed.size or placed[s] < 0}
        while len(self._newcomers) >= self._tile and len(self._layout.tiles) < MAX_TILES:
            tile = sorted(self._newcomers)[: self._tile]
            self._newcomers.difference_update(tile)
            self._layout = self._layout.extended(tile)
            # Old tiles keep their numbers: what is remembered of them stays true. Gates learn anew.
            self._fingerprints.extend(self._rng)
            self._tables.extend(self._tile)
            self._gates = Gates(self._layout.high - self._layout.low, self._gates.budget)
            self._balance()

    def _balance(self) -> None:
        """Each new tile makes the tree deeper: when they are many, a balanced tree is worth an empty memory."""
        if len(self._layout.tiles) - self._balanced >= max(MOST_UNBALANCED, self._balanced // 2):
            self._layout = self._layout.rebalanced()
            self._balanced = len(self._layout.tiles)
            self._gates = Gates(self._layout.high - self._layout.low, self._gates.budget)
            self._memory = Memory(self._room(self._layout))

    def _learn(self, rows: Words, cost: Indices) -> None:
        """Once enough groups were seen: lay the tiles anew, if that pays."""
        if not self._to_learn:
            return
        self._sample.append(rows[: self._to_learn])
        self._to_learn -= self._sample[-1].shape[0]
        if self._to_learn:
            return
        sample = np.concatenate(self._sample)
        self._sample, self._sample_bytes = [], 0
        self._memory = self._memory.resized(self._room(self._layout))
        if cost.mean() < WORTH_LEARNING:
            return
        layout = by_similarity(np.sort(self._layout.slot_at[self._layout.slot_at >= 0]), self._tile, sample)
        if self._trial(layout, sample) <= WORTH_MOVING * self._trial(self._layout, sample):
            self._settle_in(layout)

    def _trial(self, layout: TileLayout, sample: Words) -> float:
        """What the second half of a sample costs after the first, all tables given."""
        other = Mosaic(0, self._budget, tile=self._tile, learn=False, seed=0)
        other._settle_in(layout)
        other._tables.bought[:] = True
        return float(other.count(sample)[sample.shape[0] // 2 :].mean())


def cost_of(cover: Cover, groups: int) -> CoverCost:
    """Encryptions, from the parts that were looked at. Parents come before children, so this goes backwards by level.

    To bring another key to a part whose key is held: one encryption. To make a part's key known: what its other side
    needs, and what its stem needs for its own key, out of which it grows; or, where the stem has none, what it takes to
    bring the key to the stem. A group's own key seals its event, which is the encryption of those who derive it from a
    key they held; where nobody does, it comes free, as it does for the paper's caches.
    """
    count = cover.kind.size
    make = np.where(cover.kind == NEW, cover.size, 0)
    wraps = np.zeros(count, np.int64)
    uses = np.zeros(count, np.int64)
    known = cover.kind != THROUGH
    from_stem = np.zeros(count, np.bool_)
    for start, end in reversed(list(pairwise((0, *cover.levels)))):
        level = np.arange(start, end)
        kind = cover.kind[level]
        wraps[level] += np.where(kind == THROUGH, 0, np.where(kind == NEW, make[level] + 1, 1))
        uses[level] = np.where(kind == THROUGH, uses[level], 1)
        below = level[cover.parent[level] != WHOLE]
        above = cover.parent[below]
        grows = cover.stem[below] & known[below]
        new = cover.kind[above] == NEW
        np.add.at(make, above[new], np.where(grows, make[below], wraps[below])[new])
        np.add.at(wraps, above[~new], wraps[below][~new])
        np.add.at(uses, above, uses[below])
        from_stem[above[grows]] = (kind == HELD)[below - start][grows] | from_stem[below[grows]]
    whole = np.flatnonzero(cover.parent == WHOLE)
    first, later = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    kind = cover.kind[whole]
    first[cover.group[whole]] = np.where(kind == NEW, make[whole] + from_stem[whole], wraps[whole])
    first[cover.group[whole[kind == HELD]]] = 1
    later[cover.group[whole]] = uses[whole]
    return CoverCost(first, later, wraps)
