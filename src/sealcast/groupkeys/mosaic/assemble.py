"""From covers to a plan: which keys the parts of a batch have, who opens through which, what reaches whom under what.

A part with a key of its own hangs below the nearest part above it that has one: either there is none, then the group
uses the part's key, or the part above is new, then its key reaches the members of this part under this part's key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

import numpy as np

from sealcast.filters import bits
from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.clusters import fit
from sealcast.groupkeys.interface import GrownKey, KeyPlan, KeyRef, PairKey, TableKey
from sealcast.groupkeys.mosaic.cover import NEW, THROUGH, TILE, WHOLE, Cover
from sealcast.groupkeys.mosaic.layout import MAX_TILE, Patterns, TileLayout
from sealcast.groupkeys.mosaic.memory import U64
from sealcast.groupkeys.mosaic.naming import Namer
from sealcast.groupkeys.mosaic.tables import TileTables

_PATTERN_BITS: Final = 16


class PlanKeys(Sequence[KeyRef]):
    """A plan's keys: grown keys and pair keys, then table keys, which are made into objects only when asked for.

    On random groups a batch has sixty different table keys an event, and sealing takes them by the column.
    """

    def __init__(
        self,
        grown: Sequence[GrownKey],
        pairs: Sequence[PairKey],
        tiles: tuple[tuple[int, ...], ...],
        codes: Indices,
    ) -> None:
        self.grown, self.pairs = grown, pairs
        #: Grown keys and pair keys.
        self.warm = len(grown) + len(pairs)
        self.tiles = tiles
        #: Of each table key, from position `warm` on: its tile and its pattern; both in one number, ascending.
        self.codes = codes
        self.tile, self.pattern = codes >> _PATTERN_BITS, codes & (1 << _PATTERN_BITS) - 1

    def __len__(self) -> int:
        return self.warm + self.tile.size

    @overload
    def __getitem__(self, at: int) -> KeyRef: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[KeyRef]: ...
    def __getitem__(self, at: int | slice) -> KeyRef | Sequence[KeyRef]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if at < self.warm:
            return self.grown[at] if at < len(self.grown) else self.pairs[at - len(self.grown)]
        row = at - self.warm
        return TableKey(self.tiles[int(self.tile[row])], int(self.pattern[row]))

    def __iter__(self) -> Iterator[KeyRef]:
        yield from self.grown
        yield from self.pairs
        for tile, pattern in zip(self.tile.tolist(), self.pattern.tolist(), strict=True):
            yield TableKey(self.tiles[tile], pattern)


@dataclass(frozen=True, slots=True)
class CoverBatch:
    """What a cover was made of, and what it needs besides to become a plan."""

    layout: TileLayout
    groups: Words
    patterns: Patterns
    cover: Cover
    #: The fingerprint of each part, in two halves.
    head: U64
    tail: U64
    tables: TileTables
    tag: int


def assemble(batch: CoverBatch) -> KeyPlan:
    """The plan. Marks the tables that it hands out as given."""
    cover, tiles, count = batch.cover, len(batch.layout.tiles), batch.groups.shape[0]
    member_start, slot = _members(batch.groups)
    beyond, without = bits.pairs(_without_tile(batch.layout, batch.groups))
    keyed = np.flatnonzero(cover.kind != THROUGH)
    keys, key, outside_key = _keys(batch, keyed, without)
    above = _nearest_with_key(cover)

    # Uses in the order of what they cover: a member's is the last one that begins at or before its own place.
    stride = MAX_TILE * tiles + int(slot.max(initial=0)) + 1
    used = keyed[above[keyed] == WHOLE]
    outside = beyond * stride + MAX_TILE * tiles + without
    place = np.concatenate((cover.group[used] * stride + _begins(cover, used), outside))
    order = np.argsort(place, kind="stable")
    uses = np.concatenate((key[used], outside_key))[order]
    use_start = np.searchsorted(place[order], np.arange(count + 1) * stride)
    via = np.zeros(slot.size, np.int64)
    # Where one key serves the whole group, as it mostly does, there is nothing to look for.
    rows = _rows(member_start, np.flatnonzero(np.diff(use_start) > 1))
    group = np.searchsorted(member_start, rows, side="right") - 1
    here = group * stride + _units(batch.layout, slot[rows])
    via[rows] = np.searchsorted(place[order], here, side="right") - 1 - use_start[group]

    linked = keyed[above[keyed] != WHOLE]
    rented = np.flatnonzero((cover.kind == NEW) & (cover.node == TILE))
    handout_slot, handout_part = _members_of(batch, rented)
    table_slot, table_of, table_group = _tables(batch)
    return KeyPlan(
        keys=keys,
        use_start=use_start,
        uses=uses,
        member_start=member_start,
        members=slot,
        via=via,
        handout_slot=handout_slot,
        handout_key=key[handout_part],
        handout_group=cover.group[handout_part],
        link_key=key[above[linked]],
        link_under=key[linked],
        link_group=cover.group[linked],
        link_grows=cover.stem[linked] & (cover.parent[linked] == above[linked]),
        tables=batch.layout.tiles,
        table_slot=table_slot,
        table_of=table_of,
        table_group=table_group,
        outline=batch.layout.outline,
    )


def concatenated(plans: Sequence[KeyPlan]) -> KeyPlan:
    """The plans of consecutive groups, made one after the other over one layout, as one."""
    if len(plans) == 1:
        return plans[0]
    parts = [plan.keys for plan in plans if isinstance(plan.keys, PlanKeys)]
    grown = list(dict.fromkeys(ref for keys in parts for ref in keys.grown))
    pairs = list(dict.fromkeys(ref for keys in parts for ref in keys.pairs))
    together: list[KeyRef] = [*grown, *pairs]
    place = {ref: at for at, ref in enumerate(together)}
    codes = np.unique(np.concatenate([keys.codes for keys in parts]))
    renamed = [
        np.append([place[keys[i]] for i in range(keys.warm)], len(place) + np.searchsorted(codes, keys.codes)).astype(
            np.int64
        )
        for keys in parts
    ]
    first = np.cumsum([0, *(plan.use_start.size - 1 for plan in plans)])[:-1]
    arrays: dict[str, Any] = {}
    for name in ("members", "via", "handout_slot", "link_grows", "table_slot", "table_of"):
        arrays[name] = np.concatenate([getattr(plan, name) for plan in plans])
    for name in ("use_start", "member_start"):
        arrays[name] = np.cumsum(np.append(0, np.concatenate([np.diff(getattr(plan, name)) for plan in plans])))
    for name in ("uses", "handout_key", "link_key", "link_under"):
        arrays[name] = np.concatenate([new[getattr(plan, name)] for plan, new in zip(plans, renamed, strict=True)])
    for name in ("handout_group", "link_group", "table_group"):
        arrays[name] = np.concatenate([getattr(plan, name) + at for plan, at in zip(plans, first, strict=True)])
    tables, outline = plans[0].tables, plans[0].outline
    return KeyPlan(keys=PlanKeys(grown, pairs, tables, codes), tables=tables, outline=outline, **arrays)


def _nearest_with_key(cover: Cover) -> Indices:
    above = cover.parent.copy()
    while True:
        skip = (above != WHOLE) & (cover.kind[above] == THROUGH)
        if not skip.any():
            return above
        above[skip] = cover.parent[above[skip]]


def _members(groups: Words) -> tuple[Indices, Indices]:
    """Where the members of each group begin, and who they are."""
    group, slot = bits.pairs(groups)
    return bits.starts(group, groups.shape[0]), slot


def _without_tile(layout: TileLayout, groups: Words) -> Words:
    """Returns the members of each group that have no tile."""
    covered = fit(layout.covered[None, :], 64 * groups.shape[1])
    return groups & ~covered


def _rows(start: Indices, groups: Indices) -> Indices:
    """The places of all members of some groups."""
    return bits.runs(start[groups], np.diff(start)[groups])


def _units(layout: TileLayout, slot: Indices) -> Indices:
    """The place of each member; those without one get places of their own behind all tiles."""
    placed = np.full(slot.size, -1, np.int64)
    known = slot < layout.place_of.size
    placed[known] = layout.place_of[slot[known]]
    return np.where(placed < 0, MAX_TILE * len(layout.tiles) + slot, placed)


def _begins(cover: Cover, parts: Indices) -> Indices:
    """The place from which on a part has its members: of a single member, its own."""
    single = cover.size[parts] == 1
    return MAX_TILE * cover.first[parts] + np.where(single, _lowest(cover.pattern[parts]), 0)


def _lowest(pattern: Patterns) -> Indices:
    """The place of the lowest member; 16 where there is none."""
    wide = pattern.astype(np.int64)
    lowest: Indices = np.bitwise_count((wide & -wide) - 1).astype(np.int64)
    return lowest


# --- keys -----------------------------------------------------------------------------------------------


def _keys(batch: CoverBatch, keyed: Indices, outside: Indices) -> tuple[PlanKeys, Indices, Indices]:
    """All keys; for every part the position of its own, and for members without a tile that of their pair key."""
    cover = batch.cover
    key = np.full(cover.kind.size, -1, np.int64)
    inner = keyed[cover.node[keyed] != TILE]
    single = keyed[cover.size[keyed] == 1]
    table = keyed[cover.size[keyed] > 1]

    example, key[inner] = _distinct(batch.head[inner], batch.tail[inner])
    namer = Namer(batch.layout, batch.groups, batch.patterns)
    known = inner[example]
    grown = namer.grown(cover.group[known], cover.first[known], cover.last[known])

    alone = batch.layout.slot_at[_begins(cover, single)]
    slots, of_slot = np.unique(np.concatenate((alone, outside)), return_inverse=True)
    of_slot = of_slot.reshape(-1) + len(grown)
    key[single] = of_slot[: single.size]
    pairs = list(map(PairKey, slots.tolist()))

    code = cover.first[table] << _PATTERN_BITS | cover.pattern[table].astype(np.int64)
    codes, of_table = np.unique(code, return_inverse=True)
    key[table] = len(grown) + len(pairs) + of_table
    return PlanKeys(grown, pairs, batch.layout.tiles, codes), key, of_slot[single.size :]


def _distinct(head: U64, tail: U64) -> tuple[Indices, Indices]:
    """The first of each kind, and the kind of each. Both halves decide: a part must never get another part's key.

    Kinds are numbered in the order in which they come: fingerprints are random, and a plan should not be.
    """
    _, example, kind = np.unique(head, return_index=True, return_inverse=True)
    if not np.array_equal(tail[example][kind], tail):
        both = np.column_stack((head, tail))
        _, example, kind = np.unique(both, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(example)
    number = np.empty(order.size, np.int64)
    number[order] = np.arange(order.size)
    return example[order], number[kind.reshape(-1)]


# --- what is handed out to slots --------------------------------------------------------------------------


def _members_of(batch: CoverBatch, parts: Indices) -> tuple[Indices, Indices]:
    """Returns each member's slot and the part that it is in, for parts of a tile."""
    raw = batch.cover.pattern[parts].astype("<u2").view(np.uint8).reshape(-1, 2)
    row, place = np.nonzero(np.unpackbits(raw, axis=1, bitorder="little"))
    return batch.layout.slot_at[batch.cover.first[parts[row]] * MAX_TILE + place], parts[row]


def _tables(batch: CoverBatch) -> tuple[Indices, Indices, Indices]:
    """Tables are given to whoever first needs a key of theirs."""
    cover = batch.cover
    parts = np.flatnonzero((cover.node == TILE) & (cover.size > 1) & batch.tables.bought[cover.first])
    parts = parts[np.argsort(cover.group[parts], kind="stable")]
    slot, part = _members_of(batch, parts)
    missing = batch.tables.missing(batch.layout.place_of[slot], batch.tag)
    slots, first = np.unique(slot[missing], return_index=True)
    batch.tables.give(batch.layout.place_of[slots], batch.tag)
    of = part[missing[first]]
    return slots, cover.first[of], cover.group[of]
