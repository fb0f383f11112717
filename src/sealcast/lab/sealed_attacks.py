"""Frames that must not pass on topics whose publishers seal for readers: what a broker refuses without reading events.

The attacker is a publisher with a client of its own. Its frames are signed, sealed and within its rights, so that only
the rules of the protection are left to stop them. `attacks` has those that must not pass on any topic.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sealcast.lab.attacks import Attack, Insider
from sealcast.model import Reason
from sealcast.model.schema import Value
from sealcast.protections.searchable.blocks import most_trapdoors
from sealcast.protections.searchable.scheme import UserKeys
from sealcast.trust.realm.machine import Topic
from sealcast.wire.limits import MAX_TRAPDOORS
from sealcast.wire.records import RecordCodec
from sealcast.wire.searching import BLOCK_HEAD, BLOCK_MAGIC, FIRST_POINT, SECOND_POINT, TAG_BYTES, packed_block

#: As long as a sealed event is, at the least, and as unreadable to brokers.
_ENVELOPE: Final = os.urandom(256)
#: Beyond the field: no point has it.
_NO_X: Final = b"\xff" * 32
_NO_ENVELOPE: Final = "no sealed event"
_NOT_COMPRESSED: Final = "not compressed; infinity is none"


def sealed_attacks(
    topic: Topic, by: Insider, clear: Mapping[str, Value], now_us: int, search: UserKeys | None = None
) -> Iterator[Attack]:
    """Attacks of a publisher on a topic of `payload`, or of `searchable` with its keys for searching. `clear` is an
    event's attributes, which it shows where they are to be sealed."""
    yield _attack(topic, by, now_us, "nothing in the place of a sealed event", b"", _NO_ENVELOPE)
    yield _attack(topic, by, now_us, "a payload in clear", b"in clear", _NO_ENVELOPE)
    if topic.protection.hidden_of(topic.schema):
        shown = RecordCodec(topic.schema).encode([topic.schema.parse(clear)], [_ENVELOPE])
        data = by.sealer(topic).seal_messages(shown, now_us)
        yield Attack(Reason.EVENT, "attributes in clear", data, detail="is sealed on this topic")
    narrowed = by.sealer(topic).seal_messages(_messages(topic, _ENVELOPE), now_us, f"{topic.schema.names[0]} = 1")
    yield Attack(Reason.EVENT, "events for some readers only", narrowed, detail="narrows who may open")
    if search is not None:
        for story, before, detail in _blocks(topic, search):
            yield _attack(topic, by, now_us, story, before + _ENVELOPE, detail)


def stale(topic: Topic, by: Insider, before: Topic, now_us: int) -> Attack:
    """A frame under the keys that `by` had in an epoch, which is over, grace and all."""
    data = by.sealer(before).seal_messages(_messages(topic, _ENVELOPE), now_us)
    return Attack(Reason.EPOCH, "a frame of an epoch that is over", data, detail=f"epoch {before.epoch}")


def signed_again(topic: Topic, by: Insider, messages: Sequence[bytes], now_us: int) -> bytes:
    """Another publisher's messages, in a frame of one's own. Brokers cannot tell, and admit it. What keeps it from
    meaning anything is in the messages: trapdoors under the other's half, an envelope under the other's key."""
    return by.sealer(topic).seal_messages(messages, now_us)


def _blocks(topic: Topic, search: UserKeys) -> Iterator[tuple[str, bytes, str]]:
    """Blocks of trapdoors that are none: the story, the bytes before the envelope, and the words of the refusal."""
    good = sorted(search.trapdoor(bytes([n])) for n in range(3))
    first, most = good[0], most_trapdoors(topic.schema)
    full, beyond = (count.to_bytes(2, "big") for count in (MAX_TRAPDOORS, MAX_TRAPDOORS + 1))
    yield "no block of trapdoors", b"XX1" + packed_block(good)[3:], "does not begin as one"
    yield "a block that promises more than it has", BLOCK_MAGIC + full, f"a block of {MAX_TRAPDOORS}"
    yield "a block of more trapdoors than any may have", BLOCK_MAGIC + beyond, "is the most"
    yield "a trapdoor twice", _block([first, first]), "order of its bytes"
    yield "trapdoors in an order of its own", _block(good[::-1]), "order of its bytes"
    yield "a tag of more bits than the topic's", _block([b"\xff" * TAG_BYTES + first[TAG_BYTES:]]), "bits of this"
    yield "a tag of three bytes", _block([_with_long_tag(search)[1:]]), "bits of this"
    for at in (FIRST_POINT, SECOND_POINT):
        yield "a point that is not on the curve", _block([_with(first, at, b"\x02" + _NO_X)]), "on the curve"
        yield "infinity instead of a point", _block([_with(first, at, bytes(33))]), _NOT_COMPRESSED
        yield "a point with another head", _block([_with(first, at, b"\x04" + first[at][1:])]), _NOT_COMPRESSED
    many = packed_block(search.trapdoor(n.to_bytes(4, "big")) for n in range(most + 1))
    yield "more trapdoors than an event of the schema has", many, f"at most {most} trapdoors"


def _block(trapdoors: Sequence[bytes]) -> bytes:
    """Packs the trapdoors as they are given, in no order."""
    return BLOCK_MAGIC + len(trapdoors).to_bytes(BLOCK_HEAD - len(BLOCK_MAGIC), "big") + b"".join(trapdoors)


def _with(trapdoor: bytes, at: slice, point: bytes) -> bytes:
    return trapdoor[: at.start] + point + trapdoor[at.stop :]


def _with_long_tag(search: UserKeys) -> bytes:
    """A trapdoor whose tag is too long for the topic if a byte is missing at its beginning."""
    label = next(label for n in range(1 << 16) if search.tag(label := n.to_bytes(2, "big"))[-2])
    return search.trapdoor(label)


def _attack(topic: Topic, by: Insider, now_us: int, story: str, payload: bytes, detail: str) -> Attack:
    data = by.sealer(topic).seal_messages(_messages(topic, payload), now_us)
    return Attack(Reason.EVENT, story, data, detail=detail)


def _messages(topic: Topic, payload: bytes) -> list[bytes]:
    """One event that shows brokers nothing."""
    return RecordCodec(topic.schema).encode([dict.fromkeys(topic.schema.names)], [payload])
