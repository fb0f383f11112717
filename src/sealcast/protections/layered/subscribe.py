"""ENCRYPT FILTER: a subscriber's labels under the layers of its r nearest ancestors.

    F = H(f)^(k(S, v_1) ... k(S, v_min(r, n)))            [F; S] goes to the parent

One power a label: the exponents are multiplied first. The product also opens what comes back (`open.py`).
"""

from __future__ import annotations

from functools import reduce
from operator import mul

from sealcast.errors import Misuse
from sealcast.filters.labels import Conjunction, LabelFilter
from sealcast.primitives.groups import CachedHashes, Exponent
from sealcast.protections.layered.layers import Layers
from sealcast.protections.layered.messages import FilterMessage, arranged
from sealcast.protections.layered.tree import TreePlace


def own_layers(place: TreePlace, layers: Layers) -> Exponent:
    """The product of the keys shared with all of a subscriber's ancestors up to r."""
    if place.parent == place.publisher:
        raise Misuse(
            f"{place.name} is right below the publisher, who would read its filters",
            hint="put a relay between them: subscribers stand two hops below, r for full strength",
        )
    return reduce(mul, (layers.key(ancestor) for ancestor in place.chain))


class FilterEncrypter:
    """Makes one node's filters ready for its parent."""

    def __init__(self, place: TreePlace, layers: Layers, hashes: CachedHashes) -> None:
        self.place = place
        self._group = layers.group
        self._hashes = hashes
        self._own = own_layers(place, layers)

    def encrypt_filter(self, wanted: LabelFilter, *, remove: bool = False) -> list[FilterMessage]:
        """The messages that add the filter, or end it: the same tokens, since encryption is deterministic."""
        return [self._message(conjunction, remove) for conjunction in wanted.conjunctions]

    def _message(self, conjunction: Conjunction, remove: bool) -> FilterMessage:
        group = self._group
        slots = [group.power_many([self._hashes(label) for label in slot], self._own) for slot in conjunction.slots]
        return FilterMessage(arranged(map(group.encode, slot) for slot in slots), (self.place.name,), remove)
