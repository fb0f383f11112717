"""What is fuzzed: every parser of bytes that others wrote, and pairs of implementations that must agree.

A target takes bytes. It may refuse them with an error of ours; whatever else it raises is a finding, and so is a
disagreement. `python -m tests.fuzz.run TARGET` runs one under coverage guidance, `test_fuzz.py` each for a moment.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import cbor2
import numpy as np

from sealcast.control import desk
from sealcast.control.center import requests as center_requests
from sealcast.control.discovery import advertisements
from sealcast.control.discovery.queries import DiscoveryQuery, Matcher
from sealcast.control.envelopes import Direction, _outside, _payload
from sealcast.errors import CannotOpen, FilterRejected, SealcastError
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.index import Index
from sealcast.filters.parse import parse as parse_filter
from sealcast.filters.vector.evaluator import Evaluator
from sealcast.log.entry import Entry
from sealcast.log.offsets import PinnedOffset
from sealcast.log.receiving import JoinPost
from sealcast.model.schema import Attribute, Schema, Type, Value
from sealcast.mqtt.mail import Mail
from sealcast.mqtt.messages import Message
from sealcast.prefilters import catalog as prefilters
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey
from sealcast.protections.endpoint.key_requests import parse_reply, parse_request
from sealcast.protections.enveloped.envelope import Envelope
from sealcast.protections.layered.filters import records as table_records
from sealcast.transports.receipts import Receipt
from sealcast.trust.certificates import certificate, lists
from sealcast.trust.heads import SignedHead
from sealcast.trust.invitations import InvitationCode, JoinRequest
from sealcast.trust.realm import stored
from sealcast.trust.realm.templates import Template
from sealcast.trust.tokens import claims
from sealcast.wire import (
    cbor,
    cose,
    frame,
    frames,
    hops,
    notifications,
    peer_pieces,
    peers,
    posts,
    sealed,
    sealed_texts,
)
from sealcast.wire.attribute import EventHeader, SealedAttributeEvent
from sealcast.wire.attribute_keys import ConnectionRequest, ParameterBytes, PublisherKey, SubscriptionKey
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.records import RecordCodec
from sealcast.wire.searching import SealedFilter, parse_block
from tests.filters.worlds import columns_of, unpacked

Target = Callable[[bytes], object]
HERE: Final = Path(__file__).parent
VECTORS: Final = HERE.parent / "vectors"
#: Characters that a refusal has at the most, whatever it refuses.
MAX_SAID: Final = 2_000
SCHEMA: Final = Schema(
    (
        Attribute("i", Type.INT),
        Attribute("f", Type.FLOAT),
        Attribute("d", Type.DECIMAL, step=Decimal("0.01")),
        Attribute("s", Type.STRING),
        Attribute("b", Type.BOOL),
    )
)
EVENTS: Final[list[dict[str, Value]]] = [
    {},
    {"i": 0, "f": 0.0, "d": Decimal("0.00"), "s": "", "b": False},
    {"i": 2**53 + 1, "f": 2.0**53, "d": Decimal("1.01"), "s": "a%b", "b": True},
    {"i": -3, "f": -5e-324, "d": Decimal("-2.50"), "s": "\U0010ffff", "b": None},
    {"i": 7, "s": "/a/b"},
]
PAYLOADS: Final = [b"", b"<a><b>1</b></a>", b'{"a": 1}', b"\xff", b"text"]
_SIGNER: Final = SigningKey(Secret(bytes(32)))
_JOURNAL: Final = Secret(bytes(range(32)))
_CODEC: Final = RecordCodec(SCHEMA)
_MOST_TEXT: Final = 300


# --- pairs that must agree ----------------------------------------------------------------------------


def cbor_pair(data: bytes) -> None:
    """What ours reads, the other reads as the same value, and ours writes back to the same bytes."""
    value = cbor.decode(data, max_bytes=1 << 16, max_items=4_096)
    assert cbor.encode(value) == data
    assert value == cbor2.loads(data)


def frame_pair(data: bytes) -> None:
    """One frame and a batch of them are read alike."""
    batch = frames.parse_many([data, b"", data])
    try:
        one = frame.parse(data)
    except SealcastError:
        assert not batch.good.any()
        return
    assert batch.good.tolist() == [True, False, True]
    fields, header = batch.fields, one.header
    found = [int(column[0]) for column in (fields.sequence, fields.count, fields.time, fields.epoch)]
    assert found == [header.sequence, header.count, header.time, header.epoch]
    start, end = (int(bound[0]) for bound in batch.signed)
    assert data[start:end] == one.signed
    sender = data[int(batch.header[0][0]) : int(fields.sender_end[0])]
    assert (frames.publisher_of(sender), frames.topic_of(sender)) == (header.publisher, header.topic)


def filter_trio(data: bytes) -> None:
    """The evaluator, the vectorised one and the index find the same events."""
    condition = fit(parse_filter(data.decode("utf-8", "replace")[:_MOST_TEXT]), SCHEMA)
    expected = [evaluate(condition, event, payload) is True for event, payload in zip(EVENTS, PAYLOADS, strict=True)]
    columns = columns_of(SCHEMA, EVENTS)
    assert Evaluator(columns, SCHEMA, PAYLOADS).true(condition).tolist() == expected
    found = unpacked(Index.build([condition], SCHEMA).match(columns, PAYLOADS), 1)
    assert found[:, 0].tolist() == expected


# --- parsers ------------------------------------------------------------------------------------------


def _body(data: bytes) -> None:
    count, body = data[:1], data[1:]
    assert len(frame.decode_body(frame.bare_body(body).body, count[0] if count else 0)) == count[0]


def _sealed(data: bytes) -> None:
    assert sealed.encode(sealed.parse(data)) == data


def _post(data: bytes) -> None:
    post = posts.parse(data)
    assert posts.encode(post.header, post.signature, posts.encode_body(post.filters), post.token) == data


def _peer(data: bytes) -> None:
    assert peers.encode(peers.parse(data)) == data


def _json(data: bytes) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(data[: 1 << 16], parse_float=Decimal)
    return None


def _change(data: bytes) -> None:
    match _json(data):
        case [str(kind), dict(body)]:
            stored.from_json(kind, body)


def _record(data: bytes) -> None:
    if data:
        found = _CODEC.decode([data])
        assert len(found.columns) == 1 and set(found.bad) <= {0}
        assert np.all(found.payload_start <= len(data))


_BODIES: Final = (
    desk.Subscribe,
    desk.Renew,
    desk.Unsubscribe,
    desk.ListTopics,
    desk.Topics,
    center_requests.Register,
    center_requests.Authorise,
    center_requests.Deauthorise,
    center_requests.Rotate,
    center_requests.WantCredentials,
    center_requests.Proof,
    center_requests.Credentials,
    center_requests.Challenge,
)


def _requests(data: bytes) -> None:
    if data:
        _BODIES[data[0] % len(_BODIES)].from_bytes(data[1:])


def _envelope(data: bytes) -> None:
    for way in Direction:
        for read in (_outside, _payload):
            with suppress(SealcastError):
                read(data, way)


def _entries(data: bytes) -> None:
    for read in (notifications.parse_core, notifications.parse_entries):
        with suppress(SealcastError):
            read(data)


def _searching(data: bytes) -> None:
    for read in (SealedFilter.parse, parse_block):
        with suppress(SealcastError):
            read(data)


def _sealed_text(data: bytes) -> None:
    """What the registry would have of a filter, and what a broker would open."""
    for text in (sealed_texts.PREFIX + data.decode("latin-1"), _as_sealed_text(data)):
        with suppress(FilterRejected):
            found = sealed_texts.SealedText.from_text(text)
            assert found.to_text() == text and found.key_id == sealed_texts.key_id_of(text)
    with suppress(CannotOpen):
        assert sealed_texts.padded(sealed_texts.unpadded(data)) == data


def _as_sealed_text(data: bytes) -> str:
    body = base64.urlsafe_b64encode(sealed_texts.MAGIC + data).rstrip(b"=").decode()
    return sealed_texts.PREFIX + body


def _each(*readers: Callable[[bytes], object]) -> Target:
    """All of these readers, one after the other: none may hide behind the refusal of another."""

    def read(data: bytes) -> None:
        for reader in readers:
            with suppress(SealcastError):
                reader(data)

    return read


def _text(reader: Callable[[str], object]) -> Target:
    return lambda data: reader(data.decode("utf-8", "replace"))


#: Each target, and the files of vectors whose byte strings are good beginnings for it.
TARGETS: Final[dict[str, tuple[Target, tuple[str, ...]]]] = {
    "cbor": (cbor_pair, ("frames", "tokens", "envelopes")),
    "frame": (frame_pair, ("frames",)),
    "filter": (filter_trio, ()),
    "body": (_body, ("frames",)),
    "cose": (lambda data: (cose.parse_sign1(data), cose.parse_encrypt0(data)), ("cose-interop", "frames")),
    "sealed": (_sealed, ("pieces",)),
    "hop": (hops.parse, ("pieces",)),
    "post": (_post, ("posts",)),
    "peer": (_peer, ("peers",)),
    "notification": (_entries, ("posts",)),
    "sealed-text": (_sealed_text, ("searchable",)),
    "searching": (_searching, ("searchable",)),
    "record": (_record, ("records",)),
    "token": (claims.parse, ("tokens",)),
    "certificate": (certificate.parse, ("certificates",)),
    "revocations": (lists.parse, ("certificates",)),
    "envelope": (_envelope, ("envelopes",)),
    "advertisement": (advertisements._from_cbor, ("envelopes",)),
    "query": (DiscoveryQuery.from_bytes, ()),
    "matcher": (lambda data: Matcher.parse(data.decode("utf-8", "replace")), ()),
    "template": (lambda data: Template.parse(data.decode("utf-8", "replace")), ()),
    "requests": (_requests, ("envelopes",)),
    "key-request": (lambda data: parse_request(data, lambda name: _SIGNER.verify_key), ()),
    "key-reply": (parse_reply, ()),
    "schema": (lambda data: Schema.from_json(_json(data)), ()),
    "change": (_change, ()),
    "entry": (Entry.decode, ()),
    "offset": (lambda data: PinnedOffset.from_json(_json(data), _JOURNAL), ()),
    "table": (lambda data: table_records.parse(data, "here"), ()),
    "attribute": (_each(EventHeader.parse, SealedAttributeEvent.parse), ("attribute",)),
    "attribute-keys": (
        _each(ParameterBytes.parse, PublisherKey.parse, SubscriptionKey.parse, ConnectionRequest.parse),
        ("attribute",),
    ),
    "carried": (_each(CarriedEvent.from_bytes, peer_pieces.parse), ("peers", "frames")),
    "mqtt": (_each(Message.parse, Mail.parse), ("searchable", "pieces")),
    "join": (_each(JoinRequest.parse, JoinPost.parse, Receipt.from_bytes), ()),
    "head": (_each(_text(SignedHead.parse), _text(InvitationCode.parse), Envelope.parse, prefilters.from_bytes), ()),
}


def run(name: str, data: bytes) -> None:
    """One input; raises what is a finding. A refusal is one, too, where it repeats at length what it refuses."""
    try:
        TARGETS[name][0](data)
    except SealcastError as error:
        assert len(error.message) + len(error.hint or "") <= MAX_SAID, error.message[:200]


def seeds(name: str) -> Iterator[bytes]:
    """The target's own corpus, and the byte strings of its vectors."""
    for path in sorted((HERE / "corpus" / name).glob("*")):
        yield path.read_bytes()
    for file in TARGETS[name][1]:
        yield from _strings(json.loads((VECTORS / f"{file}.json").read_text()))


def _strings(value: Any) -> Iterator[bytes]:
    match value:
        case dict():
            for each in value.values():
                yield from _strings(each)
        case list():
            for each in value:
                yield from _strings(each)
        case str() if len(value) >= 16:
            with suppress(ValueError):
                yield bytes.fromhex(value)
