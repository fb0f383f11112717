"""Discovery in a realm's own directory: its nodes, run a turn at a time by whoever asks them, where their keys are.

    REALM/discovery/NAME/advertisements.sqlite     what node NAME keeps
    REALM/control/services/NAME.sqlite             where it listens and what it answered (`control.journal`)
    REALM/realm.json                               where all nodes listen (`bootstrap`)
    REALM/discovery/advertised                     the topics that were ever advertised from here, an id a line

No daemon: asking a node whose keys can be read here also takes a turn as that node. The question still goes through its
topic, sealed and signed, and is answered by the same rules; on a machine without the keys one waits for whoever has
them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from sealcast.control.asking import Asker
from sealcast.control.budgets import Allowance, Budgets
from sealcast.control.discovery import bootstrap
from sealcast.control.discovery.advertisements import DEFAULT_LIFETIME_US, ID_BYTES, Advertisement, What
from sealcast.control.discovery.bootstrap import NodeAddress
from sealcast.control.discovery.client import Discovery, Spread
from sealcast.control.discovery.node import DiscoveryNode
from sealcast.control.discovery.restrictions import EVERYONE, Restrictions
from sealcast.control.discovery.store import AdvertisementStore
from sealcast.control.envelopes import EnvelopeParty, Verify, Window
from sealcast.control.journal import ServiceJournal
from sealcast.control.service import Service
from sealcast.errors import Misuse, Rejected, Unavailable
from sealcast.log import files
from sealcast.primitives.encoding import joined
from sealcast.trust.certificates.certificate import Certificate, Role
from sealcast.trust.handles import OpenRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.layout import Layout
from sealcast.trust.realm.changes import Access, Right
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic

#: An administrator who makes a thousand topics advertises a thousand.
NODE_ALLOWANCE: Final = Allowance(per_second=500, burst=5_000)


#: A node is asked much and does nothing twice that matters: it need not remember for long.
NODE_WINDOW: Final = Window(age_us=60_000_000)
#: A topic stays; it is advertised again when half of this is over (`renew_topics`).
TOPIC_LIFETIME_US: Final = 365 * 86_400 * 1_000_000


# --- who, and whom to believe -------------------------------------------------------------------------


def party(realm: OpenRealm, identity: Identity) -> EnvelopeParty:
    """An entity with its keys at hand, as control topics know it: by its newest certificate, whenever it writes."""

    def newest() -> bytes:
        return realm.state().entity(identity.name).certificate

    if not newest():
        raise Misuse(f"entity {identity.name!r} has no certificate", hint="this realm is from before certificates")
    return EnvelopeParty(identity.name, newest, identity.key, identity.kem)


def verifier(realm: OpenRealm) -> Verify:
    """Believes whom the realm's authority certified and has not revoked, as of the moment of asking."""

    def verify(der: bytes, at_us: int, /) -> Certificate:
        state = realm.state()
        return realm.trust(state).verify(der, at_us, state.revoked)

    return verify


def service_journal(realm: OpenRealm, name: str) -> ServiceJournal:
    """Where a service of that name remembers what it answered."""
    return ServiceJournal(realm.paths.root / "control" / "services" / f"{name}.sqlite")


# --- nodes --------------------------------------------------------------------------------------------


class _Decided:
    """What the registry says, as of the moment of asking."""

    def __init__(self, realm: OpenRealm) -> None:
        self._realm = realm
        self._version = -1
        self._topics: Mapping[bytes, Topic] = {}

    def _topic(self, topic_id: bytes) -> tuple[RealmState, Topic | None]:
        state = self._realm.state()
        if state.version != self._version:
            self._topics = {found.topic.id: found.topic for found in state.topics.values()}
            self._version = state.version
        return state, self._topics.get(topic_id)

    def owner_of(self, topic_id: bytes, /) -> str | None:
        _, topic = self._topic(topic_id)
        return None if topic is None else owner_of(topic)

    def rights_of(self, topic_id: bytes, name: str, at_us: int, /) -> frozenset[Right]:
        state, topic = self._topic(topic_id)
        return frozenset() if topic is None else state.rights_of(topic.name, name, at_us)


def owner_of(topic: Topic) -> str:
    """Who signs a topic's advertisement: its owner; its key center, where the administrator made it for nobody."""
    return topic.owner or topic.center


def store_path(paths: Layout, name: str) -> Path:
    return paths.root / "discovery" / name / "advertisements.sqlite"


def node_service(realm: OpenRealm, identity: Identity) -> tuple[Service, DiscoveryNode]:
    """A discovery node and its service, ready to `start`; whenever it moves, the realm's mark says where to."""
    me = party(realm, identity)
    verify = verifier(realm)
    node = DiscoveryNode(AdvertisementStore(store_path(realm.paths, me.name)), realm.id, verify, known=_Decided(realm))

    def announce(topic: bytes, now_us: int) -> None:
        if not realm.site.listens(me.name, topic):
            bootstrap.write(realm.paths.mark, [NodeAddress(me.name, topic, me.certificate)])

    service = Service(
        realm.site.of(me.name).control(),
        me,
        realm.id,
        verify,
        node,
        service_journal(realm, me.name),
        announce=announce,
        senders=Budgets(NODE_ALLOWANCE),
        origins=Budgets(NODE_ALLOWANCE),
        window=NODE_WINDOW,
        on_close=node.close,
    )
    return service, node


def nodes(realm: OpenRealm) -> tuple[NodeAddress, ...]:
    """Where the realm's nodes listen. One that was enrolled and whose keys are here begins to, when first asked for."""
    listed = bootstrap.parse(realm.site.mark(), realm.site.shown)
    known = {node.name for node in listed}
    new = [
        who.name
        for who in realm.state().holders(Role.DISCOVERY)
        if who.name not in known and realm.paths.discovery_key(who.name).exists()
    ]
    for name in new:
        service, _ = node_service(realm, Identity.load(realm.paths.discovery_key(name), name))
        service.start(realm.clock())
        service.close()
    return tuple(_renewed(realm, bootstrap.parse(realm.site.mark(), realm.site.shown) if new else listed))


def _renewed(realm: OpenRealm, listed: Iterable[NodeAddress]) -> Iterator[NodeAddress]:
    """Where a node listens is announced once; its certificate may have been renewed since."""
    entities = realm.state().entities
    for node in listed:
        entity = entities.get(node.name)
        newest = entity.certificate if entity is not None else node.certificate
        yield node if newest == node.certificate else replace(node, certificate=newest)


# --- using them ---------------------------------------------------------------------------------------


class RealmDiscovery:
    """Advertising and finding in one realm, as one entity. Close it: it has a topic of its own for answers."""

    def __init__(self, realm: OpenRealm, identity: Identity) -> None:
        self._realm = realm
        self._plane = realm.site.of(identity.name).control()
        self.asker = Asker(self._plane, party(realm, identity), realm.id, verifier(realm), clock=realm.clock)
        self._nodes: dict[str, Service] = {}
        self.client = Discovery(self.asker, lambda: nodes(realm), self._turn_of)

    def _turn_of(self, name: str) -> Callable[[], object] | None:
        path = self._realm.paths.discovery_key(name)
        if name not in self._nodes:
            if not path.exists():
                return None
            self._nodes[name], _ = node_service(self._realm, Identity.load(path, name))
            self._nodes[name].start(self._realm.clock())
        service = self._nodes[name]
        return lambda: service.take_turn(self._realm.clock())

    def close(self) -> None:
        self.asker.close()
        self._plane.sweep()
        self._plane.close()
        while self._nodes:
            self._nodes.popitem()[1].close()

    def __enter__(self) -> Discovery:
        return self.client

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()


def heal(realm: OpenRealm, name: str, node: DiscoveryNode) -> int:
    """Has a node that is new, or has lost its store, keep what the other nodes have; how much it took in."""
    identity = Identity.load(realm.paths.discovery_key(name), name)
    with RealmDiscovery(realm, identity) as discovery:
        return discovery.heal(node)


def advertise_topic(
    realm: OpenRealm,
    topic: Topic,
    owner: Identity,
    *,
    tags: Mapping[str, str] | None = None,
    restrictions: Restrictions | None = None,
    lifetime_us: int = TOPIC_LIFETIME_US,
) -> Spread | None:
    """Have all nodes keep a topic's advertisement, signed by its owner; None in a realm without nodes.

    Without restrictions of its own, a topic for members is open, and one whose rights are granted shows itself to those
    who have one.
    """
    if not nodes(realm):
        return None
    if restrictions is None:
        restrictions = EVERYONE if topic.access is Access.MEMBERS else Restrictions.authorised()
    now = realm.clock()
    about = Advertisement(
        topic.id, What.TOPIC, topic.name, now, now, _until(realm, owner.name, now + lifetime_us),
        tags=dict(tags or {}), schema=topic.schema, restrictions=restrictions,
    )  # fmt: skip
    with RealmDiscovery(realm, owner) as discovery:
        spread = discovery.advertise(about)
    _note_advertised(realm, topic.id)
    return spread


def advertise_new(realm: OpenRealm, keys_of: Callable[[str], Identity | None]) -> list[str]:
    """Advertise the topics that never were, as far as their owners' keys are at hand; their names.

    Making a topic is the registry's business and waits for nobody; this catches up with it. What was withdrawn was
    advertised once, and stays withdrawn.
    """
    known, done = _advertised(realm), list[str]()
    for found in realm.state().topics.values():
        owner = None if found.topic.id in known else keys_of(owner_of(found.topic))
        # Its owner's word may count no more, or no node may answer: whoever only looks for something can go on.
        with suppress(Rejected, Unavailable):
            if owner is not None and advertise_topic(realm, found.topic, owner) is not None:
                done.append(found.topic.name)
    return done


def renew_topics(realm: OpenRealm, owner: Identity, *, lifetime_us: int = TOPIC_LIFETIME_US) -> list[str]:
    """Advertise again what is the owner's and has lived half its life or was signed under an older certificate.

    The names of those topics. Tags and restrictions stay as they are.
    """
    now, renewed = realm.clock(), list[str]()
    certificate = realm.state().entity(owner.name).certificate
    with RealmDiscovery(realm, owner) as discovery:
        for mine in discovery.find("*"):
            if mine.owner == owner.name and not mine.fresh(now, certificate):
                until = _until(realm, owner.name, now + lifetime_us)
                sequence = max(now, mine.about.sequence + 1)
                discovery.advertise(replace(mine.about, sequence=sequence, issued_us=now, expires_us=until))
                renewed.append(mine.about.path)
    return renewed


def _advertised(realm: OpenRealm) -> frozenset[bytes]:
    try:
        lines = (realm.paths.root / "discovery" / "advertised").read_text().split()
        return frozenset(map(bytes.fromhex, lines))
    except FileNotFoundError:
        return frozenset()
    except ValueError:
        # Not what was written: at worst something is advertised once more.
        return frozenset()


def _note_advertised(realm: OpenRealm, topic_id: bytes) -> None:
    path = realm.paths.root / "discovery" / "advertised"
    if topic_id not in _advertised(realm):
        with files.named(path, "writing"):
            path.parent.mkdir(mode=files.DIRECTORY_MODE, exist_ok=True)  # a client's home has none yet
            with path.open("a") as record:
                record.write(topic_id.hex() + "\n")


def _until(realm: OpenRealm, owner: str, wanted_us: int) -> int:
    """An advertisement counts no longer than the certificate that it was signed under."""
    return min(wanted_us, realm.state().entity(owner).expires_us)


def advertise_service(
    realm: OpenRealm,
    what: What,
    owner: Identity,
    control_topic: bytes,
    *,
    restrictions: Restrictions = EVERYONE,
    lifetime_us: int = DEFAULT_LIFETIME_US,
) -> Spread | None:
    """Say where a key center or broker listens now; None in a realm without nodes. What a `Service` announces by."""
    if not nodes(realm):
        return None
    now = realm.clock()
    with RealmDiscovery(realm, owner) as discovery:
        about = Advertisement(
            service_id(what, owner.name), what, owner.name, now, now, _until(realm, owner.name, now + lifetime_us),
            control_topic=control_topic, restrictions=restrictions,
        )  # fmt: skip
        return discovery.advertise(about)


def service_id(what: What, name: str) -> bytes:
    """One service, one advertisement, wherever it listens: the id follows from what it is and whose."""
    return hashlib.sha256(joined((b"sealcast service", str(what).encode(), name.encode()))).digest()[:ID_BYTES]
