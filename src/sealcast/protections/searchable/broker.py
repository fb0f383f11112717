"""The broker's side of `searchable`: one step, which matches ciphertexts and hands on what publishers sealed.

It has a half of every user's key and no content key. It learns which subscriptions an event matches, and no label.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from sealcast.broker.tables import Indexing
from sealcast.errors import Bug, Rejected
from sealcast.primitives import points
from sealcast.protections.enveloped.hand_on import HandingOn
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.past import AskedPast
from sealcast.protections.port import BrokerSide
from sealcast.protections.searchable.blocks import most_trapdoors
from sealcast.protections.searchable.past import SealedPast
from sealcast.protections.searchable.table import SealedIndexes
from sealcast.trust.realm.changes import EVERYTHING
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.wire.searching import (
    TAG_BYTES,
    SealedRejected,
    block_size,
    parse_block,
)

#: Trapdoors whose points were looked at: publishers use theirs again.
MAX_GOOD: Final = 65_536
_NO_POINT: Final = "a trapdoor's point is not on the curve"


@lru_cache(MAX_GOOD)
def _good(trapdoor: bytes) -> bool:
    middle = TAG_BYTES + points.WIRE_BYTES
    try:
        points.check((trapdoor[TAG_BYTES:middle], trapdoor[middle:]))
    except Rejected:
        return False
    return True


def unfit(topic: Topic, payloads: Sequence[bytes]) -> Iterable[tuple[int, str]]:
    """Events without a block that could be searched. Reasons name rules, never values."""
    most = most_trapdoors(topic.schema)
    for number, payload in enumerate(payloads):
        try:
            size = block_size(payload)
            trapdoors = parse_block(payload[:size], topic.protection.tag_bits_shown)
        except SealedRejected as error:
            yield number, error.message
            continue
        if len(trapdoors) > most:
            yield number, f"an event of this topic has at most {most} trapdoors"
        elif not all(map(_good, trapdoors)):
            yield number, _NO_POINT


class SearchableStep(MatchingStep):
    """Admit, search, group, hand on, deliver."""

    def indexing(self) -> Indexing:
        return SealedIndexes(self.secrets, self.about)

    def sealing(self, state: RealmState, topic: Topic) -> HandingOn:
        return HandingOn(block_size)

    def past(self, state: RealmState, asked: AskedPast, template: str) -> SealedPast:
        if template != EVERYTHING:
            raise Bug(f"a right to read {asked.topic.name!r} is for some events, and its brokers cannot tell which")
        return SealedPast(asked, state, self.secrets)


BROKER: Final = BrokerSide((SearchableStep,), joining="sealcast topic serve {topic} {broker}", unfit=unfit)
