"""What every subscriber verifies, whatever protects the topic: who signed an event, and that this is what was signed.

(a) the frame's header is well-formed, for this topic, and of no epoch that is yet to come;
(b) the signature on it is its publisher's;
(c) the message is the leaf of the tree that the header commits to, at the place where its position says it is.

Whatever fails is CannotOpen: a subscriber learns that something was altered, and uses nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import CannotOpen, CertificateRejected, FrameRejected, Poisoned, Rejected
from sealcast.model.event import OpenedEvent, Position
from sealcast.model.moments import moment
from sealcast.model.stages import FrameProof
from sealcast.primitives import merkle
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.realm.state import RealmState
from sealcast.trust.tokens import gates
from sealcast.wire import frame, traceparent
from sealcast.wire.frame import Header
from sealcast.wire.records import RecordCodec
from sealcast.wire.sealed import SealedPiece

#: Signed headers verified before: the events of one frame tend to come together.
MAX_VERIFIED_HEADERS: Final = 1024


class _Span(NamedTuple):
    """Events of one frame that follow each other, and what proves them."""

    header: Header
    proof: FrameProof
    start: int
    end: int


class VerifiedRecord(NamedTuple):
    """One event as it was signed: the header of its frame, and its record."""

    header: Header
    record: bytes


VerifyKeyOf = Callable[[str], VerifyKey]


class SignedHeaders:
    """The headers of one topic's frames, each verified once."""

    def __init__(self, topic_id: bytes, verify_key_of: VerifyKeyOf, epoch: int | None = None) -> None:
        """With an `epoch`, headers of later ones are refused. Earlier ones are fine: an event may be published before a
        rotation and sealed after it, or sealed again under newer keys."""
        self._topic_id, self._verify_key_of, self._epoch = topic_id, verify_key_of, epoch
        self._key_of = verify_key_of
        self.header = lru_cache(MAX_VERIFIED_HEADERS)(self._header)

    def verify(
        self, header: Header, message: bytes, position: Position, path: Sequence[bytes], messages_per_event: int = 1
    ) -> None:
        """(c): the message is the first one of the event at that position."""
        (leaf,) = merkle.hash_messages((message,))
        if not merkle.verify(header.root, leaf, messages_per_event * position.row, header.count, path):
            raise CannotOpen(f"event {position} is not among the events that {header.publisher} signed")

    def prove(
        self, piece: SealedPiece, events: NDArray[np.int64], messages: Sequence[bytes | None]
    ) -> tuple[dict[int, Header], list[bool]]:
        """(a) to (c) for many events of a piece, and their messages as far as they are known: the headers of their
        frames, and whether each event is proven. Whatever several of them need is worked out once."""
        rows = [row for row, message in enumerate(messages) if message is not None]
        hashed = merkle.hash_messages(message for message in messages if message is not None)
        known = events if len(rows) == len(messages) else events[rows]
        frames, leaves = piece.frame_index[known], piece.row[known].astype(np.int64)
        headers, proven, alike = self._headers_of(piece, frames), [False] * len(messages), dict[int, list[_Span]]()
        cuts = (np.flatnonzero(np.diff(frames)) + 1).tolist()
        for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True) if rows else ():
            header, proof = headers.get(int(frames[start])), piece.frames[int(frames[start])]
            if header is not None and header.count == proof.count:
                alike.setdefault(header.count, []).append(_Span(header, proof, start, end))

        def is_proven(spans: Sequence[_Span]) -> bool:
            trees = np.repeat(np.arange(len(spans)), [span.end - span.start for span in spans])
            indices = np.concatenate([leaves[span.start : span.end] for span in spans])
            own = [leaf for span in spans for leaf in hashed[span.start : span.end]]
            roots, nodes = [span.header.root for span in spans], [span.proof.nodes for span in spans]
            return merkle.verify_many(roots, spans[0].header.count, nodes, trees, indices, own)

        for spans in alike.values():
            # If not all of them together, then each frame by itself.
            good = spans if is_proven(spans) else [span for span in spans if is_proven([span])]
            for row in (row for span in good for row in rows[span.start : span.end]):
                proven[row] = True
        return headers, proven

    def _headers_of(self, piece: SealedPiece, frames: NDArray[Any]) -> dict[int, Header]:
        """The headers of frames, as far as they are good. Each publisher's key is looked for once."""
        found, self._key_of = dict[int, Header](), cache(self._verify_key_of)
        try:
            for index in np.unique(frames).tolist():
                with suppress(CannotOpen):
                    found[index] = self.header(piece.frames[index].signed)
        finally:
            self._key_of = self._verify_key_of
        return found

    def _header(self, signed: bytes) -> Header:
        """(a), (b)"""
        try:
            about = frame.parse_signed(signed)
        except FrameRejected as error:
            raise CannotOpen(f"a frame's signed header is none: {error.message}") from None
        header = about.header
        if header.topic != self._topic_id or (self._epoch is not None and header.epoch > self._epoch):
            raise CannotOpen(f"{header.publisher} signed this for another topic, or for an epoch to come")
        if not self._key_of(header.publisher).verify(about.to_be_signed, about.signature):
            raise CannotOpen(f"the signature is not {header.publisher}'s")
        return header


def checked_record(header: Header, position: Position, codec: RecordCodec, record: bytes) -> VerifiedRecord:
    """CannotOpen if it is of another schema."""
    opened_event(header, position, codec, record)
    return VerifiedRecord(header, record)


def opened_event(
    header: Header, position: Position, codec: RecordCodec, record: bytes, messages_per_event: int = 1
) -> OpenedEvent:
    """The event that a verified header, a position and an opened record make; CannotOpen if the schema is another."""
    try:
        values, payload, content_type = codec.decode_one(record)
    except Rejected as error:
        raise CannotOpen(f"event {position} is not of its topic's schema: {error.message}") from None
    content_type, trace = traceparent.split(content_type)
    return OpenedEvent(
        position=position,
        publisher=header.publisher,
        published_at=moment(header.time),
        # Headers number messages.
        sequence=header.sequence // messages_per_event + position.row,
        attributes=values,
        payload=payload,
        content_type=content_type,
        boot=header.boot,
        traceparent=traceparent.text(trace) if trace else None,
    )


@contextmanager
def poisoned_by(header: Header, position: Position) -> Iterator[None]:
    """What fails within, with all keys at hand, will never open: Poisoned, by the publisher of a verified header."""
    try:
        yield
    except Rejected as error:
        who = header.publisher
        said = f"event {position}, which {who} signed, is not what its topic's events are: {error.message}"
        raise Poisoned(who, said) from None


def publishers_keys(state: Callable[[], RealmState]) -> VerifyKeyOf:
    """The keys that publishers sign with, by their certificates in the newest registry; also of those who were revoked
    since: what was admitted before stays readable."""

    def verify_key_of(publisher: str) -> VerifyKey:
        known = state()
        if publisher not in known.entities:
            raise CannotOpen(f"it names a publisher, {publisher!r}, whom nobody enrolled")
        try:
            return gates.verify_key_of(known, publisher)
        except CertificateRejected as error:
            raise CannotOpen(f"the key of publisher {publisher!r} is not believed: {error.message}") from None

    return verify_key_of
