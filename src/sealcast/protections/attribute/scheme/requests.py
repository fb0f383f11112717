"""Connection requests: ask to be the child of whoever covers a label, without saying which label it is.

    D_c = phi_c H3c(Pu_c)                                        the connection key of label c, from the key server
    r random   C0 = r G                                          K_conn random, 16 bytes
    slot of c = K_conn under KDF(e(H3c(Pu_c), phi_c G)^r, ...)   for the own label and every one above it
    padded with random strings, shuffled, signed by the key server for the one who asks (its *origin*)

Whoever holds D_c of one of these labels computes the slot's key as e(D_c, C0), one pairing, and tries it on every slot.
It learns that its label covers the other's. The one who asked learns from K_conn that somebody covers it, not who: all
slots hide the same K_conn. (In the paper each slot has its own, which tells the acceptor's label.)
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from typing import Final

from sealcast.errors import CannotOpen, Misuse
from sealcast.primitives import kdf
from sealcast.primitives.aead import NONCE_BYTES, SealingKey
from sealcast.primitives.encoding import joined
from sealcast.primitives.pairing import Pairing, random_scalar
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.primitives.sign import SigningKey
from sealcast.protections.attribute.scheme.equations import read_point
from sealcast.protections.attribute.scheme.naming import SUB, TAG_REQUEST, Label, credential_string
from sealcast.protections.attribute.scheme.parameters import PublicParameters
from sealcast.wire.attribute import AttributeReason, AttributeRejected
from sealcast.wire.attribute_keys import SLOT_BYTES, ConnectionRequest
from sealcast.wire.limits import MAX_ATTRIBUTE_POSITIONS

CONNECTION_BYTES: Final = 16
#: A slot's key seals once.
_NONCE: Final = bytes(NONCE_BYTES)
_ORIGIN: Final = b"sealcast/attribute/1 request of"


class ConnectionKey(Unpicklable):
    """D_c of one label: opens the requests of labels below."""

    __slots__ = ("_point", "attribute", "epoch")

    def __init__(self, epoch: int, attribute: str, point: bytes) -> None:
        self.epoch = epoch
        self.attribute = attribute
        self._point = point

    def to_bytes(self) -> bytes:
        """Secret: for its peer alone. Epoch and attribute stand beside it."""
        return self._point

    def open(self, parameters: PublicParameters, request: ConnectionRequest, origin: str = "") -> Secret | None:
        """K_conn, if this label covers that of the request. AttributeRejected for a request that the key server did not
        sign for who sends it, and for a point that is none, before anything is paired."""
        if not parameters.verify_key.verify(_to_be_signed(request, origin), request.signature):
            raise AttributeRejected(
                AttributeReason.SIGNATURE, "a connection request is not signed by the key server for who sent it"
            )
        if (request.epoch, request.attribute) != (self.epoch, self.attribute):
            return None
        pairing = parameters.pairing
        first = read_point(pairing.decode2, "C0", request.first)
        own = parameters.equations.own1(self._point)
        key = _slot_key(pairing.target_bytes(pairing.product([(own, first)])), request)
        for at in range(0, len(request.slots), SLOT_BYTES):
            try:
                return _connection(key.unseal(_NONCE, request.slots[at : at + SLOT_BYTES]))
            except CannotOpen:
                continue
        return None


def make_key(pairing: Pairing, phi_c: int, epoch: int, attribute: str, label: Label) -> ConnectionKey:
    """At the key server."""
    point = pairing.hash1(credential_string(label, attribute, SUB, epoch), TAG_REQUEST)
    return ConnectionKey(epoch, attribute, pairing.encode1(pairing.times1(point, phi_c)))


def make_request(
    parameters: PublicParameters,
    signer: SigningKey,
    epoch: int,
    attribute: str,
    path: Sequence[Label],
    slots: int,
    origin: str = "",
) -> tuple[ConnectionRequest, Secret]:
    """At the key server: a request and its K_conn. It counts for `origin` alone: who copied one would learn from the
    answers whose labels cover another's. Without an origin, as the paper has it, for everybody."""
    if not 1 <= len(path) <= slots <= MAX_ATTRIBUTE_POSITIONS:
        raise Misuse(f"{len(path)} labels do not fit {slots} slots, of {MAX_ATTRIBUTE_POSITIONS} at the most")
    pairing, hidden, r = parameters.pairing, os.urandom(CONNECTION_BYTES), random_scalar()
    bare = ConnectionRequest(epoch, attribute, pairing.encode2(pairing.times2(pairing.g2, r)), b"", b"")
    made = [os.urandom(SLOT_BYTES) for _ in range(slots - len(path))]
    for label in path:
        point = pairing.hash1(credential_string(label, attribute, SUB, epoch), TAG_REQUEST)
        target = pairing.product([(pairing.times1(point, r), parameters.request_point)])
        made.append(_slot_key(pairing.target_bytes(target), bare).seal(_NONCE, hidden))
    secrets.SystemRandom().shuffle(made)
    unsigned = ConnectionRequest(epoch, attribute, bare.first, b"".join(made), b"")
    signature = signer.sign(_to_be_signed(unsigned, origin))
    return ConnectionRequest(epoch, attribute, bare.first, unsigned.slots, signature), _connection(hidden)


def _to_be_signed(request: ConnectionRequest, origin: str) -> bytes:
    signed = request.signed_part()
    return joined((_ORIGIN, origin.encode(), signed)) if origin else signed


def _slot_key(target: bytes, request: ConnectionRequest) -> SealingKey:
    extracted = Secret(kdf.hkdf_extract(b"sealcast/attribute/1 request", target))
    key = kdf.derive(extracted, request.first, request.attribute.encode(), request.epoch.to_bytes(8, "big"))
    return SealingKey(key, b"attribute/1 request")


def _connection(hidden: bytes) -> Secret:
    """K_conn at the size that keys have."""
    return Secret(kdf.hkdf_expand(hidden, b"sealcast/attribute/1 connection", 32))
