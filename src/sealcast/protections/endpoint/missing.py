"""What a subscriber does about a key that it does not hold: it looks back, and then it asks.

Keys travel with the events that first need them. A subscriber that starts in the middle has not taken those that came
before; they are still in the ledger's pieces, sealed for it, and it takes them from there. What it has let go since, or
what retention has removed, it asks the broker's desk for (`protections.endpoint.requests`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sealcast.log.mailbox import Delivery, Mailbox
from sealcast.model.event import Position
from sealcast.primitives.sign import SigningKey
from sealcast.protections.endpoint.open import Opener
from sealcast.protections.endpoint.requests import MAX_ASKED, KeyRequest, parse_reply
from sealcast.wire.sealed import SealedPiece

#: Earlier pieces that are looked through, once.
LOOK_BACK: Final = 256

#: A desk: a signed request in, a reply out.
Ask = Callable[[bytes], bytes]


class MissingKeys:
    """Comes by keys for one mailbox."""

    def __init__(
        self, mailbox: Mailbox, name: str, signer: SigningKey, clock: Callable[[], int], ask: Ask | None
    ) -> None:
        self._mailbox, self._name, self._signer, self._clock = mailbox, name, signer, clock
        self._ask = ask
        self._looked_back = False

    def find(self, opener: Opener, delivery: Delivery) -> None:
        """Brings the opener what it needs for a delivery's piece, as far as it is to be had."""
        if not self._looked_back or self._ask is None:
            self._looked_back = True
            for piece in self._mailbox.pieces_before(delivery.cursor, LOOK_BACK):
                if piece.epoch == delivery.piece.epoch:
                    opener.missing(piece)
        missing = opener.missing(delivery.piece, delivery.event) if self._ask is not None else []
        if missing and self._ask is not None:
            # As many as are asked for at once, and fit; what is needed first comes last, and is let go last.
            self._asked(opener, delivery.piece, missing[: min(MAX_ASKED, opener.keyring.room)][::-1], self._ask)

    def _asked(self, opener: Opener, piece: SealedPiece, missing: list[Position], ask: Ask) -> None:
        request = KeyRequest(
            entity=self._name,
            topic=piece.topic,
            epoch=piece.epoch,
            partition=piece.partition,
            events=tuple((position.offset, position.row) for position in missing),
            tables=opener.keyring.room_for_tables,
            time=self._clock(),
        )
        opener.keyring.give(parse_reply(ask(request.signed(self._signer))))
