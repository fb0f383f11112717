"""Opening all that a piece has for somebody, and saying what did not open: for every protection's `Inbox.prove`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sealcast.log.mailbox import Part, Recipient
from sealcast.log.piece_reader import P
from sealcast.protections.opened import OpenedPart
from sealcast.protections.port import Proven

#: What is opened together.
_MOST: Final = 16_384
_MOST_BYTES: Final = 32 << 20


def part_of(piece: P, recipient: Recipient[P]) -> Part[P]:
    """All that a piece has for somebody, wherever it stands in a mailbox."""
    events, handles = recipient.rows(piece)
    return Part(0, 0, 0, piece, events, handles, range(len(events)))


def proven(part: Part[P], opened: Callable[[Part[P]], OpenedPart]) -> Proven:
    """`opened` opens the first deliveries of a part, or says why not."""
    found, unopened, why, done = list[int](), 0, None, 0
    while done < len(part):
        some = part.cut(done, part.reach(done, _MOST, _MOST_BYTES))
        tried = opened(some)
        found += [some.events[row] for row in tried.rows.tolist()]
        for error in tried.refused.values():
            unopened, why = unopened + 1, why or error.message
        done += tried.tried
    return Proven(found, unopened, why)
