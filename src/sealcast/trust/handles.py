"""Handles on a realm, by role: each reaches what its holder may reach, and nothing more.

    OpenRealm       public things: where files lie, the registry, whom the realm believes, frame logs
    BrokerRealm     and a broker's own secrets and copy of the revocation lists: for brokers and the pipeline
    EntityRealm     and the keys of entities and discovery nodes that are on this machine: for clients
    GatewayRealm    and the keys of one gateway: for `sealcast gateway`
    Realm           all of it, with the authority and the key centers: for the administrator (`trust.deployment`)

Opening a handle reads public things only. Secrets are read when they are asked for, from their owner's own file. This
module, and all that it imports, knows neither authority nor key center: a process that holds a BrokerRealm has no code
in memory that could load one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import heapify, heapreplace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from sealcast.errors import Corrupt, Misuse, NotFound, Unavailable
from sealcast.log.forwarded import BrokerTopic
from sealcast.log.journal import JournalPart, KeptJournal
from sealcast.log.outbox import OutboxTopic
from sealcast.transports.address import GatewayAddress
from sealcast.trust import homes, layout
from sealcast.trust.carrying import Carriers
from sealcast.trust.certificates.certificate import Trust
from sealcast.trust.certificates.revocation import RevocationStore
from sealcast.trust.certificates.roles import Role
from sealcast.trust.heads import Pin
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.identity import Identity
from sealcast.trust.layout import FIRST_BROKER, Layout, RealmMark
from sealcast.trust.realm.changes import AnnounceReceivingKey, Change, PlaceSubscriber
from sealcast.trust.realm.state import BrokerGateway, RealmState
from sealcast.trust.registry import Registry, now_us
from sealcast.trust.site import Elsewhere, LocalSite, Member, RealmSite, Site
from sealcast.trust.snapshots import Snapshots
from sealcast.trust.statements import Author, AuthorKeys, Judge
from sealcast.trust.tokens import gates
from sealcast.trust.turns import turn_of


class OpenRealm:
    """A realm as anybody may see it."""

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        clock: Callable[[], int] = now_us,
        keys: Mapping[str, Path] = MappingProxyType({}),
    ) -> None:
        """Opens the realm in `directory`; without one, that of SEALCAST_REALM or around the working directory.

        `clock` tells the time in microseconds since 1970, for what is decided and for what is asked. `keys` says where
        key files of entities are that are not in the realm's directory.
        """
        self.paths: Layout = replace(layout.find(directory), keys=tuple(keys.items()))
        mark = layout.read_mark(self.paths)
        self.name = mark.name
        self.id = mark.id
        self._root = mark.root
        #: Whether clients may use the keys of services that are on their machine: the realm says so, or they may not.
        self.at_hand = mark.at_hand
        self.clock = clock
        #: Servers that keep logs for the realm.
        where = mark.registry_address(self.paths)
        turn = lambda what: turn_of(where, f"{what} of realm {mark.name}", mark.id)  # noqa: E731
        self.carriers = Carriers(self.paths, turn, self.state)
        #: Where the realm's shared things are; what is one's own is in `paths`.
        self.site = self._site(mark)
        judge, authors = Judge(mark.id, mark.root), AuthorKeys(self.author)
        snapshots = Snapshots(self.paths.root, mark.id, mark.root)
        self.registry = Registry(where, mark.id, clock, judge, authors, self.site.registry, snapshots)

    def _site(self, mark: RealmMark) -> RealmSite:
        local = LocalSite(self.paths, mark, self.state, self.carriers)
        keys_here = lambda broker: self.paths.broker_key_of(broker).exists()  # noqa: E731

        def dial(there: BrokerGateway, name: str | None) -> Site:
            address = GatewayAddress(there.host, there.port)
            return self._served_by(mark, address, name, gateway=there.gateway, registry=self.site.registry)

        base: Site = local
        if mark.gateway is not None:
            base = self._served_by(mark, GatewayAddress.parse(mark.gateway))
        return RealmSite(base, local, Elsewhere(self.state, keys_here, dial))

    def _served_by(self, mark: RealmMark, address: GatewayAddress, name: str | None = None, **more: Any) -> Site:
        # HTTP, for those who need it.
        from sealcast.trust.gateway_site import Around, GatewaySite

        around = Around(self.paths, mark, self.clock, lambda: self.registry.known, self.member)
        return GatewaySite(around, address, name, **more)

    def member(self, name: str | None = None) -> Member:
        """As whom this handle asks others: the one named, else one who has joined from this home."""
        return self._member(Role.ENTITY, name)

    def _member(self, role: Role, name: str | None) -> Member:
        who = homes.joined(self.paths, role)[0] if name is None else name
        path = homes.key_file(self.paths, role, who)
        return Member(
            who, role, lambda: BrokerSecrets.load(path).identity if role is Role.BROKER else Identity.load(path, who)
        )

    def asking(self, state: RealmState) -> RealmSite:
        """As a broker whose keys are here, where there is one: brokers may see how far others are."""
        here = (b.name for b in state.holders(Role.BROKER) if at_hand(self.paths.broker_key_of(b.name)))
        by = next(here, None)
        return self.site if by is None else self.site.of(by)

    def reopen(self) -> Self:
        """The same realm by a handle of its own: for another thread, or a child process."""
        return type(self)(self.paths.root, clock=self.clock, keys=dict(self.paths.keys))

    def author(self, name: str) -> Author | None:
        """Whoever of that name this handle can state changes for: nobody."""
        return None

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
        return self.carriers.frames(self.state(), topic, broker, read_only=read_only)

    def journal(self, topic: str, broker: str = FIRST_BROKER, part: JournalPart = "") -> KeptJournal:
        """A topic's ledger at one of its brokers, with all that belongs to it: for who is where the broker is."""
        return self.carriers.journal(self.state(), topic, broker, part)

    def outbox(self, topic: str, publisher: str, *, read_only: bool = False) -> OutboxTopic:
        """A publisher's own log on a topic that peers carry."""
        number = self.state().entity_number(publisher)
        return OutboxTopic(self.paths.topic(topic, publisher).frames_root, number, read_only=read_only)


class BrokerRealm(OpenRealm):
    """A realm as its brokers see it."""

    def member(self, name: str | None = None) -> Member:
        return self._member(Role.BROKER, name)

    def author(self, name: str) -> Author | None:
        path = self.paths.broker_key_of(name)
        return self.broker(name).identity.author if at_hand(path) else super().author(name)

    def broker(self, name: str = FIRST_BROKER) -> BrokerSecrets:
        """A broker's secrets, where they are at hand. The registry is held to what that broker saw."""
        path = self.paths.broker_key_of(name)
        secrets = BrokerSecrets.load(path)
        self.registry.hold(Pin.beside(path, f"broker {name!r}"))
        return secrets

    def next_receiving_keys(self, state: RealmState, topic: str, brokers: Iterable[str]) -> list[AnnounceReceivingKey]:
        """What brokers whose keys are here announce, so that they can forget the topic's next epoch one day."""
        announced = list[AnnounceReceivingKey]()
        for name in brokers if state.topic(topic).parameters.forgets else ():
            # Without asking the registry again: this may be part of one of its transactions. What is under a lock that
            # is not at hand, whoever runs that broker announces.
            with suppress(Unavailable, NotFound):
                announced += BrokerSecrets.load(self.paths.broker_key_of(name)).receiving.announcement(state, topic)
        return announced

    def revocations(self, broker: str = FIRST_BROKER) -> RevocationStore:
        """A broker's own copy of the revocation lists, on stable storage, brought up to date. Only what is new is read
        and verified."""
        state = self.state()
        store = RevocationStore(self.paths.revocations(broker), self.trust(state))
        store.update(state)
        return store

    def state_at(self, broker: str, version: int) -> RealmState:
        """The realm at a version as a broker judges by it. What it knows to be revoked stays so, should the registry
        have lost the newest lists. A registry that has all of them decides by itself, so that a batch that is run again
        decides the same."""
        state, known = self.state(version), self.revocations(broker).view
        return replace(state, revoked=known) if known.number > self.state().revoked.number else state


class EntityRealm(OpenRealm):
    """A realm as its publishers and subscribers see it."""

    def member(self, name: str | None = None) -> Member:
        return self._member(Role.ENTITY, name)

    def author(self, name: str) -> Author | None:
        path = self.paths.entity_key(name)
        return Identity.load(path, name).author if at_hand(path) else super().author(name)

    def identity(self, name: str) -> Identity:
        """The keys of an enrolled entity, from its own file. The registry is held to what that entity saw."""
        path = self.paths.entity_key(self.state().entity(name).name)
        identity = Identity.load(path, name)
        self.registry.hold(Pin.beside(path, repr(name)))
        self.state()
        return identity

    def discovery_node(self, name: str) -> Identity:
        """The keys of a discovery node."""
        return Identity.load(self.paths.discovery_key(name), name)

    def place_subscriber(self, topic: str, subscriber: str, broker: str | None = None) -> str:
        """Says at which broker of a topic's overlay a subscriber is: the one named, else where it is already, else one
        that has room. Done twice, it does nothing more."""

        return self.place_subscribers(topic, [subscriber], broker)[subscriber]

    def place_subscribers(self, topic: str, subscribers: Sequence[str], broker: str | None = None) -> dict[str, str]:
        """`place_subscriber` for many, in one transaction: where each of them stands."""

        def decide(state: RealmState) -> list[Change]:
            places = state.overlay(topic).places
            at = homes_for(state, topic, subscribers) if broker is None else dict.fromkeys(subscribers, broker)
            return [PlaceSubscriber(topic, n, home, self.clock()) for n, home in at.items() if places.get(n) != home]

        places = self.registry.transact(decide).overlay(topic).places
        return {name: places[name] for name in subscribers}


class GatewayRealm(OpenRealm):
    """A realm as a gateway sees it: what is public, and keys of its own that open nothing."""

    def member(self, name: str | None = None) -> Member:
        return self._member(Role.GATEWAY, name)

    def gateway(self, name: str) -> Identity:
        """The keys of a gateway, from its own file. The registry is held to what that gateway saw."""
        path = self.paths.gateway_key(name)
        if not at_hand(path):
            raise NotFound(
                f"there are no keys of gateway {name!r} here ({path} does not exist)",
                hint=f"make them where the authority is: sealcast entity enrol {name} --role gateway --host HOST",
            )
        identity = Identity.load(path, name)
        self.registry.hold(Pin.beside(path, f"gateway {name!r}"))
        return identity


def at_hand(path: Path) -> bool:
    """Whether a key file is here, and this process may read it."""
    return os.access(path, os.R_OK)


def homes_for(state: RealmState, topic: str, subscribers: Iterable[str]) -> dict[str, str]:
    """Where subscribers stand, or would be put one after the other: a broker that subscribes below its parent, others
    at the leaf with the fewest."""
    overlay, found = state.overlay(topic), dict[str, str]()
    order = {name: number for number, name in enumerate(overlay.parents)}
    leaves = overlay.homes_free(state.topic(topic).protection.depth)
    free = [(len(overlay.subscribers(leaf)), order[leaf], leaf) for leaf in leaves]
    heapify(free)
    for name in subscribers:
        placed = overlay.stood(name) or overlay.parents.get(name)
        if placed is not None:
            found[name] = placed
        elif name in overlay.parents:
            found[name] = name  # a root: the rules say why not
        elif not free:
            raise Misuse(
                f"topic {topic!r} has no broker that anyone could stand below",
                hint=f"add one: sealcast overlay add {topic} BROKER",
            )
        elif name not in found:
            guests, number, found[name] = free[0]
            heapreplace(free, (guests + 1, number, found[name]))
    return found
