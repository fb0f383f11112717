"""Writes certificates.json beside this file: `python -m tests.vectors.make_certificates` from the repository's root.

A certificate is judged by a root and authorities, at a time, under revocations, for a role or a holder where one is
asked for. `context` is the usual one, and a vector says what differs in its own. One with a `reason` must be refused
for that reason (a word of `CertificateReason`); one without is to be taken. `flips` are the
good certificate (of the context) with one bit changed, in every field. Serial numbers are hexadecimal, 16 bytes.

Revocation lists are judged by what is known before: `known` are lists taken in already, `given` come next, together. A
`reason` is a word of `RevocationReason`; without one they are taken and lead to `number`.

Mis-issued certificates and lists are signed properly, by the key of the authority they name: only the check in
question stands against them. Cases are named here with their reasons as they should be; that the code agrees is for
the tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from sealcast.primitives import p256
from sealcast.trust.certificates import lists, profile
from sealcast.trust.certificates.certificate import Role
from sealcast.trust.certificates.lists import Cause, RevocationDelta, Revoked
from sealcast.wire import cbor, cose
from tests.trust import spans
from tests.trust.certified import (
    DAY,
    NOW,
    OTHER_REALM,
    REALM,
    SECOND,
    Change,
    Forged,
    authority,
    holder,
    identity,
    keys,
    name,
    serial,
    usage,
)
from tests.vectors.make import _plain

HERE = Path(__file__).parent
FILE = HERE / "certificates.json"
Case = dict[str, Any]

ROOT = authority(number=0, label="root")
FIRST = authority(number=1, label="authority 1")
SECOND_ONE = authority(number=2, label="authority 2")
GOOD = holder()
GIVEN = keys("alice")
NUMBERS = {"alice": serial(1, "alice"), "authority 1": serial(0, "authority 1"), "root": serial(0, "root")}

CONTEXT: Case = {
    "certificate": GOOD,
    "root": ROOT,
    "authorities": [FIRST, SECOND_ONE],
    "realm": REALM,
    "at_us": NOW,
    "revoked": [],
    "role": None,
    "holder": None,
}


def extension(body: object) -> bytes:
    value = cbor.encode(body)
    return bytes((4, len(value))) + value


def roles(codes: list[int]) -> Change:
    return lambda c: c.put_private(extension({1: codes, 2: GIVEN.verify_key, 3: GIVEN.kem_public}))


def keyed(verify_key: object, kem_public: object) -> Change:
    return lambda c: c.put_private(extension({1: [1], 2: verify_key, 3: kem_public}))


def without(kind: type[x509.ExtensionType] | str) -> Change:
    def change(c: Forged) -> None:
        del c.extensions[kind]

    return change


def extra(critical: bool) -> Change:
    value = x509.UnrecognizedExtension(x509.ObjectIdentifier("2.25.1"), b"\x05\x00")
    return lambda c: c.put(value, critical)


def setting(**values: Any) -> Change:
    def change(c: Forged) -> None:
        for field, value in values.items():
            assert hasattr(c, field)
            setattr(c, field, value)

    return change


def putting(value: x509.ExtensionType, critical: bool | None = None) -> Change:
    return lambda c: c.put(value, critical)


def p384(c: Forged) -> None:
    # Its own key identifier is right, so that only the curve is wrong.
    c.public = ec.derive_private_key(7, ec.SECP384R1()).public_key()
    c.put(x509.SubjectKeyIdentifier(p256.key_id(c.public)))


def uris(*names: str) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(one) for one in names])


def mis_issued() -> Iterator[tuple[str, str, Change]]:
    """What the authority's own key would have to sign: name, reason, change."""
    yield "SHA-384", "algorithm", setting(hash=hashes.SHA384())
    yield "SHA-512", "algorithm", setting(hash=hashes.SHA512())
    yield "a key of another curve", "key", p384
    yield "another key's identifier", "key", putting(x509.SubjectKeyIdentifier(identity("bob").verify_key.key_id))
    yield "no subject key identifier", "key", without(x509.SubjectKeyIdentifier)
    yield "no extension of ours", "profile", without(profile.EXTENSION)
    yield "no alternative name", "profile", without(x509.SubjectAlternativeName)
    yield "no key usage", "profile", without(x509.KeyUsage)
    yield "no basic constraints", "profile", without(x509.BasicConstraints)
    yield "no issuer's key identifier", "profile", without(x509.AuthorityKeyIdentifier)
    yield "an unknown extension", "profile", extra(False)
    yield "an unknown critical extension", "profile", extra(True)
    yield "our extension made critical", "profile", lambda c: c.put_private(extension({1: [1]}), True)
    yield "basic constraints not critical", "profile", putting(x509.BasicConstraints(False, None), False)
    yield "key usage not critical", "profile", putting(usage("digital_signature"), False)
    yield (
        "name constraints on an entity",
        "profile",
        putting(x509.NameConstraints([x509.DirectoryName(name(REALM.hex()))], None), True),
    )
    yield "an extension without its octet string", "profile", lambda c: c.put_private(cbor.encode({1: [1]}))
    yield "bytes after the octet string", "profile", lambda c: c.put_private(extension({1: [1]}) + b"\0")
    yield "an empty extension", "profile", lambda c: c.put_private(b"")
    yield "a field too many", "profile", lambda c: c.put_private(extension({1: [1], 2: b"", 3: b"", 4: b""}))
    yield "one key only", "profile", lambda c: c.put_private(extension({1: [1], 2: GIVEN.verify_key}))
    yield "no roles", "roles", roles([])
    yield "an unknown role", "roles", roles([9])
    yield "roles twice", "roles", roles([1, 1])
    yield "roles out of order", "roles", roles([2, 1])
    yield (
        "a role that is true",
        "roles",
        lambda c: c.put_private(extension({1: [True], 2: GIVEN.verify_key, 3: GIVEN.kem_public})),
    )
    yield "an entity that calls itself an authority", "ca-bit", roles([5])
    yield "an entity and authority", "ca-bit", roles([1, 5])
    yield "certificate signing", "usage", putting(usage("digital_signature", "key_cert_sign"))
    yield "list signing", "usage", putting(usage("digital_signature", "crl_sign"))
    yield "key agreement instead", "usage", putting(usage("key_agreement"))
    yield "an Ed25519 key of small order", "keys", keyed(bytes([1, *bytes(31)]), GIVEN.kem_public)
    yield "an Ed25519 key too short", "keys", keyed(GIVEN.verify_key[:31], GIVEN.kem_public)
    yield "an Ed25519 key that is text", "keys", keyed("x" * 32, GIVEN.kem_public)
    yield "an X25519 key of small order", "keys", keyed(GIVEN.verify_key, bytes(32))
    yield "an X25519 key too long", "keys", keyed(GIVEN.verify_key, GIVEN.kem_public + b"\0")
    yield "no keys", "keys", lambda c: c.put_private(extension({1: [1]}))
    yield "another alternative name", "name", putting(uris(profile.uri(REALM, "bob")))
    yield "two alternative names", "name", putting(uris(profile.uri(REALM, "alice"), profile.uri(REALM, "bob")))
    yield "an alternative name that is no URI", "name", putting(x509.SubjectAlternativeName([x509.DNSName("alice")]))
    yield "another subject", "name", setting(subject=name(REALM.hex(), "bob"))
    yield "a subject without realm", "name", setting(subject=name(None, "alice"))
    yield "a subject with two names", "name", setting(subject=name(REALM.hex(), "alice", "bob"))
    yield "a realm in capitals", "name", setting(subject=name(REALM.hex().upper(), "alice"))
    yield "a realm too short", "name", setting(subject=name(REALM.hex()[:-2], "alice"))
    yield "a name that is a path", "name", _renamed("../alice")
    yield "a name like an authority's", "name", _renamed("Sealcast root")
    yield (
        "an unknown issuer's key",
        "issuer",
        putting(x509.AuthorityKeyIdentifier(identity("mallory").verify_key.key_id, None, None)),
    )
    yield "another issuer's name", "issuer", setting(issuer=name(REALM.hex(), "Sealcast authority 2"))
    yield (
        "the issuer's name in another realm",
        "issuer",
        setting(issuer=name(OTHER_REALM.hex(), "Sealcast authority 1")),
    )
    yield "a stranger's signature", "signature", setting(signer=identity("mallory").key)
    yield "its own signature", "signature", setting(signer=identity("alice").key)
    yield "the other authority's signature", "signature", setting(signer=identity("authority 2").key)
    yield "a serial number of another authority", "serial", setting(serial=serial(2, "alice"))
    yield "a serial number of the root", "serial", setting(serial=serial(0, "alice"))
    yield "a serial number too long", "serial", setting(serial=serial(1, "alice") << 16)
    yield "not yet valid, by a second", "not-yet-valid", setting(not_before_us=NOW + SECOND)
    yield (
        "not yet valid, by a year",
        "not-yet-valid",
        setting(not_before_us=NOW + 365 * DAY, not_after_us=NOW + 400 * DAY),
    )
    yield "expired, by a second", "expired", setting(not_after_us=NOW - SECOND)
    yield "expired, by a week", "expired", setting(not_after_us=NOW - 7 * DAY)


def _renamed(common: str) -> Change:
    def change(c: Forged) -> None:
        c.subject = name(REALM.hex(), common)
        c.put(uris(profile.uri(REALM, common)))

    return change


def in_context() -> Iterator[tuple[str, str | None, Case]]:
    """Certificates that depend on what is around them."""
    yield "as issued", None, {}
    yield "in its first second", None, {"at_us": NOW - 30 * DAY}
    yield "in its last second", None, {"at_us": NOW + 60 * DAY}
    yield "a microsecond too early", "not-yet-valid", {"at_us": NOW - 30 * DAY - 1}
    yield "a microsecond too late", "expired", {"at_us": NOW + 60 * DAY + 1}
    yield "someone else revoked", None, {"revoked": [serial(1, "bob")]}
    yield "revoked", "revoked", {"revoked": [NUMBERS["alice"]]}
    yield "its issuer revoked", "issuer-revoked", {"revoked": [NUMBERS["authority 1"]]}
    yield "both revoked", "issuer-revoked", {"revoked": [NUMBERS["alice"], NUMBERS["authority 1"]]}
    yield "the root revoked", "issuer-revoked", {"revoked": [NUMBERS["root"]]}
    yield "asked for as an entity", None, {"role": "entity"}
    yield "asked for as a broker", "role", {"role": "broker"}
    yield "asked for as a key center", "role", {"role": "key-center"}
    yield "asked for as a discovery node", "role", {"role": "discovery"}
    yield "asked for as an authority", "role", {"role": "authority"}
    center = holder(label="center", roles=[Role.KEY_CENTER, Role.BROKER])
    yield "a key center", None, {"certificate": center, "role": "key-center", "holder": "center"}
    yield "asked for by name", None, {"holder": "alice"}
    yield "asked for by another name", "holder", {"holder": "bob"}
    yield "its authority is not known", "issuer", {"authorities": [SECOND_ONE]}
    yield "an authority instead of an entity", "ca-bit", {"certificate": FIRST}
    yield "the root instead of an entity", "ca-bit", {"certificate": ROOT}
    other = holder(realm=OTHER_REALM)
    yield "another realm's", "issuer", {"certificate": other}
    stranger = authority(number=0, label="mallory", signer="mallory")
    yield (
        "under another root of the same name",
        "issuer",
        {
            "certificate": holder(issuer="Sealcast root", signer="mallory", generation=0),
            "authorities": [],
        },
    )
    yield (
        "believed by that other root",
        None,
        {
            "certificate": holder(issuer="Sealcast root", signer="mallory", generation=0),
            "root": stranger,
            "authorities": [],
        },
    )
    yield (
        "signed by the root itself",
        None,
        {
            "certificate": holder(issuer="Sealcast root", signer="root", generation=0),
            "authorities": [],
        },
    )
    yield "empty", "malformed", {"certificate": b""}
    yield "cut short", "malformed", {"certificate": GOOD[:-1]}
    yield "a byte too many", "malformed", {"certificate": GOOD + b"\0"}
    yield "too long", "malformed", {"certificate": GOOD + bytes(4096)}
    yield from _authorities()


def _authorities() -> Iterator[tuple[str, str | None, Case]]:
    """A good entity under an authority that is not."""
    late = authority(setting(not_before_us=NOW + DAY))
    yield "its issuer is not yet valid", "issuer-not-yet-valid", {"authorities": [late]}
    early = authority(setting(not_after_us=NOW - DAY))
    yield "its issuer has expired", "issuer-expired", {"authorities": [early]}
    old = authority(setting(not_after_us=NOW - DAY), number=0, label="root")
    yield "the root has expired", "issuer-expired", {"root": old}
    elsewhere = x509.NameConstraints([x509.DirectoryName(name(OTHER_REALM.hex()))], None)
    narrow = authority(putting(elsewhere, True))
    yield "its issuer may name others only", "constraint", {"authorities": [narrow]}
    excluded = x509.NameConstraints(None, [x509.DirectoryName(name(REALM.hex()))])
    yield "its issuer may not name it", "constraint", {"authorities": [authority(putting(excluded, True))]}
    below = authority(number=3, label="authority 3", issuer="Sealcast authority 1", signer="authority 1")
    numbered = authority(
        setting(serial=serial(1, "authority 3")),
        number=3,
        label="authority 3",
        issuer="Sealcast authority 1",
        signer="authority 1",
    )
    deep = holder(issuer="Sealcast authority 3", signer="authority 3", generation=3)
    yield (
        "an authority made by an authority",
        "path-length",
        {
            "certificate": deep,
            "authorities": [FIRST, numbered],
        },
    )
    yield "an authority under a number of the root", "serial", {"certificate": deep, "authorities": [FIRST, below]}
    narrow_root = authority(putting(x509.BasicConstraints(True, 0), True), number=0, label="root")
    yield "a root that allows no authority", "path-length", {"root": narrow_root}
    endless = authority(putting(x509.BasicConstraints(True, None), True))
    yield "an authority without a path length", "path-length", {"authorities": [endless]}
    yield "an authority that is an entity", "ca-bit", {"authorities": [holder(label="bob")]}
    own = authority(setting(signer=identity("authority 1").key))
    yield "an authority signed by itself", "signature", {"authorities": [own]}
    yield (
        "an authority without list signing",
        "usage",
        {"authorities": [authority(putting(usage("digital_signature", "key_cert_sign")))]},
    )
    yield (
        "an authority with a name of an entity",
        "name",
        {"authorities": [authority(setting(subject=name(REALM.hex(), "alice")))]},
    )


def flips() -> Iterator[tuple[str, int, int]]:
    """Field, offset, mask: the first, the middle and the last byte of every field of the good certificate."""
    for field, (start, end) in spans.of_certificate(GOOD).items():
        for at in sorted({start, (start + end) // 2, end - 1}):
            yield field, at, 1 if at != start else 4


# --- revocation lists -----------------------------------------------------------------------------

_KEYS = {"root": ROOT, "authority 1": FIRST, "authority 2": SECOND_ONE}


def delta(
    number: int, link: bytes, *serials: int, signer: str = "authority 1", at_us: int = NOW, key: str | None = None
) -> RevocationDelta:
    entries = {one: Revoked(Cause.KEY_COMPROMISE, at_us) for one in serials}
    certificate = profile.parse(_KEYS[signer])
    return lists.sign(identity(key or signer), certificate, number, link, entries, at_us, whole=False)


def base(number: int, link: bytes, *serials: int, signer: str = "authority 1", at_us: int = NOW) -> RevocationDelta:
    entries = {one: Revoked(Cause.KEY_COMPROMISE, at_us) for one in serials}
    return lists.sign(identity(signer), profile.parse(_KEYS[signer]), number, link, entries, at_us, whole=True)


A, B, C, D = (serial(1, f"revoked {i}") for i in range(4))
ONE = delta(1, lists.BEGINNING, A)
TWO = delta(2, ONE.digest, B, at_us=NOW + 1)
THREE = delta(3, TWO.digest, C, at_us=NOW + 2)
FALLEN = delta(2, ONE.digest, NUMBERS["authority 1"], signer="root", at_us=NOW + 1)


def resigned(**changes: Any) -> bytes:
    """List one with a changed payload, signed properly."""
    numbers = {"kind": 1, "realm": 2, "number": 3, "link": 4, "time": 5, "serials": 6, "causes": 7, "times": 8}
    body = {**cbor.decode(ONE.payload), **{numbers[field]: value for field, value in changes.items()}}
    return _wrap({k: v for k, v in body.items() if v is not None}, {1: -7, 33: FIRST})


def _wrap(body: object, header: dict[int, Any], unprotected: object = None) -> bytes:
    payload, protected = cbor.encode(body), cbor.encode(header)
    message = cose.sig_structure(protected, b"sealcast/1 revocation list", payload)
    signature = identity("authority 1").sign(message)
    return cbor.encode(cbor.TaggedValue(18, [protected, unprotected or {}, payload, signature]))


def revocations() -> Iterator[tuple[str, str | None, list[bytes], list[bytes]]]:
    """Name, reason, what is known, what is given."""
    one, two, three = ONE.raw, TWO.raw, THREE.raw
    yield "the first", None, [], [one]
    yield "one after another", None, [], [one, two, three]
    yield "the next", None, [one], [two]
    yield "nothing", None, [one], []
    yield "the whole list for a newcomer", None, [], [base(3, THREE.digest, A, B, C).raw]
    yield "the whole list, then the next", None, [], [base(2, TWO.digest, A, B).raw, three]
    yield "the whole list of what is known", None, [one, two], [base(2, TWO.digest, A, B, at_us=NOW + 1).raw]
    yield "the root revokes an authority", None, [one], [FALLEN.raw]
    yield "the root revokes an entity", None, [], [delta(1, lists.BEGINNING, A, signer="root").raw]
    after = delta(3, FALLEN.digest, serial(2, "x"), signer="authority 2", at_us=NOW + 2)
    yield "the next authority goes on", None, [one, FALLEN.raw], [after.raw]
    late = delta(3, FALLEN.digest, B, at_us=NOW + 2)
    yield "a revoked authority goes on", "signer-revoked", [one, FALLEN.raw], [late.raw]
    yield "in one go", "signer-revoked", [], [one, FALLEN.raw, late.raw]
    own = base(2, FALLEN.digest, A, NUMBERS["authority 1"])
    yield "the whole list by one that it revokes", "signer-revoked", [], [own.raw]
    yield "the same again", "rollback", [one], [one]
    yield "an older one", "rollback", [one, two, three], [two]
    yield "an older whole list", "rollback", [one, two], [base(1, ONE.digest, A).raw]
    yield "one left out", "gap", [one], [three]
    yield "the first left out", "gap", [], [two]
    yield "one left out on the way", "gap", [], [one, three]
    yield "turned round", "reordered", [one], [three, two]
    yield "turned round from the start", "reordered", [], [two, one]
    yield "another second list", "fork", [one, two], [delta(3, FALLEN.digest, C, at_us=NOW + 2).raw]
    yield "a first that follows something", "fork", [], [delta(1, bytes([7]) * 32, A).raw]
    yield "another whole list of the same number", "fork", [one, two], [base(2, bytes(32), A, B, at_us=NOW + 1).raw]
    yield "made before the one it follows", "time", [one], [delta(2, ONE.digest, B, at_us=NOW - 1).raw]
    yield "a whole list that leaves out", "shrunk", [one, two], [base(3, THREE.digest, A, C, at_us=NOW + 2).raw]
    yield "an authority revokes another's", "scope", [one], [delta(2, ONE.digest, serial(2, "x")).raw]
    yield "an authority revokes an authority", "scope", [], [delta(1, lists.BEGINNING, serial(0, "authority 2")).raw]
    yield "an authority revokes the root", "scope", [], [delta(1, lists.BEGINNING, NUMBERS["root"]).raw]
    yield "signed by a stranger's key", "signature", [], [delta(1, lists.BEGINNING, A, key="mallory").raw]
    yield "signed before the authority was", "signer", [], [delta(1, lists.BEGINNING, A, at_us=NOW - 90 * DAY).raw]
    yield "signed after it had expired", "signer", [], [delta(1, lists.BEGINNING, A, at_us=NOW + 700 * DAY).raw]
    entity = _wrap(cbor.decode(ONE.payload), {1: -7, 33: GOOD})
    yield "signed by an entity", "signer", [], [entity]
    yield "signed by nobody known", "signer", [], [_wrap(cbor.decode(ONE.payload), {1: -7, 33: b"no certificate"})]
    yield "another realm's", "realm", [], [resigned(realm=OTHER_REALM)]
    yield "ES384", "algorithm", [], [_wrap(cbor.decode(ONE.payload), {1: -35, 33: FIRST})]
    yield "EdDSA", "algorithm", [], [_wrap(cbor.decode(ONE.payload), {1: -8, 33: FIRST})]
    yield "no algorithm", "malformed", [], [_wrap(cbor.decode(ONE.payload), {33: FIRST})]
    yield "no certificate", "malformed", [], [_wrap(cbor.decode(ONE.payload), {1: -7})]
    yield "something unprotected", "malformed", [], [_wrap(cbor.decode(ONE.payload), {1: -7, 33: FIRST}, {4: b"k"})]
    yield "an unknown kind", "malformed", [], [resigned(kind=3)]
    yield "number zero", "malformed", [], [resigned(number=0)]
    yield "a number below zero", "malformed", [], [resigned(number=-1)]
    yield "a number that is true", "malformed", [], [resigned(number=True)]
    yield "a short link", "malformed", [], [resigned(link=bytes(31))]
    yield "a time of long after", "malformed", [], [resigned(time=2**63)]
    yield "a field left out", "malformed", [], [resigned(times=None)]
    yield "columns of two lengths", "malformed", [], [resigned(causes=b"\1\1")]
    yield "half a serial number", "malformed", [], [resigned(serials=bytes(8))]
    yield "nothing revoked", "entries", [], [resigned(serials=b"", causes=b"", times=b"")]
    yield "an unknown cause", "entries", [], [resigned(causes=b"\x08")]
    yield (
        "an entry twice",
        "entries",
        [],
        [resigned(serials=A.to_bytes(16, "big") * 2, causes=b"\1\1", times=bytes(16))],
    )
    yield (
        "entries out of order",
        "entries",
        [],
        [resigned(serials=bytes([*bytes(15), 2, *bytes(15), 1]), causes=b"\1\1", times=bytes(16))],
    )
    yield "an entry of long after", "entries", [], [resigned(times=b"\x7f" + bytes(7))]
    yield "empty bytes", "malformed", [], [b""]
    yield "cut short", "malformed", [], [one[:-1]]
    yield "a byte too many", "malformed", [], [one + b"\0"]
    yield "a signature cut short", "malformed", [], [_cut_signature(one)]


def _cut_signature(raw: bytes) -> bytes:
    message = cbor.decode(raw, tags=frozenset({18}))
    message.value[3] = message.value[3][:-1]
    return cbor.encode(message)


def certificate_cases() -> list[Case]:
    found = [{"name": what, "reason": reason, "certificate": holder(change)} for what, reason, change in mis_issued()]
    for what, reason, differs in in_context():
        if "revoked" in differs:
            differs = {**differs, "revoked": [one.to_bytes(16, "big") for one in differs["revoked"]]}
        found.append({"name": what, "reason": reason, **differs})
    return found


def make() -> dict[str, Any]:
    return {
        "about": "certificates and revocation lists: which count, and why others do not",
        "context": CONTEXT,
        "certificates": certificate_cases(),
        "flips": [{"field": field, "offset": at, "mask": mask} for field, at, mask in flips()],
        "revocations": [
            {"name": what, "reason": reason, "known": known, "given": given}
            for what, reason, known, given in revocations()
        ],
    }


def text() -> str:
    return json.dumps(_plain(make()), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
