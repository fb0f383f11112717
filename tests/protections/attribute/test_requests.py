"""Connection requests: whoever covers a label opens its request, nobody else, and forged ones are refused unopened."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from sealcast.errors import Misuse
from sealcast.protections.attribute import scheme
from sealcast.protections.attribute.scheme import AttributeReason, AttributeRejected, ConnectionRequest
from sealcast.wire.attribute_keys import SLOT_BYTES
from tests.primitives.test_pairing import REFUSED2
from tests.protections.attribute.world import EPOCH, PAIRINGS, World, below

LABELS = ["", "0", "1", "00", "01", "10", "11", "000", "011"]


@pytest.fixture(scope="module", params=PAIRINGS)
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def test_a_request_is_opened_by_whoever_covers_its_label(world: World) -> None:
    keys = {one: world.master.connection_key(EPOCH, "heat", one.encode() + b"|") for one in LABELS}
    for mine in LABELS:
        request, hidden = world.master.connection_request(EPOCH, "heat", below(mine), 4)
        assert len(request.slots) == 4 * SLOT_BYTES
        arrived = ConnectionRequest.parse(request.to_bytes())
        opened = {other for other, key in keys.items() if key.open(world.parameters, arrived) == hidden}
        assert opened == {other for other in LABELS if mine.startswith(other)}
        assert all(key.open(world.parameters, arrived) is None for other, key in keys.items() if other not in opened)


def test_other_epochs_attributes_and_key_servers_open_nothing(world: World) -> None:
    request, _ = world.master.connection_request(EPOCH, "heat", below("10"), 4)
    for epoch, attribute in ((EPOCH + 1, "heat"), (EPOCH, "ward")):
        assert world.master.connection_key(epoch, attribute, b"10|").open(world.parameters, request) is None
    # Whoever claims that a key of another epoch or attribute was for this one finds nothing either.
    for epoch, attribute in ((EPOCH + 1, "heat"), (EPOCH, "ward")):
        key = world.master.connection_key(epoch, attribute, b"10|")
        claimed = scheme.ConnectionKey(EPOCH, "heat", key.to_bytes())
        assert claimed.open(world.parameters, request) is None
    stranger = scheme.setup(pairing=world.pairing).connection_key(EPOCH, "heat", b"10|")
    assert stranger.open(world.parameters, request) is None


def test_requests_that_the_key_server_did_not_sign_are_refused(world: World) -> None:
    request, _ = world.master.connection_request(EPOCH, "heat", below("10"), 4)
    key = world.master.connection_key(EPOCH, "heat", b"|")
    slots = bytearray(request.slots)
    slots[0] ^= 1
    foreign, _ = scheme.setup(pairing=world.pairing).connection_request(EPOCH, "heat", below("10"), 4)
    altered = [
        replace(request, slots=bytes(slots)),
        replace(request, epoch=EPOCH + 1),
        replace(request, attribute="ward"),
        replace(request, first=REFUSED2["off the subgroup"][0]),
        foreign,
    ]
    for one in altered:
        with pytest.raises(AttributeRejected) as refused:
            key.open(world.parameters, one)
        assert refused.value.reason is AttributeReason.SIGNATURE


@pytest.mark.parametrize("name", ["identity", "off the subgroup", "off the curve"])
def test_signed_points_are_checked_all_the_same(world: World, name: str) -> None:
    request, _ = world.master.connection_request(EPOCH, "heat", below("10"), 4)
    bad = replace(request, first=REFUSED2[name][0])
    bad = replace(bad, signature=world.master._signer.sign(bad.signed_part()))
    with pytest.raises(AttributeRejected) as refused:
        world.master.connection_key(EPOCH, "heat", b"|").open(world.parameters, bad)
    assert refused.value.reason is AttributeReason.POINT


def test_requests_tell_neither_the_label_nor_its_depth(world: World) -> None:
    """As many slots for every label, and no slot twice in two requests of one label."""
    requests = [world.master.connection_request(EPOCH, "heat", below(one), 4)[0] for one in ("", "101", "101")]
    assert len({len(request.to_bytes()) for request in requests}) == 1
    slots = [
        {request.slots[at : at + SLOT_BYTES] for at in range(0, len(request.slots), SLOT_BYTES)} for request in requests
    ]
    assert all(len(one) == 4 for one in slots)
    assert all(one.isdisjoint(other) for one, other in itertools.combinations(slots, 2))


def test_a_path_that_does_not_fit_is_refused(world: World) -> None:
    for path, slots in (([], 4), (below("101"), 3), (below("1"), 129)):
        with pytest.raises(Misuse, match="do not fit"):
            world.master.connection_request(EPOCH, "heat", path, slots)
