"""publish: Event -> message. Brokers go by the attributes that the message shows: nothing stands before envelopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sealcast.model.schema import Value
from sealcast.protections.enveloped.publish import EventSealer


class PayloadSealer(EventSealer):
    """One publisher on one topic in one epoch."""

    def most_before(self, values: Mapping[str, Value]) -> int:
        return 0

    def before(self, records: Sequence[bytes]) -> Sequence[bytes]:
        return [b""] * len(records)
