"""Frames that must not pass: one for each of admission's checks, made the way an attacker would make them.

The attacker here is generous to itself: it knows the frame format, holds keys of its own, can write to the log, has
others' tokens, which are no secrets, and may have a publisher's own client with its checks taken out. `sealcast demo`
mounts these attacks, and so do the tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from sealcast.errors import FrameRejected
from sealcast.log.forwarded import partition_of
from sealcast.model import Reason, Schema
from sealcast.model.event import MAX_PAYLOAD_BYTES
from sealcast.primitives import merkle, p256
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey
from sealcast.protections.frames import FrameSealer
from sealcast.trust.deployment import Realm
from sealcast.trust.keys import frames as keys
from sealcast.trust.keys.minting import token_for
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.machine import Topic
from sealcast.trust.realm.parameters import KeyParameters
from sealcast.trust.tokens import token as tokens
from sealcast.trust.tokens.claims import Claims
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
    #: Words that the refusal has, where one reason has several rules.
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Insider:
    """Someone with keys and a token, who seals frames with them: a real publisher or an attacker."""

    name: str
    pair: Secret
    signer: SigningKey
    token: bytes

    @classmethod
    def of(cls, realm: Realm, topic: str, name: str, right: Right = Right.PUBLISH) -> Insider:
        """Takes what an entity has now. It keeps that when it loses its right later."""
        identity = realm.identity(name)
        return cls(name, identity.pair_key(realm.state(), topic), identity.signer, realm.token(topic, name, right))

    @classmethod
    def without(cls, realm: Realm, name: str) -> Insider:
        """Takes an entity that is enrolled and has no right on the topic."""
        return cls(name, Secret.random(), realm.identity(name).signer, b"")

    def sealer(self, topic: Topic, schema: Schema | None = None) -> FrameSealer:
        codec = RecordCodec(schema or topic.schema)
        bits = topic.parameters.key_bits
        return FrameSealer(
            codec, topic.id, topic.epoch, self.name, self.pair, self.signer, key_bits=bits, token=self.token
        )


@dataclass(frozen=True, slots=True)
class Cast:
    """Who is there to attack with: a publisher, a reader who may not publish, a publisher of other events alone, one
    who was revoked, and a stranger without a right; and a token of the publisher's whose time is over."""

    publisher: Insider
    reader: Insider
    #: None on topics of a protection whose brokers cannot tell which events a token is for.
    narrow: Insider | None
    revoked: Insider
    stranger: Insider
    outdated: bytes


def outdated(realm: Realm, topic: str, name: str) -> bytes:
    """Makes a token that was given days ago and whose time is over."""
    state, now = realm.state(), realm.clock()
    center = realm.center(state.topic(topic).center)
    days = (state.topic(topic).parameters.token_lifetime_s + 2 * 86_400) * 1_000_000
    return token_for(center, state, topic, name, Right.PUBLISH, now - days)


def place_of(data: bytes, partitions: int) -> int:
    """Where the frames of whoever a frame names come, so that it is not refused as a copy before anything else is
    looked at; the first partition, if it is no frame."""
    try:
        return partition_of(frame.parse(data).header.publisher, partitions)
    except FrameRejected:
        return 0


def attacks(topic: Topic, cast: Cast, now_us: int) -> Iterator[Attack]:
    """One attack a reason, at the least. A publisher's rate on the topic must be so low that one frame can be too much
    (`RATES`)."""
    yield from _of_frames(topic, cast, now_us)
    yield from _of_tokens(topic, cast, now_us)
    yield from _of_publishers(topic, cast, now_us)


def _of_frames(topic: Topic, cast: Cast, now_us: int) -> Iterator[Attack]:
    publisher, honest = cast.publisher, _frame(topic, cast.publisher, now_us)
    yield Attack(Reason.FRAME, "noise instead of a frame", os.urandom(300))
    yield Attack(Reason.FRAME, "a frame cut in half", honest[: len(honest) // 2])
    yield Attack(Reason.VERSION, "a frame of a version yet to come", _of_version(honest, 3))
    elsewhere = replace(topic, id=os.urandom(16))
    yield Attack(Reason.TOPIC, "a frame made for another topic", _frame(elsewhere, publisher, now_us))
    spoilt = flipped(honest)
    yield Attack(Reason.SEAL, "one bit of the sealed body flipped", spoilt)
    yield Attack(Reason.REPLAY, "the same once more", spoilt)
    other = Schema.from_json({"attributes": [{"name": "symbol", "type": "string"}]})
    yield Attack(Reason.SCHEMA, "events of another schema", _frame(topic, publisher, now_us, other))
    yield Attack(Reason.ROOT, "other events than those that were signed", _swapped(topic, publisher, now_us))
    off = publisher.sealer(topic).seal_messages([_broken(m) for m in _messages(topic.schema, 3)], now_us)
    yield Attack(Reason.EVENT, "three events that are no events of the schema", off, events=3)


def _of_tokens(topic: Topic, cast: Cast, now_us: int) -> Iterator[Attack]:
    publisher, mine = cast.publisher, p256.P256SigningKey.generate()

    def with_token(token: bytes) -> bytes:
        return _frame(topic, replace(publisher, token=token), now_us)

    good = tokens.parse(publisher.token).claims
    yield Attack(Reason.TOKEN, "no token", with_token(b""))
    yield Attack(
        Reason.TOKEN, "a token of another topic", with_token(minted(mine, replace(good, topic=bytes(16)), topic))
    )
    exchanged = _frame(topic, publisher, now_us).replace(publisher.token, flipped(publisher.token))
    yield Attack(Reason.TOKEN, "another token than its publisher signed for", exchanged)
    own = replace(good, issuer_certificate=os.urandom(32))
    yield Attack(Reason.CENTER, "a token of a key center that it made up", with_token(minted(mine, own, topic)))
    yield Attack(Reason.TOKEN_SIGNATURE, "a token that it signed itself", with_token(minted(mine, good, topic)))
    yield Attack(Reason.TOKEN_TIME, "a token whose time is over", with_token(cast.outdated))
    yield Attack(Reason.RIGHT, "a token to subscribe", _frame(topic, cast.reader, now_us))
    yield Attack(
        Reason.RIGHT,
        "a token of somebody who may",
        _frame(topic, replace(cast.stranger, token=publisher.token), now_us),
    )
    if cast.narrow is not None:
        wider = replace(cast.narrow, token=publisher.token)
        yield Attack(Reason.PUBLISHER, "somebody else's token, which is for more", _frame(topic, wider, now_us))
        yield Attack(Reason.TEMPLATE, "an event that is not one of its token's", _frame(topic, cast.narrow, now_us))


def _of_publishers(topic: Topic, cast: Cast, now_us: int) -> Iterator[Attack]:
    publisher = cast.publisher
    nobody = Insider("nobody", Secret.random(), SigningKey.generate(), publisher.token)
    yield Attack(Reason.PUBLISHER, "someone whom nobody enrolled", _frame(topic, nobody, now_us))
    yield Attack(Reason.REVOKED, "a publisher who was revoked", _frame(topic, cast.revoked, now_us))
    yield Attack(Reason.EPOCH, "a frame of another epoch", _frame(replace(topic, epoch=9), publisher, now_us))
    impostor = replace(publisher, pair=cast.stranger.pair, signer=cast.stranger.signer)
    yield Attack(Reason.SIGNATURE, "someone else's name and token under it", _frame(topic, impostor, now_us))
    tomorrow = now_us + timedelta(days=1) // timedelta(microseconds=1)
    yield Attack(Reason.TIME, "published tomorrow", _frame(topic, publisher, tomorrow))
    yield Attack(Reason.TIME, "published years ago", _frame(topic, publisher, 1))
    yield _greedy(topic, publisher, now_us)


def minted(signer: p256.P256SigningKey, claims: Claims, topic: Topic) -> bytes:
    """A token that somebody signed who is no key center."""
    return tokens.mint(signer, claims, topic.parameters.token_hash)


def flipped(data: bytes) -> bytes:
    """Flips the last bit."""
    return data[:-1] + bytes([data[-1] ^ 1])


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
    """Makes a message that claims to have every attribute and has none."""
    at = len(message) - len(b"nothing to see")
    return message[:17] + b"\xff" + message[18:at]


def _swapped(topic: Topic, by: Insider, now_us: int) -> bytes:
    """A publisher signs one event and seals another: the broker would admit what no subscriber could verify."""
    shown, hidden = _messages(topic.schema, 1), _messages(topic.schema, 1)
    boot = os.urandom(frame.BOOT_BYTES)
    root = merkle.root(merkle.build(merkle.hash_messages(shown)), 1)
    named = frame.token_digest(by.token)
    header = frame.Header(topic.id, by.name, boot, 0, 1, now_us, topic.schema.digest, topic.epoch, root, named)
    signed = frame.encode_signed(header, by.signer.sign(frame.to_be_signed(header)))
    key = keys.frame_key(by.pair, boot, keys.associated_data(topic.id, topic.epoch))
    aad = frame.body_aad(signed, key.commitment)
    body = key.seal(frame.body_nonce(header), frame.encode_body(hidden), aad)
    return frame.encode(signed, key.commitment, body, token=by.token)
