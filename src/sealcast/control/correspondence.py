"""Asking key centers and brokers, as one entity: over control topics, and in no other way.

Where the keys of whoever is asked are at hand, as in a realm that lives in one directory, this process takes a turn for
it: the same request in the same envelope over the same topic, answered by the same rules. Which services may be run
here is for who makes the `Correspondent` to say: an entity runs key centers and desks (`control.at_hand`), a broker
runs desks only (`control.desk`). Otherwise the service is found through the discovery nodes, and whoever runs it
(`sealcast serve`) answers.
"""

from __future__ import annotations

import time
from typing import Final

from sealcast.control.asking import Asker, ServiceAddress
from sealcast.control.discovery import embedded
from sealcast.control.discovery.advertisements import What
from sealcast.control.discovery.embedded import RealmDiscovery
from sealcast.control.envelopes import EnvelopeRecipient, ProvenMessage
from sealcast.control.service import Service
from sealcast.control.serving import AtHand
from sealcast.errors import Unavailable
from sealcast.log.closing import Closing
from sealcast.log.control_topics import AskingPlane
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.handles import OpenRealm
from sealcast.trust.keys.identity import Identity

Key = tuple[What, str]
#: For how long a place that was found is taken for granted; a service that has moved meanwhile is looked for at once.
FOUND_FOR_S: Final = 60.0


class Correspondent(Unpicklable, Closing):
    """One entity that asks. Close it: it has a topic of its own for answers, and files open."""

    def __init__(self, realm: OpenRealm, identity: Identity, *, at_hand: AtHand | None = None) -> None:
        """`at_hand` opens the services that this process may answer for; without it, all of them run elsewhere."""
        self._realm, self._identity, self._at_hand = realm, identity, at_hand
        self._plane: AskingPlane | None = None
        self._asker: Asker | None = None
        self._discovery: RealmDiscovery | None = None
        self._services: dict[Key, Service] = {}
        self._found: dict[Key, tuple[float, ServiceAddress]] = {}

    @property
    def name(self) -> str:
        return self._identity.name

    def ask_center(self, center: str, kind: str, body: bytes) -> ProvenMessage:
        """A key center's answer; ServiceRefused when it is no."""
        return self._ask((What.KEY_CENTER, center), kind, body)

    def ask_broker(self, broker: str, kind: str, body: bytes) -> ProvenMessage:
        """A broker's answer; ServiceRefused when it is no."""
        return self._ask((What.BROKER, broker), kind, body)

    def come_to(self, version: int) -> None:
        """Waits until a version of the registry that was named in an answer is seen here, too."""
        self._realm.registry.come_to(version)

    def close(self) -> None:
        if self._asker is not None:
            self._asker.close()
        if self._discovery is not None:
            self._discovery.close()
        if self._plane is not None:
            self._plane.close()
        self._asker = self._discovery = self._plane = None
        while self._services:
            self._services.popitem()[1].close()

    # --- inside -------------------------------------------------------------------------------------

    def _ask(self, whom: Key, kind: str, body: bytes) -> ProvenMessage:
        service = self._service(whom)
        if service is None:
            return self._ask_elsewhere(whom, kind, body)
        recipient = EnvelopeRecipient(whom[1], self._realm.state().entity(whom[1]).kem_public)
        return self._here().ask(
            lambda: ServiceAddress(service.topic, recipient),
            kind,
            body,
            turn=lambda: service.serve_once(self._realm.clock()),
        )

    def _ask_elsewhere(self, whom: Key, kind: str, body: bytes) -> ProvenMessage:
        if self._discovery is None:
            self._discovery = RealmDiscovery(self._realm, self._identity)
        find = self._discovery.client.service(*whom)
        first = True

        def where() -> ServiceAddress:
            nonlocal first
            known, again = self._found.get(whom), not first
            first = False
            if known is None or again or time.monotonic() - known[0] > FOUND_FOR_S:
                self._found[whom] = known = (time.monotonic(), find())
            return known[1]

        return self._discovery.asker.ask(where, kind, body)

    def _here(self) -> Asker:
        if self._asker is None:
            self._plane = self._realm.site.of(self.name).control()
            me = embedded.party(self._realm, self._identity)
            verify = embedded.verifier(self._realm)
            self._asker = Asker(self._plane, me, self._realm.id, verify, clock=self._realm.clock)
        return self._asker

    def _service(self, whom: Key) -> Service | None:
        """The service, where its keys are at hand."""
        known = self._services.get(whom)
        if known is None and self._at_hand is not None and (known := self._at_hand(*whom)) is not None:
            known.start(self._realm.clock())
            self._services[whom] = known
        return known


def strange(reply: ProvenMessage) -> Unavailable:
    """For an answer whose body is not what its kind says."""
    return Unavailable(f"{reply.sender.name!r} answers in a way that this release does not know")
