"""Who is at the other end of a link: TLS 1.3, mutual, with the certificates that the realm's entities have anyway.

A certificate of ours serves as it is. Its key is of P-256 and for signatures, which is all that TLS 1.3 asks of a key,
and it names no other purpose that would exclude this one. OpenSSL verifies the chain to the realm's root and that the
other end has the key. Then `PeerTrust` verifies the same certificate again, as everywhere in the realm: this adds what
OpenSSL does not know, our profile, revocation as the registry has it now, and the name. A link's name comes from there
and from nothing else. Names of hosts do not matter: who answers at an address is whom its certificate names.

The identity key signs requests and tokens, too. What TLS 1.3 signs begins with 64 blanks and a text of its own (RFC
8446, section 4.4.3), and what we sign with that key begins as CBOR: neither is ever taken for the other.

Sessions are not resumed. A resumed one would skip the certificates, and with them the question whether they still
count.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from sealcast.errors import CertificateRejected
from sealcast.overlay.peers.net.frames import PROTOCOL, LinkEnded, LinkReason
from sealcast.primitives import x509
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.certificates.certificate import Certificate, Role, Trust
from sealcast.trust.certificates.profile import parse
from sealcast.trust.keys.identity import Identity
from sealcast.trust.realm.state import RealmState
from sealcast.trust.tls import bare_context, show


@dataclass(frozen=True, slots=True)
class ProvenPeer:
    """The other end of a link: whose certificate was verified, and the certificate, to be verified again later."""

    name: str
    der: bytes


class PeerTrust:
    """Whom this process lets in, as the registry stood when it last looked."""

    def __init__(self, state: RealmState, trust: Trust, clock: Callable[[], int]) -> None:
        self._state, self.trust, self._clock = state, trust, clock

    def update(self, state: RealmState, trust: Trust) -> None:
        """Goes by a newer registry from now on."""
        self._state, self.trust = state, trust

    def prove(self, der: bytes | None, name: str | None = None) -> ProvenPeer:
        """Who this certificate names, if it counts now, and if it is who it has to be; LinkEnded otherwise."""
        if not der:
            raise LinkEnded(LinkReason.CERTIFICATE, "the peer showed no certificate")
        try:
            found = self.trust.verify(der, self._clock(), self._state.revoked, role=Role.ENTITY, name=name)
        except CertificateRejected as error:
            raise LinkEnded(LinkReason.CERTIFICATE, error.message) from None
        entity = self._state.entities.get(found.name)
        if entity is None or entity.revoked:
            raise LinkEnded(LinkReason.CERTIFICATE, f"{found.name!r} is no entity of this realm, or was revoked")
        return ProvenPeer(found.name, der)


class TlsIdentity(Unpicklable):
    """One entity as it shows itself to others."""

    __slots__ = ("certificate", "client", "name", "server")

    def __init__(self, identity: Identity, certificate: bytes, trust: Trust) -> None:
        """With the certificate that the registry has of it, which must be about the keys at hand."""
        self.name = identity.name
        self.certificate = parse(certificate)
        self.server = listening_context(trust)
        self.client = bare_context(ssl.PROTOCOL_TLS_CLIENT, trust.root.der, PROTOCOL)
        show([self.server, self.client], identity, self.certificate, [_issuer(self.certificate, trust)])


def listening_context(trust: Trust) -> ssl.SSLContext:
    """For a socket that answers: everyone must show a certificate. Its own is that of the identity that was asked."""
    context = bare_context(ssl.PROTOCOL_TLS_SERVER, trust.root.der, PROTOCOL)
    context.num_tickets = 0
    return context


def proven(connection: object, trust: PeerTrust, name: str | None = None) -> ProvenPeer:
    """Who is at the other end of a TLS connection whose handshake is over."""
    if not isinstance(connection, ssl.SSLObject) or connection.version() != "TLSv1.3":
        raise LinkEnded(LinkReason.PROTOCOL, "the connection is not TLS 1.3")
    if connection.selected_alpn_protocol() != PROTOCOL:
        raise LinkEnded(LinkReason.PROTOCOL, f"the peer does not speak {PROTOCOL}")
    if connection.session_reused:
        raise LinkEnded(LinkReason.PROTOCOL, "the peer resumed a session, which nobody offered")
    return trust.prove(connection.getpeercert(binary_form=True), name)


def _issuer(certificate: Certificate, trust: Trust) -> bytes:
    """The authority between the certificate and the root: sent along, for the other end knows the root alone."""
    for authority in trust.intermediates:
        if x509.signed_by(certificate.der, authority.der):
            return authority.der
    raise LinkEnded(LinkReason.CERTIFICATE, f"nobody known here issued the certificate of {certificate.name!r}")
