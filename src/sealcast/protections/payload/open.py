"""open: a mailbox's delivery -> OpenedEvent (`enveloped.open`). What brokers went by is in the record itself."""

from __future__ import annotations

from sealcast.protections.enveloped.open import Opener


class PayloadOpener(Opener):
    """What one reader of a topic opens."""

    def before(self, body: bytes) -> int:
        return 0
