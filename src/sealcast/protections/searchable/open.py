"""open: a mailbox's delivery -> OpenedEvent (`enveloped.open`). The block that brokers went by is the publisher's word,
too: it is part of what was signed."""

from __future__ import annotations

from sealcast.errors import CannotOpen
from sealcast.protections.enveloped.open import Opener
from sealcast.wire.searching import SealedRejected, block_size


class SearchableOpener(Opener):
    """What one reader of a topic opens."""

    def before(self, body: bytes) -> int:
        try:
            return block_size(body)
        except SealedRejected as error:
            raise CannotOpen(f"before an envelope stands no block: {error.message}") from None
