"""A broker's layers in a tree, each key derived when it is first used.

Who stands below a broker changes from post to post, and rows outlive who sent them: to take a subscriber's filter out
again needs the key that it came under, also when its owner has left or was revoked. So keys are not listed in advance.
Whoever the broker shares an announced key with in the tree's epoch is derived on demand; whose posts are taken is for
the keeper to decide, and a layer that nobody put on gives a row that no event hits.
"""

from __future__ import annotations

from collections.abc import Callable

from sealcast.errors import NotFound, Rejected
from sealcast.model.protection import Layered
from sealcast.primitives.algebra import group_named
from sealcast.primitives.groups import Exponent, Group
from sealcast.primitives.secrets import Secret
from sealcast.protections.layered.layers import Layers, shared_exponent
from sealcast.protections.layered.tree import TreeId, TreePlace
from sealcast.trust.handles import OpenRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.layer_keys import Agreement, agreement_keys

#: The keys of a tree, for who stands there.
LayersOf = Callable[[TreeId, TreePlace], Layers]
Pairs = Callable[[str], Secret | None]


class AgreedLayers(Layers):
    """`Layers` whose keys are agreed on with whoever they are asked for."""

    def __init__(self, group: Group, domain: bytes, place: TreePlace, pairs: Pairs) -> None:
        super().__init__(group, {})
        self._domain, self._place, self._pairs = domain, place, pairs

    def key(self, other: str) -> Exponent:
        found = self._keys.get(other)
        if found is None:
            pair = self._pairs(other)
            if pair is None:
                raise Rejected(
                    f"{self._place.name!r} shares no key with {other!r}",
                    hint="it announces one when it first takes part; nodes share keys with those up to r hops away",
                )
            names = (self._place.name, other) if other in self._place.chain else (other, self._place.name)
            found = self._keys[other] = shared_exponent(pair, self.group, self._domain, *names)
        return found


class _Epoch:
    """What a broker shares with others in one epoch, by the newest registry."""

    def __init__(self, realm: OpenRealm, topic: str, identity: Identity, epoch: int) -> None:
        self._realm, self._topic, self._identity, self._epoch = realm, topic, identity, epoch
        self._version = -1
        self._keys: Agreement | None = None

    def pair(self, peer: str) -> Secret | None:
        """None also in an epoch in which this broker had no key yet, or has none any more."""
        try:
            return self._pair(peer)
        except NotFound:
            return None

    def _pair(self, peer: str) -> Secret | None:
        found = self._keys.pair(peer) if self._keys is not None else None
        if found is None:
            state = self._realm.state()
            if self._keys is None or state.version != self._version:
                # Announced since. Rows of those who were revoked meanwhile have to be found, to be taken out.
                self._keys = agreement_keys(self._realm, self._identity, state, self._topic, self._epoch, former=True)
                self._version = state.version
                found = self._keys.pair(peer)
        return found


def agreed_layers(realm: OpenRealm, topic: str, identity: Identity) -> LayersOf:
    """A broker's layers in any tree of a topic."""
    about = realm.state().topic(topic)
    epochs: dict[int, _Epoch] = {}
    if not isinstance(about.protection, Layered):
        raise Rejected(f"topic {topic!r} is not layered", hint="`sealcast topic list` says how topics are protected")
    group = group_named(about.protection.group)

    def layers(tree: TreeId, place: TreePlace) -> Layers:
        epoch = epochs.setdefault(tree.epoch, _Epoch(realm, topic, identity, tree.epoch))
        return AgreedLayers(group, tree.domain(about.id), place, epoch.pair)

    return layers
