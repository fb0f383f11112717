"""Events that no peer may take: one for each check that peers make of what a neighbour hands them (`arriving`).

The attacker is a member of the realm, or has found one's disk: it speaks the protocol, has an honest event that went by
(`seen`), its token and header included, and keys of its own. Its neighbours believe nothing of that. `attacks` has the
frames that must not get out of a publisher's own log, which is where the other checks are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sealcast.lab.attacks import Attack, Cast, Insider, flipped, minted
from sealcast.model import Position, Reason
from sealcast.primitives import merkle, p256
from sealcast.primitives.sign import SigningKey
from sealcast.trust.realm.machine import Topic
from sealcast.trust.tokens import token as tokens
from sealcast.wire import frame
from sealcast.wire.carried import CarriedEvent

_HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class LogNumbers:
    """The numbers of publishers' logs: everybody knows them, from the registry."""

    publisher: int
    reader: int
    revoked: int
    stranger: int


def carried_attacks(topic: Topic, seen: CarriedEvent, cast: Cast, numbers: LogNumbers, now_us: int) -> Iterator[Attack]:
    """`seen` is an event of the publisher's, sealed for whoever is attacked."""
    yield from _of_bytes(seen)
    yield from _of_copies(topic, seen, cast, numbers, now_us)
    yield from _of_tokens(topic, seen, cast, numbers, now_us)
    yield from _of_publishers(topic, seen, cast, numbers, now_us)


def _of_bytes(seen: CarriedEvent) -> Iterator[Attack]:
    honest = seen.to_bytes()
    yield Attack(Reason.FRAME, "noise instead of an event", os.urandom(300))
    yield Attack(Reason.FRAME, "an event cut in half", honest[: len(honest) // 2])
    yield Attack(Reason.FRAME, "a byte after an event", honest + b"\0")
    yield Attack(Reason.FRAME, "a header that is none", replace(seen, signed=os.urandom(64)).to_bytes())


def _of_copies(topic: Topic, seen: CarriedEvent, cast: Cast, numbers: LogNumbers, now_us: int) -> Iterator[Attack]:
    """An honest event with something else in it."""
    elsewhere = replace(seen.position, partition=numbers.reader)
    spoilt = replace(seen, message=flipped(seen.message))
    yield Attack(Reason.ROOT, "one bit of the sealed event flipped", spoilt.to_bytes())
    yield Attack(Reason.ROOT, "a path of its own", replace(seen, path=(os.urandom(32),)).to_bytes())
    yield Attack(Reason.PUBLISHER, "said to be in another's log", replace(seen, position=elsewhere).to_bytes())
    yield Attack(Reason.TOKEN, "without its token", replace(seen, token=b"").to_bytes())
    yield Attack(Reason.TOKEN, "with another token", replace(seen, token=flipped(seen.token)).to_bytes())
    unsigned = replace(seen, signed=flipped(seen.signed))
    yield Attack(Reason.SIGNATURE, "one bit of the signature flipped", unsigned.to_bytes())


def _of_tokens(topic: Topic, seen: CarriedEvent, cast: Cast, numbers: LogNumbers, now_us: int) -> Iterator[Attack]:
    """The publisher itself, with a client of its own and a token that does not count."""
    mine, publisher = p256.P256SigningKey.generate(), cast.publisher
    good = tokens.parse(publisher.token).claims

    def with_token(token: bytes) -> bytes:
        return made(topic, replace(publisher, token=token), numbers.publisher, seen.message, now_us).to_bytes()

    other = replace(good, topic=bytes(16))
    yield Attack(Reason.TOKEN, "a token of another topic", with_token(minted(mine, other, topic)))
    own = replace(good, issuer_certificate=os.urandom(32))
    yield Attack(Reason.CENTER, "a token of a key center that it made up", with_token(minted(mine, own, topic)))
    yield Attack(Reason.TOKEN_SIGNATURE, "a token that it signed itself", with_token(minted(mine, good, topic)))
    yield Attack(Reason.TOKEN_TIME, "a token whose time is over", with_token(cast.outdated))


def _of_publishers(topic: Topic, seen: CarriedEvent, cast: Cast, numbers: LogNumbers, now_us: int) -> Iterator[Attack]:
    publisher, message = cast.publisher, seen.message

    def by(who: Insider, number: int, **changes: object) -> bytes:
        return made(topic, who, number, message, now_us, **changes).to_bytes()

    yield Attack(Reason.RIGHT, "a token to subscribe", by(cast.reader, numbers.reader))
    borrowed = replace(cast.stranger, token=publisher.token)
    yield Attack(Reason.PUBLISHER, "a token of somebody who may", by(borrowed, numbers.stranger))
    nobody = replace(publisher, name="nobody", signer=SigningKey.generate())
    yield Attack(Reason.PUBLISHER, "someone whom nobody enrolled", by(nobody, numbers.publisher))
    yield Attack(Reason.REVOKED, "a publisher who was revoked", by(cast.revoked, numbers.revoked))
    impostor = replace(publisher, signer=cast.stranger.signer)
    yield Attack(Reason.SIGNATURE, "someone else's name and token under it", by(impostor, numbers.publisher))
    yield Attack(Reason.TOPIC, "an event of another topic", by(publisher, numbers.publisher, topic=os.urandom(16)))
    yield Attack(Reason.EPOCH, "an event of another epoch", by(publisher, numbers.publisher, epoch=9))
    tomorrow = now_us + 24 * _HOUR_US
    yield Attack(Reason.TIME, "published tomorrow", by(publisher, numbers.publisher, time=tomorrow))
    yield Attack(Reason.CENTER, "published before there was a key center", by(publisher, numbers.publisher, time=1))
    yield Attack(Reason.SCHEMA, "events of another schema", by(publisher, numbers.publisher, schema=bytes(32)))


def stolen(topic: Topic, seen: CarriedEvent, by: Insider, number: int, now_us: int) -> Attack:
    """Another publisher's sealed event under a header of one's own: only who opens it can tell."""
    return Attack(Reason.SEAL, "another's event as one's own", made(topic, by, number, seen.message, now_us).to_bytes())


def made(topic: Topic, by: Insider, number: int, message: bytes, now_us: int, /, **changes: object) -> CarriedEvent:
    """One message under a header that `by` signs, as its peer would hand it on."""
    root = merkle.root(merkle.build(merkle.hash_messages((message,))), 1)
    named = frame.token_digest(by.token)
    boot = os.urandom(frame.BOOT_BYTES)
    honest = frame.Header(topic.id, by.name, boot, 0, 1, now_us, topic.schema.digest, topic.epoch, root, named)
    header = replace(honest, **changes)  # type: ignore[arg-type]
    signed = frame.encode_signed(header, by.signer.sign(frame.to_be_signed(header)))
    return CarriedEvent(by.token, signed, Position(number, 0, 0), (), message)
