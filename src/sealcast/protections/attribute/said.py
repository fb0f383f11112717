"""What peers said of events in their own signed logs, put together: who had which event, from whom, and what it did.

Every log is verified with its peer's key from the registry, so that nobody's private keys are needed. A log says what
its peer wants it to say. What two peers say of one event is compared by `check` and `why`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing

from sealcast.errors import Corrupt
from sealcast.log.peer_log import PeerLogReader
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.handles import OpenRealm
from sealcast.wire.peer_logs import EntryKind, PeerEntry


class PeersSaid:
    """The logs of one topic's peers that are here."""

    def __init__(self, realm: OpenRealm, topic: str) -> None:
        state = realm.state()
        about = state.topic(topic)
        #: Peers whose processes ran: each has a log.
        self.peers = [name for name in state.entities if realm.paths.topic(topic, name).peer_log.is_dir()]
        #: Logs that are not what their peers wrote, and why.
        self.damaged = dict[str, str]()
        #: How many events or spells each peer says that it missed.
        self.missed = defaultdict[str, int](int)
        self._of = defaultdict[tuple[str, bytes], list[PeerEntry]](list)
        for name in self.peers:
            key = VerifyKey(state.entity(name).verify_key)
            with closing(PeerLogReader(realm.paths.topic(topic, name).peer_log, about.id, name, key)) as log:
                try:
                    for entry in (entry for record in log.records() for entry in record.entries):
                        self._of[name, entry.event].append(entry)
                        self.missed[name] += entry.kind is EntryKind.MISSED
                except Corrupt as error:
                    self.damaged[name] = error.message

    def of(self, peer: str, event: bytes) -> list[PeerEntry]:
        """What a peer said of an event, by the id that logs have, in its order."""
        return self._of.get((peer, event), [])

    def had(self, peer: str, event: bytes) -> bool:
        """Whether an event has reached a peer, by its own word."""
        return any(each.kind in (EntryKind.RECEIVED, EntryKind.DELIVERED) for each in self.of(peer, event))

    def way(self, publisher: str, subscriber: str, event: bytes) -> list[str]:
        """The peers by which an event came, the publisher first; as far back as their logs are here."""
        return [*self._back(publisher, subscriber, event)][::-1]

    def _back(self, publisher: str, peer: str, event: bytes) -> Iterator[str]:
        seen = set[str]()
        while peer not in seen:
            seen.add(peer)
            yield peer
            came = next((each.other for each in self.of(peer, event) if each.kind is EntryKind.RECEIVED), None)
            if came is None or peer == publisher:
                return
            peer = came
