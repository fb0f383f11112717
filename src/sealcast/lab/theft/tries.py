"""A thief with the keys in its hands: it obeys nothing, and tries them on all that lies here and on carriers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

from sealcast.errors import CannotOpen, NotFound
from sealcast.lab import thief
from sealcast.lab.theft import queued
from sealcast.lab.theft.hops import LayerThief
from sealcast.lab.theft.loot import Loot
from sealcast.lab.theft.pieces import handed, lying_at, open_own, open_with_topic_keys
from sealcast.lab.theft.publishing import publish
from sealcast.lab.theft.reads import Reads, in_logs
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.topic_keys import EntityKeys


class Tries(Unpicklable):
    """`reads.Thief`, by trying."""

    tries = True

    def __init__(self, realm: Realm, loot: Loot, only: Collection[bytes] | None = None) -> None:
        """Where events have ids that brokers see, it can be told to try `only` some of them."""
        self._realm, self._loot, self._only = realm, loot, only

    @property
    def name(self) -> str:
        return self._loot.name

    def reads(self, topic: str) -> Reads:
        state, loot, opened, tried = self._realm.state(), self._loot, 0, 0
        for broker in state.brokers():
            for lying in lying_at(self._realm, topic, broker):
                if topic in loot.topic_keys:
                    good, some = open_with_topic_keys(state, loot.topic_keys[topic], topic, broker, lying.delivered)
                else:
                    good, some = open_own(state, loot, topic, broker, lying)
                opened, tried = opened + good, tried + some
        frames = sum(read.messages for _, _, read in self.frames(topic))
        found = Reads(opened, tried, frames, queued.opened(self._realm, state, topic, partial(self._keys, topic)))
        return self._with_layers(topic, found) if state.topic(topic).protection.overlay else found

    def frames(self, topic: str) -> Iterator[tuple[str, int, thief.FramesRead]]:
        about = self._realm.state().topic(topic)
        return in_logs(self._realm, topic, self.name, lambda log: thief.read(log, about, partial(self._pair, topic)))

    def publishes(self, topic: str) -> str:
        return publish(self._realm, self._loot, topic)

    # --- inside -------------------------------------------------------------------------------------

    def _with_layers(self, topic: str, found: Reads) -> Reads:
        halves = {epoch: half for (where, epoch), half in self._loot.halves.items() if where == topic}
        layers = LayerThief(self._realm, topic, self._loot.identity, halves, self._only)
        good, some = layers.opened()
        if Role.BROKER not in self._loot.roles:
            return found._replace(opened=found.opened + good, tried=found.tried + some)
        passed, all_of_them = layers.opened_as_broker()
        # What it was sent as a reader passed it as well.
        return found._replace(
            opened=found.opened + max(good, passed), tried=found.tried + all_of_them, routed=layers.routed()
        )

    def _pair(self, topic: str, publisher: str, epoch: int) -> Secret:
        loot = self._loot
        if topic in loot.topic_keys:
            return loot.topic_keys[topic](epoch).pair_key(publisher)
        if publisher != loot.name or (topic, epoch) not in loot.keys:
            raise NotFound(f"no key of {publisher!r} was taken")
        return loot.keys[topic, epoch].pair

    def _keys(self, topic: str, epoch: int) -> EntityKeys:
        """As a reader: what it was handed, or would have handed out."""
        loot = self._loot
        if topic in loot.topic_keys:
            return handed(loot.topic_keys[topic], epoch, loot.name)
        if (topic, epoch) not in loot.keys:
            raise CannotOpen(f"no key of epoch {epoch} was taken")
        return loot.keys[topic, epoch]
