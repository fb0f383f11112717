"""A hospital's realm with one topic that peers carry: a schema small enough that pairings take no time to speak of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sealcast import Event, Position, Publisher, Realm, Schema, Subscriber
from sealcast.control.bodies import Body
from sealcast.control.service import ServiceRefused
from sealcast.protections.attribute.carry import carry
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.outgoing import PublisherPeer
from sealcast.wire.carried import CarriedEvent
from tests.cli.shell import sealcast
from tests.copies import copy_realm

TOPIC = "vitals"
SCHEMA = Schema.from_json({"attributes": [{"name": "pulse", "type": "int", "min": 0, "max": 255}]})
NAMES = ("monitor", "pump", "nurse", "doctor", "mallory")


class Ward:
    """`nurse` wants low pulses, `doctor` high ones."""

    def __init__(self, directory: Path, profile: str = "A") -> None:
        from sealcast.model.protection import AttributeBased

        self.realm = Realm.create(directory)
        self.realm.create_topic(TOPIC, SCHEMA, protection=AttributeBased(profile), access="members")
        self.realm.enrol_many(NAMES)
        self.realm.subscribe(TOPIC, "nurse", "pulse < 64")
        self.realm.subscribe(TOPIC, "doctor", "pulse >= 128")

    @classmethod
    def copied(cls, other: Ward, directory: Path) -> Ward:
        copy_realm(other.realm.paths.root, directory)
        made = object.__new__(cls)
        made.realm = Realm(directory)
        return made

    def publish(self, pulses: Sequence[int], publisher: str = "monitor") -> list[Position]:
        with Publisher(self.realm, TOPIC, as_=publisher) as mine:
            return mine.publish([Event({"pulse": n}, f"{publisher} {n}".encode()) for n in pulses])

    def carry(self) -> dict[str, int]:
        return carry(self.realm, [TOPIC])

    def got(self, name: str) -> list[bytes]:
        with Subscriber(self.realm, TOPIC, as_=name, from_=0) as reader:
            return [event.payload for event in reader]

    def ring(self, name: str) -> CredentialRing:
        return CredentialRing(self.realm, TOPIC, self.realm.identity(name))

    def outgoing(self, publisher: str = "monitor") -> list[CarriedEvent]:
        """The events of a publisher that did not go out yet; they stay where they are."""
        peer = PublisherPeer(self.realm, TOPIC, publisher)
        try:
            return list(next(peer.batches()).events)
        finally:
            peer.close()


def asked(ward: Ward, name: str, body: Body) -> object:
    with ward.ring(name) as ring:
        return ring.wallet.correspondent.ask_center("center", body.KIND, body.to_bytes())


def refused(ward: Ward, name: str, body: Body) -> str:
    with pytest.raises(ServiceRefused) as refusal:
        asked(ward, name, body)
    return str(refusal.value.reason)


def command(ward: Ward, *arguments: object, code: int = 0) -> dict[str, object]:
    done = sealcast(*arguments, "--json", "--realm", ward.realm.paths.root)
    assert done.code == code, done.err
    return done.document
