"""Bringing content keys and grown keys to the holders of other keys, a batch at a time.

Keys that serve often (pair keys, grown keys, cached group keys) are expanded ciphers that stay warm. Keys of tables
serve a pattern that may not come again for a long time: they hide what they carry under a mask (`primitives.labels`).
Grown keys always travel under masks: each does so once to each of its other sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Bug
from sealcast.filters.bits import Indices
from sealcast.groupkeys.interface import GroupKey, GrownKey, KeyPlan, KeyRef, PairKey, TableKey
from sealcast.groupkeys.mosaic.assemble import PlanKeys
from sealcast.groupkeys.mosaic.naming import GrownKeys
from sealcast.primitives import aead, labels
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.endpoint.sealer import EndpointSealer
from sealcast.protections.endpoint.tables import LINK, WRAP
from sealcast.wire.limits import KEY_ID_BYTES, TABLE_NAME_BYTES
from sealcast.wire.sealed import GROUP, GROWN, PAIR, TABLE

_KINDS = {PairKey: PAIR, GroupKey: GROUP, TableKey: TABLE, GrownKey: GROWN}


class PlannedKeys(Unpicklable):
    """The keys of a plan with their values, by position: those of tables by the column, the others when asked for."""

    def __init__(self, refs: Sequence[KeyRef], sealer: EndpointSealer) -> None:
        self._refs, self._sealer = refs, sealer
        #: Positions below are of keys that are kept as warm ciphers.
        self.warm = refs.warm if isinstance(refs, PlanKeys) else len(refs)
        self._warm_ids = _warm_ids(refs, sealer)

    @cached_property
    def ids(self) -> bytes:
        """Their names on the wire, in one piece."""
        ids = b"".join(self._warm_ids)
        if not isinstance(self._refs, PlanKeys) or not self._refs.codes.size:
            return ids
        keys = self._refs
        used = np.unique(keys.tile)
        names = np.zeros((int(used[-1]) + 1, TABLE_NAME_BYTES), np.uint8)
        for tile in used.tolist():
            names[tile] = np.frombuffer(self._sealer.table_name(keys.tiles[tile]), np.uint8)
        rows = np.empty((keys.codes.size, KEY_ID_BYTES), np.uint8)
        rows[:, :TABLE_NAME_BYTES] = names[keys.tile]
        rows[:, TABLE_NAME_BYTES:] = keys.pattern.astype(">u4").view(np.uint8).reshape(-1, 4)
        return ids + rows.tobytes()

    @cached_property
    def kinds(self) -> NDArray[np.uint8]:
        refs = self._refs
        if isinstance(refs, PlanKeys):
            return np.repeat(
                np.array([GROWN, PAIR, TABLE], np.uint8), [len(refs.grown), len(refs.pairs), refs.tile.size]
            )
        return np.array([_KINDS[type(ref)] for ref in refs], np.uint8)

    def ref(self, key: int) -> KeyRef:
        return self._refs[key]

    def id(self, key: int) -> bytes:
        return self._warm_ids[key] if key < self.warm else self._sealer.key_id(self._refs[key])

    def secret(self, key: int) -> bytes:
        """Raw, for masks."""
        if key >= self.warm:
            return self._tables[key - self.warm]
        return self._sealer.secret(self._refs[key], self._warm_ids[key])

    def secrets(self, positions: Indices) -> list[bytes]:
        """`secret` for each of many."""
        warm, secret, tables = self.warm, self.secret, self._tables
        return [tables[key - warm] if key >= warm else secret(key) for key in positions.tolist()]

    def wrap_key(self, key: int) -> SealingKey:
        return self._sealer.wrap_key(self._refs[key], self.id(key))

    def body_key(self, key: int) -> SealingKey:
        key_id = self.id(key)
        return self._sealer.known_body_key(key_id) or self._sealer.body_key(self._refs[key], key_id)

    def hand_out(self, slot: int, key: int) -> bytes:
        return self._sealer.hand_out(PairKey(slot), self._refs[key], self.id(key))

    @cached_property
    def _tables(self) -> list[bytes]:
        keys = self._refs
        if not isinstance(keys, PlanKeys):
            return []
        found: list[bytes] = []
        # Ordered by tile, as a plan has them.
        for rows in np.split(np.arange(keys.tile.size), np.flatnonzero(np.diff(keys.tile)) + 1):
            if rows.size:
                found += self._sealer.tables.keys(keys.tiles[int(keys.tile[rows[0]])], keys.pattern[rows])
        return found


def _warm_ids(refs: Sequence[KeyRef], sealer: EndpointSealer) -> list[bytes]:
    if not isinstance(refs, PlanKeys):
        return [sealer.key_id(ref) for ref in refs]
    grown = refs.grown
    if isinstance(grown, GrownKeys):
        ids = sealer.grown_ids(grown.shapes, grown.packed)
    else:
        ids = [sealer.key_id(ref) for ref in grown]
    return ids + [sealer.key_id(ref) for ref in refs.pairs]


def wrap_content_keys(
    content_keys: Mapping[int, bytes], nonces: Sequence[bytes], use_start: Indices, uses: Indices, keys: PlannedKeys
) -> list[bytes]:
    """One wrap a use of a wrapped event (48 bytes), in the order of the events in `content_keys` and of their uses."""
    if not content_keys:
        return []
    events = np.fromiter(content_keys, np.int64, len(content_keys))
    lengths = np.diff(use_start)[events]
    starts = np.cumsum(lengths) - lengths
    key = uses[np.repeat(use_start[events] - starts, lengths) + np.arange(lengths.sum())]
    masked = np.flatnonzero(key >= keys.warm)
    if not masked.size:
        return _under_ciphers(list(content_keys.items()), nonces, key, starts, lengths, keys)
    event = np.repeat(np.arange(events.size), lengths)[masked]
    by_mask = labels.mask_many(
        keys.secrets(key[masked]),
        map(nonces.__getitem__, events[event].tolist()),
        WRAP,
        labels.checked(list(content_keys.values()))[event],
    )
    if masked.size == key.size:
        return by_mask
    wraps = _under_ciphers(list(content_keys.items()), nonces, key, starts, lengths, keys)
    for row, wrap in zip(masked.tolist(), by_mask, strict=True):
        wraps[row] = wrap
    return wraps


def _under_ciphers(
    content_keys: list[tuple[int, bytes]],
    nonces: Sequence[bytes],
    key: Indices,
    starts: Indices,
    lengths: Indices,
    keys: PlannedKeys,
) -> list[bytes]:
    """Wraps under warm ciphers, and empty ones where a mask belongs."""
    counts = np.bincount(key, minlength=keys.warm)[: keys.warm]
    # Only of keys that wrap something: a key that seals bodies itself is another cipher.
    needed = np.flatnonzero(counts)
    ring = aead.KeyRing(list(map(keys.wrap_key, needed.tolist())))
    ring.account(counts[needed].tolist())
    place = np.searchsorted(needed, key)
    warm = key < keys.warm
    if warm.all():
        made, in_ring, ends = list[bytes](), place.tolist(), (starts + lengths).tolist()
        for (event, content_key), start, end in zip(content_keys, starts.tolist(), ends, strict=True):
            made += ring.seal_under(in_ring[start:end], nonces[event], content_key)
        return made
    wraps = [b""] * key.size
    which = np.flatnonzero(warm)
    bounds = np.searchsorted(which, np.append(starts, key.size)).tolist()
    rows, in_ring = which.tolist(), place[which].tolist()
    for number, (event, content_key) in enumerate(content_keys):
        mine = slice(bounds[number], bounds[number + 1])
        sealed = ring.seal_under(in_ring[mine], nonces[event], content_key)
        for row, wrap in zip(rows[mine], sealed, strict=True):
            wraps[row] = wrap
    return wraps


def links(plan: KeyPlan, keys: PlannedKeys) -> list[bytes]:
    """What each link of a plan carries that is no growth: a key under a mask."""
    rows = np.flatnonzero(~plan.link_grows)
    if not rows.size:
        return []
    carried, which = np.unique(plan.link_key[rows], return_inverse=True)
    if any(not isinstance(keys.ref(key), GrownKey) for key in carried.tolist()):
        raise Bug("only grown keys are handed out under other keys")
    hidden = labels.checked(list(map(keys.secret, carried.tolist())))
    ids = list(map(keys.id, carried.tolist()))
    under = keys.secrets(plan.link_under[rows])
    return labels.mask_many(under, [ids[i] for i in which.tolist()], LINK, hidden[which])
