"""TLS 1.3 with the certificates that the realm's entities have anyway, for those who go to a gateway.

OpenSSL verifies the chain to the realm's root, which is the only one that it believes, that the other end has the key,
and that its certificate names the host. Whoever connects verifies the certificate once more (`gateway_site`): by our
profile, and by revocation as the registry has it.

**The private key.** OpenSSL's interface in Python takes keys from files only. So the key is written to a temporary file
of mode 0600, encrypted under a password that was drawn a moment before and is in this process's memory only, read from
there, and removed. A file that a crash leaves behind is of no use to anyone.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Sequence
from typing import Final

from sealcast.errors import Misuse
from sealcast.primitives import x509
from sealcast.primitives.secrets import Secret
from sealcast.trust.certificates.profile import parse
from sealcast.trust.keys.identity import Identity

HTTP: Final = "http/1.1"
_PASSWORD_BYTES: Final = 32


def client_context(identity: Identity, chain: Sequence[bytes], root: bytes) -> ssl.SSLContext:
    """Shows this entity's certificate, with the issuers that lead to the root, and believes that root alone."""
    # Not `create_default_context`: it believes the system's authorities and writes keys to SSLKEYLOGFILE if asked.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = True
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=root)
    context.set_alpn_protocols([HTTP])
    certificate = parse(chain[0])
    if certificate.keys != identity.public_keys or certificate.name != identity.name:
        raise Misuse(f"the certificate of {identity.name!r} is not about the keys in its file")
    password = Secret.random(_PASSWORD_BYTES)
    shown = b"".join(map(x509.pem, chain)) + identity.key.pem(password)
    with tempfile.NamedTemporaryFile(prefix="sealcast-") as file:  # of mode 0600, removed at the end
        file.write(shown)
        file.flush()
        context.load_cert_chain(file.name, password=password.reveal().hex())
    return context
