"""Where peers are reached: what the registry says of others, and what this process says there of its own."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Final

from sealcast.overlay.peers.net.tls import PeerTrust
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys import peer_addresses
from sealcast.trust.keys.peer_addresses import PeerAddress, PeerAddressRejected, StatedAddress
from sealcast.trust.realm.changes import AnnouncePeer, Change
from sealcast.trust.realm.state import AnnouncedPeer, RealmState
from sealcast.trust.statements import Author

DOOR_BYTES: Final = 16


class AddressBook:
    """The registry's addresses, each believed by its owner's signature."""

    def __init__(self, realm: EntityRealm, state: RealmState, trust: PeerTrust) -> None:
        #: The registry that this goes by.
        self.state = state
        self._realm, self._trust = realm, trust
        self._found: dict[str, tuple[AnnouncedPeer, PeerAddress | None]] = {}
        #: Addresses that were not believed, by reason.
        self.refused = Counter[str]()

    def find(self, name: str) -> PeerAddress | None:
        """Where a peer is, by its own word; None where there is no word that counts."""
        found = self.state.peers.get(name)
        if found is None:
            return None
        known = self._found.get(name)
        if known is None or known[0] != found:
            known = self._found[name] = found, self._judged(name, found)
        return known[1]

    def own(self, name: str, host: str, port: int) -> PeerAddress:
        """What an identity of this process is to be reached by: as it was announced before, or behind a new door."""
        known = self._stated(name)
        if known is not None and (known.address.host, known.address.port) == (host, port):
            return known.address
        return PeerAddress(host, port, os.urandom(DOOR_BYTES).hex())

    def announce(self, wanted: Mapping[str, tuple[PeerAddress, bool]]) -> bool:
        """Writes into the registry what it does not say yet: addresses, and who offers itself as a rendezvous. Whether
        there was anything to write."""
        changes, authors = list[Change](), list[Author]()
        for name, (address, serves) in wanted.items():
            known = self._stated(name)
            if self.state.entity(name).revoked or (known is not None and known[:2] == (address, serves)):
                continue
            after = 0 if known is None else known.sequence
            stated = StatedAddress(address, serves, max(after + 1, self._realm.clock()))
            identity = self._realm.identity(name)
            made = peer_addresses.announce(identity.signer, self._realm.id, name, stated)
            authors.append(identity.author)
            changes.append(AnnouncePeer(name, made, stated.sequence, serves))
        if changes:
            self._realm.registry.apply_many(changes, *authors)
        return bool(changes)

    def _stated(self, name: str) -> StatedAddress | None:
        found = self.state.peers.get(name)
        return None if found is None else peer_addresses.read(found.announcement, self._realm.id, name)

    def _judged(self, name: str, found: AnnouncedPeer) -> PeerAddress | None:
        state, clock = self.state, self._realm.clock()
        try:
            stated = peer_addresses.judge(
                found.announcement, self._realm.id, state.entity(name), self._trust.trust, state.revoked, clock
            )
        except PeerAddressRejected as refused:
            self.refused[refused.reason] += 1
            return None
        return stated.address
