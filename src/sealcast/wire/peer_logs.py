"""A peer's own log: what it got from whom, handed to whom, kept for itself and refused; signed by the peer.

    record    = ["sealcast-peer-log", 1, body (bytes), signature (bytes)]
    signature : Ed25519 of "sealcast/1 peer log" | 0x00 | body
    body      = [topic, peer, number, previous, time, entries]
    previous  : SHA-256 of the record before; zeros in the first
    entries   = [[kind, event, other, detail], ...]

Records are chained and numbered, so that a peer cannot take back what it once showed. Nobody else's word stands in a
log: what two peers say of the same event is compared by whoever reads both (`check`, `why`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from sealcast.errors import Misuse
from sealcast.primitives.sign import SIGNATURE_BYTES, SigningKey, VerifyKey
from sealcast.wire import cbor, headers, limits
from sealcast.wire.cbor import require
from sealcast.wire.frame import TOPIC_BYTES

MAGIC: Final = "sealcast-peer-log"
VERSION: Final = 1
EVENT_BYTES: Final = 16
PREVIOUS_BYTES: Final = 32
#: What the first record has in place of its predecessor's hash, and an entry that is about no event in place of an id.
NOTHING_BEFORE: Final = bytes(PREVIOUS_BYTES)
NO_EVENT: Final = bytes(EVENT_BYTES)
_LABEL: Final = b"sealcast/1 peer log\0"


class EntryKind(IntEnum):
    """What a peer says. A number is never given to anything else."""

    PUBLISHED = 1  # an own event: a rendezvous (other) has it
    RECEIVED = 2  # from a peer, for the first time
    FORWARDED = 3  # to a peer
    DELIVERED = 4  # into the own inbox, durably
    REFUSED = 5  # what a peer sent; the detail says why
    MISSED = 6  # so many events, or seconds, that nobody kept
    LINKED = 7  # a seat (detail) has this parent
    UNLINKED = 8  # a seat (detail) has lost it
    CUT_OFF = 9  # a peer, for the reason in the detail


class PeerEntry(NamedTuple):
    """One line of a peer's log."""

    kind: EntryKind
    event: bytes = NO_EVENT
    other: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PeerLogRecord:
    """One record, well formed. `read` has verified its signature if it was given a key."""

    topic: bytes
    peer: str
    number: int
    previous: bytes
    time_us: int
    entries: tuple[PeerEntry, ...]
    #: SHA-256 of its bytes: what the next one names.
    digest: bytes


def write(
    signer: SigningKey, topic: bytes, peer: str, number: int, previous: bytes, time_us: int, entries: list[PeerEntry]
) -> bytes:
    """The bytes of a record, signed."""
    if not 0 < len(entries) <= limits.MAX_PEER_LOG_ENTRIES:
        raise Misuse(f"a record has 1 to {limits.MAX_PEER_LOG_ENTRIES} entries, not {len(entries)}")
    listed = [[int(each.kind), each.event, each.other, _clipped(each.detail)] for each in entries]
    body = cbor.encode([topic, peer, number, previous, time_us, listed])
    return cbor.encode([MAGIC, VERSION, body, signer.sign(_LABEL + body)])


def digest(record: bytes) -> bytes:
    """How the next record names this one."""
    return hashlib.sha256(record).digest()


def read(record: bytes, by: VerifyKey | None = None) -> PeerLogRecord:
    """Takes a record apart; FrameRejected if it is none, or not signed by that key."""
    outer = cbor.decode(record, max_bytes=limits.MAX_PEER_LOG_BYTES, max_depth=1, max_items=8)
    match cbor.versioned(outer, MAGIC, VERSION, "a record of a peer's log"):
        case [bytes(body), bytes(signature)] if len(signature) == SIGNATURE_BYTES:
            pass
        case _:
            raise cbor.refused("not a record of a peer's log")
    require(by is None or by.verify(_LABEL + body, signature), "a record that its peer did not sign")
    inner = cbor.decode(
        body, max_bytes=limits.MAX_PEER_LOG_BYTES, max_depth=3, max_items=5 * limits.MAX_PEER_LOG_ENTRIES + 16
    )
    match inner:
        case [bytes(topic), str(peer), int(number), bytes(previous), int(time_us), list(entries)]:
            pass
        case _:
            raise cbor.refused("not the body of a record")
    require(len(topic) == TOPIC_BYTES and headers.is_name(peer), "a record names a topic and a peer")
    require(not isinstance(number, bool) and 0 <= number < 2**63, "a record has a number")
    require(not isinstance(time_us, bool) and 0 <= time_us <= limits.MAX_TIME_MICROS, "a record has a time")
    require(len(previous) == PREVIOUS_BYTES, "a record names the one before")
    require(0 < len(entries) <= limits.MAX_PEER_LOG_ENTRIES, "a record has entries")
    return PeerLogRecord(topic, peer, number, previous, time_us, tuple(map(_entry, entries)), digest(record))


def _entry(value: object) -> PeerEntry:
    match value:
        case [int(kind), bytes(event), str(other), str(detail)] if type(kind) is int:
            require(kind in EntryKind.__members__.values(), "an entry of a kind that there is not")
            require(len(event) == EVENT_BYTES, f"an event's id has {EVENT_BYTES} bytes")
            require(len(other.encode()) <= limits.MAX_PUBLISHER_BYTES, "a peer's name is too long")
            require(len(detail.encode()) <= limits.MAX_DETAIL_BYTES, "a detail is too long")
            return PeerEntry(EntryKind(kind), event, other, detail)
        case _:
            raise cbor.refused("an entry is kind, event, peer and detail")


def _clipped(text: str) -> str:
    return text.encode()[: limits.MAX_DETAIL_BYTES].decode(errors="ignore")
