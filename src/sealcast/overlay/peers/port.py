"""What a peer's node needs and what it asks for: the page between the protocol, the cryptography and the transport.

    transport            node (`PeerNode`, no input or output of its own)                       credentials
    bytes -> parse  ->   receive(sender, message, now)   ->  list of effects                     PeerCredentials
                         tick(now), down(peer, now), refused(peer, now)
    the process     ->   join(contacts, now), publish(event, now), leave(now)
    Send -> encode  <-   Send, Deliver, Wake, Closed, Missed, Confirmed, Linked, Weakened

A node does nothing by itself: it gets messages and the time, and answers with effects, in order. The simulator of the
lab, the tests and the real process drive the same code. Times are seconds of any clock that never goes back.

A *seat* is a peer's place in the tree of one attribute (the paper's virtual peer): one for each label of a
subscription, numbered by its peer. A *rendezvous* is a peer that runs the roots of the trees; publishers know all of
them, and give them every event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeAlias

from sealcast.errors import Misuse
from sealcast.primitives.secrets import Secret
from sealcast.wire import limits
from sealcast.wire.peers import PeerMessage

#: A peer's name: what its certificate says, and the transport has proved.
PeerId: TypeAlias = str


class SeatAddress(NamedTuple):
    """A seat, as other peers name it."""

    peer: PeerId
    seat: int


# --- what the node asks for ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Give this message to a peer, in order with all others to that peer; connect to it if need be."""

    to: PeerId
    message: PeerMessage


@dataclass(frozen=True, slots=True)
class Deliver:
    """An event that this peer's credentials want. It comes once, unless it was forgotten long ago."""

    id: bytes
    event: bytes


@dataclass(frozen=True, slots=True)
class Wake:
    """Call `tick` at this time, or soon after. A later `Wake` replaces an earlier one."""

    at: float


@dataclass(frozen=True, slots=True)
class Closed:
    """This peer does not keep to the rules: close its connection, and take none from it until then."""

    peer: PeerId
    reason: str
    until: float


@dataclass(frozen=True, slots=True)
class Missed:
    """A seat was away for longer than its parent can make up for: so many seconds of which nothing is known, and so
    many events that the parent has let go and that may have been wanted."""

    seat: int
    attribute: str
    seconds: float
    events: int


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A rendezvous has the event that this peer published."""

    id: bytes
    rendezvous: PeerId


@dataclass(frozen=True, slots=True)
class Linked:
    """A seat has a parent now, or (None) has lost it and searches for another."""

    seat: int
    parent: SeatAddress | None


@dataclass(frozen=True, slots=True)
class Weakened:
    """Two seats of one subscription are at the same parent, since no other was found: it learns both labels' tokens."""

    seat: int
    parent: PeerId


PeerEffect: TypeAlias = Send | Deliver | Wake | Closed | Missed | Confirmed | Linked | Weakened


# --- the cryptography that it needs -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SeatPlan:
    """A seat that a peer shall take."""

    attribute: str
    #: This peer is a rendezvous, and the seat is the root of the attribute's tree.
    root: bool = False
    #: Seats of one group shall have different parents: one subscription's labels of one attribute.
    group: int = 0


@dataclass(frozen=True, slots=True)
class SeatRequest:
    """A connection request as the key server signed it, and the connection key that it hides."""

    request: bytes
    key: Secret


class PeerCredentials(Protocol):
    """The cryptography of one peer of one topic. `Rejected` means that whoever sent the bytes broke a rule."""

    @property
    def seats(self) -> Mapping[int, SeatPlan]:
        """The seats that this peer shall have, by their numbers."""

    def ask(self, seat: int) -> SeatRequest:
        """A request for this seat: a fresh one while there are some, else the last again."""

    def open_request(self, seat: int, request: bytes, origin: PeerId) -> Secret | None:
        """The connection key, if this seat covers the request's maker; None if it does not, or has no key of the
        request's epoch.

        Rejected for bytes that are no request, and for one that the key server did not sign for this topic and
        attribute, and for `origin`. Who has passed such a request on is to blame.
        """

    def token(self, seat: int) -> bytes:
        """What this seat's parent shall route by; at most `limits.MAX_ROUTING_TOKEN_BYTES`."""

    def check_token(self, attribute: str, token: bytes) -> None:
        """Rejected if a child's token is none."""

    def check_event(self, event: bytes) -> None:
        """Rejected unless an enrolled publisher of this topic signed the event."""

    def check_points(self, event: bytes) -> None:
        """Rejected if nobody could open the event: a look at some of what its publisher alone can have spoiled. Only
        who has the event from its publisher asks for it, and holds the publisher to it."""

    def check_publisher(self, peer: PeerId, advertisement: bytes) -> None:
        """Rejected unless this peer may publish here, as its advertisement says."""

    def matches(self, seat: int, event: bytes) -> bool:
        """Whether the event carries the tag of this seat's own label, on the seat's attribute."""

    def routes(self, attribute: str, token: bytes, event: bytes) -> bool:
        """Whether the event carries the tag of a child's token, on this attribute."""

    def wants(self, event: bytes) -> bool:
        """Whether the event carries the tags of one of this peer's subscriptions, on all of its attributes."""

    def early(self, event: bytes) -> bool:
        """Whether the event is of an epoch that this peer has no keys of yet: `wants` cannot tell."""


# --- what can be set ----------------------------------------------------------------------------


class Dissemination(StrEnum):
    """How a parent chooses the children that get an event."""

    FLOODING = "flooding"  # one hop: all children, if the parent's own tag test succeeds on that attribute
    ROUTING = "routing"  # multi-credential: those children whose token the event matches


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """Bounds and times of a node. All peers of a topic should have the same times."""

    dissemination: Dissemination = Dissemination.FLOODING
    #: Children that a seat wants, and how many more it takes rather than leave a peer without a place.
    children: int = 8
    overflow: int = 8
    #: Links of a root: nobody may stay without a place.
    root_children: int = 64
    root_overflow: int = 4_096
    #: The root's heartbeat, and after how long without one a child of a root is cut off.
    pulse_seconds: float = 5.0
    silent_seconds: float = 16.0
    #: How much longer each level below waits, so that a crash moves one seat and not the tree below it.
    silent_step_seconds: float = 3.0
    #: How long a newcomer waits for an offer before it asks more urgently, and before it takes a root's offer.
    search_seconds: float = 3.0
    root_patience_seconds: float = 0.3
    #: How long a place is held for a newcomer that was offered it.
    offer_seconds: float = 6.0
    #: Pauses between rounds of a search grow from the first to the second, with jitter.
    retry_seconds: float = 1.0
    retry_most_seconds: float = 60.0
    #: The longest pause of a seat that has a place and looks for a parent of its own.
    apart_most_seconds: float = 3_600.0
    #: Recent events that a peer keeps for children that were away.
    kept_events: int = 4_096
    kept_bytes: int = 64 << 20
    kept_seconds: float = 900.0
    #: A new child is offered the events of so many seconds before it was last heard of, too, so that a newcomer can
    #: help others with them.
    history_seconds: float = 120.0
    #: Ids of events, and of searches, that are remembered.
    seen_events: int = 65_536
    seen_searches: int = 16_384
    #: Searches that one neighbour may bring in a window, and how many of one origin; events of an own publisher that
    #: wait for a confirmation.
    searches_per_window: int = 2_048
    own_searches_per_window: int = 256
    window_seconds: float = 10.0
    unconfirmed_events: int = 4_096
    #: Broken rules until a peer is cut off, and for how long.
    strikes: int = 3
    ban_seconds: float = 600.0

    def __post_init__(self) -> None:
        if min(self.children, self.root_children, self.kept_events, self.seen_events, self.strikes) < 1:
            raise Misuse("a peer has room for a child, an event and a mistake at least")
        if self.kept_events > limits.MAX_INVENTORY_EVENTS:
            raise Misuse(f"a peer keeps at most {limits.MAX_INVENTORY_EVENTS} events for its children")
        if self.silent_seconds < 2 * self.pulse_seconds:
            raise Misuse("a parent is silent after two missed heartbeats at the earliest")
