"""A realm's authority with fixed keys, and a forge for certificates that no honest authority would issue."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from sealcast.primitives import hpke, p256, sign
from sealcast.primitives.secrets import Secret
from sealcast.trust.certificates import profile
from sealcast.trust.certificates.authority import LIFETIME_US, Authority, CertificateWanted
from sealcast.trust.certificates.certificate import Certificate, PublicKeys, Role
from tests.wire.frames import seeded

SECOND = 1_000_000
DAY = 86_400 * SECOND
#: The authority is thirty days old, and its certificates live for ninety.
NOW = 1_800_000_000 * SECOND
REALM = seeded("certified realm", 16)
OTHER_REALM = seeded("another realm", 16)


def identity(label: str) -> p256.P256SigningKey:
    return p256.P256SigningKey(Secret(seeded(f"identity {label}")))


def frame_key(label: str) -> sign.SigningKey:
    return sign.SigningKey(Secret(seeded(f"frames {label}")))


def kem_key(label: str) -> hpke.KemKey:
    return hpke.KemKey(Secret(seeded(f"kem {label}")))


def keys(label: str) -> PublicKeys:
    return PublicKeys(bytes(identity(label).verify_key), bytes(frame_key(label).verify_key), kem_key(label).public)


def name(organization: str | None, *commons: str) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*attributes, *(x509.NameAttribute(NameOID.COMMON_NAME, c) for c in commons)])


def serial(generation: int, label: str) -> int:
    return (generation << 112) | int.from_bytes(seeded(f"serial {label}", 14), "big")


Extensions = dict[type[x509.ExtensionType] | str, tuple[bool, x509.ExtensionType]]


@dataclass
class Forged:
    """A certificate in the making: everything can be other than it should."""

    subject: x509.Name
    issuer: x509.Name
    public: ec.EllipticCurvePublicKey
    signer: ec.EllipticCurvePrivateKey
    serial: int
    not_before_us: int
    not_after_us: int
    extensions: Extensions = field(default_factory=dict)
    hash: hashes.HashAlgorithm = field(default_factory=hashes.SHA256)

    def put(self, value: x509.ExtensionType, critical: bool | None = None) -> None:
        kind: type[x509.ExtensionType] | str = type(value)
        if isinstance(value, x509.UnrecognizedExtension):
            kind = value.oid.dotted_string
        was = self.extensions.get(kind, (False, None))[0]
        self.extensions[kind] = (was if critical is None else critical, value)

    def put_private(self, value: bytes, critical: bool = False) -> None:
        self.put(x509.UnrecognizedExtension(x509.ObjectIdentifier(profile.EXTENSION), value), critical)

    def der(self) -> bytes:
        builder = x509.CertificateBuilder(
            self.issuer,
            self.subject,
            self.public,
            self.serial,
            _moment(self.not_before_us),
            _moment(self.not_after_us),
            [x509.Extension(value.oid, critical, value) for critical, value in self.extensions.values()],
        )
        return builder.sign(self.signer, self.hash, ecdsa_deterministic=True).public_bytes(Encoding.DER)


Change = Callable[[Forged], None]


def usage(*allowed: str) -> x509.KeyUsage:
    every = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{one: one in allowed for one in every})


def holder(
    change: Change | None = None,
    *,
    label: str = "alice",
    issuer: str = "Sealcast authority 1",
    signer: str = "authority 1",
    generation: int = 1,
    realm: bytes = REALM,
    roles: Iterable[Role] = (Role.ENTITY,),
) -> bytes:
    """An entity's certificate as the authority would issue it, with a change made before it is signed."""
    who, key = identity(label).verify_key, identity(signer)
    made = Forged(
        name(realm.hex(), label),
        name(realm.hex(), issuer),
        who.point,
        key.key,
        serial(generation, label),
        NOW - 30 * DAY,
        NOW + 60 * DAY,
    )
    made.put(x509.BasicConstraints(False, None), True)
    made.put(usage("digital_signature"), True)
    made.put(x509.SubjectKeyIdentifier(who.key_id))
    made.put(x509.AuthorityKeyIdentifier(key.verify_key.key_id, None, None))
    made.put(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(profile.uri(realm, label))]))
    given = keys(label)
    made.put_private(profile.encode_extension(roles, given.verify_key, given.kem_public))
    if change is not None:
        change(made)
    return made.der()


def authority(
    change: Change | None = None,
    *,
    number: int = 1,
    label: str = "authority 1",
    issuer: str = "Sealcast root",
    signer: str = "root",
    realm: bytes = REALM,
) -> bytes:
    """An authority's certificate (number 0: the root), with a change made before it is signed."""
    who, key = identity(label).verify_key, identity(signer)
    made = Forged(
        name(realm.hex(), f"Sealcast authority {number}" if number else "Sealcast root"),
        name(realm.hex(), issuer),
        who.point,
        key.key,
        serial(0, label),
        NOW - 60 * DAY,
        NOW + 600 * DAY,
    )
    made.put(x509.BasicConstraints(True, 0 if number else 1), True)
    made.put(usage("digital_signature", "key_cert_sign", "crl_sign"), True)
    made.put(x509.SubjectKeyIdentifier(who.key_id))
    made.put(x509.AuthorityKeyIdentifier(key.verify_key.key_id, None, None))
    if number:
        made.put(x509.NameConstraints([x509.DirectoryName(name(realm.hex()))], None), True)
    made.put_private(profile.encode_extension([Role.AUTHORITY], b"", b""))
    if change is not None:
        change(made)
    return made.der()


def house() -> Authority:
    """The authority of the realm: a root and two authorities under it, whose keys are all fixed."""
    root = profile.parse(authority(number=0, label="root"))
    below = [profile.parse(authority(number=n, label=f"authority {n}")) for n in (1, 2)]
    return Authority(root, below, {0: identity("root"), 1: identity("authority 1"), 2: identity("authority 2")})


def issue(
    by: Authority, name: str, keys: PublicKeys, roles: Iterable[Role], at_us: int, lifetime_us: int = LIFETIME_US
) -> Certificate:
    """One certificate."""
    return by.issue_many([CertificateWanted(name, keys, frozenset(roles))], at_us, lifetime_us)[0]


def alice() -> Certificate:
    return profile.parse(holder())


def _moment(us: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(us // SECOND, datetime.UTC).replace(tzinfo=None)
