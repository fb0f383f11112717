"""A seat: one peer's place in the tree of one attribute, as data. `placing` and `searching` change it."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from sealcast.overlay.peers.port import PeerId, SeatAddress, SeatPlan
from sealcast.primitives.secrets import Secret
from sealcast.wire.peers import Urgency


@dataclass(slots=True)
class ChildLink:
    """A child of a seat."""

    #: What it shall be routed by: its token of this epoch, and that of the one before. None where parents flood.
    tokens: tuple[bytes, ...]
    heard: float
    #: When it last proved that this seat covers it.
    proved: float
    #: Events of its last inventory, which it may fetch, each once.
    offered: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class Reservation:
    """A place that is held for a seat that was offered it."""

    origin: SeatAddress
    key: Secret
    until: float
    #: The place is a child's, which goes when the newcomer comes.
    displaces: bool = False


@dataclass(slots=True)
class SearchRound:
    """A seat's own search for a parent: one request, on its way."""

    search: bytes
    urgency: Urgency
    key: Secret
    #: Whom it was sent to.
    contact: str
    #: Offers to fall back on: a root's, or one of a peer that is already a parent of this group.
    fallback: list[SeatAddress] = field(default_factory=list)


@dataclass(slots=True)
class PendingLink:
    """A parent that was chosen and has not answered yet."""

    parent: SeatAddress
    search: bytes
    #: For how long this seat had heard nothing when it asked, in seconds; of a first link None.
    away: float | None
    #: The seat that offered its place, its own search, and the key of its request (a swap).
    takeover: tuple[SeatAddress, bytes, Secret] | None = None


@dataclass(slots=True)
class PendingSwap:
    """This seat offered its place to a newcomer, and waits for the newcomer's offer."""

    search: bytes
    key: Secret
    newcomer: SeatAddress
    until: float


@dataclass(slots=True)
class PendingProof:
    """This seat proves itself to its parent again, and waits for the parent's answer."""

    search: bytes
    key: Secret


@dataclass(slots=True)
class Heartbeat:
    """The newest pulse that a seat has."""

    root: str
    number: int
    depth: int
    at: float
    #: How many seconds before, the sender last had everything.
    behind: float = 0.0


@dataclass(slots=True)
class Seat:
    """All that is known about one seat."""

    number: int
    plan: SeatPlan
    parent: SeatAddress | None = None
    #: Parents that this seat has left; what they sent before is still welcome.
    former: SeatAddress | None = None
    pulse: Heartbeat | None = None
    #: The newest pulse of each root that was passed to children.
    heard: OrderedDict[str, int] = field(default_factory=OrderedDict)
    children: dict[SeatAddress, ChildLink] = field(default_factory=dict)
    reservations: dict[bytes, Reservation] = field(default_factory=dict)
    #: Searches of seats that this one covers and had no place for: one of its children may swap.
    covered: OrderedDict[bytes, tuple[SeatAddress, Secret]] = field(default_factory=OrderedDict)
    round: SearchRound | None = None
    #: Rounds since this seat last had a parent.
    rounds: int = 0
    pending: PendingLink | None = None
    swap: PendingSwap | None = None
    proof: PendingProof | None = None
    #: It lost its place to a newcomer, and displaces nobody itself.
    displaced: bool = False
    #: From when on this seat knows that it has seen everything; None before its first link.
    complete_since: float | None = None
    #: When it last knew that nothing was missing; None before its first link.
    last_complete: float | None = None
    #: Whether the parent has said what it has; how long the seat was away before (None: it was never here); and which
    #: events were asked for.
    greeted: bool = True
    away: float | None = None
    fetching: set[bytes] = field(default_factory=set)
    #: Those of the inventory that are asked for next: a few at a time, so that the parent's queue has room for them.
    to_fetch: deque[bytes] = field(default_factory=deque)

    @property
    def caught_up(self) -> bool:
        """Whether it has all that its parent had for it."""
        return self.greeted and not self.fetching and not self.to_fetch

    @property
    def rooted(self) -> bool:
        """Whether events come here: only such a seat takes children."""
        return self.plan.root or self.parent is not None

    def upstream(self) -> set[PeerId]:
        """Peers from which events may come: parents that are, that were, and that will be."""
        coming = None if self.pending is None else self.pending.parent
        return {each.peer for each in (self.parent, self.former, coming) if each is not None}
