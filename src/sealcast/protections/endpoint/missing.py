"""What a subscriber does about a key that it does not hold: it looks back, and then it asks.

Keys travel with the events that first need them. A subscriber that starts in the middle has not taken those that came
before; they are still in the ledger's pieces, sealed for it, and it takes them from there. What it has let go since, or
what retention has removed, it asks the broker's desk for (`key_requests`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sealcast.log.closing import Closing
from sealcast.log.mailbox import Delivery, Mailbox
from sealcast.model.event import Position
from sealcast.primitives.secrets import Unpicklable
from sealcast.primitives.sign import SigningKey
from sealcast.protections.endpoint.key_requests import KEYS, MAX_ASKED, KeyRequest, parse_reply
from sealcast.protections.endpoint.open import Opener
from sealcast.protections.port import Ask
from sealcast.trust.handles import EntityRealm
from sealcast.wire.sealed import SealedPiece

if TYPE_CHECKING:
    from sealcast.control.correspondence import Correspondent
    from sealcast.control.desk import MoreOf

#: Earlier pieces that are looked through, once.
LOOK_BACK: Final = 256


class MissingKeys:
    """Comes by keys for one mailbox."""

    def __init__(
        self, mailbox: Mailbox[SealedPiece], name: str, signer: SigningKey, clock: Callable[[], int], ask: Ask | None
    ) -> None:
        self._mailbox, self._name, self._signer, self._clock = mailbox, name, signer, clock
        self._ask = ask
        self._looked_back = False

    def find(self, opener: Opener, delivery: Delivery[SealedPiece], ours: Callable[[SealedPiece], bool]) -> None:
        """Brings the opener what it needs for a delivery's piece, as far as it is to be had. `ours` says of a piece
        whether it is the opener's to open: keys that came with others are no use to it."""
        if not self._looked_back or self._ask is None:
            self._looked_back = True
            for piece in self._mailbox.pieces_before(delivery.cursor, LOOK_BACK):
                if ours(piece):
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


class KeyAsker(Closing, Unpicklable):
    """A signed key request in, the broker's reply out: what a subscriber asks with, when it has to."""

    def __init__(self, realm: EntityRealm, topic: str, as_: str, *, answers: MoreOf | None = None) -> None:
        """At the broker that is the subscriber's home. `answers` is what answers in that broker's name where its keys
        are at hand (`key_answers.key_requests`); without it, the broker is found over discovery."""
        self._realm, self._topic, self._name, self._answers = realm, topic, as_, answers
        self._correspondent: Correspondent | None = None

    def __call__(self, data: bytes) -> bytes:
        if self._correspondent is None:
            # Most readers never ask, and this takes a while to import.
            from sealcast.control.correspondence import Correspondent
            from sealcast.control.desk import desks_at_hand

            desks = None if self._answers is None else desks_at_hand(self._realm, self._answers)
            self._correspondent = Correspondent(self._realm, self._realm.identity(self._name), at_hand=desks)
        home = self._realm.state().home_of(self._topic, self._name)
        return self._correspondent.ask_broker(home, KEYS, data).message.body

    def close(self) -> None:
        if self._correspondent is not None:
            self._correspondent.close()
            self._correspondent = None
