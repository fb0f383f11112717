"""Asking for keys: what a subscriber with little memory, or a new one, does about a key that it does not hold.

    request    who asks; of which topic, epoch and partition; which events, by their positions, it was delivered
    reply      for each key that these events are sealed under, the key, or the asker's part of the table it is of

A request names events and not keys: whether the asker may have a key follows from what was delivered to it, which is in
the broker's own ledger, and not from anything that the asker says (`key_answers`). A reply is sealed under the asker's
pair key, by the very keys that handouts are: it is the same bytes whoever asks, whenever, and opens for one subscriber.
So replaying a request, or reading a reply, gains nobody anything.

    request = ["sealcast-key-request", 1, fields, signature]        Ed25519, over "sealcast/1 key request" | fields
    reply   = ["sealcast-key-reply", 1, keys, tables]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sealcast.errors import Rejected
from sealcast.model.dataclass import dataclass
from sealcast.primitives.aead import MAX_OFFSET, MAX_PARTITION, WRAPPED_BYTES
from sealcast.primitives.sign import SIGNATURE_BYTES, SigningKey, VerifyKey
from sealcast.wire import cbor
from sealcast.wire.frame import TOPIC_BYTES
from sealcast.wire.limits import (
    KEY_ID_BYTES,
    MAX_EPOCH,
    MAX_EVENTS_PER_FRAME,
    MAX_PUBLISHER_BYTES,
    MAX_TABLE_PART_BYTES,
    MAX_TILE_SLOTS,
    MAX_TIME_MICROS,
    TABLE_NAME_BYTES,
)

#: The kind of both messages on a broker's control topic.
KEYS: Final = "desk/keys"
MAGIC: Final = "sealcast-key-request"
REPLY_MAGIC: Final = "sealcast-key-reply"
VERSION: Final = 1
#: Events in one request: what one answer costs is bounded.
MAX_ASKED: Final = 512
MAX_REQUEST_BYTES: Final = 32 << 10
MAX_REPLY_BYTES: Final = MAX_ASKED * (MAX_TABLE_PART_BYTES + 128)
_SIGNED_FOR: Final = b"sealcast/1 key request"


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """Which events cannot be opened."""

    entity: str
    topic: bytes
    epoch: int
    partition: int
    #: Offset and row each; all of one piece.
    events: tuple[tuple[int, int], ...]
    #: Rather parts of tables than single keys of them.
    tables: bool
    #: Microseconds since 1970.
    time: int

    def signed(self, signer: SigningKey) -> bytes:
        body = self._body()
        return cbor.encode([MAGIC, VERSION, body, signer.sign(_SIGNED_FOR + cbor.encode(body))])

    def _body(self) -> list[Any]:
        flat = [number for event in self.events for number in event]
        return [self.entity, self.topic, self.epoch, self.partition, flat, self.tables, self.time]


def parse_request(data: bytes, verify_key_of: Callable[[str], VerifyKey]) -> KeyRequest:
    """The request, if it is one and its asker's: Rejected otherwise."""
    outer = cbor.decode(data, max_bytes=MAX_REQUEST_BYTES, max_items=16 + 2 * MAX_ASKED)
    if not isinstance(outer, list) or len(outer) != 4 or outer[:2] != [MAGIC, VERSION] or outer[1] is True:
        raise cbor.refused("not a key request")
    body, signature = outer[2], outer[3]
    if not isinstance(signature, bytes) or len(signature) != SIGNATURE_BYTES:
        raise cbor.refused(f"a key request has a signature of {SIGNATURE_BYTES} bytes")
    request = _request(body)
    if not verify_key_of(request.entity).verify(_SIGNED_FOR + cbor.encode(body), signature):
        raise Rejected(f"the key request is not signed by {request.entity!r}")
    return request


def _request(body: object) -> KeyRequest:
    if not isinstance(body, list) or len(body) != 7:
        raise cbor.refused("a key request has seven fields")
    entity, topic, epoch, partition, flat, tables, time = body
    if not isinstance(entity, str) or not 0 < len(entity.encode()) <= MAX_PUBLISHER_BYTES:
        raise cbor.refused("a key request names its asker")
    if not isinstance(topic, bytes) or len(topic) != TOPIC_BYTES or not isinstance(tables, bool):
        raise cbor.refused(f"a key request names its topic in {TOPIC_BYTES} bytes")
    bounded = ((epoch, MAX_EPOCH), (partition, MAX_PARTITION), (time, MAX_TIME_MICROS))
    if not all(_natural(number, limit) for number, limit in bounded):
        raise cbor.refused("a key request names epoch, partition and time")
    if not isinstance(flat, list) or len(flat) % 2 or not 0 < len(flat) <= 2 * MAX_ASKED:
        raise cbor.refused(f"a key request names 1 to {MAX_ASKED} events")
    events = tuple(zip(flat[::2], flat[1::2], strict=True))
    if not all(_natural(o, MAX_OFFSET) and _natural(r, MAX_EVENTS_PER_FRAME - 1) for o, r in events):
        raise cbor.refused("a key request names events by offset and row")
    return KeyRequest(entity, topic, epoch, partition, events, tables, time)


@dataclass(frozen=True, slots=True)
class GivenPart:
    """A subscriber's part of a table."""

    name: bytes
    place: int
    places: int
    sealed: bytes


@dataclass(frozen=True, slots=True)
class KeyReply:
    """What the asker was missing, sealed for it."""

    #: Key id, and the key.
    keys: tuple[tuple[bytes, bytes], ...]
    tables: tuple[GivenPart, ...] = ()

    def encode(self) -> bytes:
        tables = [[part.name, part.place, part.places, part.sealed] for part in self.tables]
        return cbor.encode([REPLY_MAGIC, VERSION, [list(pair) for pair in self.keys], tables])


def parse_reply(data: bytes) -> KeyReply:
    """A reply; FrameRejected when it is none. Whether it is true shows when it is opened."""
    outer = cbor.decode(data, max_bytes=MAX_REPLY_BYTES, max_items=16 + 8 * MAX_ASKED)
    if not isinstance(outer, list) or len(outer) != 4 or outer[:2] != [REPLY_MAGIC, VERSION] or outer[1] is True:
        raise cbor.refused("not a key reply")
    return KeyReply(tuple(map(_key, _list(outer[2]))), tuple(map(_part, _list(outer[3]))))


def _list(value: object) -> list[Any]:
    if not isinstance(value, list) or len(value) > MAX_ASKED:
        raise cbor.refused(f"a key reply has at most {MAX_ASKED} keys and parts of tables")
    return value


def _key(value: object) -> tuple[bytes, bytes]:
    match value:
        case [bytes(key_id), bytes(sealed)] if len(key_id) == KEY_ID_BYTES and len(sealed) == WRAPPED_BYTES:
            return key_id, sealed
    raise cbor.refused("a key in a reply is an id and a sealed key")


def _part(value: object) -> GivenPart:
    match value:
        case [bytes(name), int(place), int(places), bytes(sealed)]:
            if (
                len(name) == TABLE_NAME_BYTES
                and _natural(place, MAX_TILE_SLOTS)
                and place < places <= MAX_TILE_SLOTS
                and len(sealed) <= MAX_TABLE_PART_BYTES
            ):
                return GivenPart(name, place, places, sealed)
    raise cbor.refused("a part of a table in a reply is a name, a place of so many, and a sealed part")


def _natural(number: object, limit: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= limit
