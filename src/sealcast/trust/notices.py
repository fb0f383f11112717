"""Notices: word of a compromise on a control topic that every member of a realm can read.

    REALM/control/<H(realm)>/     CBOR {1: signed revocation lists, 2: {topic's id in hex: its epoch}, 3: version}

A notice proves nothing and decides nothing. Its lists are the authority's, signed and numbered: whoever reads them
verifies them as from anywhere else (`revocation.RevocationView.follow`). Epochs are a hint to ask for new keys, which
are in the registry, sealed to their receiver. So a forged notice makes its reader look once in vain, and one that is
lost costs time alone: whoever was away learns the same from the registry, when it next looks there.

The topic's name follows from the realm's, for everybody is meant to find it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sealcast.errors import FrameRejected, RevocationRejected
from sealcast.trust import lists
from sealcast.trust.certificates import Trust
from sealcast.trust.control import ID_BYTES, ControlPlane, Posted
from sealcast.trust.envelopes import MAX_ENVELOPE_BYTES
from sealcast.trust.revocation import RevocationView
from sealcast.trust.state import RealmState
from sealcast.wire import cbor

#: Notices kept: a reader that was away longer goes by the registry.
KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class Notice:
    """What one says, unverified."""

    lists: tuple[bytes, ...]
    #: Topics, by id in hex, that have new keys, and since which epoch.
    epochs: Mapping[str, int]
    version: int

    def to_bytes(self) -> bytes:
        return cbor.encode({1: list(self.lists), 2: dict(self.epochs), 3: self.version})

    @classmethod
    def parse(cls, data: bytes) -> Notice | None:
        """None for anything else: anybody can post."""
        try:
            match cbor.decode(data, max_bytes=MAX_ENVELOPE_BYTES):
                case {1: list(given), 2: dict(epochs), 3: int(version)}:
                    fits = all(isinstance(each, bytes) for each in given)
                    fits &= all(isinstance(id, str) and isinstance(epoch, int) for id, epoch in epochs.items())
                    return cls(tuple(given), epochs, version) if fits else None
                case _:
                    return None
        except FrameRejected:
            return None


def topic_of(realm: bytes) -> bytes:
    return hashlib.sha256(b"sealcast notices" + realm).digest()[:ID_BYTES]


def post(plane: ControlPlane, realm: bytes, state: RealmState, topics: Iterable[str], since: int) -> int:
    """Word of the lists after number `since`, and of these topics' epochs; where it stands. Lists that are too many for
    one notice are left to the registry."""
    where, given = plane.create(topic_of(realm)), tuple(state.revocations(since))
    epochs = {about.id.hex(): about.epoch for about in map(state.topic, topics)}
    data = Notice(given, epochs, state.version).to_bytes()
    if len(data) > MAX_ENVELOPE_BYTES:
        data = Notice((), epochs, state.version).to_bytes()
    # Nobody takes notices away: the newest are kept, for there is always room for one more.
    plane.take(where, max(0, plane.end(where) - KEPT))
    return plane.post(where, data)


def read(plane: ControlPlane, realm: bytes, offset: int) -> list[tuple[Posted, Notice]]:
    """Notices from `offset` on; whatever else was posted there is left out."""
    where = topic_of(realm)
    if not plane.exists(where):
        return []
    return [(posted, notice) for posted in plane.read(where, offset) if (notice := Notice.parse(posted.data))]


def heed(view: RevocationView, notice: Notice, trust: Trust) -> RevocationView:
    """What counts no more, after a notice: if its lists are the authority's and follow; the same as before, if not."""
    try:
        given = [each for each in map(lists.parse, notice.lists) if each.number > view.number]
        return view.follow(given, trust) if given else view
    except (RevocationRejected, FrameRejected):
        return view
