"""A realm made of fixed seeds: a root, an intermediate, key centers, entities, a topic, and tokens of it.

Everything is deterministic, certificates and signatures too: the vectors are made of it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from typing import Any

from sealcast.model.schema import Attribute, Schema, Type
from sealcast.primitives import sign, x509
from sealcast.primitives.p256 import P256SigningKey
from sealcast.primitives.secrets import Secret
from sealcast.trust.certificates import certificate as certificates
from sealcast.trust.certificates import profile
from sealcast.trust.certificates.certificate import Certificate, Role, Trust
from sealcast.trust.certificates.profile import AUTHORITY_NAME, AUTHORITY_USAGES, EXTENSION, HOLDER_USAGES, ROOT_NAME
from sealcast.trust.realm.changes import Access, Right
from sealcast.trust.realm.parameters import KeyParameters
from sealcast.trust.realm.templates import Template
from sealcast.trust.realm.topics import Topic
from sealcast.trust.tokens import token as tokens
from sealcast.trust.tokens.token import Claims, TokenGate, VerifiedTokens

SECOND = 1_000_000
DAY = 86_400 * SECOND
#: 2026-01-01
NOW = 1_767_225_600 * SECOND
REALM = hashlib.sha256(b"a realm").digest()[:16]
OTHER_REALM = hashlib.sha256(b"another realm").digest()[:16]
TOPIC = hashlib.sha256(b"a topic").digest()[:16]

FIRST, SECOND_AUTHORITY = AUTHORITY_NAME + "1", AUTHORITY_NAME + "2"

SCHEMA = Schema(
    (
        Attribute("Sports", Type.STRING),
        Attribute("Team", Type.STRING),
        Attribute("price", Type.DECIMAL, step=Decimal("0.01")),
        Attribute("live", Type.BOOL),
        Attribute("minute", Type.INT),
    )
)


def seeded(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


@cache
def identity(name: str) -> P256SigningKey:
    return P256SigningKey(Secret(seeded(f"identity {name}")))


@cache
def frame_key(name: str) -> bytes:
    return bytes(sign.SigningKey(Secret(seeded(f"frames {name}"))).verify_key)


def topic(**changed: Any) -> Topic:
    made = Topic("scores", TOPIC, SCHEMA, 1, "endpoint", 3, Access.GRANTED, "center", KeyParameters(), (0, 10, 20))
    return replace(made, **changed)


@dataclass
class Revocations:
    """A list that grows; each growth has a number."""

    number: int = 0
    serials: set[int] = field(default_factory=set)

    def is_revoked(self, serial: int) -> bool:
        return serial in self.serials

    def revoke(self, *certificates: Certificate) -> None:
        self.serials |= {c.serial for c in certificates}
        self.number += 1


def issue(
    name: str,
    issuer: str,
    roles: set[Role],
    *,
    realm: bytes = REALM,
    begins: int = NOW - 30 * DAY,
    ends: int = NOW + 30 * DAY,
) -> bytes:
    authority = Role.AUTHORITY in roles
    generation = {ROOT_NAME: 0, FIRST: 1, SECOND_AUTHORITY: 2}.get(issuer, 1)
    random = seeded(f"serial {name} {issuer} {begins}")[:14]
    keys = (b"", b"") if authority else (frame_key(name), seeded(f"kem {name}"))
    return x509.issue(
        identity(issuer),
        x509.CertificateBody(
            serial=int.from_bytes(generation.to_bytes(2, "big") + random, "big"),
            issuer=x509.DistinguishedName(realm.hex(), issuer),
            subject=x509.DistinguishedName(realm.hex(), name),
            public=identity(name).verify_key,
            issuer_key=identity(issuer).verify_key,
            not_before_us=begins,
            not_after_us=ends,
            usages=AUTHORITY_USAGES if authority else HOLDER_USAGES,
            uris=() if authority else (profile.uri(realm, name),),
            path_length=(1 if name == ROOT_NAME else 0) if authority else None,
            private=((EXTENSION, profile.encode_extension(roles, *keys)),),
        ),
    )


CENTER = {Role.KEY_CENTER}
ROOT = issue(ROOT_NAME, ROOT_NAME, {Role.AUTHORITY}, begins=NOW - 300 * DAY, ends=NOW + 3000 * DAY)
INTERMEDIATE = issue(FIRST, ROOT_NAME, {Role.AUTHORITY}, begins=NOW - 200 * DAY, ends=NOW + 300 * DAY)
#: Its own time ends before that of what it certifies.
LATE = issue(SECOND_AUTHORITY, ROOT_NAME, {Role.AUTHORITY}, begins=NOW - DAY, ends=NOW + DAY)
TRUST = Trust(ROOT, [INTERMEDIATE, LATE], REALM)

CENTERS = {
    "center": issue("center", FIRST, CENTER),
    "other-center": issue("other-center", FIRST, CENTER),
    "no-center": issue("no-center", FIRST, {Role.ENTITY}),
    "old-center": issue("old-center", FIRST, CENTER, ends=NOW - DAY),
    "new-center": issue("new-center", FIRST, CENTER, begins=NOW + DAY),
    "late-center": issue("late-center", SECOND_AUTHORITY, CENTER),
    "stranger": issue("stranger", "stranger-root", CENTER),
    "foreigner": issue("foreigner", FIRST, CENTER, realm=OTHER_REALM),
}
PARSED = {name: certificates.parse(der) for name, der in CENTERS.items()}
ALICE = certificates.parse(issue("alice", FIRST, {Role.ENTITY}))
BOB = certificates.parse(issue("bob", FIRST, {Role.ENTITY}))


def claims(**changed: Any) -> Claims:
    """Good ones, with what a case changes."""
    center, second = PARSED["center"], NOW // SECOND
    made = Claims(
        issuer=center.name,
        issuer_certificate=center.fingerprint,
        subject=ALICE.name,
        subject_certificate=ALICE.fingerprint,
        subject_serial=ALICE.serial,
        holder_key=ALICE.verify_key,
        realm=center.realm,
        topic=TOPIC,
        template=Template.parse("Sports=NBA, Team=*"),
        rights=frozenset({Right.PUBLISH}),
        epoch=3,
        not_before=second - 3600,
        expires=second + 3600,
        issued=second - 3600,
        id=seeded("cti")[:16],
    )
    return replace(made, **changed)


def mint(center: str = "center", hash: str = "sha-256", key: str | None = None, **changed: Any) -> bytes:
    """A token of that center; `key` is whose key signs it in truth."""
    of = {"issuer": center, "issuer_certificate": PARSED[center].fingerprint}
    return tokens.mint(identity(key or center), claims(**{**of, **changed}), hash)


def gate(revoked: Revocations | None = None, cache: VerifiedTokens | None = None) -> TokenGate:
    """One that knows all the centers above but `unknown` ones: whether it takes their tokens is for the checks."""
    return TokenGate(TRUST, CENTERS.values(), revoked or Revocations(), cache)
