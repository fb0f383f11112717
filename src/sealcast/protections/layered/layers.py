"""One node's layers: taking its own off, putting others on, and not doing again what it did before.

A key is shared by a node and an ancestor of it, at most r hops above: k(descendant, ancestor). A node names its keys by
the other one's name, since it cannot be both above and below itself.

**Remembering is no new leakage.** A layer is deterministic: equal tokens under equal keys are equal before and after.
A node that keeps what it computed holds what it would compute again, in its own memory, under keys it has anyway; what
it sends is the same bytes. What an onlooker with a clock could learn, that a token was seen before, stands in the
tokens themselves. Caches are bounded: a flood of fresh tokens costs the node powers, never memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from sealcast.errors import Rejected
from sealcast.primitives.groups import Element, Exponent, Group
from sealcast.primitives.secrets import Secret, Unpicklable

#: Tokens taken off, and tokens put on, kept per node: some 300 bytes each.
MAX_CACHED_TOKENS: Final = 65_536
#: Payload keys: these repeat only where a publisher lets them.
MAX_CACHED_KEYS: Final = 4_096


def shared_exponent(pair: Secret, group: Group, domain: bytes, descendant: str, ancestor: str) -> Exponent:
    """k(descendant, ancestor) out of what the two agreed on; `domain` is the topic and the epoch."""
    names = (descendant.encode(), ancestor.encode())
    return Exponent.derive(pair, group.order, b"layer", group.name.encode(), domain, *names)


class Layers(Unpicklable):
    """The keys of one node in one tree, and what it did with them lately."""

    def __init__(self, group: Group, keys: Mapping[str, Exponent], cached: int = MAX_CACHED_TOKENS) -> None:
        self.group = group
        self._keys = dict(keys)
        self._inverses: dict[str, Exponent] = {}
        self._swaps: dict[tuple[str, str], Exponent] = {}
        #: Powers computed, for whoever counts.
        self.powers = 0
        self.peel = lru_cache(cached)(self._peel)
        self.add = lru_cache(cached)(self._add)
        self.swap = lru_cache(min(cached, MAX_CACHED_KEYS))(self._swap)

    def key(self, other: str) -> Exponent:
        try:
            return self._keys[other]
        except KeyError:
            raise Rejected(
                f"no key is shared with {other!r}", hint="nodes share keys with those up to r hops away"
            ) from None

    def replace(self, keys: Mapping[str, Exponent]) -> None:
        """Other keys: neighbours came or went, or an epoch began. What was remembered is forgotten."""
        self._keys = dict(keys)
        self._inverses.clear()
        self._swaps.clear()
        for cache in (self.peel, self.add, self.swap):
            cache.cache_clear()

    def _peel(self, other: str, token: bytes) -> Element:
        """D: a received token, checked, without the layer shared with `other`."""
        if other not in self._inverses:
            self._inverses[other] = self.key(other).inverse
        element = self.group.decode(token)
        self.powers += 1
        return self.group.power(element, self._inverses[other])

    def _add(self, other: str, element: Element) -> bytes:
        """E: an element with the layer shared with `other`, for the wire."""
        key = self.key(other)
        self.powers += 1
        return self.group.encode(self.group.power(element, key))

    def _swap(self, off: str, on: str, token: bytes) -> bytes:
        """Both at once, in one power: for a payload key, which nobody looks up in between."""
        if (off, on) not in self._swaps:
            self._swaps[off, on] = self.key(on) / self.key(off)
        element = self.group.decode(token)
        self.powers += 1
        return self.group.encode(self.group.power(element, self._swaps[off, on]))
