"""An invitation's code, and what is said under it: one request to be enrolled, and one answer.

    code       the realm's id, the digest of its root, the newcomer's name, 128 secret bits, and its role unless that
               is entity, with a checksum
    K          HKDF-Extract(salt = "sealcast/1 invitation" | realm id | root digest, the secret bits)
    id         derive(K, "invitation id"): what names the invitation. It says nothing about the secret or the name
    keys       derive(K, "join request"), derive(K, "join answer"): each tags one direction

    transcript   realm id, root digest, invitation id, name, the newcomer's three public keys, a nonce
    request      transcript, signatures over it by both signing keys, and a tag over all of that
    answer       certificate, authorities, root, head of the registry; a tag over the request and all of that

Whoever carries them, a gateway above all, can read and withhold both and alter neither: it does not have the code. The
keys that are certified are those of whoever has the code, and has the private halves of the keys that sign. The one
that receives proves nothing: who names another's gets keys sealed that it cannot open.

What the administrator's side keeps of a code is the id and the two derived keys: the code cannot be made from them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from dataclasses import dataclass
from typing import Final

from sealcast.errors import FrameRejected, Rejected
from sealcast.model.names import NAME
from sealcast.primitives import kdf, mac
from sealcast.primitives.p256 import P256VerifyKey
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.certificates.certificate import PublicKeys
from sealcast.trust.certificates.roles import Role
from sealcast.trust.heads import CHAIN_BYTES, MAX_VERSION, Head
from sealcast.trust.keys.identity import Identity
from sealcast.wire import cbor

SECRET_BYTES: Final = 16
ID_BYTES: Final = 16
NONCE_BYTES: Final = 16
REALM_BYTES: Final = 16
DIGEST_BYTES: Final = 32
MAX_REQUEST_BYTES: Final = 4_096
MAX_ANSWER_BYTES: Final = 1 << 16
_MAX_AUTHORITIES: Final = 32
_PREFIX: Final = "sealcast-invite-1."
_CHECK_BYTES: Final = 4
_MAX_CODE: Final = 512
#: What a code may say of the role of its newcomer, as the last part that it has.
_ROLES: Final = ([], *([str(role)] for role in (Role.BROKER, Role.KEY_CENTER, Role.DISCOVERY, Role.GATEWAY)))
_SALT: Final = b"sealcast/1 invitation"
_REQUEST: Final = "sealcast/1 join request"
_ANSWER: Final = b"sealcast/1 join answer"


class InvitationKeys(Unpicklable):
    """What both ends make from a code: its public id, and a key for each direction."""

    __slots__ = ("answer", "id", "request")

    def __init__(self, id: bytes, request: Secret, answer: Secret) -> None:
        self.id, self.request, self.answer = id, request, answer


class InvitationCode(Unpicklable):
    """What an administrator gives to a newcomer, by a way that nobody else reads."""

    __slots__ = ("_secret", "name", "realm", "role", "root")

    def __init__(self, realm: bytes, root: bytes, name: str, secret: Secret, role: Role = Role.ENTITY) -> None:
        self.realm, self.root, self.name, self._secret, self.role = realm, root, name, secret, role

    @classmethod
    def make(cls, realm: bytes, root: bytes, name: str, role: Role = Role.ENTITY) -> InvitationCode:
        return cls(realm, root, name, Secret.random(SECRET_BYTES), role)

    def reveal(self) -> str:
        """As it is typed: for whoever it is for, and nobody else."""
        role = [] if self.role is Role.ENTITY else [str(self.role)]
        body = cbor.encode([self.realm, self.root, self.name, self._secret.reveal(), *role])
        return _PREFIX + base64.urlsafe_b64encode(body + _check(body)).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> InvitationCode:
        """Rejected when it is no code, or was mistyped. Nothing of it is repeated."""
        try:
            given = "".join(text.split())
            if not given.startswith(_PREFIX) or len(given) > _MAX_CODE:
                raise ValueError("another form")
            coded = given.removeprefix(_PREFIX)
            raw = base64.b64decode(coded + "=" * (-len(coded) % 4), altchars=b"-_", validate=True)
            body, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
            if check != _check(body):
                raise ValueError("mistyped")
            match cbor.decode(body, max_bytes=_MAX_CODE, max_depth=1, max_items=8):
                case [bytes(realm), bytes(root), str(name), bytes(secret), *role] if role in _ROLES:
                    sizes = len(realm), len(root), len(secret)
                    if sizes == (REALM_BYTES, DIGEST_BYTES, SECRET_BYTES) and NAME.fullmatch(name):
                        return cls(realm, root, name, Secret(secret), Role(role[0]) if role else Role.ENTITY)
            raise ValueError("other parts")
        except (ValueError, binascii.Error, FrameRejected):
            raise Rejected(
                "this is no invitation's code, or it was not copied whole",
                hint="the administrator makes one: sealcast entity invite NAME",
            ) from None

    def keys(self) -> InvitationKeys:
        # Sixteen bytes are no key of ours yet: extracted first, with the realm and its root as salt.
        key = Secret(kdf.hkdf_extract(_SALT + self.realm + self.root, self._secret.reveal()))
        id = kdf.derive(key, b"invitation id", length=ID_BYTES).reveal()
        return InvitationKeys(id, kdf.derive(key, b"join request"), kdf.derive(key, b"join answer"))


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A newcomer's request, as it travels; nothing of it is verified by being read."""

    realm: bytes
    root: bytes
    invitation: bytes
    name: str
    keys: PublicKeys
    nonce: bytes
    #: By the key that its certificate is about (P-256), and by the one that signs frames (Ed25519).
    by_identity: bytes
    by_signer: bytes
    tag: bytes

    @classmethod
    def make(cls, code: InvitationCode, identity: Identity) -> JoinRequest:
        keys, own, nonce = code.keys(), identity.public_keys, os.urandom(NONCE_BYTES)
        said = _transcript(code.realm, code.root, keys.id, code.name, own, nonce)
        signed = identity.key.sign(said), identity.signer.sign(said)
        tag = mac.tag(keys.request, said, *signed)
        return cls(code.realm, code.root, keys.id, code.name, own, nonce, *signed, tag)

    @property
    def transcript(self) -> bytes:
        return _transcript(self.realm, self.root, self.invitation, self.name, self.keys, self.nonce)

    def is_under(self, key: Secret) -> bool:
        """Whether whoever made it has the code."""
        return mac.verify(key, self.tag, self.transcript, self.by_identity, self.by_signer)

    def proves_possession(self) -> bool:
        """Whether whoever made it has the private keys that sign."""
        said = self.transcript
        try:
            by_identity = P256VerifyKey(self.keys.identity).verify(said, self.by_identity)
            return by_identity and VerifyKey(self.keys.verify_key).verify(said, self.by_signer)
        except Rejected:
            return False

    def to_bytes(self) -> bytes:
        own = self.keys
        public = [own.identity, own.verify_key, own.kem_public]
        proofs = [self.by_identity, self.by_signer, self.tag]
        return cbor.encode([self.realm, self.root, self.invitation, self.name, *public, self.nonce, *proofs])

    @classmethod
    def parse(cls, raw: bytes) -> JoinRequest:
        """FrameRejected when it is none."""
        match cbor.decode(raw, max_bytes=MAX_REQUEST_BYTES, max_depth=1, max_items=16):
            case [
                bytes(realm), bytes(root), bytes(id), str(name), bytes(identity), bytes(verify), bytes(kem),
                bytes(nonce), bytes(by_identity), bytes(by_signer), bytes(tag),
            ] if len(id) == ID_BYTES and len(nonce) == NONCE_BYTES and NAME.fullmatch(name):  # fmt: skip
                keys = PublicKeys(identity, verify, kem)
                return cls(realm, root, id, name, keys, nonce, by_identity, by_signer, tag)
            case _:
                raise FrameRejected("malformed", "this is no request to join")


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """What a newcomer gets: all of it public, and verified by the root that its code pins."""

    realm_name: str
    certificate: bytes
    authorities: tuple[bytes, ...]
    root: bytes
    #: Of the registry that has the newcomer in it: an older one is a lie from then on.
    head: Head

    def to_bytes(self, key: Secret, request: JoinRequest) -> bytes:
        body = cbor.encode([self.realm_name, self.certificate, list(self.authorities), self.root, *self.head])
        return cbor.encode([body, mac.tag(key, _ANSWER, request.to_bytes(), body)])

    @classmethod
    def parse(cls, raw: bytes, key: Secret, request: JoinRequest) -> JoinAnswer:
        """FrameRejected unless whoever made the code answered this very request."""
        match cbor.decode(raw, max_bytes=MAX_ANSWER_BYTES, max_depth=1, max_items=4):
            case [bytes(body), bytes(tag)] if mac.verify(key, tag, _ANSWER, request.to_bytes(), body):
                match cbor.decode(body, max_bytes=MAX_ANSWER_BYTES, max_depth=2, max_items=8 + _MAX_AUTHORITIES):
                    case [str(name), bytes(own), list(authorities), bytes(root), int(version), bytes(chain)] if (
                        all(isinstance(each, bytes) for each in authorities)
                        and 0 < version <= MAX_VERSION
                        and len(chain) == CHAIN_BYTES
                    ):
                        return cls(name, own, tuple(authorities), root, Head(version, chain))
        raise FrameRejected("malformed", "this is no answer of whoever made the code")


def _transcript(realm: bytes, root: bytes, id: bytes, name: str, keys: PublicKeys, nonce: bytes) -> bytes:
    return cbor.encode([_REQUEST, realm, root, id, name, keys.identity, keys.verify_key, keys.kem_public, nonce])


def _check(body: bytes) -> bytes:
    """Finds what was mistyped."""
    return hashlib.sha256(_PREFIX.encode() + body).digest()[:_CHECK_BYTES]
