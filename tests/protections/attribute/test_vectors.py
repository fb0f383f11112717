"""Fixed bytes of attribute topics: both libraries make them, read them and open them."""

from __future__ import annotations

import json

import pytest

from sealcast.primitives.pairing import named
from sealcast.protections.attribute import scheme
from sealcast.protections.attribute.scheme import (
    ConnectionKey,
    ConnectionRequest,
    MasterSecret,
    Opener,
    PublisherKey,
    RoutingToken,
    SubscriptionKey,
)
from sealcast.wire.attribute import SealedAttributeEvent
from tests.protections.attribute.world import PAIRINGS
from tests.vectors import make_attribute
from tests.vectors.make_attribute import EPOCH, HERE, KINDS

VECTORS = json.loads((HERE / "attribute.json").read_text())
CASES = [(pairing, number) for pairing in PAIRINGS for number in range(len(KINDS))]


@pytest.mark.parametrize(("pairing", "number"), CASES)
def test_every_library_makes_the_same_bytes(pairing: str, number: int) -> None:
    assert VECTORS["epoch"] == EPOCH
    assert make_attribute.made(*KINDS[number], named(pairing)) == VECTORS["topics"][number]


@pytest.mark.parametrize(("pairing", "number"), CASES)
def test_every_library_opens_them(pairing: str, number: int) -> None:
    topic = VECTORS["topics"][number]
    read = {name: bytes.fromhex(value) for name, value in topic.items() if name not in ("profile", "tags", "events")}
    parameters = MasterSecret.from_bytes(read["master"], named(pairing)).public()
    key = SubscriptionKey.parse(read["subscription_key"])
    assert key.to_bytes() == read["subscription_key"]
    assert PublisherKey.parse(read["publisher_key"]).to_bytes() == read["publisher_key"]
    opener = Opener(parameters, [key])
    for payload, data in topic["events"].items():
        sealed = bytes.fromhex(data)
        opened = opener.open(sealed)
        assert opened.payload == payload.encode() and opened.publisher == {"heat": b"root", "ward": b"0"}
        header = SealedAttributeEvent.parse(sealed).header
        assert scheme.route(parameters, [RoutingToken(EPOCH, "heat", read["token"])], header)
    request = ConnectionRequest.parse(read["request"])
    assert request.to_bytes() == read["request"]
    found = ConnectionKey(EPOCH, "heat", read["connection_key"]).open(parameters, request)
    assert found is not None and found.reveal() == read["connection"]
