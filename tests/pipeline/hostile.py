"""Hostile frames for a field: an attack on each of admission's checks, and parsers' nightmares."""

from __future__ import annotations

import time

from sealcast.lab.attacks import Attack, Cast, Insider, attacks, outdated
from sealcast.model import Reason
from sealcast.trust.realm.changes import Right
from sealcast.wire.limits import MAX_FRAME_BYTES
from tests.pipeline.field import TOPIC, Field


def hostile(field: Field) -> list[Attack]:
    realm = field.realm
    realm.enrol_many(["mallory", "gone", "narrow"])
    templates = "templates" not in realm.state().topic(TOPIC).protection.lacks
    if templates:
        realm.grant(TOPIC, "narrow", [Right.PUBLISH], template="symbol=ACME")
    realm.revoke(TOPIC, "mallory")
    # A topic for members gives both rights; this one keeps one of them.
    realm.revoke(TOPIC, "all", [Right.PUBLISH])
    gone = Insider.of(realm, TOPIC, "gone")
    realm.revoke_entity("gone")
    cast = Cast(
        publisher=Insider.of(realm, TOPIC, "ann"),
        reader=Insider.of(realm, TOPIC, "all", Right.SUBSCRIBE),
        narrow=Insider.of(realm, TOPIC, "narrow") if templates else None,
        revoked=gone,
        stranger=Insider.without(realm, "mallory"),
        outdated=outdated(realm, TOPIC, "ann"),
    )
    return [
        *attacks(realm.state().topic(TOPIC), cast, time.time_ns() // 1000),
        Attack(Reason.FRAME, "nothing at all", b""),
        Attack(Reason.FRAME, "arrays within arrays", b"\x81" * 100_000 + b"\x00"),
        Attack(Reason.FRAME, "maps within maps", b"\xa1\x00" * 100_000 + b"\x00"),
        Attack(Reason.FRAME, "an array that claims 2**64 - 1 items", b"\x9b" + b"\xff" * 8),
        Attack(Reason.FRAME, "a text that claims 2**63 bytes", b"\x7b\x80" + bytes(7)),
        Attack(Reason.FRAME, "tags within tags", b"\xc0" * 100_000 + b"\x00"),
        Attack(Reason.FRAME, "larger than a frame may be", bytes(MAX_FRAME_BYTES + 1)),
    ]
