"""Bytes of the attribute protection: what is not as it is written is refused, with the reason, before any pairing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Misuse
from sealcast.primitives.pairing import best
from sealcast.primitives.pairing.counted import CountedPairing
from sealcast.protections.attribute import scheme
from sealcast.protections.attribute.scheme import (
    AttributeReason,
    AttributeRejected,
    ConnectionRequest,
    EventHeader,
    MasterSecret,
    Opener,
    Profile,
    PublicParameters,
    PublisherKey,
    SubscriptionKey,
    TagKind,
)
from sealcast.wire import cbor
from sealcast.wire.attribute import MAGIC, SealedAttribute, SealedAttributeEvent, packed_body, packed_head
from sealcast.wire.attribute_contents import (
    LeafProof,
    SessionCertificate,
    SignedCredential,
    bound_content,
    encode_signed,
    framed_contents,
    parse_content,
    parse_signed,
)
from sealcast.wire.limits import MAX_ATTRIBUTE_HEADER_BYTES, MAX_CONNECTION_REQUEST_BYTES, MAX_EPOCH
from tests.primitives.test_pairing import GOOD1, GOOD2, REFUSED1, REFUSED2
from tests.protections.attribute.world import EPOCH, PROFILES, World

_AT = len(MAGIC)


@pytest.fixture(scope="module", params=PROFILES)
def world(request: pytest.FixtureRequest) -> World:
    return World(best(), request.param)


@pytest.fixture(scope="module")
def sealed(world: World) -> bytes:
    return world.seal(heat="101")


def refused(parse: object, data: bytes) -> AttributeReason:
    with pytest.raises(AttributeRejected) as found:
        parse(data)  # type: ignore[operator]
    return found.value.reason


def altered(data: bytes, at: int, by: bytes) -> bytes:
    return data[:at] + by + data[at + len(by) :]


def test_an_event_is_what_was_written(sealed: bytes) -> None:
    event = SealedAttributeEvent.parse(sealed)
    again = packed_head(event.header.raw, event.session) + packed_body(event.number, event.commitment, event.ciphertext)
    assert again == sealed
    header = event.header
    made = EventHeader.of(
        header.profile, header.tags, header.epoch, header.id, header.second, tuple(reversed(header.attributes))
    )
    assert made.raw == header.raw


def test_headers_that_are_none_are_refused(sealed: bytes) -> None:
    header = SealedAttributeEvent.parse(sealed).header
    point = header.profile.point_bytes
    count = _AT + 2 + 8 + 16 + point
    names = count + 1
    cases = {
        AttributeReason.MAGIC: [b"AH2" + sealed[3:], bytes(len(sealed))],
        AttributeReason.PROFILE: [altered(sealed, _AT, b"B"), altered(sealed, _AT + 1, b"\xff")],
        AttributeReason.EPOCH: [altered(sealed, _AT + 2, (MAX_EPOCH + 1).to_bytes(8, "big"))],
        AttributeReason.COUNT: [
            altered(sealed, count, b"\0"),
            altered(sealed, names + 5, b"\0"),
            altered(sealed, names + 5, b"\x81"),
        ],
        AttributeReason.NAME: [altered(sealed, names + 1, b"\xff"), sealed[:names] + b"\0" + sealed[names + 5 :]],
        AttributeReason.TRUNCATED: [
            b"",
            sealed[:2],
            sealed[:40],
            header.raw[:-1],
            header.raw,
            sealed[: len(header.raw) + 1],
        ],
        AttributeReason.ORDER: [altered(sealed, names + 1, b"zoom")],
    }
    for reason, several in cases.items():
        assert [refused(SealedAttributeEvent.parse, data) for data in several] == [reason] * len(several)
    assert refused(EventHeader.parse, header.raw + b"\0") is AttributeReason.TRAILING
    assert refused(SealedAttributeEvent.parse, bytes(5 << 20)) is AttributeReason.OVERSIZE


def test_tags_out_of_order_are_refused(sealed: bytes) -> None:
    header = SealedAttributeEvent.parse(sealed).header
    one = header.attributes[0]
    turned = one._replace(tags=one.tags[16:] + one.tags[:16])
    assert turned.tags != one.tags
    raw = header.raw.replace(one.tags, turned.tags)
    assert refused(EventHeader.parse, raw) is AttributeReason.ORDER


def test_a_header_beyond_the_limits_is_not_made(world: World) -> None:
    first = GOOD1 if world.parameters.profile is Profile.A else GOOD2
    wide = [SealedAttribute(f"attribute {i}", first, GOOD1 * 128, bytes(16 * 128)) for i in range(200)]
    with pytest.raises(Misuse, match=f"more than {MAX_ATTRIBUTE_HEADER_BYTES}"):
        EventHeader.of(world.parameters.profile, TagKind.KEYED, 1, bytes(16), first, wide)
    with pytest.raises(Misuse):
        EventHeader.of(world.parameters.profile, TagKind.KEYED, 1, bytes(16), first, [])


def test_a_tag_is_found_at_its_place_only() -> None:
    tags = bytes(range(16)) + bytes(range(16, 32))
    attribute = SealedAttribute("a", GOOD1, GOOD1 * 2, tags)
    assert attribute.tagged(tags[:16]) and attribute.tagged(tags[16:])
    assert not attribute.tagged(tags[8:24]) and not attribute.tagged(bytes(16))


@given(st.data())
def test_whatever_is_altered_in_an_event_is_refused(data: st.DataObject) -> None:
    """Any byte of an event, anywhere: it is refused, with one of the reasons, and never opened to something else."""
    sealed, opener = _shared()
    at = data.draw(st.integers(0, len(sealed) - 1))
    changed = altered(sealed, at, bytes((sealed[at] ^ data.draw(st.integers(1, 255)),)))
    (found,) = opener.open_many([changed])
    assert isinstance(found, AttributeRejected)


_SHARED: list[tuple[bytes, Opener]] = []


def _shared() -> tuple[bytes, Opener]:
    if not _SHARED:
        world = World(best())
        _SHARED.append((world.seal(heat="101"), world.opener(heat="1")))
    return _SHARED[0]


@pytest.mark.parametrize("name", ["identity", "off the curve", "off the subgroup", "beyond the field", "uncompressed"])
def test_bad_points_in_events_are_refused_before_anything_is_paired(world: World, sealed: bytes, name: str) -> None:
    counted = CountedPairing(world.pairing)
    parameters = PublicParameters.from_bytes(world.parameters.to_bytes(), counted)
    opener = Opener(parameters, [world.key(heat="1")])
    header = SealedAttributeEvent.parse(sealed).header
    bad = (REFUSED1 if world.parameters.profile is Profile.A else REFUSED2)[name][0]
    heat = header.attributes[0]
    for good, other in ((header.second, bad), (heat.first, bad), (heat.label(1), REFUSED1[name][0])):
        assert refused(opener.open, sealed.replace(good, other)) is AttributeReason.POINT
    assert counted.spent["pairing"] == 0


@pytest.mark.parametrize("name", ["identity", "off the curve", "off the subgroup"])
def test_bad_points_in_keys_and_parameters_are_refused(world: World, sealed: bytes, name: str) -> None:
    one, two = REFUSED1[name][0], REFUSED2[name][0]
    in_a = world.parameters.profile is Profile.A
    key = world.key(heat="1")
    for changed in (
        SubscriptionKey(EPOCH, two if in_a else one, key.credentials),
        SubscriptionKey(EPOCH, key.bond, tuple(c._replace(first=two if in_a else one) for c in key.credentials)),
        SubscriptionKey(EPOCH, key.bond, tuple(c._replace(second=two) for c in key.credentials)),
        SubscriptionKey(EPOCH, two[:48], key.credentials),
    ):
        assert refused(world.opener(changed).open, sealed) is AttributeReason.POINT
    parts = world.parameters.parts
    for point in parts.points:
        bad = two if len(parts.points[point]) == 96 else one
        changed_parts = replace(parts, points={**parts.points, point: bad})
        assert refused(PublicParameters.from_bytes, changed_parts.to_bytes()) is AttributeReason.POINT
    if in_a:
        changed_parts = replace(parts, waters=(one, *parts.waters[1:]))
        assert refused(PublicParameters.from_bytes, changed_parts.to_bytes()) is AttributeReason.POINT
    weak = replace(parts, verify_key=(1).to_bytes(32, "little"))
    assert refused(PublicParameters.from_bytes, weak.to_bytes()) is AttributeReason.POINT


def test_documents_that_are_none_are_refused(world: World) -> None:
    request, _ = world.master.connection_request(EPOCH, "heat", [b"|"], 2)
    signed = (SignedCredential("heat", b"|", GOOD1, GOOD2, GOOD2),)
    documents = {
        PublicParameters.from_bytes: world.parameters.to_bytes(),
        SubscriptionKey.parse: world.key().to_bytes(),
        PublisherKey.parse: world.publisher_key.to_bytes(),
        ConnectionRequest.parse: request.to_bytes(),
        SessionCertificate.parse: SessionCertificate(bytes(32), signed).to_bytes(),
    }
    for parse, data in documents.items():
        parse(data)  # type: ignore[operator]
        assert refused(parse, data + b"\0") is AttributeReason.MALFORMED
        assert refused(parse, data[:-1]) is AttributeReason.MALFORMED
        assert refused(parse, b"") is AttributeReason.MALFORMED
        assert refused(parse, cbor.encode(["something else"])) is AttributeReason.MAGIC
        items = cbor.decode(data)
        assert refused(parse, cbor.encode(items[:-1])) is AttributeReason.MALFORMED
        assert refused(parse, cbor.encode([*items, 0])) is AttributeReason.MALFORMED
        for at in range(1, len(items)):
            for wrong in (-1, "", b"", [[1]], {1: 2}):
                assert refused(parse, cbor.encode([*items[:at], wrong, *items[at + 1 :]])) is AttributeReason.MALFORMED
    assert refused(ConnectionRequest.parse, bytes(MAX_CONNECTION_REQUEST_BYTES + 1)) is AttributeReason.OVERSIZE
    twice = encode_signed((*signed, *signed))
    assert refused(parse_signed, twice) is AttributeReason.MALFORMED
    assert refused(parse_signed, encode_signed(())) is AttributeReason.MALFORMED


def test_master_secrets_are_read_as_they_are_written() -> None:
    data = scheme.setup().to_bytes()
    assert MasterSecret.from_bytes(data).to_bytes() == data
    assert refused(MasterSecret.from_bytes, data + b"\0") is AttributeReason.MAGIC
    assert refused(MasterSecret.from_bytes, data[:-1]) is AttributeReason.MAGIC
    assert refused(MasterSecret.from_bytes, altered(data, 3, b"X")) is AttributeReason.PROFILE


def test_contents_are_read_as_they_are_written() -> None:
    third = framed_contents(bytes(32), bytes(64), [bytes(96)] * 5, [b"payload"] * 5)[3]
    proofs = {bound_content(b"signed", b"payload"): b"signed", third: LeafProof(3, 5, bytes(32), bytes(64), bytes(96))}
    for data, proof in proofs.items():
        assert parse_content(data) == (proof, b"payload")
        assert refused(parse_content, data[: len(data) - len(b"payload") - 1]) in (
            AttributeReason.TRUNCATED,
            AttributeReason.MALFORMED,
        )
    for data in (b"", b"\x00", b"\x03" + bytes(200), b"\x01\x00", b"\x02" + bytes(20)):
        assert refused(parse_content, data) is AttributeReason.MALFORMED


def test_secrets_are_not_printed_or_pickled(world: World) -> None:
    import pickle

    for one in (world.master, world.key(), world.publisher_key, world.opener(), world.sealer()):
        assert "b'" not in repr(one) and len(repr(one)) < 40
        with pytest.raises(Misuse, match="cannot be pickled"):
            pickle.dumps(one)
