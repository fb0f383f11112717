"""Whom a realm's state believes: its authority, and the gate that takes tokens or refuses them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from functools import lru_cache
from typing import Final

from sealcast.errors import Misuse
from sealcast.model.dataclass import dataclass
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.certificates.certificate import Trust
from sealcast.trust.certificates.profile import CertificateReason, refused
from sealcast.trust.certificates.revocation import RevocationView
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm.changes import Credential, FoundRealm
from sealcast.trust.realm.state import Entity, RealmState
from sealcast.trust.tokens.claims import Token
from sealcast.trust.tokens.token import TokenGate, VerifiedTokens

_KEPT: Final = 8


@lru_cache(_KEPT)
def _trust(founding: FoundRealm) -> Trust:
    return Trust(founding.root, founding.authorities, founding.id)


def trust_of(founding: FoundRealm | None) -> Trust:
    """The authority that a realm believes; CertificateRejected when its certificates do not hang together."""
    if founding is None:
        raise Misuse("this realm was never founded: it has no authority", hint="make one with `sealcast init`")
    return _trust(founding)


@dataclass(frozen=True, slots=True)
class _Known:
    """What a gate depends on. The digest stands for the list."""

    founding: FoundRealm | None
    centers: tuple[bytes, ...]
    digest: bytes
    revoked: RevocationView = field(compare=False)


@lru_cache(_KEPT)
def _gate(known: _Known) -> TokenGate:
    return TokenGate(trust_of(known.founding), known.centers, known.revoked)


def gate(founding: FoundRealm | None, centers: Iterable[Entity], revoked: RevocationView) -> TokenGate:
    """Takes tokens of these key centers: signed under their certificates, or under those before that still count."""
    return _gate(_Known(founding, _certificates(centers), revoked.digest, revoked))


def gate_of(state: RealmState, tokens: VerifiedTokens | None = None) -> TokenGate:
    """The gate of all key centers of a realm, as of this state; `tokens` outlives it where given."""
    return TokenGate(trust_of(state.founding), center_certificates(state), state.revoked, tokens)


def center_certificates(state: RealmState) -> tuple[bytes, ...]:
    """The certificates of all key centers that a realm ever had, also those that were renewed since."""
    return _certificates(e for e in state.entities.values() if Role.KEY_CENTER in e.roles)


def _certificates(centers: Iterable[Entity]) -> tuple[bytes, ...]:
    return tuple(der for center in centers for der in (*center.former, center.certificate))


def verify_key_of(state: RealmState, name: str) -> VerifyKey:
    """The key that an entity signs with, by its certificate, whenever that was issued; CertificateRejected if it is
    about another one. In a realm without an authority, by the registry's word."""
    who = state.entity(name)
    if state.founding is not None:
        found = trust_of(state.founding).recognise(who.certificate)
        if (found.name, found.verify_key) != (name, who.verify_key):
            raise refused(CertificateReason.HOLDER, f"the certificate of {name!r} is about another key or name")
    return VerifyKey(who.verify_key)


def credential(data: bytes, token: Token) -> Credential:
    """What a subscription keeps of its token."""
    claims = token.claims
    return Credential(
        data,
        claims.not_before_us,
        claims.expires_us,
        str(claims.template),
        claims.epoch,
        claims.subject_serial,
        claims.issuer_certificate,
    )
