"""How an entity shows an MQTT broker who it is: a password that it signs for each connection.

    password = "SCP1." + base64url(time in microseconds (u64) | nonce (16) | signature (64))

The signature is the entity's own, over realm, name, client id, time and nonce. A broker needs no password file: it asks
the registry for the entity's key, and a revocation counts at once. A password is good for a minute and for one
connection, so whoever listens has nothing to use later. It does not authenticate the broker: that is what TLS is for.
"""

from __future__ import annotations

import base64
import binascii
import os
import struct
from collections import OrderedDict
from typing import Final

from sealcast.errors import CertificateRejected, Rejected
from sealcast.primitives.sign import SIGNATURE_BYTES, VerifyKey
from sealcast.trust.handles import OpenRealm
from sealcast.trust.keys.identity import Identity

PREFIX: Final = "SCP1."
CONTEXT: Final = b"sealcast/1 mqtt connect"
NONCE_BYTES: Final = 16
#: How far a broker's clock and an entity's may differ, the time on the way included.
VALID_US: Final = 60_000_000
MAX_CLIENT_ID_BYTES: Final = 256
#: Passwords remembered while they are good. Who sends more connections than this in a minute has to wait.
MAX_USED: Final = 65_536
_BODY: Final = struct.Struct(f">Q{NONCE_BYTES}s{SIGNATURE_BYTES}s")


def password(identity: Identity, realm_id: bytes, client_id: str, now_us: int) -> str:
    """A password for one connection, now."""
    nonce = os.urandom(NONCE_BYTES)
    signature = identity.signer.sign(_stated(realm_id, identity.name, client_id, now_us, nonce))
    return PREFIX + base64.urlsafe_b64encode(_BODY.pack(now_us, nonce, signature)).decode()


class PasswordChecker:
    """Decides for one broker who may connect. A password lets somebody in once."""

    def __init__(self, realm: OpenRealm) -> None:
        self._realm = realm
        self._trust = realm.trust()
        self._used: OrderedDict[bytes, int] = OrderedDict()

    def admit(self, name: str, client_id: str, given: str) -> None:
        """Rejected, with the reason, unless this is that entity, here and now."""
        state, now = self._realm.state(), self._realm.clock()
        time_us, nonce, signature = _parsed(given)
        if len(client_id.encode()) > MAX_CLIENT_ID_BYTES:
            raise Rejected(f"a client id has at most {MAX_CLIENT_ID_BYTES} bytes")
        if abs(now - time_us) > VALID_US:
            raise Rejected(f"the password of {name!r} was made for another time", hint="do the clocks agree?")
        entity = state.entities.get(name)
        if entity is None:
            raise Rejected(f"nobody enrolled {name!r}")
        try:
            self._trust.verify(entity.certificate, now, state.revoked, name=name)
        except CertificateRejected as error:
            raise Rejected(f"{name!r} is not admitted: {error.message}") from None
        stated = _stated(self._realm.id, name, client_id, time_us, nonce)
        if not VerifyKey(entity.verify_key).verify(stated, signature):
            raise Rejected(f"the password is not {name!r}'s, or not for this client id")
        self._use(signature, now)

    def _use(self, signature: bytes, now: int) -> None:
        while self._used and next(iter(self._used.values())) < now - 2 * VALID_US:
            self._used.popitem(last=False)
        if signature in self._used:
            raise Rejected("this password was used before: each is good for one connection")
        if len(self._used) >= MAX_USED:
            raise Rejected("too many connections in the last minutes")
        self._used[signature] = now


def _stated(realm_id: bytes, name: str, client_id: str, time_us: int, nonce: bytes) -> bytes:
    parts = (CONTEXT, realm_id, name.encode(), client_id.encode(), time_us.to_bytes(8, "big"), nonce)
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _parsed(given: str) -> tuple[int, bytes, bytes]:
    try:
        if not given.startswith(PREFIX) or len(given) > 256:
            raise ValueError
        time_us, nonce, signature = _BODY.unpack(base64.b64decode(given[len(PREFIX) :].encode(), b"-_", validate=True))
    except (ValueError, binascii.Error, struct.error, UnicodeEncodeError):
        raise Rejected("the password is none that an entity signs for a connection") from None
    return time_us, nonce, signature
