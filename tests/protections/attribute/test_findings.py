"""What is wrong in paper 003, F1 to F10: each attack works on the paper's form and fails on ours.

F8 has its other half in the overlay's tests, and F11 all of it: they are about who forwards what to whom.
"""

from __future__ import annotations

import itertools
import os

import pytest

from sealcast.errors import Misuse
from sealcast.primitives.pairing import G1, G2, Pairing, named, random_scalar
from sealcast.protections.attribute import scheme
from sealcast.protections.attribute.scheme import AttributeReason, AttributeRejected, Profile, TagKind
from sealcast.protections.attribute.scheme.naming import (
    SUB,
    chosen,
    credential_string,
    hashed_target,
    label_key,
)
from sealcast.protections.attribute.scheme.sign import SignatureClaim, sign, verify
from sealcast.protections.attribute.scheme.tags import keyed_tag
from sealcast.protections.attribute.scheme.waters import BITS
from sealcast.wire.attribute import ROUTING_TAG_BYTES, SealedAttributeEvent
from sealcast.wire.attribute_contents import SignedCredential
from sealcast.wire.limits import MAX_ATTRIBUTE_POSITIONS
from tests.protections.attribute.paper import Paper, solved
from tests.protections.attribute.world import EPOCH, PAIRINGS, World, event


@pytest.fixture(scope="module", params=PAIRINGS)
def pairing(request: pytest.FixtureRequest) -> Pairing:
    return named(request.param)


@pytest.fixture(scope="module")
def paper(pairing: Pairing) -> Paper:
    return Paper(pairing)


@pytest.fixture(scope="module")
def anonymous(pairing: Pairing) -> World:
    return World(pairing, Profile.A)


@pytest.fixture(scope="module")
def literal(pairing: Pairing) -> World:
    return World(pairing, Profile.P, TagKind.PAPER)


def subscription_string(attribute: str, label: bytes) -> bytes:
    return credential_string(label, attribute, SUB, EPOCH)


def paired(pairing: Pairing, left: G1, right: G2) -> bytes:
    return pairing.target_bytes(pairing.product([(left, right)]))


# --- F1, F2: verification ---------------------------------------------------------------------------------------------


def test_f1_the_paper_refuses_honest_events_of_two_attributes(paper: Paper, anonymous: World) -> None:
    def honest(count: int) -> bool:
        names = [b"credential %d" % i for i in range(count)]
        signed = [paper.sign(b"M", paper.publisher_key(name), name, random_scalar()) for name in names]
        return paper.verify(b"M", signed, repaired=False)

    assert honest(1) and not honest(2) and not honest(3)
    claim = signed_claim(anonymous, b"M")
    assert len(claim.signed) == 3 and verify(anonymous.parameters, [claim])


def signed_claim(world: World, message: bytes, *attributes: str) -> SignatureClaim:
    credentials = [c for c in world.publisher_key.credentials if not attributes or c.attribute in attributes]
    return SignatureClaim(EPOCH, message, sign(world.parameters, EPOCH, message, credentials))


def test_f2_one_key_signs_for_two_attributes_where_equations_are_multiplied(paper: Paper, anonymous: World) -> None:
    """(2 Prp1_A, 2 Prp2_A) carries alpha twice: what is missing for B."""
    pairing, s, r = paper.pairing, random_scalar(), random_scalar()
    first, second = paper.publisher_key(b"A")
    of_a = paper.sign(b"M", (pairing.plus1(first, first), pairing.plus2(second, second)), b"A", r)
    of_b = paper.sign(b"M", (pairing.times1(paper.w(b"B"), s), pairing.times2(pairing.g2, s)), b"B", r)
    assert paper.verify(b"M", [of_a, of_b], repaired=True), "forged for B, without a key for B"

    # The same on our signatures, where the forger holds the key of `heat` and makes up that of `ward`.
    parameters = anonymous.parameters
    honest = {c.attribute: c for c in anonymous.publisher_key.credentials}
    doubled = honest["heat"]._replace(
        first=pairing.encode1(pairing.times1(pairing.decode1(honest["heat"].first), 2)),
        second=pairing.encode2(pairing.times2(pairing.decode2(honest["heat"].second), 2)),
    )
    made_up = honest["ward"]._replace(
        first=pairing.encode1(pairing.times1(parameters.publisher_point(EPOCH, "ward", b"|"), s)),
        second=pairing.encode2(pairing.times2(pairing.g2, s)),
    )
    forged = sign(parameters, EPOCH, b"M", [doubled, made_up])
    assert not verify(parameters, [SignatureClaim(EPOCH, b"M", forged)])
    assert verify(parameters, [SignatureClaim(EPOCH, b"M", sign(parameters, EPOCH, b"M", honest.values()))])


# --- F3 to F6: guesses ------------------------------------------------------------------------------------------------


def test_f3_whoever_guesses_a_label_reads_events_of_profile_p(literal: World) -> None:
    """The dictionary: all labels of depth two. It finds the event's, and only that."""
    pairing = literal.pairing
    heat = SealedAttributeEvent.parse(literal.seal(heat="101")).header.attribute("heat")
    assert heat is not None
    sealed, first = pairing.decode1(heat.label(2)), pairing.decode2(heat.first)
    found = [
        bits
        for bits in map("".join, itertools.product("01", repeat=2))
        if paired(pairing, sealed, pairing.g2)
        == paired(
            pairing, literal.parameters.equations.label_point(subscription_string("heat", bits.encode() + b"|")), first
        )
    ]
    assert found == ["10"]


def test_f3_in_profile_a_no_pairing_of_public_points_tells_the_label(anonymous: World) -> None:
    """Every point of G1 that is public or travels, with every public point of G2: none equals CT_ij with any of them,
    whether the guess is right or wrong. (Of profile P, the same search finds the label.)"""
    pairing, parameters = anonymous.pairing, anonymous.parameters
    header = SealedAttributeEvent.parse(anonymous.seal(heat="101")).header
    heat = header.attribute("heat")
    assert heat is not None
    decode = pairing.decode1
    left = [pairing.g1, decode(header.second), decode(heat.first), *map(decode, parameters.parts.waters[:3])]
    left += [decode(parameters.parts.points[name]) for name in ("h", "hr", "y")]
    left += [parameters.equations.label_point(subscription_string("heat", label)) for label in (b"10|", b"11|")]
    right = [pairing.g2, *(pairing.decode2(parameters.parts.points[name]) for name in ("hc", "sign"))]
    sealed = {paired(pairing, decode(heat.label(2)), point) for point in right}
    assert sealed.isdisjoint(paired(pairing, one, point) for one in left for point in right)


def test_f4_a_paper_token_tells_its_label_and_a_keyed_one_does_not(literal: World, anonymous: World) -> None:
    pairing = literal.pairing
    (token,) = literal.master.tokens(EPOCH, {"heat": [b"10|"]})
    hr = pairing.decode2(literal.parameters.parts.points["hr"])
    point = literal.parameters.equations._route_point  # type: ignore[attr-defined]

    def guessed(label: bytes) -> bool:
        left = paired(pairing, pairing.decode1(token.token), pairing.g2)
        return left == paired(pairing, point(subscription_string("heat", label)), hr)

    assert guessed(b"10|") and not guessed(b"11|")
    # Keyed: a function of the routing key, which only publishers and the key server have.
    (keyed,) = anonymous.master.tokens(EPOCH, {"heat": [b"10|"]})
    string = subscription_string("heat", b"10|")
    assert anonymous.publisher_key.routing is not None
    assert keyed.token == label_key(anonymous.publisher_key.routing, string)
    header = SealedAttributeEvent.parse(anonymous.seal(heat="101")).header
    heat = header.attribute("heat")
    assert heat is not None and heat.tagged(keyed_tag(keyed.token, header.id))
    assert not any(heat.tagged(keyed_tag(label_key(os.urandom(32), string), header.id)) for _ in range(8))


def test_f5_the_paper_opens_all_tags_of_an_event_of_one_attribute(paper: Paper, literal: World) -> None:
    pairing = paper.pairing
    names = [b"", b"1", b"10"]
    shown = paper.encrypt([names])
    opened = [hashed_target(paired(pairing, paper.h3(name), shown.second)) for name in names]
    assert opened == shown.tags[0], "CT2 is what the tags were made with"
    # Ours, with one attribute: another exponent.
    sealer = scheme.AttributeSealer(literal.parameters, literal.publisher_key)
    (sealed,) = sealer.seal([scheme.OutgoingEvent({"heat": [b"|", b"1|"]}, b"")])
    header = SealedAttributeEvent.parse(sealed).header
    second, heat = pairing.decode2(header.second), header.attributes[0]
    point = literal.parameters.equations._route_point  # type: ignore[attr-defined]
    for label in (b"|", b"1|"):
        assert not heat.tagged(hashed_target(paired(pairing, point(subscription_string("heat", label)), second)))


def test_f6_the_papers_signature_tells_guesses_of_the_message(paper: Paper, anonymous: World) -> None:
    """Everything that `verify` takes travels in the clear, but for the message: so it decides which message it was."""
    shown = paper.encrypt([[b"A"]])
    signed = paper.sign(b"yes", paper.publisher_key(b"A"), b"A", shown.exponents[0])
    assert [paper.verify(guess, [signed], repaired=True) for guess in (b"no", b"yes")] == [False, True]
    # Ours is inside: what travels is the header, which has no S1, S2 or S3, and an AEAD ciphertext.
    sealer = anonymous.sealer()
    (sealed,) = sealer.seal([event(b"yes", heat="101")])
    opener = anonymous.opener()
    unverified = opener._checked(SealedAttributeEvent.parse(sealed))
    for one in unverified.claim.signed:
        assert not any(part in sealed for part in (one.s1, one.s2, one.s3, one.s1[1:], one.s2[1:]))


# --- F7: labels that combine ------------------------------------------------------------------------------------------


def bits_of(credential: bytes, size: int) -> list[int]:
    """A label's row: a one for u', and its bits."""
    return [1, *(chosen(credential) >> k & 1 for k in range(size))]


def test_f7_with_a_short_hash_a_stranger_combines_its_own_ciphertext(pairing: Pairing) -> None:
    """12 bits, 17 labels: some combination of b W(label) is b W(own), and b_i is gone from the equation."""
    size, b = 12, random_scalar()
    points = [pairing.times1(pairing.g1, random_scalar()) for _ in range(size + 1)]

    def hashed(row: list[int]) -> G1:
        return pairing.sum1(point for point, bit in zip(points, row, strict=True) if bit)

    rows = [bits_of(b"label %d" % i, size) for i in range(17)]
    own = bits_of(b"own", size)
    coefficients = solved(rows, own)
    assert coefficients is not None
    sealed = [pairing.times1(hashed(row), b) for row in rows]
    combined = pairing.sum1(pairing.times1(one, k) for one, k in zip(sealed, coefficients, strict=True) if k)
    assert pairing.encode1(combined) == pairing.encode1(pairing.times1(hashed(own), b))


def test_f7_at_our_size_labels_do_not_combine() -> None:
    rows = [bits_of(subscription_string("name", b"x" * i), BITS) for i in range(MAX_ATTRIBUTE_POSITIONS)]
    assert solved(rows, bits_of(subscription_string("name", b"y"), BITS)) is None


def test_f7_more_labels_are_refused(anonymous: World) -> None:
    labels: list[bytes | None] = [b"|", *(b"%d|" % i for i in range(MAX_ATTRIBUTE_POSITIONS))]
    with pytest.raises(Misuse, match="128 are allowed"):
        anonymous.sealer().seal([scheme.OutgoingEvent({"heat": labels}, b"")])


# --- F8 to F10: what peers see ----------------------------------------------------------------------------------------


def test_f8_a_parent_that_cannot_open_still_tells_what_its_child_wants(anonymous: World) -> None:
    """The paper forwards what a peer decrypts. This parent covers its child on `heat` and cannot decrypt."""
    sealed = anonymous.seal(heat="101", ward="111")
    parent, child = anonymous.key(heat="1", ward="0"), anonymous.key(heat="10", ward="1")
    with pytest.raises(AttributeRejected) as refused:
        anonymous.opener(parent).open(sealed)
    assert refused.value.reason is AttributeReason.MISMATCH
    assert anonymous.opener(child).open(sealed).payload == b"payload"
    header = SealedAttributeEvent.parse(sealed).header
    assert scheme.route(anonymous.parameters, anonymous.master.tokens(EPOCH, {"heat": [b"1|"]}), header)


def test_f9_the_place_of_a_tag_tells_no_position(anonymous: World, literal: World, paper: Paper) -> None:
    """The paper orders tags by containment: which one a child's token matches tells its label to whoever knows the
    value. Ours are ordered by their bytes: over many events, one label's tag is found everywhere."""
    names = [b"", b"1", b"10", b"101"]
    shown = paper.encrypt([names])
    tag = hashed_target(paired(paper.pairing, paper.token(b"10"), shown.firsts[0]))
    assert shown.tags[0].index(tag) == 2
    for world in (anonymous, literal):
        (token,) = world.master.tokens(EPOCH, {"heat": [b"10|"]})
        places = set()
        for _ in range(40 if world is anonymous else 12):
            header = SealedAttributeEvent.parse(world.seal(heat="101")).header
            found = header.attribute("heat")
            assert found is not None
            if world is anonymous:
                own = keyed_tag(token.token, header.id)
            else:
                (own,) = world.parameters.equations.expected_tags([token.token], found.first)
            places.add(found.tags.index(own) // ROUTING_TAG_BYTES)
        assert len(places) > 1


def test_f10_all_who_open_a_request_find_the_same_key(anonymous: World) -> None:
    """In the paper each slot hides another key, so that the answer tells which slot the acceptor opened: its label."""
    path = [b"|", b"1|", b"10|"]
    alone = {label: anonymous.master.connection_request(EPOCH, "heat", [label], 1) for label in path}  # a key for each
    acceptor = anonymous.master.connection_key(EPOCH, "heat", b"1|")
    answers = [acceptor.open(anonymous.parameters, request) for request, _ in alone.values()]
    (answer,) = (one for one in answers if one is not None)
    assert [label for label, (_, hidden) in alone.items() if hidden == answer] == [b"1|"], "the acceptor's label"
    request, hidden = anonymous.master.connection_request(EPOCH, "heat", path, 4)
    found = [
        anonymous.master.connection_key(EPOCH, "heat", label).open(anonymous.parameters, request) for label in path
    ]
    assert found == [hidden, hidden, hidden]


# --- signatures, altered ----------------------------------------------------------------------------------------------


def test_altered_and_moved_signatures_are_refused(anonymous: World) -> None:
    parameters = anonymous.parameters
    claim = signed_claim(anonymous, b"M")
    assert verify(parameters, [claim])
    assert not verify(parameters, [claim._replace(message=b"N")])
    assert not verify(parameters, [claim._replace(epoch=EPOCH + 1)])
    moved = tuple(one._replace(label=b"1|") for one in claim.signed)
    assert not verify(parameters, [claim._replace(signed=moved)])
    for field in ("s1", "s2", "s3"):
        first, *others = claim.signed
        other = signed_claim(anonymous, b"M").signed[0]
        swapped = (SignedCredential(**{**first._asdict(), field: getattr(other, field)}), *others)
        assert not verify(parameters, [claim._replace(signed=swapped)])
        sign_bit = bytearray(getattr(first, field))
        sign_bit[0] ^= 0x20
        flipped = (SignedCredential(**{**first._asdict(), field: bytes(sign_bit)}), *others)
        assert not verify(parameters, [claim._replace(signed=flipped)])
    fewer = claim._replace(signed=claim.signed[1:])
    assert not verify(parameters, [fewer]), "the message names all credentials"
