"""publish: Event -> message. Brokers go by the attributes that the message shows: nothing stands before envelopes."""

from __future__ import annotations

from collections.abc import Sequence

from sealcast.protections.checked import CheckedBatch
from sealcast.protections.enveloped.publish import EventSealer


class PayloadSealer(EventSealer):
    """One publisher on one topic in one epoch."""

    @property
    def most_before(self) -> int:
        return 0

    def before(self, batch: CheckedBatch) -> Sequence[bytes]:
        return [b""] * len(batch)
