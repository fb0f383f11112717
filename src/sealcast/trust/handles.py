"""Handles on a realm, by role: each reaches what its holder may reach, and nothing more.

    OpenRealm       public things: where files lie, the registry, whom the realm believes, frame logs
    BrokerRealm     and a broker's own secrets and copy of the revocation lists: for brokers and the pipeline
    EntityRealm     and the keys of entities and discovery nodes that are on this machine: for clients
    Realm           all of it, with the authority and the key centers: for the administrator (`trust.deployment`)

Opening a handle reads public things only. Secrets are read when they are asked for, from their owner's own file. This
module, and all that it imports, knows neither authority nor key center: a process that holds a BrokerRealm has no code
in memory that could load one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from sealcast.errors import Corrupt, Misuse
from sealcast.log.forwarded import BrokerTopic
from sealcast.trust import layout
from sealcast.trust.certificates.certificate import Trust
from sealcast.trust.certificates.revocation import RevocationStore
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.identity import Identity
from sealcast.trust.layout import FIRST_BROKER, Layout
from sealcast.trust.realm.changes import Change, PlaceSubscriber
from sealcast.trust.realm.state import RealmState
from sealcast.trust.registry import Registry, now_us
from sealcast.trust.tokens import gates


class OpenRealm:
    """A realm as anybody may see it."""

    def __init__(self, directory: str | Path | None = None, *, clock: Callable[[], int] = now_us) -> None:
        """Opens the realm in `directory`; without one, that of SEALCAST_REALM or around the working directory.

        `clock` tells the time in microseconds since 1970, for what is decided and for what is asked.
        """
        self.paths: Layout = layout.find(Path(directory) if directory is not None else None)
        mark = layout.read_mark(self.paths)
        self.name = mark.name
        self.id = mark.id
        self._root = mark.root
        self.registry = Registry(mark.registry_address(self.paths), realm=mark.id, clock=clock)
        self.clock = clock

    def state(self, version: int | None = None) -> RealmState:
        return self.registry.state(version)

    def trust(self, state: RealmState | None = None) -> Trust:
        """Whom the realm believes. Its root is the one that the realm was made with: the realm's mark says so, too."""
        founding = (self.state() if state is None else state).founding
        if founding is None or hashlib.sha256(founding.root).digest() != self._root:
            raise Corrupt(
                f"the registry of {self.paths.root} names another root than {self.paths.mark.name} does",
                hint="one of the two was exchanged: restore both from one copy",
            )
        return gates.trust_of(founding)

    def frames(self, topic: str, broker: str = FIRST_BROKER, *, read_only: bool = False) -> BrokerTopic:
        """A topic's frame log at one of its brokers."""
        state = self.state()
        number, brokers, each = state.broker_number(broker), len(state.brokers()), state.topic(topic).partitions
        return BrokerTopic(self.paths.topic(topic, broker).frames_root, each, number, brokers, read_only=read_only)


class BrokerRealm(OpenRealm):
    """A realm as its brokers see it."""

    def broker(self, name: str = FIRST_BROKER) -> BrokerSecrets:
        """A broker's secrets, where they are at hand."""
        return BrokerSecrets.load(self.paths.broker_key_of(name))

    def revocations(self, broker: str = FIRST_BROKER) -> RevocationStore:
        """A broker's own copy of the revocation lists, on stable storage, brought up to date. Only what is new is read
        and verified."""
        state = self.state()
        store = RevocationStore(self.paths.revocations(broker), self.trust(state))
        store.update(state)
        return store


class EntityRealm(OpenRealm):
    """A realm as its publishers and subscribers see it."""

    def identity(self, name: str) -> Identity:
        """The keys of an enrolled entity, from its own file."""
        self.state().entity(name)
        return Identity.load(self.paths.entity_key(name), name)

    def discovery_node(self, name: str) -> Identity:
        """The keys of a discovery node."""
        return Identity.load(self.paths.discovery_key(name), name)

    def place_subscriber(self, topic: str, subscriber: str, broker: str | None = None) -> str:
        """Says at which broker of a topic's overlay a subscriber is: the one named, else where it is already, else one
        that has room. Done twice, it does nothing more."""

        def decide(state: RealmState) -> list[Change]:
            at = home_for(state, topic, subscriber) if broker is None else broker
            known = state.overlay(topic).places.get(subscriber) == at
            return [] if known else [PlaceSubscriber(topic, subscriber, at, self.clock())]

        return self.registry.transact(decide).overlay(topic).places[subscriber]


def home_for(state: RealmState, topic: str, subscriber: str) -> str:
    """Where a subscriber stands, or would be put: a broker that subscribes below its parent, others at a leaf."""
    overlay = state.overlay(topic)
    placed = overlay.places.get(subscriber) or overlay.parents.get(subscriber)
    if placed is not None:
        return placed
    free = overlay.homes_free(state.topic(topic).protection.depth)
    if subscriber in overlay.parents:
        # A root: the rules say why not.
        free = [subscriber]
    if not free:
        raise Misuse(
            f"topic {topic!r} has no broker that anyone could stand below",
            hint=f"add one: sealcast overlay add {topic} BROKER",
        )
    return free[0]
