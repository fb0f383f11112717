"""Tokens: the tamper table and the vectors, an independent reading with other libraries, caches and revocation."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import cbor2
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.x509 import load_der_x509_certificate
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Misuse, TokenRejected
from sealcast.primitives.p256 import Hash
from sealcast.trust import claims as wire
from sealcast.trust import tokens
from sealcast.trust.certificates import Trust
from sealcast.trust.changes import Right
from sealcast.trust.templates import Template
from sealcast.trust.tokens import Presented, Token, TokenGate, TokenReason, VerifiedTokens
from sealcast.wire import cbor, cose
from tests.trust import token_world as world
from tests.trust.token_judge import judged, topic_of, verify
from tests.trust.token_world import NOW, SECOND, frame_key, gate, mint, topic
from tests.vectors import make_tokens as table

VECTORS = json.loads(table.FILE.read_text())
REFUSED = table.refused()
ALICE = frame_key("alice")
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


# --- the tamper table -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", list(table.good()), ids=lambda c: c["why"])
def test_taken(case: Mapping[str, Any]) -> None:
    token = verify(case)
    assert token.digest == hashlib.sha256(case["token"]).digest()
    assert tokens.parse(case["token"]) == token


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c["why"])
def test_tampered(case: Mapping[str, Any]) -> None:
    assert judged(case) == case["reason"]


FLIPS = list(table.flips())


@pytest.mark.parametrize(("at", "mask"), FLIPS)
def test_one_bit_of_every_byte(at: int, mask: int) -> None:
    allowed = next(reasons for _, start, end, reasons in table.regions() if start <= at < end)
    assert judged({"token": table.flipped(at, mask)}) in allowed


def test_every_bit_of_every_byte() -> None:
    shared = gate()
    for at in range(len(table.GOOD)):
        for bit in range(8):
            with pytest.raises(TokenRejected):
                verify({"token": table.flipped(at, 1 << bit)}, shared)


def test_the_table_is_whole() -> None:
    """Every reason has a case, every byte of a token belongs to a region, and cases have names of their own."""
    assert {case["reason"] for case in REFUSED} == {str(reason) for reason in TokenReason}
    assert len({case["why"] for case in REFUSED}) == len(REFUSED) >= 120
    covered = [at for _, start, end, _ in table.regions() for at in range(start, end)]
    assert covered == list(range(len(table.GOOD)))


def test_every_reason_belongs_to_a_check_of_the_broker() -> None:
    steps = list(dict.fromkeys(reason.step for reason in TokenReason))
    assert steps == [
        "token",
        "center",
        "token-signature",
        "token-time",
        "template",
        "right",
        "publisher",
        "revoked",
        "epoch",
    ]


def test_the_checks_come_in_the_order_of_their_reasons() -> None:
    """Two things wrong at once: the earlier check speaks."""
    order = [str(reason) for reason in TokenReason]
    contextual = [c for c in REFUSED if c["token"] == table.GOOD]
    for first in contextual:
        for second in contextual:
            keys = [
                k for k in ("at_us", "need", "holder_key", "holder", "revoked", "topic") if k in first and k in second
            ]
            if keys:
                continue
            both = {**first, **{k: v for k, v in second.items() if k not in ("why", "reason")}}
            assert judged(both) == min(first["reason"], second["reason"], key=order.index), (
                first["why"],
                second["why"],
            )


# --- the vectors, read from their file as another team would --------------------------------------


def unhexed(case: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(case)
    for name in ("token", "holder_key"):
        if name in found:
            found[name] = bytes.fromhex(found[name])
    if "id" in found.get("topic", {}):
        found["topic"] = {**found["topic"], "id": bytes.fromhex(found["topic"]["id"])}
    return found


def test_the_file_is_what_the_code_makes() -> None:
    assert table.FILE.read_text() == table.text(), "run `python -m tests.vectors.make_tokens` and say why"


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda v: v["why"])
def test_vectors(vector: Mapping[str, Any]) -> None:
    trust = Trust(
        bytes.fromhex(VECTORS["root"]), map(bytes.fromhex, VECTORS["authorities"]), bytes.fromhex(VECTORS["realm"])
    )
    case = {**unhexed(VECTORS["context"]), **unhexed(vector)}
    usual = {k: v for k, v in unhexed(VECTORS["context"])["topic"].items() if k != "schema"}
    changed = {**usual, **case["topic"]}
    changed.pop("schema", None)
    changed["parameters"] = {**usual["parameters"], **changed["parameters"]}
    revoked = world.Revocations(1, {int(serial) for serial in case["revoked"]})
    centers = [bytes.fromhex(der) for der in VECTORS["centers"].values()]
    case["topic"] = changed
    try:
        verify(case, TokenGate(trust, centers, revoked))
    except TokenRejected as error:
        assert error.reason == vector.get("reason")
    else:
        assert "reason" not in vector


def test_flips_in_the_file_cover_every_byte() -> None:
    listed = [flip.split(":") for flips in VECTORS["flips"].values() for flip in flips.split()]
    assert sorted((int(at), int(mask)) for at, mask in listed) == FLIPS
    assert set(VECTORS["flips"]) <= {str(reason) for reason in TokenReason}


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


# --- minting --------------------------------------------------------------------------------------


def test_the_same_claims_give_the_same_bytes() -> None:
    assert mint() == mint()
    assert mint() != mint(id=bytes(16))


def test_an_id_is_fresh_where_none_is_given() -> None:
    center = world.PARSED["center"]
    made = [
        tokens.Claims.of(
            center,
            world.ALICE,
            world.TOPIC,
            template=Template.parse("*"),
            rights=[Right.PUBLISH],
            epoch=1,
            not_before_us=NOW + 1,
            expires_us=NOW + 2 * SECOND - 1,
            issued_us=NOW,
        )
        for _ in range(2)
    ]
    assert made[0].id != made[1].id
    assert made[0].not_before_us == NOW + SECOND, "never a moment longer than was granted"
    assert made[0].expires_us == NOW + SECOND


@pytest.mark.parametrize(
    "changed",
    [
        {"rights": frozenset()},
        {"not_before": NOW // SECOND, "expires": NOW // SECOND},
        {"subject": "a b"},
        {"issuer": ""},
        {"holder_key": b"short"},
        {"id": b""},
        {"epoch": -1},
        {"epoch": True},
        {"subject_serial": 0},
        {"subject_serial": 2**128},
        {"issued": 2**40},
        {"template": Template("a b")},
        {"topic": b"short"},
        {"issuer_certificate": b"short"},
    ],
    ids=lambda c: str(c)[:40],
)
def test_no_center_mints_what_no_broker_takes(changed: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        mint(**changed)


@settings(max_examples=100)
@given(
    subject=st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", fullmatch=True),
    rights=st.sets(st.sampled_from(Right), min_size=1).map(frozenset),
    epoch=st.integers(0, 2**32 - 1),
    times=st.tuples(st.integers(0, 2**33), st.integers(1, 2**20)),
    serial=st.integers(1, 2**127),
    topics=st.text("ab.*-_", min_size=1, max_size=20),
    value=st.text(max_size=20),
    hash=st.sampled_from(Hash),
)
def test_round_trip(
    subject: str,
    rights: frozenset[Right],
    epoch: int,
    times: tuple[int, int],
    serial: int,
    topics: str,
    value: str,
    hash: Hash,
) -> None:
    template = Template.parse(f"{topics}; Team='" + value.replace("'", "''") + "'")
    begins, life = times
    said = world.claims(
        subject=subject,
        rights=rights,
        epoch=epoch,
        not_before=begins,
        expires=begins + life,
        issued=begins,
        subject_serial=serial,
        template=template,
    )
    read = tokens.parse(tokens.mint(world.identity("center"), said, hash))
    assert (read.claims, read.hash) == (said, hash)


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=600), st.tuples(st.integers(0, 385), st.binary(max_size=8))))
def test_whatever_comes_is_taken_apart_or_refused(given_: bytes | tuple[int, bytes]) -> None:
    """Noise, and a good token with noise written over some of it: a refusal is the only failure."""
    data = (
        given_
        if isinstance(given_, bytes)
        else (table.GOOD[: given_[0]] + given_[1] + table.GOOD[given_[0] + len(given_[1]) :])
    )
    try:
        found = tokens.parse(data)
    except TokenRejected as error:
        assert error.reason in list(TokenReason)
    else:
        assert found.digest == hashlib.sha256(data).digest()
        assert data == table.GOOD or judged({"token": data}) is not None


# --- without the topic ----------------------------------------------------------------------------


def test_who_knows_nothing_of_a_topic_learns_that_it_is_secure() -> None:
    """From the first valid token. What only the topic could tell is not asked, and no right follows."""
    here, usual = gate(), topic().parameters
    assert here.learn(table.GOOD, NOW, usual).claims.issuer == "center"
    assert here.learn(mint(hash="sha-512"), NOW, usual).claims.topic == world.TOPIC
    asks_the_topic = {"audience", "hash", "center-other", "lifetime", "template", "template-schema", "right"}
    asks_the_topic |= {"holder", "subject", "revoked", "epoch-ended", "epoch-ahead"}
    for case in REFUSED:
        revoked = world.Revocations(1, {int(serial) for serial in case.get("revoked", ())})
        if case["reason"] not in asks_the_topic and "topic" not in case:
            with pytest.raises(TokenRejected) as refusal:
                gate(revoked).learn(case["token"], case.get("at_us", NOW), usual)
            assert refusal.value.reason == case["reason"]


# --- caches and revocation ------------------------------------------------------------------------


def shown(token: bytes, **changed: Any) -> Presented:
    return replace(Presented(token, NOW, ALICE, "alice"), **changed)


def test_a_batch_verifies_every_distinct_token_once() -> None:
    here = gate()
    batch = [mint(id=bytes([i % 5]) * 16) for i in range(1000)]
    found = here.verify_many([shown(t) for t in batch], topic(), Right.PUBLISH)
    assert here.tokens.verifications == 5
    assert [t.claims.id for t in found if isinstance(t, Token)] == [bytes([i % 5]) * 16 for i in range(1000)]
    forged = table.flipped(len(table.GOOD) - 1, 1)
    refused = here.verify_many([shown(forged)] * 100, topic(), Right.PUBLISH)
    assert [e.reason for e in refused if isinstance(e, TokenRejected)] == ["signature"] * 100
    assert here.tokens.verifications == 6, "a bad one is verified once, too"


def test_a_batch_is_judged_one_by_one_and_in_order() -> None:
    cases = [c for c in REFUSED if not {"topic", "revoked", "need"} & set(c)]
    found = gate().verify_many(
        [
            Presented(c["token"], c.get("at_us", NOW), c.get("holder_key", ALICE), c.get("holder", "alice"))
            for c in [*cases, {"token": table.GOOD}]
        ],
        topic(),
        Right.PUBLISH,
    )
    assert [e.reason for e in found[:-1] if isinstance(e, TokenRejected)] == [c["reason"] for c in cases]
    assert isinstance(found[-1], Token)


@pytest.mark.parametrize(
    ("who", "reason"),
    [
        (world.PARSED["center"], "center-revoked"),
        (world.TRUST.intermediates[0], "center-revoked"),
        (world.ALICE, "revoked"),
    ],
    ids=["center", "authority", "owner"],
)
def test_a_revocation_reaches_a_cached_token_at_once(who: Any, reason: str) -> None:
    revoked = world.Revocations()
    here = gate(revoked)
    for _ in range(3):
        verify({"token": table.GOOD}, here)
    assert here.tokens.verifications == 1
    revoked.revoke(who)
    with pytest.raises(TokenRejected) as refusal:
        verify({"token": table.GOOD}, here)
    assert refusal.value.reason == reason
    # The same cache under another gate, as the next batch has it, and under the list of before, as a batch run again.
    with pytest.raises(TokenRejected):
        verify({"token": table.GOOD}, gate(revoked, here.tokens))
    verify({"token": table.GOOD}, gate(world.Revocations(), here.tokens))
    assert here.tokens.verifications == 1


def test_a_cache_without_the_number_would_let_a_revoked_center_in() -> None:
    """The attack that the number stops: a gate that is told of no new number keeps what it found of its centers."""
    revoked = world.Revocations()
    here = gate(revoked)
    verify({"token": table.GOOD}, here)
    revoked.serials.add(world.PARSED["center"].serial)
    verify({"token": table.GOOD}, here)
    revoked.number += 1
    with pytest.raises(TokenRejected):
        verify({"token": table.GOOD}, here)


def test_time_and_right_are_asked_anew_of_a_cached_token() -> None:
    here = gate()
    verify({"token": table.GOOD}, here)
    for case in REFUSED:
        if case["token"] == table.GOOD and "revoked" not in case:
            with pytest.raises(TokenRejected) as refusal:
                verify(case, here)
            assert refusal.value.reason == case["reason"]
    assert here.tokens.verifications == 1


def test_what_a_gate_says_does_not_depend_on_what_it_was_asked_before() -> None:
    """A batch that is run again with a cold cache decides the same."""
    cases = [c for c in [*table.good(), *REFUSED] if "revoked" not in c]
    warm = VerifiedTokens()
    here = gate(None, warm)

    def told(case: Mapping[str, Any], by: TokenGate) -> str | None:
        try:
            verify(case, by)
        except TokenRejected as error:
            return str(error.reason)
        return None

    first = [told(c, here) for c in cases]
    again = [told(c, here) for c in reversed(cases)][::-1]
    cold = [told(c, gate()) for c in cases]
    assert first == again == cold == [c.get("reason") for c in cases]


def test_what_is_remembered_is_bounded_and_bad_ones_push_no_good_ones_out() -> None:
    memory = VerifiedTokens(remembered=4, remembered_bad=3)
    here = gate(None, memory)
    good = [mint(id=bytes([i]) * 16) for i in range(4)]
    for token in good:
        verify({"token": token}, here)
    for i in range(40):
        with pytest.raises(TokenRejected):
            verify({"token": table.flipped(330 + i, 1)}, here)
    assert len(memory) == 7
    before = memory.verifications
    for token in good:
        verify({"token": token}, here)
    assert memory.verifications == before
    verify({"token": mint(id=b"5" * 16)}, here)
    assert len(memory) == 7
    verify({"token": good[0]}, here)
    assert memory.verifications == before + 2, "the one least recently asked had gone"


def test_a_center_that_renews_its_certificate_is_another_key_id() -> None:
    """Its tokens are taken as long as the certificate that signed them is known, and no longer."""
    renewed = world.issue("center", world.FIRST, world.CENTER, begins=NOW - 2 * SECOND)
    here = TokenGate(world.TRUST, [renewed], world.Revocations())
    assert judged({"token": table.GOOD}) is None
    with pytest.raises(TokenRejected) as refusal:
        verify({"token": table.GOOD}, here)
    assert refusal.value.reason == "center-unknown"


def test_refusals_say_what_is_wrong_and_what_to_do() -> None:
    with pytest.raises(TokenRejected) as refusal:
        verify({"token": table.GOOD, "need": "subscribe"})
    assert refusal.value.message == "the token is refused: it gives 'alice' no right to subscribe"
    assert refusal.value.hint == "let it: sealcast grant scores alice subscribe; then ask for another token"
    assert refusal.value.as_json()["reason"] == "right"
    with pytest.raises(TokenRejected) as refusal:
        verify({"token": b""})
    assert "sealcast token request" in str(refusal.value.hint)


def test_no_message_carries_a_key() -> None:
    for case in REFUSED:
        try:
            verify(case)
        except TokenRejected as error:
            assert ALICE.hex() not in f"{error.message} {error.hint}"


def test_a_token_is_a_value() -> None:
    token = verify({"token": table.GOOD})
    assert copy.deepcopy(token) == token and hash(token) == hash(copy.deepcopy(token))


def test_the_specification_lists_claims_and_reasons_as_the_code_has_them() -> None:
    section = (Path(cbor.__file__).parent / "SPEC.md").read_text().split("\n## 11. ")[1].split("\n## ")[0]
    reasons = re.findall(r"^\| (\d+) \| `([a-z-]+)` \|", section, re.MULTILINE)
    assert reasons == [(str(number), str(reason)) for number, reason in enumerate(TokenReason, start=1)]
    labels = re.findall(r"^    (-?\d+)(?: (\w+))? {2,}", section, re.MULTILINE)
    assert [int(label) for label, _ in labels] == list(wire.CLAIMS)
    assert [name for _, name in labels if name] == [wire.CLAIMS[label] for label in range(1, 9)]


def test_a_topic_of_the_registry_is_one_that_the_gate_knows() -> None:
    assert topic_of({}) == topic()
