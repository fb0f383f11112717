"""A subscriber's side: sealed events -> payloads, and in whose name they were published.

Checks, in this order; the first that fails gives the reason (`AttributeReason`):

    1 the bytes are a sealed event             5 the key that they give opens the event       key
    2 its profile and tags are the topic's     6 its content is well-formed
    3 there is a key of its epoch              7 its signature verifies                       signature
    4 a subscription has a label of each of    8 what was signed is for the event's           cover
      its attributes, by the tags  mismatch      attributes, all of them and no other

Points are checked when they are decoded, which is before anything is paired. Whether the values inside the payload are
those of the labels is for the caller to check: it knows the schema, and `OpenedContent` says which labels they are.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from sealcast.errors import CannotOpen, Rejected
from sealcast.primitives import merkle
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.merkle import HASH_BYTES
from sealcast.primitives.secrets import Unpicklable
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.attribute.scheme import contents
from sealcast.protections.attribute.scheme.equations import OwnCredential
from sealcast.protections.attribute.scheme.parameters import PublicParameters
from sealcast.protections.attribute.scheme.sign import SignatureClaim, forged
from sealcast.protections.attribute.scheme.tags import Expected, expecting
from sealcast.wire.attribute import AttributeReason, AttributeRejected, EventHeader, SealedAttributeEvent
from sealcast.wire.attribute_contents import LeafProof, SessionCertificate, Signed, parse_content, parse_signed
from sealcast.wire.attribute_keys import SubscriptionCredential, SubscriptionKey

#: Headers, certificates and roots remembered: whoever repeats one is not computed again.
MAX_REMEMBERED: Final = 4_096


_K = TypeVar("_K")
_V = TypeVar("_V")


class OpenedContent(NamedTuple):
    """An event opened. `publisher`: the label of each attribute in whose name it was signed. `own`: the label of each
    attribute that opened it, of the subscription with this number."""

    payload: bytes
    publisher: Mapping[str, bytes]
    own: Mapping[str, bytes]
    subscription: int


@dataclass(slots=True)
class _OpenedHeader:
    key: SealingKey
    digest: bytes
    subscription: int
    own: Mapping[str, bytes]
    #: A session as it came with an event, and what it says: events under one header come with the same.
    session: tuple[bytes, SessionCertificate] | None = None


class _Unverified(NamedTuple):
    """Opened, but for one signature in the name of credentials, which is left to be verified with others."""

    content: OpenedContent
    claim: SignatureClaim
    #: A session certificate, which others will repeat.
    lasting: bool


class Opener(Unpicklable):
    """One subscriber's opener: all of its subscriptions, of all epochs that it holds keys of."""

    def __init__(self, parameters: PublicParameters, keys: Sequence[SubscriptionKey]) -> None:
        self._parameters = parameters
        self._keys = tuple(keys)
        self._own = [_by_attribute(parameters, key) for key in keys]
        self._headers: OrderedDict[bytes, _OpenedHeader] = OrderedDict()
        self._verified: OrderedDict[object, None] = OrderedDict()

    def open(self, sealed: bytes) -> OpenedContent:
        """AttributeRejected, with the reason, for what these keys do not open or what nobody may have published."""
        (found,) = self.open_many([sealed])
        if isinstance(found, AttributeRejected):
            raise found
        return found

    def open_many(self, sealed: Sequence[bytes]) -> list[OpenedContent | AttributeRejected]:
        """Each event opened, or why not. Signatures are verified in one batch, and in halves where it fails."""
        found = [self._unverified(one) for one in sealed]
        waiting = {one.claim: one.lasting for one in found if isinstance(one, _Unverified)}
        claims = [claim for claim in waiting if claim not in self._verified]
        bad = {claims[number] for number in forged(self._parameters, claims)}
        for claim in claims:
            if waiting[claim] and claim not in bad:
                self._remember(self._verified, claim, None)
        return [self._settled(one, bad) for one in found]

    def _settled(
        self, found: _Unverified | AttributeRejected, bad: set[SignatureClaim]
    ) -> OpenedContent | AttributeRejected:
        if isinstance(found, AttributeRejected):
            return found
        if found.claim in bad:
            return AttributeRejected(AttributeReason.SIGNATURE, "an event was not signed with the credentials it names")
        return found.content

    # --- one event --------------------------------------------------------------------------------------------------

    def _unverified(self, sealed: bytes) -> _Unverified | AttributeRejected:
        try:
            return self._checked(SealedAttributeEvent.parse(sealed))
        except AttributeRejected as error:
            return error

    def _checked(self, event: SealedAttributeEvent) -> _Unverified:
        raw, epoch = event.header.raw, event.header.epoch
        opened = self._headers.get(raw)
        if opened is None:
            opened = self.opened_header(event)
        try:
            content = opened.key.open(contents.event_nonce(event.number), event.commitment, event.ciphertext)
        except CannotOpen as error:
            raise AttributeRejected(AttributeReason.KEY, error.message) from None
        self._remember(self._headers, raw, opened)
        proof, payload = parse_content(content)
        if isinstance(proof, LeafProof):
            certificate = self._certificate(opened, event.session)
            self._check_frame(certificate, epoch, proof, contents.leaf(opened.digest, event.number, payload))
            signed, message = certificate.signed, contents.session_message(certificate.verify_key)
        elif event.session:
            raise AttributeRejected(AttributeReason.MALFORMED, "an event that is signed by itself came with a session")
        else:
            signed, message = parse_signed(proof), contents.event_message(raw, event.number, payload)
        _check_cover(event.header, signed)
        publisher = {one.attribute: one.label for one in signed}
        return _Unverified(
            OpenedContent(payload, publisher, opened.own, opened.subscription),
            SignatureClaim(epoch, message, signed),
            lasting=isinstance(proof, LeafProof),
        )

    def opened_header(self, event: SealedAttributeEvent) -> _OpenedHeader:
        """The first of our subscriptions that opens it."""
        header, parameters = event.header, self._parameters
        if header.profile is not parameters.profile or header.tags is not parameters.tags:
            raise AttributeRejected(AttributeReason.PROFILE, "an event is of another profile than its topic")
        keys = [(number, key) for number, key in enumerate(self._keys) if key.epoch == header.epoch]
        if not keys:
            raise AttributeRejected(AttributeReason.EPOCH, f"no key of epoch {header.epoch} is at hand")
        for number, key in keys:
            chosen = self._matching(number, header)
            if chosen is None:
                continue
            own = [
                OwnCredential(one.first, one.second, attribute.first, attribute.label(one.position))
                for one, attribute in zip(chosen, header.attributes, strict=True)
            ]
            target = parameters.equations.decapsulate(header.second, key.bond, own)
            labels = {one.attribute: one.label for one in chosen}
            digest = hashlib.sha256(header.raw).digest()
            return _OpenedHeader(contents.header_key(target, header.raw), digest, number, labels)
        raise AttributeRejected(
            AttributeReason.MISMATCH, "no subscription has a label of each of the event's attributes"
        )

    def _matching(self, number: int, header: EventHeader) -> list[SubscriptionCredential] | None:
        """A credential for each attribute, by the tags; None if one has none."""
        found, own = [], self._own[number]
        for attribute in header.attributes:
            credentials, expected = own.get(attribute.name, _NOTHING)
            for one, tag in zip(credentials, expected(header, attribute), strict=True):
                if one.position < attribute.positions and attribute.tagged(tag):
                    found.append(one)
                    break
            else:
                return None
        return found

    # --- sessions ---------------------------------------------------------------------------------------------------

    def _certificate(self, opened: _OpenedHeader, session: bytes) -> SessionCertificate:
        if opened.session is None or opened.session[0] != session:
            try:
                data = opened.key.unseal(contents.SESSION_NONCE, session)
            except CannotOpen as error:
                raise AttributeRejected(AttributeReason.KEY, f"a session certificate: {error.message}") from None
            opened.session = session, SessionCertificate.parse(data)
        return opened.session[1]

    def _check_frame(self, certificate: SessionCertificate, epoch: int, proof: LeafProof, leaf: bytes) -> None:
        message = contents.frame_message(epoch, proof.leaves, proof.root)
        signed = (certificate.verify_key, message, proof.signature)
        if signed not in self._verified:
            try:
                good = VerifyKey(certificate.verify_key).verify(message, proof.signature)
            except Rejected:
                good = False
            if not good:
                raise AttributeRejected(AttributeReason.SIGNATURE, "a frame is not signed with its session's key")
            self._remember(self._verified, signed, None)
        path = [proof.path[at : at + HASH_BYTES] for at in range(0, len(proof.path), HASH_BYTES)]
        if not merkle.verify(proof.root, leaf, proof.leaf, proof.leaves, path):
            raise AttributeRejected(AttributeReason.SIGNATURE, "an event is not in the frame that was signed")

    # --- memory -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _remember(memory: OrderedDict[_K, _V], key: _K, value: _V) -> None:
        memory[key] = value
        memory.move_to_end(key)
        if len(memory) > MAX_REMEMBERED:
            memory.popitem(last=False)


def _by_attribute(
    parameters: PublicParameters, key: SubscriptionKey
) -> dict[str, tuple[list[SubscriptionCredential], Expected]]:
    """A subscription's credentials of each attribute, and the tags that they look for."""
    names = dict.fromkeys(one.attribute for one in key.credentials)
    own = {name: [one for one in key.credentials if one.attribute == name] for name in names}
    return {name: (several, expecting(parameters, [one.token for one in several])) for name, several in own.items()}


_NOTHING: Final[tuple[list[SubscriptionCredential], Expected]] = [], lambda header, attribute: iter(())


def _check_cover(header: EventHeader, signed: Signed) -> None:
    if [one.attribute for one in signed] != [attribute.name for attribute in header.attributes]:
        raise AttributeRejected(AttributeReason.COVER, "an event was signed for other attributes than it has")
