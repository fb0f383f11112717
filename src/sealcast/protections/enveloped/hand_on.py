"""How brokers pass on what publishers sealed for readers. They seal nothing, and open nothing but frames: they have no
key of an envelope. Every event is in a piece once, under the topic's key, whoever gets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from sealcast.filters import bits
from sealcast.model.stages import Grouped, GroupSealed
from sealcast.primitives.aead import COMMITMENT_BYTES
from sealcast.protections.enveloped.envelope import HEAD_BYTES
from sealcast.wire.limits import KEY_ID_BYTES
from sealcast.wire.sealed import TOPIC, SealedPiece

_END: Final = HEAD_BYTES + COMMITMENT_BYTES


class HandingOn:
    """Envelopes as their publishers made them, for the groups that get them."""

    def __init__(self, before: Callable[[bytes], int] = lambda payload: 0) -> None:
        """`before` says how many bytes of an admitted payload stand before its envelope."""
        self._before = before

    def seal(self, grouped: Grouped) -> GroupSealed:
        admitted, events = grouped.admitted, grouped.events
        starts = admitted.payload_start[events].tolist()
        payloads = [message[start:] for message, start in zip(admitted.messages_of(events), starts, strict=True)]
        envelopes = [(payload, self._before(payload)) for payload in payloads]
        group, slot = bits.pairs(grouped.groups)
        groups, count = grouped.groups.shape[0], len(envelopes)
        return GroupSealed(
            grouped=grouped,
            bodies=[payload[: at + HEAD_BYTES] + payload[at + _END :] for payload, at in envelopes],
            # No key travels with events here.
            keys={
                "commitments": b"".join([payload[at + HEAD_BYTES : at + _END] for payload, at in envelopes]),
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


def whole(body: bytes, commitment: bytes, before: int) -> bytes:
    """The payload that a publisher sent, from the body and the commitment that a piece has of it."""
    at = before + HEAD_BYTES
    return body[:at] + commitment + body[at:]
