"""A publisher's side: events, with their labels, become sealed and signed bytes that stand alone.

What is faster tells more. Nothing of this is on unless it is asked for:

    reuse       events with the same labels share a header: no pairing and no power for the next one.
                Everybody sees which events have the same labels, though not which labels these are.
    session     an Ed25519 key, signed once with the credentials, signs all events of a call at once.
                Whoever opens two events of an epoch sees that one publisher made them.
    pseudonym   the credentials' signatures keep S2, which makes signing and batches cheaper.
                It links as much as `session` does.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sealcast.errors import Misuse
from sealcast.primitives import merkle
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.merkle import HASH_BYTES
from sealcast.primitives.secrets import Unpicklable
from sealcast.primitives.sign import SigningKey
from sealcast.protections.attribute.scheme import contents
from sealcast.protections.attribute.scheme.equations import Encapsulated, Labels
from sealcast.protections.attribute.scheme.naming import SUB, credential_string, label_key
from sealcast.protections.attribute.scheme.parameters import PublicParameters
from sealcast.protections.attribute.scheme.sign import sign
from sealcast.protections.attribute.scheme.tags import keyed_tag
from sealcast.wire.attribute import (
    ID_BYTES,
    ROUTING_TAG_BYTES,
    EventHeader,
    SealedAttribute,
    TagKind,
    packed_body,
    packed_head,
)
from sealcast.wire.attribute_contents import (
    SessionCertificate,
    bound_content,
    encode_signed,
    framed_contents,
)
from sealcast.wire.attribute_keys import (
    PublisherCredential,
    PublisherKey,
)
from sealcast.wire.limits import MAX_EVENTS_PER_FRAME


class OutgoingEvent(NamedTuple):
    """An event as its publisher has it: each attribute's labels by position, and the payload."""

    labels: Labels
    payload: bytes


@dataclass(frozen=True, slots=True)
class SealOptions:
    """What a publisher gives up for speed, if anything: see above."""

    #: Headers kept; 0 makes a new one for every event.
    reuse: int = 0
    session: bool = False
    pseudonym: bool = False
    #: Pairings of the paper's tags are remembered by label: faster, and nobody can tell.
    cached_pairings: bool = True


@dataclass(slots=True)
class _OpenHeader:
    """A header that events are being sealed under."""

    raw: bytes
    digest: bytes
    key: SealingKey
    credentials: tuple[PublisherCredential, ...]
    head: bytes
    number: int = 0


class AttributeSealer(Unpicklable):
    """One publisher's sealer of one epoch."""

    def __init__(self, parameters: PublicParameters, key: PublisherKey, options: SealOptions | None = None) -> None:
        if (key.routing is None) != (parameters.tags is TagKind.PAPER):
            raise Misuse("a publisher's key has a routing key where tags are keyed, and only there")
        self._parameters = parameters
        self._key = key
        self._options = options if options is not None else SealOptions()
        self._forget()
        #: How many events took a header that was there, and how many took a new one.
        self.hits = 0
        self.misses = 0

    def seal(self, events: Sequence[OutgoingEvent]) -> list[bytes]:
        """Each event sealed and signed. Misuse for an event that the publisher's credentials do not cover."""
        if len(events) > MAX_EVENTS_PER_FRAME:
            raise Misuse(f"{len(events)} events at once; {MAX_EVENTS_PER_FRAME} is the most")
        if self._process != os.getpid():
            self._forget()  # a fork must not number events under the headers of its parent again
        placed = []
        for event in events:
            header = self._header(event.labels)
            placed.append((header, header.number, event.payload))
            header.number += 1
        made = self._framed(placed) if self._options.session else [self._bound(*one) for one in placed]
        return [
            header.head
            + packed_body(number, header.key.commitment, header.key.seal(contents.event_nonce(number), content))
            for (header, number, _), content in zip(placed, made, strict=True)
        ]

    # --- proofs of origin -------------------------------------------------------------------------------------------

    def _bound(self, header: _OpenHeader, number: int, payload: bytes) -> bytes:
        message = contents.event_message(header.raw, number, payload)
        signed = sign(self._parameters, self._key.epoch, message, header.credentials, self._options.pseudonym)
        return bound_content(encode_signed(signed), payload)

    def _framed(self, placed: Sequence[tuple[_OpenHeader, int, bytes]]) -> list[bytes]:
        count = len(placed)
        if not count:
            return []
        nodes = merkle.build([contents.leaf(header.digest, number, payload) for header, number, payload in placed])
        root = nodes[-HASH_BYTES:]
        signature = self._session.sign(contents.frame_message(self._key.epoch, count, root))
        payloads = [payload for _, _, payload in placed]
        return framed_contents(root, signature, merkle.joined_paths(nodes, count), payloads)

    # --- headers ----------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        self._process = os.getpid()
        self._headers: OrderedDict[object, _OpenHeader] = OrderedDict()
        self._session = SigningKey.generate()
        self._certificates: dict[tuple[PublisherCredential, ...], bytes] = {}

    def _header(self, labels: Labels) -> _OpenHeader:
        if not self._options.reuse:
            self.misses += 1
            return self.new_header(labels)
        known = (*labels, *map(tuple, labels.values()))
        found = self._headers.get(known)
        if found is not None:
            self.hits += 1
            self._headers.move_to_end(known)
            return found
        self.misses += 1
        found = self._headers[known] = self.new_header(labels)
        if len(self._headers) > self._options.reuse:
            self._headers.popitem(last=False)
        return found

    def new_header(self, labels: Labels) -> _OpenHeader:
        """A header for events with these labels; Misuse where the publisher's credentials do not cover them."""
        credentials = tuple(self._covering(name, by_position) for name, by_position in labels.items())
        parameters, epoch, id = self._parameters, self._key.epoch, os.urandom(ID_BYTES)
        second, made, target = parameters.equations.encapsulate(epoch, labels)
        attributes = [
            SealedAttribute(one.name, one.first, one.labels, b"".join(self._tags(one, labels[one.name], id)))
            for one in made
        ]
        header = EventHeader.of(parameters.profile, parameters.tags, epoch, id, second, attributes)
        key = contents.header_key(target, header.raw)
        session = b""
        if self._options.session:
            session = key.seal(contents.SESSION_NONCE, self._certificate(credentials))
        digest = hashlib.sha256(header.raw).digest()
        return _OpenHeader(header.raw, digest, key, credentials, packed_head(header.raw, session))

    def _tags(self, attribute: Encapsulated, labels: Sequence[bytes | None], id: bytes) -> list[bytes]:
        strings = [
            credential_string(label, attribute.name, SUB, self._key.epoch) for label in labels if label is not None
        ]
        if self._key.routing is not None:
            tags = [keyed_tag(label_key(self._key.routing, string), id) for string in strings]
        else:
            tags = self._parameters.equations.paper_tags(attribute.b, strings, self._options.cached_pairings)
        return tags + [os.urandom(ROUTING_TAG_BYTES) for _ in range(len(labels) - len(tags))]

    def _covering(self, attribute: str, labels: Sequence[bytes | None]) -> PublisherCredential:
        for credential in self._key.credentials:
            if credential.attribute == attribute and credential.label in labels:
                return credential
        raise Misuse(f"the publisher's credentials of epoch {self._key.epoch} do not cover this value of {attribute}")

    def _certificate(self, credentials: tuple[PublisherCredential, ...]) -> bytes:
        if credentials not in self._certificates:
            public = bytes(self._session.verify_key)
            signed = sign(self._parameters, self._key.epoch, contents.session_message(public), credentials)
            self._certificates[credentials] = SessionCertificate(public, signed).to_bytes()
        return self._certificates[credentials]
