"""Peers of one process carry events among themselves: from publishers' own logs to subscribers' own inboxes.

    publisher's log ──> PublisherPeer ──> events ──> every SubscriberPeer here ──> its inbox
                                             └─────> whoever carries them on to peers elsewhere (`onward`)

No network lies between peers of one process: each still believes nothing that another says, and checks every event by
itself. A publisher's frames count as sent when every inbox here is durable, and `onward` has taken them. A process that
dies in between carries them again; inboxes and peers elsewhere know what they had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack

from sealcast.errors import Rejected, SealcastError, Unavailable
from sealcast.log.closing import Closing
from sealcast.model.bounded import bounded
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.attribute.incoming import BYTES_PER_RECORD, EVENTS_PER_RECORD, SubscriberPeer
from sealcast.protections.attribute.interests import CredentialInterests
from sealcast.protections.attribute.outgoing import PublisherPeer
from sealcast.protections.attribute.settings import is_attribute
from sealcast.protections.own_filters import keepers
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.state import RealmState
from sealcast.wire.carried import CarriedEvent

#: Takes events for peers elsewhere: when it returns, they will get there.
Onward = Callable[[str, Sequence[CarriedEvent]], None]


def nobody_elsewhere(topic: str, events: Sequence[CarriedEvent]) -> None:
    """For a realm whose peers all are here."""


class PeerCarrier(Closing, Unpicklable):
    """The peers of some entities on some topics, in this process. Close it, or use it in a `with` block."""

    def __init__(
        self,
        realm: EntityRealm,
        topics: Iterable[str] | None = None,
        names: Iterable[str] | None = None,
        onward: Onward = nobody_elsewhere,
    ) -> None:
        """All topics that peers carry and all entities whose keys are here, or those that are named. Locked where
        another process runs one of them."""
        self._realm, self._onward = realm, onward
        state = realm.state()
        self._topics = list(topics_here(state) if topics is None else topics)
        self._only = None if names is None else frozenset(names)
        self._publishers: dict[tuple[str, str], PublisherPeer] = {}
        self._subscribers: dict[tuple[str, str], SubscriberPeer] = {}
        self._held = ExitStack()
        #: Why somebody's keys of this epoch could not be had, by topic and name; it is tried again.
        self.troubles: dict[tuple[str, str], SealcastError] = {}

    def once(self) -> Counter[str]:
        """Carries everything that waits; what was counted."""
        done = Counter[str]()
        for topic in self._topics:
            self.look(topic)
            for publisher in self.publishers(topic):
                for batch in publisher.batches():
                    done.update(self.deliver(topic, batch.events))
                    self._onward(topic, batch.events)
                    done.update(publisher.sent(batch))
        return done

    def deliver(self, topic: str, events: Sequence[CarriedEvent]) -> Counter[str]:
        """Hands events to every subscriber here, from wherever they came; what was counted. Durable on return."""
        done = Counter[str]()
        for some in bounded(events, lambda event: len(event.message), BYTES_PER_RECORD, EVENTS_PER_RECORD):
            for subscriber in self.subscribers(topic):
                done.update(subscriber.keep(subscriber.look_at(some)))
        return done

    def look(self, topic: str) -> None:
        """Learns who takes part by now, and gets the keys of this epoch for whoever lacks them."""
        state = self._realm.state()
        for name in self._here(publishers_here(self._realm, state, topic)):
            if (topic, name) not in self._publishers:
                peer = self._publishers[topic, name] = PublisherPeer(self._realm, topic, name)
                self._held.callback(peer.close)
                self._held.enter_context(peer.alone())
        for name in self._here(subscribers_here(self._realm, state, topic)):
            self._refresh(topic, name)
            if (topic, name) not in self._subscribers:
                inbox = self._subscribers[topic, name] = SubscriberPeer(self._realm, topic, name)
                self._held.callback(inbox.close)
                self._held.enter_context(inbox.alone())

    def publishers(self, topic: str) -> list[PublisherPeer]:
        return [peer for (at, _), peer in self._publishers.items() if at == topic]

    def subscribers(self, topic: str) -> list[SubscriberPeer]:
        return [peer for (at, _), peer in self._subscribers.items() if at == topic]

    @property
    def topics(self) -> Sequence[str]:
        return self._topics

    def close(self) -> None:
        self._held.close()
        self._publishers.clear()
        self._subscribers.clear()

    def _here(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if self._only is None or name in self._only]

    def _refresh(self, topic: str, name: str) -> None:
        self.troubles.pop((topic, name), None)
        with CredentialInterests(self._realm, topic, name) as interests:
            interests.try_refresh()
            if interests.trouble is not None:
                self.troubles[topic, name] = interests.trouble


def carry(realm: EntityRealm, topics: Iterable[str] | None = None) -> dict[str, int]:
    """Carries everything that waits among the peers whose keys are here; what was counted."""
    with PeerCarrier(realm, topics) as carrier:
        return dict(carrier.once())


def refresh_here(realm: EntityRealm, topic: str) -> Iterator[tuple[str, bool | SealcastError]]:
    """Keys of this epoch for every subscriber whose keys are here and who lacks them: its name, and whether it got any,
    or why not."""
    state = realm.state()
    for name in subscribers_here(realm, state, topic):
        try:
            with CredentialInterests(realm, topic, name) as interests:
                done = interests.try_refresh()
                yield name, interests.trouble or bool(done)
        except (Unavailable, Rejected) as error:
            yield name, error


def topics_here(state: RealmState) -> list[str]:
    """The topics that peers carry."""
    return [name for name, found in state.topics.items() if is_attribute(found.topic)]


def publishers_here(realm: EntityRealm, state: RealmState, topic: str) -> list[str]:
    """Those who have a log of their own on a topic, and whose keys are here."""
    brokers = realm.paths.root / "brokers"
    names = sorted(path.name for path in brokers.iterdir()) if brokers.is_dir() else []
    return [
        name
        for name in names
        if name in state.entities
        and realm.paths.entity_key(name).exists()
        and realm.paths.topic(topic, name).frames_root.is_dir()
    ]


def subscribers_here(realm: EntityRealm, state: RealmState, topic: str) -> list[str]:
    """Those who keep filters on a topic here, and whose keys are here."""
    found = keepers(realm.paths.root / "wallets", state.topic(topic).id)
    return [name for name in found if name in state.entities and realm.paths.entity_key(name).exists()]
