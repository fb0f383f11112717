"""Joining a realm from another machine, with an invitation's code.

    1. the root         whoever answers is asked for it; its digest is the one in the code, or nothing goes on
    2. the gateway      from here on: TLS up to that root, the name of the host, and a gateway's certificate
    3. keys             made here, in the home, before anything is sent: an answer that is lost is asked for again with
                        the same ones
    4. the request      public keys, proofs, and a tag under the code; the answer is tagged under it, too
    5. the home         head, mark, and last the certificate: nobody has joined before that is written

Nothing is believed because it came first: the code pins the root, and the code came another way.
"""

from __future__ import annotations

import hashlib
import random
import ssl
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from urllib3.exceptions import InsecureRequestWarning

from sealcast.errors import Busy, CertificateRejected, FrameRejected, Misuse
from sealcast.transports.address import GatewayAddress
from sealcast.transports.https import Connection, Ways
from sealcast.transports.problems import GatewayRefused, strange
from sealcast.trust import homes, tls
from sealcast.trust.certificates.certificate import Certificate, Role, Trust
from sealcast.trust.certificates.revocation import RevocationView
from sealcast.trust.heads import Pin
from sealcast.trust.invitations import InvitationCode, JoinAnswer, JoinRequest
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.keys.holder import HolderSecrets
from sealcast.trust.keys.identity import Identity
from sealcast.trust.layout import Layout, RealmMark

PATIENCE_S: Final = 60.0
#: How long to wait, on average, when told to ask less often.
BUSY_S: Final = 0.5
#: Whose key files hold one secret more.
_HOLDERS: Final[dict[Role, type[HolderSecrets]]] = {Role.BROKER: BrokerSecrets, Role.KEY_CENTER: CenterSecrets}


def join(
    address: GatewayAddress, code: InvitationCode, home: Path, clock: Callable[[], int], patience_s: float = PATIENCE_S
) -> Layout:
    """Enrols the one whom the code names, with keys that are made here; the home that it has from now on."""
    paths = Layout(home.absolute())
    if homes.chain_file(paths, code.role, code.name).exists():
        raise Misuse(f"{code.name!r} has joined already, from {paths.root}", hint="use it: --realm DIR")
    homes.refuse_another(paths, code.realm, code.root)
    trust = _realm_of(address, code, patience_s)
    identity = _keys(paths, code.role, code.name)
    request = JoinRequest.make(code, identity)
    body = {"request": request.to_bytes()}
    with Connection(address, _ways(address, trust, clock)) as connection:
        match _patiently(lambda: connection.send("POST", "/v1/join", body, patience_s=patience_s), patience_s):
            case {"answer": bytes(raw)}:
                pass
            case _:
                raise strange()
    try:
        answer = JoinAnswer.parse(raw, code.keys().answer, request)
        _check(answer, code, identity, clock())
    except (FrameRejected, CertificateRejected) as error:
        raise GatewayRefused(
            "answer",
            f"what {address} answers is not the word of whoever made the code: {error.message}",
            hint="nobody has joined; ask whoever runs the gateway, and try again with the same code",
        ) from None
    Pin.beside(homes.key_file(paths, code.role, code.name), repr(code.name)).write(answer.head)
    homes.make(paths.root, RealmMark(answer.realm_name, code.realm, code.root, gateway=str(address)))
    homes.write_chain(paths, code.name, [answer.certificate, *answer.authorities, answer.root], code.role)
    return paths


def _realm_of(address: GatewayAddress, code: InvitationCode, patience_s: float) -> Trust:
    """Whom the realm believes, by the root that the code pins; whoever hands it out has proven nothing by it."""
    with Connection(address, Ways(tls.unproven_context, lambda shown: None)) as connection, warnings.catch_warnings():
        # urllib3 warns that nothing is verified. What comes is: by its digest.
        warnings.simplefilter("ignore", InsecureRequestWarning)
        match _patiently(lambda: connection.get("/v1/realm", patience_s=patience_s), patience_s):
            case {"root": bytes(root), "authorities": list(authorities)} if all(
                isinstance(each, bytes) for each in authorities
            ):
                if hashlib.sha256(root).digest() != code.root:
                    raise GatewayRefused(
                        "root",
                        f"{address} has another root than the one that the code is for: it is not this realm's gateway",
                        hint="is the address right? If it is, somebody is in between. Nothing was sent",
                    )
            case _:
                raise strange()
    try:
        return Trust(root, authorities, code.realm)
    except CertificateRejected as error:
        raise GatewayRefused(
            "root", f"{address} shows authorities that do not lead to its root: {error.message}"
        ) from None


def _patiently(ask: Callable[[], Any], patience_s: float) -> Any:
    """Also when a gateway has had too much from this address: others may be behind it."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return ask()
        except Busy:
            if time.monotonic() >= until:
                raise
            time.sleep(random.uniform(0, 2 * BUSY_S))


def _ways(address: GatewayAddress, trust: Trust, clock: Callable[[], int]) -> Ways:
    def prove(shown: bytes) -> None:
        try:
            # Which gateways were revoked, the registry says, and newcomers cannot read it yet. One that was can carry
            # this request or drop it, as anybody on the way can.
            trust.verify(shown, clock(), RevocationView(), role=Role.GATEWAY)
        except CertificateRejected as error:
            raise GatewayRefused("certificate", f"{address} is no gateway of the realm: {error.message}") from None

    def context() -> ssl.SSLContext:
        return tls.pinned_context(trust.root.der)

    return Ways(context, prove)


def _keys(paths: Layout, role: Role, name: str) -> Identity:
    """Those of an attempt that was cut short, or new ones."""
    path, holder = homes.key_file(paths, role, name), _HOLDERS.get(role)
    if holder is not None:
        if not path.exists():
            holder.generate(name).save(path)
        return holder.load(path).identity
    if not path.exists():
        Identity.generate(name).save(path)
    return Identity.load(path, name)


def _check(answer: JoinAnswer, code: InvitationCode, identity: Identity, now_us: int) -> Certificate:
    if hashlib.sha256(answer.root).digest() != code.root:
        raise FrameRejected("root", "it has another root")
    trust = Trust(answer.root, answer.authorities, code.realm)
    found = trust.verify(answer.certificate, now_us, RevocationView(), role=code.role, name=code.name)
    if found.keys != identity.public_keys:
        raise FrameRejected("keys", "it certifies other keys than those that were made here")
    return found
