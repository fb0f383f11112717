"""Certificates: every way of bending one is refused for its own reason, and OpenSSL agrees about what counts."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import CertificateRejected, Misuse
from sealcast.primitives import hpke, x509, x509_lists
from sealcast.trust.certificates import certificate as certificates
from sealcast.trust.certificates import profile
from sealcast.trust.certificates.certificate import CertificateReason, Role, Trust, renewal_due
from sealcast.trust.certificates.lists import RevocationReason, Revoked
from sealcast.trust.certificates.revocation import NOTHING_REVOKED, Cause, RevocationView
from tests.effort import examples
from tests.trust.certified import (
    DAY,
    NOW,
    OTHER_REALM,
    REALM,
    SECOND,
    Forged,
    authority,
    holder,
    identity,
    kem_key,
    keys,
    name,
    serial,
)
from tests.vectors import make_certificates

pytestmark = pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")

VECTORS: dict[str, Any] = json.loads(make_certificates.FILE.read_text())
CONTEXT = VECTORS["context"]
GOOD = make_certificates.GOOD
#: What X.509 asks for too; the other reasons are of our own, stricter profile.
STANDARD = {
    "malformed",
    "issuer",
    "signature",
    "path-length",
    "constraint",
    "issuer-not-yet-valid",
    "issuer-expired",
    "issuer-revoked",
    "not-yet-valid",
    "expired",
    "revoked",
}
#: Refused here although X.509 lets it pass: bytes after the end, no limit to the path, times finer than seconds.
STRICTER = {"a byte too many", "too long", "an authority without a path length", "a microsecond too late"}

#: RFC 5280 includes notAfter in the validity; OpenSSL calls a certificate expired in that second already.
LAST_SECOND = "in its last second"


def trust(case: dict[str, Any]) -> Trust:
    authorities = [bytes.fromhex(one) for one in case["authorities"]]
    return Trust(bytes.fromhex(case["root"]), authorities, bytes.fromhex(case["realm"]))


def judge(case: dict[str, Any]) -> str | None:
    """The reason for which a certificate is refused, if it is."""
    case = {**CONTEXT, **case}
    revoked = {int(one, 16): Revoked(Cause.UNSPECIFIED, NOW) for one in case["revoked"]}
    role = Role(case["role"]) if case["role"] else None
    try:
        trust(case).verify(
            bytes.fromhex(case["certificate"]),
            case["at_us"],
            RevocationView(entries=revoked),
            role=role,
            name=case["holder"],
        )
    except CertificateRejected as refusal:
        assert isinstance(refusal.reason, CertificateReason)
        return refusal.reason
    return None


def test_the_vectors_are_what_the_code_makes() -> None:
    assert make_certificates.FILE.read_text() == make_certificates.text()
    assert len(VECTORS["certificates"]) + len(VECTORS["flips"]) + len(VECTORS["revocations"]) >= 200


@pytest.mark.parametrize("case", VECTORS["certificates"], ids=lambda case: case["name"])
def test_each_case_has_its_own_reason(case: dict[str, Any]) -> None:
    assert judge(case) == case["reason"]


def test_every_reason_occurs() -> None:
    seen = {case["reason"] for case in VECTORS["certificates"]}
    # The realm cannot be reached past the checks before it here; its own test is below.
    assert set(CertificateReason) - seen == {CertificateReason.REALM}
    assert {case["reason"] for case in VECTORS["revocations"]} - {None} == set(RevocationReason)


@pytest.mark.parametrize("flip", VECTORS["flips"], ids=lambda flip: f"{flip['field']}-{flip['offset']}")
def test_a_flipped_bit_in_any_field(flip: dict[str, Any]) -> None:
    bent = bytearray(GOOD)
    bent[flip["offset"]] ^= flip["mask"]
    allowed = {"malformed", "profile", "signature", "key", "issuer", "name", "algorithm", "keys", "usage", "roles"}
    assert judge({"certificate": bytes(bent).hex()}) in allowed


def test_no_single_bit_can_be_flipped() -> None:
    believing = trust(CONTEXT)
    for position in range(8 * len(GOOD)):
        bent = bytearray(GOOD)
        bent[position // 8] ^= 1 << position % 8
        with pytest.raises(CertificateRejected):
            believing.verify(bytes(bent), NOW, NOTHING_REVOKED)


@examples(40, soak=200)
@given(
    st.binary(max_size=80)
    | st.builds(lambda at, new: GOOD[:at] + new + GOOD[at + 1 :], st.integers(0, 600), st.binary(max_size=4))
)
def test_bytes_from_anywhere_are_refused_and_nothing_worse(raw: bytes) -> None:
    if raw != GOOD:
        with pytest.raises(CertificateRejected):
            trust(CONTEXT).verify(raw, NOW, NOTHING_REVOKED)


# --- OpenSSL as the judge -------------------------------------------------------------------------


def openssl(*arguments: str | Path, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["openssl", *map(str, arguments)], input=stdin, capture_output=True, check=False, timeout=30)


def as_pem(der: bytes) -> bytes:
    """Without looking inside, which `x509.pem` does."""
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"


def openssl_accepts(case: dict[str, Any], directory: Path) -> bool:
    case = {**CONTEXT, **case}
    revoked, at_us = [int(one, 16) for one in case["revoked"]], case["at_us"]
    lists = []
    for generation, label in enumerate(["root", "authority 1", "authority 2", "authority 3"]):
        signer = "mallory" if label == "root" and "other root" in case["name"] else label
        own = [(one, 1, NOW - DAY) for one in revoked if profile.issued_by(one) == generation]
        common = f"Sealcast authority {generation}" if generation else "Sealcast root"
        body = x509_lists.CrlBody(x509.DistinguishedName(REALM.hex(), common), 1, at_us - 100 * DAY, at_us + DAY, own)
        lists.append(x509_lists.crl_pem(x509_lists.sign_crl(identity(signer), body)))
    authorities = [as_pem(bytes.fromhex(one)) for one in case["authorities"]]
    parts = {
        "root.pem": as_pem(bytes.fromhex(case["root"])),
        "between.pem": b"".join(authorities) or as_pem(bytes.fromhex(case["root"])),
        "lists.pem": b"".join(lists),
        "holder.pem": as_pem(bytes.fromhex(case["certificate"])),
    }
    for file, content in parts.items():
        (directory / file).write_bytes(content)
    files = [directory / file for file in ("root.pem", "between.pem", "lists.pem", "holder.pem")]
    done = openssl(
        *("verify", "-x509_strict", "-attime", str(at_us // SECOND), "-CAfile", files[0], "-untrusted", files[1]),
        *("-crl_check_all", "-CRLfile", files[2], files[3]),
    )
    return done.returncode == 0


@pytest.mark.parametrize("case", VECTORS["certificates"], ids=lambda case: case["name"])
def test_openssl_agrees(case: dict[str, Any], tmp_path: Path) -> None:
    accepted = openssl_accepts(case, tmp_path)
    if case["reason"] is None and case["name"] != LAST_SECOND:
        assert accepted, "we accept what OpenSSL refuses"
    if case["reason"] in STANDARD and case["name"] not in STRICTER:
        assert not accepted, "OpenSSL accepts what we refuse for X.509's own reasons"


def test_openssl_reads_what_we_say() -> None:
    said = openssl("x509", "-inform", "DER", "-noout", "-text", "-nameopt", "RFC2253", stdin=GOOD).stdout.decode()
    for line in (
        "Version: 3 (0x2)",
        "Signature Algorithm: ecdsa-with-SHA256",
        f"Subject: CN=alice,O={REALM.hex()}",
        f"Issuer: CN=Sealcast authority 1,O={REALM.hex()}",
        "ASN1 OID: prime256v1",
        "X509v3 Basic Constraints: critical\n                CA:FALSE",
        "X509v3 Key Usage: critical\n                Digital Signature",
        f"URI:sealcast:{REALM.hex()}/alice",
        profile.EXTENSION,
    ):
        assert line in said
    above = openssl("x509", "-inform", "DER", "-noout", "-text", stdin=make_certificates.FIRST).stdout.decode()
    assert "CA:TRUE, pathlen:0" in above
    assert "X509v3 Name Constraints: critical" in above
    assert f"DirName:O = {REALM.hex()}" in above


# --- what is not in the table ---------------------------------------------------------------------


def test_what_a_certificate_says() -> None:
    found = certificates.parse(GOOD)
    assert (found.name, found.realm, found.serial, found.roles) == ("alice", REALM, serial(1, "alice"), {Role.ENTITY})
    assert found.keys == keys("alice")
    assert (found.not_before_us, found.not_after_us) == (NOW - 30 * DAY, NOW + 60 * DAY)
    assert found.issuer == identity("authority 1").verify_key.key_id
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_root_of_another_realm_is_not_taken() -> None:
    with pytest.raises(CertificateRejected) as refusal:
        Trust(make_certificates.ROOT, [], OTHER_REALM)
    assert refusal.value.reason == CertificateReason.REALM


def test_another_realms_certificate_under_an_authority_of_ours() -> None:
    def abroad(c: Forged) -> None:
        c.subject = name(OTHER_REALM.hex(), "alice")
        c.put(make_certificates.uris(profile.uri(OTHER_REALM, "alice")))

    def boundless(c: Forged) -> None:
        del c.extensions[next(k for k in c.extensions if getattr(k, "__name__", "") == "NameConstraints")]

    # Its name constraint refuses it first, and without one the realm does.
    for change, reason in ((None, CertificateReason.CONSTRAINT), (boundless, CertificateReason.REALM)):
        believing = Trust(make_certificates.ROOT, [authority(change)], REALM)
        with pytest.raises(CertificateRejected) as refusal:
            believing.verify(holder(abroad), NOW, NOTHING_REVOKED)
        assert refusal.value.reason == reason


def test_trust_travels_and_remembers_no_verdict() -> None:
    believing = trust(CONTEXT)
    assert believing.verify(GOOD, NOW, NOTHING_REVOKED) == believing.verify(GOOD, NOW, NOTHING_REVOKED)
    arrived = pickle.loads(pickle.dumps(believing))
    for known in (believing, arrived):
        assert known.verify(GOOD, NOW, NOTHING_REVOKED).name == "alice"
        with pytest.raises(CertificateRejected, match="was revoked"):
            known.verify(GOOD, NOW, RevocationView(entries={serial(1, "alice"): Revoked(Cause.UNSPECIFIED, NOW)}))
        with pytest.raises(CertificateRejected, match="time is over"):
            known.verify(GOOD, NOW + 61 * DAY, NOTHING_REVOKED)


def test_memory_of_certificates_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "REMEMBERED", 3)
    believing = trust(CONTEXT)
    for number in range(8):
        believing.verify(holder(label=f"entity-{number}"), NOW, NOTHING_REVOKED)
    assert len(believing._remembered) == 3


def test_renewal_is_due_at_half_life() -> None:
    found = certificates.parse(GOOD)
    middle = (found.not_before_us + found.not_after_us) // 2
    assert not renewal_due(found, middle - 1)
    assert renewal_due(found, middle)


def test_keys_of_small_order_are_known_without_trying() -> None:
    spellings = [n + add for n in hpke._SMALL_ORDER for add in (0, hpke._P, 2**255, 2**255 + hpke._P)]
    tried = [n.to_bytes(32, "little") for n in spellings if (n & (2**255 - 1)) < 2**255 and n < 2**256]
    for public in {one for one in tried if int.from_bytes(one, "little") % 2**255 % hpke._P in hpke._SMALL_ORDER}:
        assert not hpke.is_usable(public)
        with pytest.raises(Misuse, match="small order"):
            hpke.seal(public, b"x", b"y")


def test_usual_keys_are_usable() -> None:
    assert all(hpke.is_usable(kem_key(str(n)).public) for n in range(50))
    assert not hpke.is_usable(bytes(31))
