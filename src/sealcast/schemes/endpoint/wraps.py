"""Bringing content keys and grown keys to the holders of other keys, a batch at a time.

Keys that serve often (pair keys, grown keys, cached group keys) are expanded ciphers that stay warm. Keys of tables
serve a pattern that may not come again for a long time: they hide what they carry under a mask (`primitives.labels`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sealcast.errors import Bug
from sealcast.filters.bits import Indices
from sealcast.groupkeys.interface import GrownKey, KeyPlan, KeyRef
from sealcast.groupkeys.mosaic.assemble import PlanKeys
from sealcast.primitives import aead, labels
from sealcast.primitives.labels import MASKED_BYTES
from sealcast.primitives.secrets import Unpicklable
from sealcast.schemes.endpoint.broker import EndpointSealer
from sealcast.schemes.endpoint.tables import LINK, WRAP


class Secrets(Unpicklable):
    """The secrets of a plan's keys by position: those of tables by the column, the others when asked for."""

    def __init__(self, refs: Sequence[KeyRef], sealer: EndpointSealer) -> None:
        self._refs, self._sealer = refs, sealer
        #: Positions below are of keys that are kept as warm ciphers.
        self.warm = len(refs.refs) if isinstance(refs, PlanKeys) else len(refs)
        self._tables = list(_of_tables(refs, sealer)) if isinstance(refs, PlanKeys) else []

        self._known: dict[int, bytes] = {}

    def __getitem__(self, key: int) -> bytes:
        if key >= self.warm:
            return self._tables[key - self.warm]
        if key not in self._known:
            self._known[key] = self._sealer.secret(self._refs[key])
        return self._known[key]


def _of_tables(refs: PlanKeys, sealer: EndpointSealer) -> Iterator[bytes]:
    # Ordered by tile, as a plan has them.
    for rows in np.split(np.arange(refs.tile.size), np.flatnonzero(np.diff(refs.tile)) + 1):
        if rows.size:
            yield from sealer.tables.keys(refs.tiles[int(refs.tile[rows[0]])], refs.pattern[rows])


def wrap_content_keys(
    content_keys: Mapping[int, bytes],
    nonces: Sequence[bytes],
    use_start: Indices,
    uses: Indices,
    refs: Sequence[KeyRef],
    sealer: EndpointSealer,
    secrets: Secrets,
) -> list[bytes]:
    """One wrap a use of a wrapped event (48 bytes), in the order of the uses. `secrets` are those of `refs`."""
    warm = secrets.warm
    # Only of keys that wrap something: a key that seals bodies itself is another cipher.
    events = np.fromiter(content_keys, np.int64, len(content_keys))
    counts = _uses_of(events, use_start, uses, len(refs))
    needed = np.flatnonzero(counts[:warm])
    place = np.zeros(len(refs), np.int64)
    place[needed] = np.arange(needed.size)
    ring = aead.KeyRing([sealer.wrap_key(refs[i]) for i in needed.tolist()])
    ring.account(counts[needed].tolist())
    start, keys, in_ring = use_start.tolist(), uses.tolist(), place.tolist()
    wraps: list[bytes] = []
    masked: list[tuple[bytes, bytes, bytes]] = []
    at: list[int] = []
    for event, content_key in content_keys.items():
        mine = keys[start[event] : start[event + 1]]
        if max(mine) < warm:
            wraps += ring.seal_under([in_ring[key] for key in mine], nonces[event], content_key)
            continue
        for key in mine:
            if key < warm:
                wraps += ring.seal_under((in_ring[key],), nonces[event], content_key)
            else:
                at.append(len(wraps))
                wraps.append(b"")
                masked.append((secrets[key], nonces[event], content_key))
    for row, wrap in zip(at, _mask(masked, WRAP), strict=True):
        wraps[row] = wrap
    return wraps


def _uses_of(events: Indices, use_start: Indices, uses: Indices, n_keys: int) -> Indices:
    flags = np.zeros(use_start.size - 1, np.int64)
    flags[events] = 1
    picked = np.repeat(flags, np.diff(use_start)) > 0
    return np.bincount(uses[picked], minlength=n_keys)


def links(plan: KeyPlan, sealer: EndpointSealer, secrets: Secrets) -> list[bytes]:
    """What each link of a plan carries: a key under a mask, or nothing where the key grows out of the other."""
    found = [b""] * plan.link_key.size
    ids: dict[int, bytes] = {}
    masked: list[tuple[bytes, bytes, bytes]] = []
    at: list[int] = []
    for row, (key, under) in enumerate(zip(plan.link_key.tolist(), plan.link_under.tolist(), strict=True)):
        ref = plan.keys[key]
        if not isinstance(ref, GrownKey):
            raise Bug("only grown keys are handed out under other keys")
        if ref.stem != plan.keys[under]:
            if key not in ids:
                ids[key] = sealer.key_id(ref)
            at.append(row)
            masked.append((secrets[under], ids[key], secrets[key]))
    for row, link in zip(at, _mask(masked, LINK), strict=True):
        found[row] = link
    return found


def _mask(masked: Sequence[tuple[bytes, bytes, bytes]], purpose: bytes) -> list[bytes]:
    if not masked:
        return []
    under, places, hidden = zip(*masked, strict=True)
    joined = labels.mask_many(under, places, purpose, hidden)
    return [joined[i : i + MASKED_BYTES] for i in range(0, len(joined), MASKED_BYTES)]
