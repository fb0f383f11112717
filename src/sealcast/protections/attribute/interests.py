"""What one subscriber wants on an `attribute` topic: filters that it keeps, and keys that its key center gave it.

    own filter "ann-1"  --asked for in epoch 2-->  registered as "ann-1", keys of epoch 2 in the subscriber's key ring

The registry says that a subscription exists. What it asks for, its subscriber and the key center know, which issues its
keys. Keys are of one epoch: in every new one the subscriber asks once more, whenever it, or anybody who has its keys,
looks (`refresh`). Those of an epoch before stay with it, for events that are still on their way.
"""

from __future__ import annotations

from collections.abc import Iterable

from sealcast.protections.attribute.center import wanted_labels
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.kept_interests import KeptInterests
from sealcast.protections.own_filters import OwnFilter
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic


class CredentialInterests(KeptInterests):
    """One entity's filters on one topic. Close it."""

    untold = "without keys"

    def __init__(self, realm: EntityRealm, topic: str, name: str, ring: CredentialRing | None = None) -> None:
        """NotFound where the entity's keys are not on this machine."""
        super().__init__(realm, topic, name)
        self._ring = CredentialRing(realm, topic, realm.identity(name)) if ring is None else ring
        self._owns_ring = ring is None

    def vet(self, text: str, about: Topic) -> object:
        return wanted_labels(text, about)

    def broker(self, state: RealmState) -> str:
        """Its own peer."""
        return self.name

    def over(self, state: RealmState) -> set[int]:
        """Those that are ending, and those whose subscriptions an administrator has ended."""
        given = state.subscription_topics
        ended = {number for number, each in self._own.all().items() if given.get(each.id, "") is None}
        return ended | self._own.ending()

    def withdraw(self, kept: Iterable[OwnFilter]) -> None:
        """The key center may have registered some of them."""
        with self._own.locked():
            for each in kept:
                self._own.end(each.number)
        self.try_refresh()

    def refresh(self) -> int:
        """Gets the keys of this epoch that are missing, and ends what is over; how many there were."""
        state = self.realm.state()
        epoch, done = state.topic(self.topic).epoch, 0
        if not self.is_due(state):
            return 0
        with self._own.locked():
            everything = self._own.all()
            gone = [everything[number] for number in sorted(self.over(state)) if number in everything]
            live = [each.id for each in gone if state.subscription_topics.get(each.id) == self.topic]
            if live:
                self._ring.unsubscribe(live)
            for each in gone:
                self._ring.retire(each.number)
                self._own.forget(each.number)
            done += len(gone)
            if not state.may_subscribe(self.topic, self.name, self.realm.clock()):
                return done
            for each in self._own.all().values():
                if not self._ring.has(each.number, epoch):
                    self._ring.subscribe(each, epoch)
                    done += 1
        return done

    def is_due(self, state: RealmState) -> bool:
        """Whether `refresh` has anything to do."""
        epoch = state.topic(self.topic).epoch
        missing = any(not self._ring.has(number, epoch) for number in self._own.numbers())
        return missing or bool(self.over(state))

    def close(self) -> None:
        if self._owns_ring:
            self._ring.close()
