"""Every pre-filter by its name, written out: how one is made for a number of keys, and how it is read from bytes."""

from __future__ import annotations

import secrets
from difflib import get_close_matches
from typing import Final

from sealcast.errors import NotFound
from sealcast.prefilters.bloom import BloomFilter
from sealcast.prefilters.cuckoo import CuckooFilter
from sealcast.prefilters.nothing import NoFilter
from sealcast.prefilters.port import Prefilter, PrefilterReason, PrefilterRejected, unpack

FILTERS: Final[dict[str, type[NoFilter | BloomFilter | CuckooFilter]]] = {
    each.kind: each for each in (NoFilter, BloomFilter, CuckooFilter)
}
SEED_BITS: Final = 64


def sized(kind: str, items: int, rate: float, seed: int | None = None) -> Prefilter:
    """Makes an empty filter that holds `items` keys, and says yes wrongly to at most the share `rate` of others.

    The seed is drawn at random unless it is given, so that nobody can prepare keys that crowd one place.
    """
    if kind not in FILTERS:
        near = get_close_matches(kind, FILTERS, n=1)
        raise NotFound(
            f"there is no pre-filter {kind!r}" + (f" (did you mean {near[0]!r}?)" if near else ""),
            hint=f"the pre-filters are {', '.join(FILTERS)}",
        )
    return FILTERS[kind].sized(items, rate, secrets.randbits(SEED_BITS) if seed is None else seed)


def from_bytes(data: bytes) -> Prefilter:
    """Reads what `to_bytes` wrote. Raises `PrefilterRejected` with the reason for anything else."""
    parts = unpack(data)
    if parts.kind not in FILTERS:
        raise PrefilterRejected(PrefilterReason.KIND, f"there is no pre-filter of kind {parts.kind!r}")
    return FILTERS[parts.kind].unpacked(parts)
