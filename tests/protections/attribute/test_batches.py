"""Signatures verified together: what is paired once is a matter of cost, and never lets a forgery through."""

from __future__ import annotations

import pytest

from sealcast.errors import CannotOpen
from sealcast.primitives.pairing import Pairing
from sealcast.protections.attribute.open import AttributeOpener, NotOurs
from sealcast.protections.attribute.scheme.sign import SignatureClaim, forged, sign, verify
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.records import RecordCodec
from tests.protections.attribute.ward import SCHEMA, TOPIC, Ward
from tests.protections.attribute.world import ATTRIBUTES, EPOCH, PAIRINGS, World


@pytest.fixture(scope="module", params=PAIRINGS)
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def claims(world: World, count: int, *, pseudonym: bool) -> list[SignatureClaim]:
    """Signatures of one publisher in the name of the same credentials."""
    made = []
    for number in range(count):
        message = b"message %d" % number
        signed = sign(world.parameters, EPOCH, message, world.publisher_key.credentials, pseudonym)
        made.append(SignatureClaim(EPOCH, message, signed))
    return made


def pairings(world: World, batch: list[SignatureClaim], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many the batch takes."""
    seen: list[int] = []
    honest = type(world.pairing).balanced

    def counting(self: Pairing, pairs: list[tuple[object, object]]) -> bool:
        seen.append(len(pairs))
        return bool(honest(self, pairs))

    monkeypatch.setattr(type(world.pairing), "balanced", counting)
    assert verify(world.parameters, batch)
    (count,) = seen
    return count


@pytest.mark.parametrize("pseudonym", [False, True])
def test_equal_credentials_are_paired_once(world: World, pseudonym: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pairings of the batch, one for each credential, and one for each message."""
    assert pairings(world, claims(world, 6, pseudonym=pseudonym), monkeypatch) == 2 + len(ATTRIBUTES) + 6


def test_parts_of_two_signatures_cannot_be_exchanged(world: World) -> None:
    """The sum over a credential is the same without random exponents: with them, the exchange is found."""
    one, other, third = claims(world, 3, pseudonym=False)
    for part in ("s1", "s2", "s3"):
        first, second = one.signed[0], other.signed[0]
        swapped = [
            one._replace(signed=(first._replace(**{part: getattr(second, part)}), *one.signed[1:])),
            other._replace(signed=(second._replace(**{part: getattr(first, part)}), *other.signed[1:])),
        ]
        assert not verify(world.parameters, [*swapped, third])
        assert forged(world.parameters, [*swapped, third]) == {0, 1}


def test_one_forgery_does_not_spoil_the_others(world: World) -> None:
    good = claims(world, 5, pseudonym=False)
    batch = [*good[:3], good[3]._replace(message=b"another"), good[4]._replace(epoch=EPOCH + 1)]
    assert forged(world.parameters, batch) == {3, 4}


# --- events ---------------------------------------------------------------------------------------------------------


def test_events_opened_together_are_judged_one_by_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of one batch: some open, one is somebody else's, one was altered, one is of no publisher."""
    ward = Ward(tmp_path_factory.mktemp("batch") / "realm")
    ward.publish([10, 200, 20, 30])
    ward.publish([40], publisher="pump")
    events = [*ward.outgoing(), *ward.outgoing("pump")]
    spoiled = events[2].message[:-1] + bytes([events[2].message[-1] ^ 1])
    events[2] = CarriedEvent(events[2].token, events[2].signed, events[2].position, events[2].path, spoiled)
    with ward.ring("nurse") as ring:
        opener = AttributeOpener.of(ward.realm.state, TOPIC, ring)
        found = opener.open_many(events)
        assert [type(one) for one in found[1:3]] == [NotOurs, CannotOpen]
        records = [one.record for one in found if not isinstance(one, CannotOpen)]
        payloads = [RecordCodec(SCHEMA).decode_one(record)[1] for record in records]
        assert payloads == [b"monitor 10", b"monitor 30", b"pump 40"]
        assert opener.open_many([]) == []
        with pytest.raises(NotOurs):
            opener.open(events[1])
        assert opener.open(events[0]).attributes == {"pulse": 10}
