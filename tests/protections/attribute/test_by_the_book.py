"""Every equation of the scheme again, written down from the specification and computed with py_ecc alone.

A header, a key, a signature, a token and a request that our code made are taken apart as bytes, and opened, verified,
routed and opened by a second implementation, which is too slow for more than one attribute.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sealcast.protections.attribute.scheme import AttributeSealer, OutgoingEvent, PlacedLabel, Profile, TagKind
from sealcast.wire.attribute import SealedAttributeEvent
from sealcast.wire.attribute_contents import SignedCredential, parse_content, parse_signed
from sealcast.wire.attribute_keys import SLOT_BYTES
from tests.primitives import ecc
from tests.primitives.test_pairing import GENERATOR2
from tests.protections.attribute.world import EPOCH, PAIRINGS, PROFILES, World

G = ecc.point2(bytes.fromhex(GENERATOR2))


def parts(*several: bytes) -> bytes:
    return b"".join(len(one).to_bytes(4, "big") + one for one in several)


def u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def pu(label: bytes, role: bytes) -> bytes:
    return parts(b"PSv1", label, b"heat", role, u64(EPOCH))


def h4(element: Any) -> bytes:
    return hashlib.sha256(b"PSv1-H4" + ecc.target_bytes(element)).digest()[:16]


def expanded(key: bytes, *context: bytes) -> bytes:
    """HKDF-Expand of one block, as section 3 of the wire's specification has it."""
    info = b"sealcast/1" + (32).to_bytes(2, "big") + parts(*context)
    return hmac.digest(key, info + b"\x01", "sha256")


def aes(key: bytes, associated: bytes) -> tuple[AESGCM, bytes]:
    both = hmac.digest(key, b"sealcast/1 aead" + parts(associated) + b"\x01", "sha512")
    return AESGCM(both[:32]), both[32:]


def hash1(world: World, data: bytes, use: bytes) -> Any:
    """RFC 9380 is held against its own vectors elsewhere; py_ecc's is for other curves' sizes only."""
    tag = b"sealcast-V01-PSv1-" + use + b"-with-BLS12381G1_XMD:SHA-256_SSWU_RO_"
    return ecc.point1(world.pairing.encode1(world.pairing.hash1(data, tag)))


@pytest.fixture(scope="module", params=[(p, profile) for p in PAIRINGS for profile in PROFILES], ids="-".join)
def world(request: pytest.FixtureRequest) -> World:
    return World(*request.param, TagKind.PAPER)


def test_an_event_is_opened_and_verified_by_the_book(world: World) -> None:
    sealer = AttributeSealer(world.parameters, world.publisher_key)
    (sealed,) = sealer.seal([OutgoingEvent({"heat": [b"|", b"1|"]}, b"payload")])
    event = SealedAttributeEvent.parse(sealed)
    key = world.master.subscription_key(EPOCH, {"heat": [PlacedLabel(1, b"1|")]})
    (own,), (heat,) = key.credentials, event.header.attributes
    if world.parameters.profile is Profile.A:
        target = ecc.product(
            (ecc.point1(event.header.second), ecc.point2(key.bond)),
            (ecc.neg(ecc.point1(heat.first)), ecc.point2(own.first)),
            (ecc.point1(heat.label(1)), ecc.point2(own.second)),
        )
        routed = ecc.product((ecc.point1(heat.first), ecc.point2(own.token)))
    else:
        target = ecc.product(
            (ecc.point1(key.bond), ecc.point2(event.header.second)),
            (ecc.neg(ecc.point1(own.first)), ecc.point2(heat.first)),
            (ecc.point1(heat.label(1)), ecc.point2(own.second)),
        )
        routed = ecc.product((ecc.point1(own.token), ecc.point2(heat.first)))
    # Routing: eq. 2.
    assert h4(routed) in {heat.tags[:16], heat.tags[16:]}
    # Decryption: eq. 1, then the symmetric part.
    extracted = hmac.digest(b"sealcast/attribute/1", ecc.target_bytes(target), "sha256")
    secret = expanded(extracted, b"header", hashlib.sha256(event.header.raw).digest())
    cipher, commitment = aes(secret, b"attribute/1 event")
    assert commitment == event.commitment
    content = cipher.decrypt(bytes(4) + u64(event.number), event.ciphertext, None)
    proof, payload = parse_content(content)
    assert payload == b"payload" and isinstance(proof, bytes)
    # The signature: one equation.
    (signed,) = parse_signed(proof)
    assert balanced(world, event, signed, payload)
    assert not balanced(world, event, signed, b"another")


def balanced(world: World, event: SealedAttributeEvent, signed: SignedCredential, payload: bytes) -> bool:
    message = parts(b"event", event.header.raw, u64(event.number), payload)
    hashed = hash1(world, parts(b"sig", u64(EPOCH), message, b"heat", signed.label), b"M")
    sign = ecc.point2(world.parameters.parts.points["sign"])
    return bool(
        ecc.product(
            (ecc.neg(ecc.point1(signed.s1)), G),
            (hash1(world, b"g2", b"g2"), sign),
            (hash1(world, pu(signed.label, b"PUB"), b"W"), ecc.point2(signed.s2)),
            (hashed, ecc.point2(signed.s3)),
        )
        == ecc.FQ12.one()
    )


def test_a_request_is_opened_by_the_book(world: World) -> None:
    request, hidden = world.master.connection_request(EPOCH, "heat", [b"|", b"1|"], 3)
    key = world.master.connection_key(EPOCH, "heat", b"1|").to_bytes()
    target = ecc.product((ecc.point1(key), ecc.point2(request.first)))
    extracted = hmac.digest(b"sealcast/attribute/1 request", ecc.target_bytes(target), "sha256")
    cipher, _ = aes(expanded(extracted, request.first, b"heat", u64(EPOCH)), b"attribute/1 request")
    opened = []
    for at in range(0, len(request.slots), SLOT_BYTES):
        try:
            opened.append(cipher.decrypt(bytes(12), request.slots[at : at + SLOT_BYTES], None))
        except InvalidTag:
            continue
    (connection,) = opened
    assert hmac.digest(connection, b"sealcast/attribute/1 connection\x01", "sha256") == hidden.reveal()


def test_keys_have_the_logarithms_that_they_should(world: World) -> None:
    """Pr1, Pr2 and Pr4 against the exponents, with py_ecc's multiplication: gamma is what Pr4 says it is."""
    key = world.master.subscription_key(EPOCH, {"heat": [PlacedLabel(1, b"1|"), PlacedLabel(1, b"0|")]})
    one, other = key.credentials
    secret = {name: world.master._exponent(name.encode()) for name in ("alpha", "phi", "z")}
    order = ecc.curve_order
    if world.parameters.profile is Profile.A:
        # phi Pr4 - z alpha G = z gamma G = Pr1 - t w G, for both labels.
        bond = ecc.multiply(ecc.point2(key.bond), secret["phi"])
        gamma = ecc.add(bond, ecc.neg(ecc.multiply(G, secret["z"] * secret["alpha"] % order)))
        bits = [world.master._exponent(b"y", k.to_bytes(2, "big")) for k in range(257)]
        for credential in (one, other):
            hashed = int.from_bytes(hashlib.sha256(b"PSv1-H1" + pu(credential.label, b"SUB")).digest(), "big")
            w = bits[0] + sum(bit for k, bit in enumerate(bits[1:]) if hashed >> k & 1)
            hidden = ecc.multiply(ecc.point2(credential.second), w % order)
            assert ecc.bytes2(ecc.add(gamma, hidden)) == credential.first
    else:
        # phi Pr4 - alpha g2 = gamma g2; and e(Pr1 - gamma g2, G) = e(W, Pr2).
        g2 = hash1(world, b"g2", b"g2")
        bond = ecc.multiply(ecc.point1(key.bond), secret["phi"])
        gamma = ecc.add(bond, ecc.neg(ecc.multiply(g2, secret["alpha"])))
        hidden = ecc.add(ecc.point1(one.first), ecc.neg(gamma))
        found = ecc.product((ecc.neg(hidden), G), (hash1(world, pu(one.label, b"SUB"), b"W"), ecc.point2(one.second)))
        assert found == ecc.FQ12.one()
