"""A realm in miniature for the control plane: a real authority, real certificates, a clock that is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from sealcast.control.asking import Asker
from sealcast.control.budgets import Budgets
from sealcast.control.discovery.bootstrap import NodeAddress
from sealcast.control.discovery.client import Discovery
from sealcast.control.discovery.node import DiscoveryNode
from sealcast.control.discovery.store import AdvertisementStore
from sealcast.control.envelopes import EnvelopeParty, EnvelopeRecipient, ProvenMessage
from sealcast.control.journal import ServiceJournal
from sealcast.control.service import Answer, Handler, Noise, Service
from sealcast.log.control_topics import ControlPlane, ServingPlane
from sealcast.primitives.hpke import KemKey
from sealcast.primitives.p256 import P256SigningKey
from sealcast.primitives.sign import SigningKey as FrameKey
from sealcast.trust.certificates.authority import Authority
from sealcast.trust.certificates.certificate import Certificate, PublicKeys, Role
from sealcast.trust.certificates.lists import Cause
from sealcast.trust.realm.changes import Right
from tests.trust.certified import issue

REALM = bytes(range(16))
NOW = 1_800_000_000_000_000
SECOND = 1_000_000


class Undecided:
    """A registry that has decided nothing: a topic is its first advertiser's, and nobody has rights."""

    def owner_of(self, topic_id: bytes, /) -> str | None:
        return None

    def rights_of(self, topic_id: bytes, name: str, at_us: int, /) -> frozenset[Right]:
        return frozenset()


class World:
    """One realm. `now` is its clock."""

    def __init__(self, realm: bytes = REALM) -> None:
        self.realm = realm
        self.now = NOW
        self.authority = Authority.generate(realm, NOW - 86_400 * SECOND)
        self._trust = self.authority.trust()
        self.verified = 0

    def party(
        self, name: str, *roles: Role, at_us: int | None = None, lifetime_us: int = 86_400 * SECOND
    ) -> EnvelopeParty:
        signer, kem, frames = P256SigningKey.generate(), KemKey.generate(), FrameKey.generate()
        keys = PublicKeys(bytes(signer.verify_key), bytes(frames.verify_key), kem.public)
        start = self.now - 3_600 * SECOND if at_us is None else at_us
        made = issue(self.authority, name, keys, roles or (Role.ENTITY,), start, lifetime_us)
        return EnvelopeParty(name, made.der, signer, kem)

    def verify(self, der: bytes, at_us: int, /) -> Certificate:
        self.verified += 1
        return self._trust.verify(der, at_us, self.authority.lists.view)

    def certificate(self, party: EnvelopeParty) -> Certificate:
        return self.verify(party.certificate, self.now)

    def recipient(self, party: EnvelopeParty) -> EnvelopeRecipient:
        return EnvelopeRecipient(party.name, party.kem.public)

    def revoke(self, party: EnvelopeParty) -> None:
        self.authority.revoke([self.certificate(party).serial], Cause.KEY_COMPROMISE, self.now)

    def clock(self) -> int:
        return self.now

    # --- the control plane -----------------------------------------------------------------------

    def asker(self, directory: Path, party: EnvelopeParty, origin: str | None = None) -> Asker:
        plane = ControlPlane(directory, origin=origin or f"origin of {party.name}")
        return Asker(plane, party, self.realm, self.verify, clock=self.clock, patience_s=0)

    def service(
        self,
        directory: Path,
        party: EnvelopeParty,
        handler: Handler,
        *,
        announce: Callable[[bytes, int], None] = lambda topic, now: None,
        noise: Noise | None = None,
        origins: Budgets | None = None,
        senders: Budgets | None = None,
        plane: ServingPlane | None = None,
    ) -> Service:
        """Its control topics are in `directory`, as its journal is, unless another plane is named."""
        plane = plane or ControlPlane(directory, origin=f"origin of {party.name}")
        journal = ServiceJournal(directory / "services" / f"{party.name}.sqlite")
        service = Service(
            plane, party, self.realm, self.verify, handler, journal,
            announce=announce, noise=noise, origins=origins, senders=senders,
        )  # fmt: skip
        service.start(self.now)
        return service


class Echo:
    """Answers what it was asked, and remembers how often."""

    kinds = frozenset({"echo"})

    def __init__(self) -> None:
        self.handled: Counter[bytes] = Counter()

    def handle(self, request: ProvenMessage, now_us: int, /) -> Answer:
        self.handled[request.message.body] += 1
        return Answer("echoed", request.message.body[::-1])


class Nodes:
    """Discovery nodes, each with its own store and service, all in one directory."""

    def __init__(self, world: World, directory: Path, names: tuple[str, ...] = ("node-1", "node-2", "node-3")) -> None:
        self.world, self.directory = world, directory
        self.parties = {name: world.party(name, Role.DISCOVERY) for name in names}
        self.stores: dict[str, AdvertisementStore] = {}
        self.nodes: dict[str, DiscoveryNode] = {}
        self.services: dict[str, Service] = {}
        self.down: set[str] = set()
        for name in names:
            self.open(name)

    def open(self, name: str) -> None:
        self.stores[name] = AdvertisementStore(self.directory / "stores" / name / "advertisements.sqlite")
        self.nodes[name] = DiscoveryNode(self.stores[name], self.world.realm, self.world.verify, known=Undecided())
        self.services[name] = self.world.service(self.directory, self.parties[name], self.nodes[name])

    def addresses(self) -> list[NodeAddress]:
        return [NodeAddress(n, s.topic, self.parties[n].certificate) for n, s in self.services.items()]

    def turn_of(self, name: str) -> Callable[[], object]:
        return lambda: None if name in self.down else self.services[name].serve_once(self.world.now)

    def client(self, party: EnvelopeParty) -> Discovery:
        return Discovery(self.world.asker(self.directory, party), self.addresses, self.turn_of)
