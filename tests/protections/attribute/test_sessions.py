"""Session certificates, header reuse and what a fork may not do: each forgery is refused, with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey
from sealcast.protections.attribute import scheme
from sealcast.protections.attribute.scheme import (
    AttributeReason,
    AttributeRejected,
    AttributeSealer,
    SealOptions,
    contents,
)
from sealcast.wire.attribute import SealedAttributeEvent, packed_body, packed_head
from sealcast.wire.attribute_contents import LeafProof, SessionCertificate, framed_contents, parse_content
from sealcast.wire.attribute_keys import PublisherKey
from tests.children import forked
from tests.protections.attribute.world import ATTRIBUTES, EPOCH, PAIRINGS, PROFILES, World, event

FAST = SealOptions(reuse=16, session=True)


@pytest.fixture(scope="module", params=[(one, profile) for one in PAIRINGS for profile in PROFILES], ids="-".join)
def world(request: pytest.FixtureRequest) -> World:
    return World(*request.param)


@pytest.fixture(scope="module")
def frame(world: World) -> list[bytes]:
    return world.sealer(FAST).seal([event(b"%d" % i, heat="101" if i % 2 else "100") for i in range(6)])


def reason(world: World, sealed: bytes) -> AttributeReason | None:
    (found,) = world.opener().open_many([sealed])
    return found.reason if isinstance(found, AttributeRejected) else None


def resealed(world: World, sealed: bytes, proof: LeafProof, payload: bytes, certificate: bytes | None = None) -> bytes:
    """The event with another content, by whoever can open it: a subscriber that forges what it read."""
    opener, event = world.opener(), SealedAttributeEvent.parse(sealed)
    key = opener.opened_header(event).key
    session = event.session if certificate is None else key.seal(contents.SESSION_NONCE, certificate)
    # One leaf's content, whatever its number and that of the leaves.
    (content,) = framed_contents(proof.root, proof.signature, [proof.path], [payload])
    content = content[:1] + proof.leaf.to_bytes(4, "big") + proof.leaves.to_bytes(4, "big") + content[9:]
    body = key.seal(contents.event_nonce(event.number), content)
    return packed_head(event.header.raw, session) + packed_body(event.number, key.commitment, body)


def opened(world: World, sealed: bytes) -> tuple[LeafProof, bytes, SessionCertificate]:
    event = SealedAttributeEvent.parse(sealed)
    header = world.opener().opened_header(event)
    content = header.key.open(contents.event_nonce(event.number), event.commitment, event.ciphertext)
    proof, payload = parse_content(content)
    assert isinstance(proof, LeafProof)
    return proof, payload, world.opener()._certificate(header, event.session)


def test_a_frame_opens_event_by_event(world: World, frame: list[bytes]) -> None:
    for number in (5, 0, 3):
        assert world.opener().open(frame[number]).payload == b"%d" % number
    headers = {SealedAttributeEvent.parse(one).header.raw for one in frame}
    assert len(headers) == 2


def test_what_a_reader_forges_under_a_session_is_refused(world: World, frame: list[bytes]) -> None:
    """A reader has the header's key: it can seal what it likes, and sign nothing."""
    proof, payload, certificate = opened(world, frame[2])
    assert reason(world, resealed(world, frame[2], proof, payload)) is None, "the same content is the same event"
    assert reason(world, resealed(world, frame[2], proof, b"forged")) is AttributeReason.SIGNATURE
    elsewhere = [
        proof._replace(leaf=3),
        proof._replace(leaves=7),
        proof._replace(root=bytes(32)),
        proof._replace(path=proof.path[32:]),
        proof._replace(path=proof.path + bytes(32)),
        proof._replace(signature=bytes(64)),
    ]
    for one in elsewhere:
        assert reason(world, resealed(world, frame[2], one, payload)) is AttributeReason.SIGNATURE
    # Its own key in the certificate, with the publisher's signatures; or with weak bytes for a key.
    own = SigningKey(Secret.random())
    event_ = SealedAttributeEvent.parse(frame[2])
    import hashlib

    leaf = contents.leaf(hashlib.sha256(event_.header.raw).digest(), event_.number, b"forged")
    root_signed = own.sign(contents.frame_message(EPOCH, 1, leaf))
    forged = LeafProof(0, 1, leaf, root_signed, b"")
    stolen = SessionCertificate(bytes(own.verify_key), certificate.signed).to_bytes()
    assert reason(world, resealed(world, frame[2], forged, b"forged", stolen)) is AttributeReason.SIGNATURE
    weak = SessionCertificate(bytes(32), certificate.signed).to_bytes()
    assert reason(world, resealed(world, frame[2], forged, b"forged", weak)) is AttributeReason.SIGNATURE
    fewer = certificate._replace(signed=certificate.signed[1:]).to_bytes()
    assert reason(world, resealed(world, frame[2], proof, payload, fewer)) is AttributeReason.COVER
    assert reason(world, resealed(world, frame[2], proof, payload, b"none")) is AttributeReason.MALFORMED


def test_parts_of_two_events_do_not_combine(world: World, frame: list[bytes]) -> None:
    one, two = SealedAttributeEvent.parse(frame[0]), SealedAttributeEvent.parse(frame[1])

    def joined(event: SealedAttributeEvent) -> bytes:
        return packed_head(event.header.raw, event.session) + packed_body(
            event.number, event.commitment, event.ciphertext
        )

    assert reason(world, joined(replace(one, header=two.header))) is AttributeReason.KEY
    assert reason(world, joined(replace(one, session=two.session))) is AttributeReason.KEY
    assert reason(world, joined(replace(one, session=b""))) is AttributeReason.KEY
    assert reason(world, joined(replace(one, number=two.number + 1))) is AttributeReason.KEY
    assert reason(world, joined(replace(one, ciphertext=two.ciphertext))) is AttributeReason.KEY
    assert reason(world, joined(replace(one, commitment=two.commitment))) is AttributeReason.KEY


def test_nothing_can_be_added_to_an_event(world: World) -> None:
    """What is not authenticated could be changed on the way: one event would have many spellings."""
    event = SealedAttributeEvent.parse(world.seal(heat="101"))
    body = packed_body(event.number, event.commitment, event.ciphertext)
    assert reason(world, packed_head(event.header.raw, b"") + body) is None
    assert reason(world, packed_head(event.header.raw, b"added") + body) is AttributeReason.MALFORMED
    assert reason(world, packed_head(event.header.raw, b"") + body + b"\0") is AttributeReason.KEY


def test_a_publisher_without_credentials_is_refused(world: World) -> None:
    """It knows what is public, and the routing key. Its credentials are another key server's or another epoch's."""
    foreign = scheme.setup(world.parameters.profile, pairing=world.pairing)
    names = {name: [b"|"] for name in ATTRIBUTES}
    for credentials in (foreign.publisher_key(EPOCH, names), world.master.publisher_key(EPOCH - 1, names)):
        key = PublisherKey(EPOCH, world.publisher_key.routing, credentials.credentials)
        for options in (SealOptions(), FAST):
            (sealed,) = AttributeSealer(world.parameters, key, options).seal([event(heat="101")])
            assert reason(world, sealed) is AttributeReason.SIGNATURE


def test_a_publisher_signs_for_its_own_labels(world: World) -> None:
    """One that may publish below heat=1 names the root instead: its signature is not for that."""
    key = world.master.publisher_key(EPOCH, {"heat": [b"1|"], "ward": [b"|"], "zone": [b"|"]})
    lying = PublisherKey(EPOCH, key.routing, tuple(c._replace(label=b"|") for c in key.credentials))
    (sealed,) = AttributeSealer(world.parameters, lying).seal([event(heat="011")])
    assert reason(world, sealed) is AttributeReason.SIGNATURE


def test_a_fork_numbers_no_event_again(world: World) -> None:
    """Parent and child would seal under one key and one nonce. The child takes new headers and another session."""
    sealer = world.sealer(FAST)
    (before,) = sealer.seal([event(heat="101")])
    (from_child,) = forked(lambda: sealer.seal([event(heat="101")]))
    (after,) = sealer.seal([event(heat="101")])
    headers = [SealedAttributeEvent.parse(one).header.raw for one in (before, from_child, after)]
    assert headers[0] == headers[2] != headers[1]
    assert [world.opener().open(one).payload for one in (before, from_child, after)] == [b"payload"] * 3


def test_the_oldest_headers_are_forgotten(world: World) -> None:
    sealer = world.sealer(SealOptions(reuse=2))
    for heat in ("000", "001", "000", "010", "001"):
        sealer.seal([event(heat=heat)])
    assert (sealer.hits, sealer.misses) == (1, 4)
