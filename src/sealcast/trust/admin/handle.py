"""Opening a realm: reads public things only; secrets when they are asked for, and where they are at hand."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from sealcast.errors import Corrupt
from sealcast.log.forwarded import BrokerTopic
from sealcast.trust import layout
from sealcast.trust.certificates.authority import Authority
from sealcast.trust.certificates.certificate import Trust
from sealcast.trust.certificates.revocation import RevocationStore
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.issuing import Issuer
from sealcast.trust.layout import FIRST_BROKER, FIRST_CENTER, Layout
from sealcast.trust.realm.state import RealmState
from sealcast.trust.registry import Registry, now_us
from sealcast.trust.tokens import gates


class Handle:
    """One realm: its registry, and where its files lie."""

    def __init__(self, directory: str | Path | None = None, *, clock: Callable[[], int] = now_us) -> None:
        """The realm in `directory`; without one, of SEALCAST_REALM or around the working directory.

        `clock` says what time it is, in microseconds since 1970: of what is decided, and of what is asked for.
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
        """Whom the realm believes. The root is the one that the realm was made with: its mark says so, too."""
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

    # --- secrets, where they are at hand --------------------------------------------------------------

    def identity(self, name: str) -> Identity:
        """The keys of an enrolled entity, from its own file."""
        self.state().entity(name)
        return Identity.load(self.paths.entity_key(name), name)

    def broker(self, name: str = FIRST_BROKER) -> BrokerSecrets:
        """A trusted broker's secrets: for the pipeline."""
        return BrokerSecrets.load(self.paths.broker_key_of(name))

    def center(self, name: str = FIRST_CENTER) -> CenterSecrets:
        """A key center's secrets: for the center, and for the administrator where they are at hand."""
        return CenterSecrets.load(self.paths.center_key(name))

    def discovery_node(self, name: str) -> Identity:
        """The keys of a discovery node."""
        return Identity.load(self.paths.discovery_key(name), name)

    def authority(self) -> Authority:
        """The realm's authority, as much of it as is here."""
        return Authority.load(self.paths.authority)

    def revocations(self, broker: str = FIRST_BROKER) -> RevocationStore:
        """A broker's own copy of the revocation lists, on stable storage, brought up to date: only what is new is read
        and verified."""
        state = self.state()
        store = RevocationStore(self.paths.revocations(broker), self.trust(state))
        store.update(state)
        return store

    def issuer(self) -> Issuer:
        return Issuer(self.paths)
