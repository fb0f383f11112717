"""The broker's side of `payload`: one step, which matches attributes and hands on what publishers sealed.

It seals nothing and opens nothing but frames: it has no key of an envelope. Every event is in a piece once, under the
topic's key, whoever gets it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sealcast.filters import bits
from sealcast.model.stages import Grouped, GroupSealed
from sealcast.primitives.aead import COMMITMENT_BYTES
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.payload.envelope import HEAD_BYTES
from sealcast.protections.port import BrokerSide
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.wire.limits import KEY_ID_BYTES
from sealcast.wire.sealed import TOPIC, SealedPiece

_END: Final = HEAD_BYTES + COMMITMENT_BYTES


class HandingOn:
    """Envelopes as their publishers made them, for the groups that get them."""

    def seal(self, grouped: Grouped) -> GroupSealed:
        admitted, events = grouped.admitted, grouped.events
        starts = admitted.payload_start[events].tolist()
        envelopes = [admitted.messages[e][start:] for e, start in zip(events.tolist(), starts, strict=True)]
        group, slot = bits.pairs(grouped.groups)
        groups, count = grouped.groups.shape[0], len(envelopes)
        return GroupSealed(
            grouped=grouped,
            bodies=[envelope[:HEAD_BYTES] + envelope[_END:] for envelope in envelopes],
            # No key travels with events here.
            keys={
                "commitments": b"".join([envelope[HEAD_BYTES:_END] for envelope in envelopes]),
                "wrapped": np.zeros(count, np.uint8),
                "key_ids": bytes(KEY_ID_BYTES if count else 0),
                "key_kind": np.full(min(1, count), TOPIC, np.uint8),
                "use_start": np.arange(count + 1),
                "uses": np.zeros(count, np.int64),
                "wraps": b"",
            },
            member_start=bits.starts(group, groups),
            members=slot,
            via=np.zeros(slot.size, np.int64),
            group_uses=np.ones(groups, np.int64),
            encryptions=count,
        )

    def made(self, piece: SealedPiece, data: bytes) -> None:
        """Nothing is remembered."""


class PayloadStep(MatchingStep):
    """Admit, match, group, hand on, deliver."""

    def sealing(self, state: RealmState, topic: Topic) -> HandingOn:
        return HandingOn()


BROKER: Final = BrokerSide((PayloadStep,), joining="sealcast topic serve {topic} {broker}")
