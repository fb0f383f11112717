"""TLS 1.3 with the certificates that the realm's entities have anyway: for peers, for gateways, and for their clients.

OpenSSL verifies the chain to the realm's root, which is the only one that it believes, and that the other end has the
key. Whoever connects or answers verifies the certificate once more, by our profile, by revocation as the registry has
it, and by its name: `overlay.peers.net.tls`, `gateway.callers`, `gateway_site`.

**The private key.** OpenSSL's interface in Python takes keys from files only. So the key is written to a temporary file
of mode 0600, encrypted under a password that was drawn a moment before and is in this process's memory only, read from
there, and removed. A file that a crash leaves behind is of no use to anyone, in whatever memory or on whatever disk it
lies.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterable, Sequence
from typing import Final

from sealcast.errors import Misuse
from sealcast.primitives import x509
from sealcast.primitives.secrets import Secret
from sealcast.trust.certificates.certificate import Certificate
from sealcast.trust.certificates.profile import parse
from sealcast.trust.keys.identity import Identity

HTTP: Final = "http/1.1"
_PASSWORD_BYTES: Final = 32


def bare_context(protocol: int, root: bytes, speaks: str) -> ssl.SSLContext:
    """TLS 1.3 with whom the realm's root leads to, and with nobody else; it shows nothing of its own yet."""
    # Not `create_default_context`: it believes the system's authorities and writes keys to SSLKEYLOGFILE if asked.
    context = ssl.SSLContext(protocol)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    # Names of entities are no names of hosts: whoever connects compares them.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=root)
    context.set_alpn_protocols([speaks])
    return context


def show(
    contexts: Iterable[ssl.SSLContext], identity: Identity, certificate: Certificate, issuers: Sequence[bytes]
) -> None:
    """Lets contexts show this certificate, with the issuers that lead to the root, and prove that the key is here."""
    if certificate.keys != identity.public_keys or certificate.name != identity.name:
        raise Misuse(f"the certificate of {identity.name!r} is not about the keys in its file")
    password = Secret.random(_PASSWORD_BYTES)
    shown = b"".join(map(x509.pem, (certificate.der, *issuers))) + identity.key.pem(password)
    with tempfile.NamedTemporaryFile(prefix="sealcast-") as file:  # of mode 0600, removed at the end
        file.write(shown)
        file.flush()
        for context in contexts:
            context.load_cert_chain(file.name, password=password.reveal().hex())


def pinned_context(root: bytes) -> ssl.SSLContext:
    """Of a gateway's client that has no certificate yet. The gateway's must name the host."""
    context = bare_context(ssl.PROTOCOL_TLS_CLIENT, root, HTTP)
    context.check_hostname = True
    return context


def unproven_context() -> ssl.SSLContext:
    """Believes whoever answers: for what proves itself, such as a root whose digest is known. Nothing is sent by it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([HTTP])
    return context


def client_context(identity: Identity, chain: Sequence[bytes], root: bytes) -> ssl.SSLContext:
    """`pinned_context`, with the client's certificate and those that lead to the root."""
    context = pinned_context(root)
    show([context], identity, parse(chain[0]), chain[1:])
    return context
