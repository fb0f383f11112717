"""Tokens read and made by other hands (cbor2, cryptography, RFC 8392's own), and what weaker verifiers let in."""

from __future__ import annotations

import hashlib
from typing import Any

import cbor2
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.x509 import load_der_x509_certificate

from sealcast.errors import TokenRejected
from sealcast.trust.tokens import claims as wire
from sealcast.trust.tokens import token as tokens
from sealcast.trust.tokens.token import TokenReason
from sealcast.wire import cbor, cose
from tests.trust import token_world as world
from tests.trust.token_judge import judged, verify
from tests.trust.token_world import NOW, SECOND, frame_key, mint
from tests.vectors import make_tokens as table

REFUSED = table.refused()
ALICE = frame_key("alice")
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


# --- an independent reading -----------------------------------------------------------------------


def by_other_hands(token: bytes, center_der: bytes, hash: Any) -> dict[Any, Any]:
    """RFC 9052 and RFC 8392 written out, with cbor2 and cryptography: the claims, if the signature is the center's."""
    message = cbor2.loads(token)
    assert message.tag == 18
    protected, unprotected, payload, signature = message.value
    assert unprotected == {}
    to_be_signed = (
        b"\x84"
        + cbor2.dumps("Signature1")
        + b"".join(cbor2.dumps(part) for part in (protected, b"sealcast/1 token", payload))
    )
    certificate = load_der_x509_certificate(center_der)
    assert cbor2.loads(protected)[4] == hashlib.sha256(center_der).digest()
    public = certificate.public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    public.verify(encode_dss_signature(r, s), to_be_signed, ec.ECDSA(hash))
    found: dict[Any, Any] = cbor2.loads(payload)
    return found


@pytest.mark.parametrize(
    ("hash", "number", "function"),
    [("sha-256", -7, hashes.SHA256()), ("sha-384", -35, hashes.SHA384()), ("sha-512", -36, hashes.SHA512())],
)
def test_another_implementation_reads_and_verifies_it(hash: str, number: int, function: Any) -> None:
    token = mint(hash=hash)
    assert cbor2.loads(cbor2.loads(token).value[0])[1] == number
    body = by_other_hands(token, world.CENTERS["center"], function)
    said = world.claims()
    assert body == {
        1: "center",
        2: "alice",
        3: f"sealcast:{world.REALM.hex()}/topic/{world.TOPIC.hex()}",
        4: said.expires,
        5: said.not_before,
        6: said.issued,
        7: said.id,
        8: {1: {1: 1, -1: 6, -2: ALICE}},
        -65537: world.ALICE.fingerprint,
        -65538: world.ALICE.serial.to_bytes(16, "big").lstrip(b"\0"),
        -65539: "Sports=NBA, Team=*",
        -65540: 1,
        -65541: 3,
    }
    with pytest.raises(InvalidSignature):
        by_other_hands(token, world.CENTERS["center"], hashes.SHA3_256())


def test_what_another_implementation_makes_is_taken() -> None:
    key = ec.derive_private_key(int.from_bytes(world.seeded("identity center"), "big"), ec.SECP256R1())
    protected = cbor2.dumps({1: -7, 4: hashlib.sha256(world.CENTERS["center"]).digest()}, canonical=True)
    payload = cbor2.dumps(dict(sorted(table.BODY.items(), key=lambda e: cbor2.dumps(e[0]))))
    to_be_signed = cbor2.dumps(["Signature1", protected, b"sealcast/1 token", payload])
    r, s = _numbers(key.sign(to_be_signed, ec.ECDSA(hashes.SHA256())))
    signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    token = cbor2.dumps(cbor2.CBORTag(18, [protected, {}, payload, signature]))
    assert verify({"token": token}).claims == world.claims()


def _numbers(der: bytes) -> tuple[int, int]:
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    return decode_dss_signature(der)


#: RFC 8392, appendix A.2.3 (the key) and A.3 (the token).
RFC_KEY = (
    "143329cce7868e416927599cf65a34f3ce2ffda55a7eca69ed8919a394d42f0f",
    "60f7f1a780d8a783bfb7a2dd6b2796e8128dbbcef9d3d168db9529971a36e7b9",
)
RFC_TOKEN = bytes.fromhex(
    "d28443a10126a104524173796d6d657472696345434453413235365850a70175636f61703a2f2f61732e6578616d706c652e636f6d02656572"
    "696b77037818636f61703a2f2f6c696768742e6578616d706c652e636f6d041a5612aeb0051a5610d9f0061a5610d9f007420b7158405427c1"
    "ff28d23fbad1f29c4c7c6a555e601d6fa29f9179bc3d7438bacaca5acd08c8d4d4f96131680c429a01f85951ecee743a52b9b63632c5720912"
    "0e1c9e30"
)


def test_the_rfcs_own_token() -> None:
    """Its structure is ours: what we would have signed is what its signature is over. Its looseness is not taken."""
    protected, _, payload, signature = cbor.decode(RFC_TOKEN, tags=frozenset({18})).value
    x, y = (int(number, 16) for number in RFC_KEY)
    public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    public.verify(encode_dss_signature(r, s), cose.sig_structure(protected, b"", payload), ec.ECDSA(hashes.SHA256()))
    body = cbor.decode(payload)
    labels = {"iss": "coap://as.example.com", "sub": "erikw", "aud": "coap://light.example.com"}
    assert {wire.CLAIMS[k]: v for k, v in body.items() if isinstance(v, str)} == labels
    assert [wire.CLAIMS[k] for k in body] == ["iss", "sub", "aud", "exp", "nbf", "iat", "cti"]
    with pytest.raises(TokenRejected) as refusal:
        tokens.parse(RFC_TOKEN)
    assert refusal.value.reason == TokenReason.FORM  # its key id stands in the open header


def test_the_other_signature_of_the_same_claims_gives_nothing_more() -> None:
    """ECDSA has two signatures for everything signed, (r, s) and (r, n - s): the same token in other bytes."""
    r, s = table.SIGNATURE[:32], int.from_bytes(table.SIGNATURE[32:], "big")
    sibling = wire.assemble(table.PROTECTED, table.PAYLOAD, r + (P256_ORDER - s).to_bytes(32, "big"))
    token = verify({"token": sibling})
    assert token.claims == world.claims()
    assert judged({"token": sibling, "holder_key": frame_key("bob")}) == "holder"


# --- attacks that a gate with less in it lets through --------------------------------------------


def weaker_gate(token: bytes, at_us: int = NOW) -> dict[Any, Any]:
    """A usual verifier: the algorithm is the token's word, any certified signer will do, whoever shows it owns it."""
    header = cbor2.loads(cbor2.loads(token).value[0])
    hash = {-7: hashes.SHA256(), -35: hashes.SHA384(), -36: hashes.SHA512()}[header[1]]
    known = {hashlib.sha256(der).digest(): der for der in world.CENTERS.values()}
    body = by_other_hands(token, known[header[4]], hash)
    assert body[5] <= at_us // SECOND < body[4]
    return body


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({"token": mint(), "holder_key": frame_key("bob"), "holder": "bob"}, "holder"),  # a stolen token
        ({"token": mint("no-center"), "topic": {"center": "no-center"}}, "center-role"),  # an entity signs its own
        ({"token": mint("other-center")}, "center-other"),  # a center gives rights on another's topic
        ({"token": mint("stranger"), "topic": {"center": "stranger"}}, "center-untrusted"),  # a center of nobody's
        ({"token": mint(), "topic": {"parameters": {"token_hash": "sha-512"}}}, "hash"),  # a weaker hash than asked for
        ({"token": mint(topic=bytes(16))}, "audience"),  # a token of a topic that is open to all
        ({"token": mint(realm=world.OTHER_REALM)}, "realm"),
        ({"token": mint(epoch=1)}, "epoch-ended"),  # from before a compromise
        ({"token": mint(), "revoked": [str(world.PARSED["center"].serial)]}, "center-revoked"),
        ({"token": mint(), "revoked": [str(world.ALICE.serial)]}, "revoked"),
        ({"token": mint(expires=2**33)}, "lifetime"),  # a token for good
        ({"token": table.claim(wire.CNF, {1: {1: 1, -1: 4, -2: ALICE}})}, "claim-value"),  # a key of another kind
        ({"token": b"\xd2\x9f" + table.GOOD[2:] + b"\xff"}, "encoding"),  # other bytes, the same reading
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_weaker_gate_lets_it_in(case: dict[str, Any], reason: str) -> None:
    assert weaker_gate(case["token"])[2] == "alice", "the attack works"
    assert judged(case) == reason, "and not here"


def test_a_usual_decoder_lets_two_readers_see_two_things() -> None:
    """One signed token, exp in it twice: who takes the last sees 2242, who takes the first sees this year."""
    (twice,) = (case["token"] for case in REFUSED if case["why"] == "exp twice")
    assert weaker_gate(twice)[4] == 2**33 != table.BODY[4]
    assert judged({"token": twice}) == "encoding"
