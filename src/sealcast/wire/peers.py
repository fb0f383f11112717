"""Messages between peers: how the peers of an attribute topic find their places, stay in touch and pass events on.

    message = ["sealcast-peer", 1, topic (16 bytes), kind, source, target, fields]

`source` and `target` are seats: places in the tree of one attribute, numbered by the peer that takes them. Null means
the peer itself, or "any seat of yours in this tree". Who sends is not in a message: the connection proves it. `fields`
is an array, one item for each field of the class that `kind` names, in the order of the fields. A last field that has a
default is left out where it has that value.

A message that was read is well formed and within its limits. Nothing else is known about it yet: requests, tokens,
announcements and events are bytes here, and the peer's credentials check them.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, Final, TypeAlias

from sealcast.errors import FrameRejected, Misuse
from sealcast.wire import cbor, headers, limits
from sealcast.wire.annotations import annotated
from sealcast.wire.cbor import require
from sealcast.wire.frame import TOPIC_BYTES
from sealcast.wire.headers import Check

MAGIC: Final = "sealcast-peer"
VERSION: Final = 1
SEARCH_BYTES: Final = 16
EVENT_ID_BYTES: Final = 16
PROOF_BYTES: Final = 32


class Urgency(IntEnum):
    """What a peer that is searched for a place may do when it covers the newcomer and has no free one."""

    FREE = 0  # nothing: the search goes on to its neighbours
    DISPLACE = 1  # it gives the place of one of its children
    OVERFLOW = 2  # it takes one more than it wants


class PartingReason(IntEnum):
    """Why a link between two seats ends."""

    LEAVING = 0  # the sender goes away
    MOVED = 1  # the child found another parent
    DISPLACED = 2  # the parent needs the place; the child must not displace anybody for it
    UNKNOWN = 3  # there is no such link at the sender
    REFUSED = 4  # the other side did not prove that it may be here
    SILENT = 5  # nothing was heard for too long


# --- what a field may be ------------------------------------------------------------------------


def byte_limit(most: int, least: int = 0) -> Check:
    return lambda value: (
        None if isinstance(value, bytes) and least <= len(value) <= most else f"has {least} to {most} bytes"
    )


def _event_ids(value: object) -> str | None:
    fits = (
        isinstance(value, tuple)
        and len(value) <= limits.MAX_INVENTORY_EVENTS
        and all(isinstance(each, bytes) and len(each) == EVENT_ID_BYTES for each in value)
    )
    return None if fits else f"is at most {limits.MAX_INVENTORY_EVENTS} ids of {EVENT_ID_BYTES} bytes"


def _heard(value: object) -> str | None:
    fits = (
        isinstance(value, tuple)
        and len(value) <= limits.MAX_PEER_ROOTS
        and all(
            isinstance(each, tuple) and len(each) == 2 and headers.is_name(each[0]) and _pulse(each[1]) is None
            for each in value
        )
    )
    return None if fits else f"is at most {limits.MAX_PEER_ROOTS} pairs of a root and a number"


_search = headers.byte_string(SEARCH_BYTES)
_pulse = headers.whole(0, limits.MAX_PULSE)
_proof = headers.byte_string(PROOF_BYTES)
_seat = headers.whole(0, limits.MAX_PEER_SEAT)
_request = byte_limit(limits.MAX_PEER_REQUEST_BYTES, 1)
_token = byte_limit(limits.MAX_ROUTING_TOKEN_BYTES)
_event = byte_limit(limits.MAX_PEER_EVENT_BYTES, 1)
_milliseconds = headers.whole(0, limits.MAX_PEER_MILLISECONDS)


# --- the messages -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Search:
    """A connection request on its way. The request says nothing but to those who cover its maker (paper 003, 6.3)."""

    search: Annotated[bytes, _search]
    #: Whose request it is, and for which of its seats.
    origin: Annotated[str, headers.name]
    seat: Annotated[int, _seat]
    attribute: Annotated[str, headers.name]
    request: Annotated[bytes, _request]
    urgency: Annotated[int, headers.whole(0, max(Urgency))]
    #: The newest pulse of each root that the seat has passed to children: who has no newer one may be below it.
    heard: Annotated[tuple[tuple[str, int], ...], _heard]
    hops: Annotated[int, headers.whole(0, limits.MAX_PEER_HOPS)]


@dataclass(frozen=True, slots=True)
class Offer:
    """The sender covers the searching seat, proves it, and holds a place for it."""

    search: Annotated[bytes, _search]
    #: The tree's root has room for everybody; a newcomer prefers other parents.
    root: Annotated[bool, headers.truth]
    proof: Annotated[bytes, _proof]


@dataclass(frozen=True, slots=True)
class Accept:
    """The searching seat takes the place. The token is what its parent shall route by; empty where parents flood."""

    search: Annotated[bytes, _search]
    proof: Annotated[bytes, _proof]
    token: Annotated[bytes, _token]
    #: How long the child has heard nothing: the parent offers again what came since.
    away: Annotated[int, _milliseconds]


@dataclass(frozen=True, slots=True)
class Decline:
    """The searching seat has found another place."""

    search: Annotated[bytes, _search]


@dataclass(frozen=True, slots=True)
class Swap:
    """The sender does not cover the searching seat. If that one covers the sender, they change places."""

    search: Annotated[bytes, _search]
    #: The sender's own search, which the newcomer's offer answers.
    own: Annotated[bytes, _search]
    parent: Annotated[str, headers.name]
    parent_seat: Annotated[int, _seat]
    request: Annotated[bytes, _request]


@dataclass(frozen=True, slots=True)
class Replace:
    """The searching seat takes the place of a child that offered to swap, and will be its parent."""

    search: Annotated[bytes, _search]
    child: Annotated[str, headers.name]
    child_seat: Annotated[int, _seat]
    proof: Annotated[bytes, _proof]
    token: Annotated[bytes, _token]
    away: Annotated[int, _milliseconds]


@dataclass(frozen=True, slots=True)
class Pulse:
    """The root's heartbeat on its way down. Without a newer one, a seat knows that it is cut off, or in a circle."""

    root: Annotated[str, headers.name]
    number: Annotated[int, _pulse]
    depth: Annotated[int, headers.whole(0, limits.MAX_PEER_DEPTH)]
    #: How long ago the sender last had everything that any rendezvous had.
    behind: Annotated[int, _milliseconds] = 0


@dataclass(frozen=True, slots=True)
class Alive:
    """A child's answer to a pulse."""


@dataclass(frozen=True, slots=True)
class Unlink:
    """The link between these two seats has ended."""

    reason: Annotated[int, headers.whole(0, max(PartingReason))]


@dataclass(frozen=True, slots=True)
class Announce:
    """A publisher's advertisement, to a rendezvous: it may publish here, and will."""

    advertisement: Annotated[bytes, byte_limit(limits.MAX_PEER_ADVERTISEMENT_BYTES, 1)]


@dataclass(frozen=True, slots=True)
class Inject:
    """A new event, from its publisher to a rendezvous."""

    event: Annotated[bytes, _event]


@dataclass(frozen=True, slots=True)
class Taken:
    """A rendezvous has the event, and passes it on."""

    event: Annotated[bytes, headers.byte_string(EVENT_ID_BYTES)]


@dataclass(frozen=True, slots=True)
class Carry:
    """An event, from a parent to a child."""

    event: Annotated[bytes, _event]


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a parent still has of the time in which its child was away."""

    events: Annotated[tuple[bytes, ...], _event_ids]
    #: How far back the parent itself has seen everything.
    reach: Annotated[int, _milliseconds]
    #: Events of the time asked for that the parent has let go. They may have been for the child.
    lost: Annotated[int, _pulse]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Those of an inventory that the child does not have."""

    events: Annotated[tuple[bytes, ...], _event_ids]


@dataclass(frozen=True, slots=True)
class Reprove:
    """A child proves to its parent again that it may be here, with a request of the new epoch; an offer answers it."""

    search: Annotated[bytes, _search]
    request: Annotated[bytes, _request]
    token: Annotated[bytes, _token]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A rendezvous does not know the sender of an event as a publisher: it shall announce itself first."""


@dataclass(frozen=True, slots=True)
class AskNews:
    """A rendezvous asks another what came to it since it was last asked."""

    #: The number in the last answer; anything, the first time.
    after: Annotated[int, _pulse]


@dataclass(frozen=True, slots=True)
class News:
    """Events that came to a rendezvous, in that order; the one that asked fetches those that it lacks."""

    #: To be asked with the next time.
    after: Annotated[int, _pulse]
    events: Annotated[tuple[bytes, ...], _event_ids]
    #: How far back the sender has seen everything.
    reach: Annotated[int, _milliseconds]
    #: Events between this answer and the last that the sender has let go.
    lost: Annotated[int, _pulse]


PeerBody: TypeAlias = (
    Search
    | Offer
    | Accept
    | Decline
    | Swap
    | Replace
    | Pulse
    | Alive
    | Unlink
    | Announce
    | Inject
    | Taken
    | Carry
    | Inventory
    | Fetch
    | Reprove
    | Unknown
    | AskNews
    | News
)
#: `kind` on the wire. A number is never given to another message.
KINDS: Final[dict[int, type[PeerBody]]] = {
    1: Search,
    2: Offer,
    3: Accept,
    4: Decline,
    5: Swap,
    6: Replace,
    7: Pulse,
    8: Alive,
    9: Unlink,
    10: Announce,
    11: Inject,
    12: Taken,
    13: Carry,
    14: Inventory,
    15: Fetch,
    16: Reprove,
    17: Unknown,
    18: AskNews,
    19: News,
}
_KIND_OF: Final = {made: kind for kind, made in KINDS.items()}
#: Of each field, what it is where it is left out, or None.
_DEFAULTS: Final[dict[type[PeerBody], list[Any]]] = {
    made: [None if each.default is dataclasses.MISSING else each.default for each in dataclasses.fields(made)]
    for made in KINDS.values()
}


@dataclass(frozen=True, slots=True)
class PeerMessage:
    """One message of a topic, from a seat to a seat."""

    topic: bytes
    source: int | None
    target: int | None
    body: PeerBody


def event_id(event: bytes) -> bytes:
    """How peers name an event: by its bytes, so that nobody can make an honest event look as if it had been seen."""
    return hashlib.sha256(event).digest()[:EVENT_ID_BYTES]


# --- bytes --------------------------------------------------------------------------------------


def encode(message: PeerMessage) -> bytes:
    """The bytes of a message; Misuse for one that no peer would read."""
    fields = [getattr(message.body, name) for name in annotated(type(message.body))]
    try:
        _checked(type(message.body), fields)
        _check_envelope(message.topic, message.source, message.target)
    except FrameRejected as error:
        raise Misuse(f"this is no message between peers: {error.message}") from None
    while fields and fields[-1] == _last_default(type(message.body), len(fields)):
        fields.pop()
    kind = _KIND_OF[type(message.body)]
    return cbor.encode([MAGIC, VERSION, message.topic, kind, message.source, message.target, fields])


def parse(data: bytes) -> PeerMessage:
    """Takes a message apart; FrameRejected (`frame` or `version`) when it is none."""
    outer = cbor.decode(
        data, max_bytes=limits.MAX_PEER_MESSAGE_BYTES, max_depth=4, max_items=limits.MAX_INVENTORY_EVENTS + 32
    )
    match cbor.versioned(outer, MAGIC, VERSION, "a message between peers"):
        case [topic, kind, source, target, list(fields)]:
            pass
        case _:
            raise cbor.refused("not a message between peers")
    _check_envelope(topic, source, target)
    require(isinstance(kind, int) and not isinstance(kind, bool) and kind in KINDS, "an unknown kind of message")
    made, values = KINDS[kind], [_tuples(value) for value in fields]
    require(not values or values[-1] != _last_default(made, len(values)), "a last field says what its absence says")
    while (default := _last_default(made, len(values) + 1)) is not None:
        values.append(default)
    _checked(made, values)
    return PeerMessage(topic, source, target, made(*values))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _last_default(made: type[PeerBody], count: int) -> Any:
    """What the field with this number, counted from 1, stands for where it is left out; None where it never is."""
    return _DEFAULTS[made][count - 1] if 0 < count <= len(_DEFAULTS[made]) else None


def _check_envelope(topic: object, source: object, target: object) -> None:
    require(isinstance(topic, bytes) and len(topic) == TOPIC_BYTES, f"topic has {TOPIC_BYTES} bytes")
    for what, seat in (("source", source), ("target", target)):
        wrong = None if seat is None else _seat(seat)
        require(wrong is None, f"{what} {wrong}")


def _checked(made: type[PeerBody], values: list[Any]) -> None:
    checks = annotated(made)
    require(len(values) == len(checks), f"{made.__name__} has {len(checks)} fields")
    for (name, check), value in zip(checks.items(), values, strict=True):
        wrong = check(value)
        require(wrong is None, f"{name} {wrong}")
