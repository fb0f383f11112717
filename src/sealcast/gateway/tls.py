"""The TLS of a gateway: TLS 1.3 alone, its own certificate, and whatever certificate the other end shows, verified.

Showing one is optional, because a newcomer has none yet: what needs one says so (`callers`). One that is shown leads to
the realm's root, or the handshake fails. Sessions are not resumed: a resumed one would skip the certificates.
"""

from __future__ import annotations

import ssl

from sealcast.gateway.newest import SeenRealm
from sealcast.trust.certificates.roles import Role
from sealcast.trust.keys.identity import Identity
from sealcast.trust.tls import HTTP, bare_context, show


def server_context(identity: Identity, seen: SeenRealm, now_us: int) -> ssl.SSLContext:
    """With the certificate that the registry has of this gateway; CertificateRejected when that does not count now."""
    state, trust = seen
    own = state.entity(identity.name).certificate
    certificate = trust.verify(own, now_us, state.revoked, role=Role.GATEWAY, name=identity.name)
    context = bare_context(ssl.PROTOCOL_TLS_SERVER, trust.root.der, HTTP)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.num_tickets = 0
    show([context], identity, certificate, [trust.issuer_of(certificate.der)])
    return context


def shown_by(connection: object) -> bytes | None:
    """The certificate that the other end of a connection proved to have the key of."""
    if not isinstance(connection, ssl.SSLObject) or connection.version() != "TLSv1.3" or connection.session_reused:
        return None
    return connection.getpeercert(binary_form=True)
