"""Envelopes: what is sealed to one is opened by that one, says who sent it, and passes unaltered or not at all."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.control import envelopes
from sealcast.control.discovery import advertisements
from sealcast.control.discovery.advertisements import AdvertisementRejected
from sealcast.control.envelopes import (
    ControlMessage,
    Direction,
    EnvelopeParty,
    EnvelopeReason,
    EnvelopeRecipient,
    EnvelopeRejected,
    ProvenMessage,
    open_reply,
    open_request,
    seal,
)
from sealcast.errors import CertificateRejected, Misuse
from sealcast.primitives.hpke import KemKey
from sealcast.primitives.p256 import P256SigningKey
from sealcast.primitives.secrets import Secret
from sealcast.trust.certificates.certificate import Certificate, Trust
from tests.effort import examples
from tests.trust.control_world import REALM, SECOND
from tests.trust.tampering import Case, Cast, bent_envelopes, padded

CAST = Cast.make()
WORLD, ALICE, CENTER, OTHER = CAST.world, CAST.alice, CAST.center, CAST.other
KINDS = frozenset({"echo"})
BENT = bent_envelopes(CAST)


def opened(data: bytes, me: EnvelopeParty = CENTER) -> ProvenMessage:
    return open_request(data, me, REALM, WORLD.verify, WORLD.now, KINDS)


def reply_opened(data: bytes, asked: ControlMessage, of: str = "center") -> ProvenMessage:
    return open_reply(data, ALICE, REALM, WORLD.verify, WORLD.now, asked, of)


def request(body: bytes = b"body") -> ControlMessage:
    return ControlMessage.request("echo", body, bytes(16), WORLD.now)


def to(party: EnvelopeParty) -> EnvelopeRecipient:
    return WORLD.recipient(party)


# --- the table ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BENT)
def test_every_bent_envelope_is_refused_for_its_own_reason(name: str) -> None:
    reason, bend = BENT[name]
    with pytest.raises(EnvelopeRejected) as refused:
        opened(bend(Case.of(CAST)))
    assert refused.value.reason == reason, refused.value.message
    assert refused.value.as_json()["reason"] == reason


def test_the_table_bends_one_thing_at_a_time() -> None:
    """What the table is made from is a good envelope: unbent, it opens, and our own `seal` makes the same inside."""
    case = Case.of(CAST)
    assert opened(case.envelope()).message == case.message
    assert opened(seal(ALICE, REALM, to(CENTER), case.message)).message == case.message
    sealed = cbor2.loads(seal(ALICE, REALM, to(CENTER), case.message))[3]
    assert CENTER.kem.open(sealed, case.bound(), envelopes._place(to(CENTER))) == padded(case.inside())


def test_every_reason_is_reached() -> None:
    told = {reason for reason, _ in BENT.values()}
    assert told == set(EnvelopeReason) - {"replay", "answer"}, "those two are reached below, and in test_control"
    assert len(BENT) >= 100


def test_why_a_certificate_was_refused_is_kept() -> None:
    for name, reason in (("expired", "expired"), ("early", "not-yet-valid"), ("revoked", "revoked")):
        with pytest.raises(EnvelopeRejected) as refused:
            opened(seal(getattr(CAST, name), REALM, to(CENTER), request()))
        cause = refused.value.__cause__
        assert cause is not None and isinstance(cause.__cause__, CertificateRejected)
        assert cause.__cause__.reason == reason


@given(st.data())
@examples(37, soak=150)
def test_no_flipped_bit_passes(data: st.DataObject) -> None:
    sealed = bytearray(_SEALED)
    at = data.draw(st.integers(0, len(sealed) * 8 - 1))
    sealed[at // 8] ^= 1 << at % 8
    with pytest.raises(EnvelopeRejected):
        opened(bytes(sealed))


_SEALED = Case.of(CAST).envelope()


@given(st.binary(max_size=400))
@examples(37, soak=150)
def test_noise_is_refused_and_nothing_else(noise: bytes) -> None:
    for data in (noise, Case.of(CAST).outside(noise), Case.of(CAST).padded(lambda _: padded(noise))):
        with pytest.raises(EnvelopeRejected):
            opened(data)


# --- who may open, who may say -----------------------------------------------------------------------


def test_only_the_recipient_opens_it() -> None:
    sealed = seal(ALICE, REALM, to(CENTER), request())
    assert opened(sealed).sender.name == "alice"
    for eve in (OTHER, ALICE, CAST.mallory, EnvelopeParty("center", CENTER.certificate, CENTER.signer, OTHER.kem)):
        with pytest.raises(EnvelopeRejected) as refused:
            opened(sealed, eve)
        assert refused.value.reason is EnvelopeReason.SEAL


def test_a_recipient_cannot_pass_it_on() -> None:
    """Surreptitious forwarding: the center opens what alice signed for it and seals the very same to another."""
    case = Case.of(CAST)
    inside = case.inside()
    forwarded = case.outside(case.sealed(padded(inside), to=OTHER))
    with pytest.raises(EnvelopeRejected) as refused:
        opened(forwarded, OTHER)
    assert refused.value.reason is EnvelopeReason.RECIPIENT
    # The attack is real: without the recipient in what is signed, nothing would be left to refuse it.
    assert opened(case.outside(case.sealed(padded(inside)))).sender.name == "alice"


def test_a_namesake_with_another_key_is_not_meant() -> None:
    twin = EnvelopeParty("center", CENTER.certificate, CENTER.signer, OTHER.kem)
    case = Case.of(CAST)
    forwarded = case.outside(case.sealed(padded(case.inside()), to=twin))
    with pytest.raises(EnvelopeRejected) as refused:
        opened(forwarded, twin)
    assert refused.value.reason is EnvelopeReason.RECIPIENT


def test_nobody_signs_as_another() -> None:
    impostor = EnvelopeParty("alice", ALICE.certificate, CAST.mallory.signer, CAST.mallory.kem)
    with pytest.raises(EnvelopeRejected) as refused:
        opened(seal(impostor, REALM, to(CENTER), request()))
    assert refused.value.reason is EnvelopeReason.SIGNATURE


# --- replies ------------------------------------------------------------------------------------------


def test_a_reply_answers_one_question_of_one_asker() -> None:
    asked = request()
    answer = asked.reply("echoed", b"answer", WORLD.now)
    assert asked.way is Direction.REQUEST and answer.way is Direction.REPLY
    good = seal(CENTER, REALM, to(ALICE), answer)
    assert reply_opened(good, asked).message.body == b"answer"
    cases = [
        (seal(OTHER, REALM, to(ALICE), answer), "answer"),
        (seal(CENTER, REALM, to(ALICE), replace(answer, request_id=bytes(16))), "answer"),
        (seal(CENTER, REALM, to(ALICE), replace(answer, time_us=WORLD.now - 3600 * SECOND)), "late"),
        (seal(CENTER, REALM, to(OTHER), answer), "seal"),
        (seal(CENTER, REALM, to(ALICE), request()), "way"),
    ]
    for data, reason in cases:
        with pytest.raises(EnvelopeRejected) as refused:
            reply_opened(data, asked)
        assert refused.value.reason == reason
    with pytest.raises(EnvelopeRejected) as refused:
        opened(good)
    assert refused.value.reason is EnvelopeReason.WAY


def test_times_at_the_edge_pass() -> None:
    for moved in (-300 * SECOND, 0, 30 * SECOND):
        assert opened(seal(ALICE, REALM, to(CENTER), replace(request(), time_us=WORLD.now + moved)))


# --- sizes --------------------------------------------------------------------------------------------


@given(st.integers(0, 9_000))
@settings(max_examples=30)
def test_a_size_tells_a_power_of_two_and_no_more(size: int) -> None:
    sealed = seal(ALICE, REALM, to(CENTER), request(bytes(size)))
    inside = len(cbor2.loads(sealed)[3]) - 48
    assert inside >= 2048 and inside & (inside - 1) == 0
    assert opened(sealed).message.body == bytes(size)


def test_what_is_too_large_is_refused_by_who_would_send_it() -> None:
    most = envelopes.MAX_BODY_BYTES
    assert len(opened(seal(ALICE, REALM, to(CENTER), request(bytes(most)))).message.body) == most
    for bad in (
        request(bytes(most + 1)),
        replace(request(), kind=""),
        replace(request(), kind="x" * 49),
        replace(request(), request_id=b"short"),
        replace(request(), reply_topic=b"short"),
        replace(request(), time_us=-1),
    ):
        with pytest.raises(Misuse):
            seal(ALICE, REALM, to(CENTER), bad)


def test_a_party_stays_where_it_is() -> None:
    with pytest.raises(Misuse):
        pickle.dumps(ALICE)
    assert "secret" not in repr(ALICE) and ALICE.certificate.hex() not in repr(ALICE)


# --- vectors ------------------------------------------------------------------------------------------

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "envelopes.json").read_text())


class Revoked:
    serials = frozenset(int(serial, 16) for serial in VECTORS["revoked_serials"])

    def is_revoked(self, serial: int, issuer: bytes | None = None) -> bool:
        return serial in self.serials


def _told(of: str) -> list[Any]:
    return [pytest.param(vector, id=vector.get("why", f"good {n}")) for n, vector in enumerate(VECTORS[of])]


@pytest.fixture(scope="module")
def trusted() -> Callable[[bytes, int], Certificate]:
    """Nothing of the tests' own world: what the file says, and that alone."""
    authorities = map(bytes.fromhex, VECTORS["authorities"])
    trust = Trust(bytes.fromhex(VECTORS["root"]), list(authorities), bytes.fromhex(VECTORS["realm"]))
    return lambda der, at_us: trust.verify(der, at_us, Revoked())


@pytest.mark.parametrize("vector", _told("requests"))
def test_requests_of_the_vectors(vector: dict[str, Any], trusted: Callable[[bytes, int], Certificate]) -> None:
    to, sender = VECTORS["recipient"], VECTORS["sender"]
    kem = KemKey(Secret(bytes.fromhex(to["x25519"])))
    me = EnvelopeParty(to["name"], bytes.fromhex(to["certificate"]), P256SigningKey.generate(), kem)
    data, realm, now = bytes.fromhex(vector["envelope"]), bytes.fromhex(VECTORS["realm"]), VECTORS["at_us"]
    kinds = frozenset(VECTORS["kinds"])
    if "reason" in vector:
        with pytest.raises(EnvelopeRejected) as refused:
            open_request(data, me, realm, trusted, now, kinds)
        assert refused.value.reason == vector["reason"]
        return
    read = open_request(data, me, realm, trusted, now, kinds)
    message = ControlMessage(
        vector["kind"],
        bytes.fromhex(vector["body"]),
        bytes.fromhex(vector["request_id"]),
        vector["time_us"],
        bytes.fromhex(vector["reply_topic"]),
    )
    assert (read.sender.name, read.message) == (sender["name"], message)
    # Made again to the same bytes: the signature is deterministic.
    key = P256SigningKey(Secret(bytes.fromhex(sender["p256"])))
    writer = EnvelopeParty(sender["name"], bytes.fromhex(sender["certificate"]), key, KemKey.generate())
    again = cbor2.loads(seal(writer, realm, EnvelopeRecipient(me.name, kem.public), message))[3]
    opened_again = kem.open(again, Case.of(CAST).bound(), envelopes._place(EnvelopeRecipient(me.name, kem.public)))
    assert opened_again == padded(bytes.fromhex(vector["signed"]))


@pytest.mark.parametrize("vector", _told("advertisements"))
def test_advertisements_of_the_vectors(vector: dict[str, Any], trusted: Callable[[bytes, int], Certificate]) -> None:
    data, realm, now = bytes.fromhex(vector["advertisement"]), bytes.fromhex(VECTORS["realm"]), VECTORS["at_us"]
    if "reason" in vector:
        with pytest.raises(AdvertisementRejected) as refused:
            advertisements.verify(data, realm, trusted, now)
        assert refused.value.reason == vector["reason"]
    else:
        assert advertisements.verify(data, realm, trusted, now).owner.name == vector["owner"]
