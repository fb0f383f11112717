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
from sealcast.primitives.secrets import KEY_BYTES, Unpicklable
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

    def ref(self, key: int) -> KeyRef:
        return self._refs[key]

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
    sealer: EndpointSealer,
    secrets: Secrets,
) -> list[bytes]:
    """One wrap a use of a wrapped event (48 bytes), in the order of the events in `content_keys` and of their uses."""
    if not content_keys:
        return []
    events = np.fromiter(content_keys, np.int64, len(content_keys))
    lengths = np.diff(use_start)[events]
    starts = np.cumsum(lengths) - lengths
    key = uses[np.repeat(use_start[events] - starts, lengths) + np.arange(lengths.sum())]
    event = np.repeat(np.arange(events.size), lengths)
    masked = np.flatnonzero(key >= secrets.warm)
    contents = np.frombuffer(b"".join(content_keys.values()), np.uint8).reshape(-1, KEY_BYTES)
    by_mask = labels.mask_many(
        map(secrets.__getitem__, key[masked].tolist()),
        map(nonces.__getitem__, events[event[masked]].tolist()),
        WRAP,
        contents[event[masked]],
    )
    if masked.size == key.size:
        return by_mask
    wraps = _under_ciphers(list(content_keys.items()), nonces, key, starts, lengths, sealer, secrets)
    for row, wrap in zip(masked.tolist(), by_mask, strict=True):
        wraps[row] = wrap
    return wraps


def _under_ciphers(
    content_keys: list[tuple[int, bytes]],
    nonces: Sequence[bytes],
    key: Indices,
    starts: Indices,
    lengths: Indices,
    sealer: EndpointSealer,
    secrets: Secrets,
) -> list[bytes]:
    """Wraps under warm ciphers, and empty ones where a mask belongs."""
    counts = np.bincount(key, minlength=secrets.warm)[: secrets.warm]
    # Only of keys that wrap something: a key that seals bodies itself is another cipher.
    needed = np.flatnonzero(counts)
    ring = aead.KeyRing([sealer.wrap_key(secrets.ref(i)) for i in needed.tolist()])
    ring.account(counts[needed].tolist())
    place = np.searchsorted(needed, key)
    warm = key < secrets.warm
    wraps = [b""] * key.size
    rows, in_ring = np.arange(key.size), place.tolist()
    for (event, content_key), start, length in zip(content_keys, starts.tolist(), lengths.tolist(), strict=True):
        mine = rows[start : start + length][warm[start : start + length]].tolist()
        made = ring.seal_under([in_ring[row] for row in mine], nonces[event], content_key)
        if len(mine) == length:
            wraps[start : start + length] = made
        else:
            for row, wrap in zip(mine, made, strict=True):
                wraps[row] = wrap
    return wraps


def links(plan: KeyPlan, sealer: EndpointSealer, secrets: Secrets) -> list[bytes]:
    """What each link of a plan carries: a key under a mask, or nothing where the key grows out of the other."""
    found = [b""] * plan.link_key.size
    ids: dict[int, bytes] = {}
    at: list[int] = []
    under_secret, places, hidden = [], [], []
    for row, (key, under) in enumerate(zip(plan.link_key.tolist(), plan.link_under.tolist(), strict=True)):
        ref = secrets.ref(key)
        if not isinstance(ref, GrownKey):
            raise Bug("only grown keys are handed out under other keys")
        if ref.stem == secrets.ref(under):
            continue
        if key not in ids:
            ids[key] = sealer.key_id(ref)
        at.append(row)
        under_secret.append(secrets[under])
        places.append(ids[key])
        hidden.append(secrets[key])
    carried = np.frombuffer(b"".join(hidden), np.uint8).reshape(-1, KEY_BYTES)
    for row, link in zip(at, labels.mask_many(under_secret, places, LINK, carried), strict=True):
        found[row] = link
    return found
