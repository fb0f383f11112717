"""Frames that must not pass: one for each of admission's checks, made the way an attacker would make them.

The attacker here is generous to itself: it knows the frame format, holds keys of its own, can write to the log, and
may have a publisher's own client with its checks taken out. `sealcast demo` mounts these attacks, and so do the tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from sealcast.model import Reason, Schema
from sealcast.model.event import MAX_PAYLOAD_BYTES
from sealcast.primitives import merkle
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey
from sealcast.schemes.endpoint import keys
from sealcast.schemes.endpoint.publish import FrameSealer
from sealcast.trust.parameters import KeyParameters
from sealcast.trust.realm import Topic
from sealcast.wire import frame
from sealcast.wire.records import RecordCodec

#: Of a topic where one frame can be too much, and nothing honest is.
RATES: Final = KeyParameters(bytes_per_s=8 << 20, burst_s=1)


@dataclass(frozen=True, slots=True)
class Attack:
    """What to put into the log, what it tries, and the reason for which it must be refused."""

    reason: Reason
    story: str
    data: bytes
    #: Events that are refused with it, as rejections count them.
    events: int = 1


@dataclass(frozen=True, slots=True)
class Insider:
    """Someone with keys: a real publisher's own, or an attacker's."""

    name: str
    pair: Secret
    signer: SigningKey

    def sealer(self, topic: Topic, schema: Schema | None = None) -> FrameSealer:
        codec = RecordCodec(schema or topic.schema)
        return FrameSealer(codec, topic.id, topic.epoch, self.name, self.pair, self.signer)


def attacks(topic: Topic, publisher: Insider, stranger: Insider, revoked: Insider, now_us: int) -> Iterator[Attack]:
    """One attack a reason. `publisher` may publish, `stranger` is enrolled without a right, `revoked` was revoked. A
    publisher's rate on the topic must be so low that one frame can be too much (`RATES`)."""
    honest = _frame(topic, publisher, now_us)
    yield Attack(Reason.FRAME, "noise instead of a frame", os.urandom(300))
    yield Attack(Reason.FRAME, "a frame cut in half", honest[: len(honest) // 2])
    yield Attack(Reason.VERSION, "a frame of a version yet to come", _of_version(honest, 3))
    elsewhere = replace(topic, id=os.urandom(16))
    yield Attack(Reason.TOPIC, "a frame made for another topic", _frame(elsewhere, publisher, now_us))
    yield Attack(Reason.EPOCH, "a frame of another epoch", _frame(replace(topic, epoch=9), publisher, now_us))
    nobody = Insider("nobody", Secret.random(), SigningKey.generate())
    yield Attack(Reason.PUBLISHER, "someone whom nobody enrolled", _frame(topic, nobody, now_us))
    yield Attack(Reason.REVOKED, "a publisher who was revoked", _frame(topic, revoked, now_us))
    yield Attack(Reason.RIGHT, "an entity without the right", _frame(topic, stranger, now_us))
    impostor = Insider(publisher.name, stranger.pair, stranger.signer)
    yield Attack(Reason.SIGNATURE, "someone else's name under it", _frame(topic, impostor, now_us))
    tomorrow = now_us + timedelta(days=1) // timedelta(microseconds=1)
    yield Attack(Reason.TIME, "published tomorrow", _frame(topic, publisher, tomorrow))
    yield Attack(Reason.TIME, "published years ago", _frame(topic, publisher, 1))
    spoilt = honest[:-1] + bytes([honest[-1] ^ 1])
    yield Attack(Reason.SEAL, "one bit of the sealed body flipped", spoilt)
    yield Attack(Reason.REPLAY, "the same once more", spoilt)
    yield _greedy(topic, publisher, now_us)
    other = Schema.from_json({"attributes": [{"name": "symbol", "type": "string"}]})
    yield Attack(Reason.SCHEMA, "events of another schema", _frame(topic, publisher, now_us, other))
    yield Attack(Reason.ROOT, "other events than those that were signed", _swapped(topic, publisher, now_us))
    off = publisher.sealer(topic).seal_messages([_broken(m) for m in _messages(topic.schema, 3)], now_us)
    yield Attack(Reason.EVENT, "three events that are no events of the schema", off, events=3)


def _greedy(topic: Topic, by: Insider, now_us: int) -> Attack:
    """A frame of more bytes than its publisher may publish at once."""
    most = topic.parameters.bytes_per_s * topic.parameters.burst_s
    count = most // MAX_PAYLOAD_BYTES + 1
    nothing = dict.fromkeys(topic.schema.names)
    messages = RecordCodec(topic.schema).encode([nothing] * count, [bytes(MAX_PAYLOAD_BYTES)] * count)
    data = by.sealer(topic).seal_messages(messages, now_us)
    return Attack(Reason.BUDGET, "more bytes at once than a publisher may publish", data, events=count)


def _messages(schema: Schema, count: int) -> list[bytes]:
    nothing = dict.fromkeys(schema.names)
    return RecordCodec(schema).encode([nothing] * count, [b"nothing to see"] * count)


def _frame(topic: Topic, by: Insider, now_us: int, schema: Schema | None = None) -> bytes:
    return by.sealer(topic, schema).seal_messages(_messages(schema or topic.schema, 1), now_us)


def _of_version(honest: bytes, version: int) -> bytes:
    at = honest.index(frame.MAGIC.encode()) + len(frame.MAGIC)
    return honest[:at] + bytes([version]) + honest[at + 1 :]


def _broken(message: bytes) -> bytes:
    """Every attribute is said to be there, and none is."""
    at = len(message) - len(b"nothing to see")
    return message[:17] + b"\xff" + message[18:at]


def _swapped(topic: Topic, by: Insider, now_us: int) -> bytes:
    """A publisher signs one event and seals another: the broker would admit what no subscriber could verify."""
    shown, hidden = _messages(topic.schema, 1), _messages(topic.schema, 1)
    boot = os.urandom(frame.BOOT_BYTES)
    root = merkle.root(merkle.build(merkle.hash_messages(shown)), 1)
    header = frame.Header(topic.id, by.name, boot, 0, 1, now_us, topic.schema.digest, topic.epoch, root)
    signed = frame.encode_signed(header, by.signer.sign(frame.to_be_signed(header)))
    key = keys.frame_key(by.pair, boot, keys.associated_data(topic.id, topic.epoch))
    aad = frame.body_aad(signed, key.commitment)
    body = key.seal(frame.body_nonce(header), frame.encode_body(hidden), aad)
    return frame.encode(signed, key.commitment, body, token=b"")
