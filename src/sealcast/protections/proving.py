"""Opening all that a piece has for somebody, and saying what did not open: for every protection's `Inbox.prove`."""

from __future__ import annotations

from collections.abc import Callable

from sealcast.errors import CannotOpen
from sealcast.log.mailbox import Recipient
from sealcast.log.piece_reader import P
from sealcast.protections.port import Proven


def proven(piece: P, recipient: Recipient[P], opened: Callable[[int, int], object]) -> Proven:
    """`opened` opens one delivery, by its event and its handle, or raises CannotOpen."""
    found, unopened, why = list[int](), 0, None
    for event, handle in zip(*recipient.rows(piece), strict=True):
        try:
            opened(event, handle)
        except CannotOpen as error:
            unopened, why = unopened + 1, why or error.message
        else:
            found.append(event)
    return Proven(found, unopened, why)
