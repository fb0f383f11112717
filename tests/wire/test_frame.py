"""Frames: what a publisher makes a broker reads, and no byte of it can be altered, added or missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import CannotOpen, FrameRejected, Misuse
from sealcast.wire import cbor, cose, frame, limits
from sealcast.wire.frame import Header, JoinedMessages
from tests.effort import examples
from tests.wire.frames import Publisher, messages

ALICE = Publisher()
THREE = messages(3)
DATA = ALICE.publish(THREE, sequence=40)


def refusal(data: bytes) -> str:
    with pytest.raises(FrameRejected) as caught:
        ALICE.admit(data)
    return caught.value.reason


@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_arrives_as_it_was_published(count: int) -> None:
    batch = messages(count)
    data = ALICE.publish(batch, sequence=7)
    received = frame.parse(data)
    assert received.header == ALICE.header(batch, sequence=7)
    assert received.nonce == (7).to_bytes(12, "big")
    assert ALICE.admit(data) == batch
    assert frame.encode(received.signed, received.commitment, received.ciphertext, token=received.token) == data
    about = frame.parse_signed(received.signed)
    assert (about.header, about.signature) == (received.header, received.signature)
    assert about.to_be_signed == frame.to_be_signed(received.header)


def test_the_largest_frame_goes_through() -> None:
    batch = [b"\0" * 20] * limits.MAX_EVENTS_PER_FRAME
    assert ALICE.admit(ALICE.publish(batch)) == batch


def test_every_altered_byte_is_noticed() -> None:
    """Two flips per byte, all bytes: a reason each, and never anything but a rejection."""
    reasons = set()
    for at in range(len(DATA)):
        for flip in (0x01, 0x80):
            altered = bytearray(DATA)
            altered[at] ^= flip
            reasons.add(refusal(bytes(altered)))
    assert reasons == {"frame", "version", "token", "signature", "seal"}


def test_every_cut_is_noticed() -> None:
    for at in range(len(DATA)):
        assert refusal(DATA[:at]) == "frame"
    for more in (b"\0", DATA):
        assert refusal(DATA + more) == "frame"


@given(st.binary(max_size=200))
@examples(60, soak=300)
def test_noise_is_no_frame(data: bytes) -> None:
    with pytest.raises(FrameRejected):
        frame.parse(data)


@given(st.integers(0, len(DATA) - 1), st.binary(max_size=12), st.integers(0, 12))
@examples(80, soak=400)
def test_nor_is_a_frame_with_something_else_spliced_in(at: int, insert: bytes, drop: int) -> None:
    data = DATA[:at] + insert + DATA[at + drop :]
    if data != DATA:
        assert refusal(data) in {"frame", "version", "token", "signature", "seal"}


# --- one field after the other ------------------------------------------------------------------


def field(**changes: object) -> Callable[[], bytes]:
    """A frame whose header was changed after it was signed: the old signature over the new header."""

    def make() -> bytes:
        received = frame.parse(DATA)
        header = dataclasses.replace(received.header, **changes)  # type: ignore[arg-type]
        signed = frame.encode_signed(header, received.signature)
        return frame.encode(signed, received.commitment, received.ciphertext, token=received.token)

    return make


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": b"t" * 16},
        {"publisher": "ticker-2"},
        {"boot": b"b" * 16},
        {"sequence": 41},
        {"count": 2},
        {"time": 1},
        {"schema": b"s" * 32},
        {"epoch": 2},
        {"root": b"r" * 32},
    ],
    ids=lambda c: next(iter(c)),
)
def test_every_field_of_the_header_is_signed(changes: dict[str, object]) -> None:
    assert refusal(field(**changes)()) == "signature"


def test_another_publishers_body_does_not_open_beside_my_header() -> None:
    mine, other = frame.parse(DATA), frame.parse(Publisher(name="ticker-2").publish(THREE, sequence=40))
    assert refusal(frame.encode(mine.signed, other.commitment, other.ciphertext, token=mine.token)) == "seal"


def test_a_body_is_bound_to_its_own_header() -> None:
    """Surreptitious forwarding within one boot: the body of one frame under the header of the next."""
    first, second = frame.parse(ALICE.publish(THREE, 40)), frame.parse(ALICE.publish(messages(4)[1:], 43))
    assert refusal(frame.encode(second.signed, first.commitment, first.ciphertext, token=second.token)) == "seal"
    with pytest.raises(CannotOpen):
        ALICE.frame_key.open(first.nonce, first.commitment, first.ciphertext, second.body_aad)


def test_other_events_than_those_signed_are_noticed() -> None:
    assert refusal(ALICE.finish(ALICE.header(THREE), THREE[::-1])) == "root"
    assert refusal(ALICE.finish(ALICE.header(THREE), [*THREE[:2], messages(4)[3]])) == "root"


def test_another_number_of_events_than_signed_is_noticed() -> None:
    assert refusal(ALICE.finish(ALICE.header(THREE), THREE[:2])) == "seal"


def test_a_nonce_that_is_not_the_sequence_is_refused() -> None:
    received = frame.parse(DATA)
    sealed = cose.encode_encrypt0(received.commitment, (41).to_bytes(12, "big"), received.ciphertext)
    with pytest.raises(FrameRejected, match="sequence"):
        frame.parse(cbor.encode([frame.MAGIC, frame.VERSION, received.token, received.signed, sealed]))


# --- versions and shapes ------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 3, 23, 24, 2**32, 2**64 - 1])
def test_another_version_is_told_from_garbage(version: int) -> None:
    received = frame.parse(DATA)
    for rest in ([received.signed, received.sealed], [], [1, 2, 3, {"new": "things"}]):
        assert refusal(cbor.encode([frame.MAGIC, version, *rest])) == "version"


@pytest.mark.parametrize(
    "shape",
    [
        ["sealcast-frame"],
        ["sealcast-frame", 2],
        ["sealcast-frame", 2, b"", b"", b""],
        ["sealcast-frame", 2, b"", b""],
        ["sealcast-frame", 2, b"", b"", b"", b""],
        ["sealcast-frame", "1", b"", b""],
        ["sealcast-frame", -1, b"", b""],
        ["sealcast-frame", True, b"", b""],
        ["sealcast-piece", 1, {}],
        ["sealcast", 1, b"", b""],
        {"sealcast-frame": 1},
        [1, "sealcast-frame"],
        "sealcast-frame",
        [],
        None,
    ],
    ids=repr,
)
def test_other_shapes_are_no_frames(shape: object) -> None:
    assert refusal(cbor.encode(shape)) == "frame"


def crowded(items: int) -> bytes:
    """A frame that nobody signed, and whose sealed part is as many items as fit."""
    outer = cbor.decode(DATA, max_depth=1)
    sealed = cbor.TaggedValue(cose.TAG_ENCRYPT0, [b"", {}, [0] * items])
    return cbor.encode([*outer[:4], cbor.encode(sealed)])


def test_a_million_items_are_refused_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data, seen = crowded(1_000_000), 0
    really = cbor._Reader.item

    def item(reader: cbor._Reader, depth: int) -> object:
        nonlocal seen
        seen += 1
        return really(reader, depth)

    monkeypatch.setattr(cbor._Reader, "item", item)
    with pytest.raises(FrameRejected):
        frame.parse(data)
    assert seen < 64
    # A reader that takes what the format as a whole allows reads them all.
    monkeypatch.setattr(cose, "MAX_COSE_ITEMS", limits.MAX_CBOR_ITEMS)
    with pytest.raises(FrameRejected):
        frame.parse(data)
    assert seen > 1_000_000


def test_an_oversized_frame_is_refused_unread() -> None:
    with pytest.raises(FrameRejected, match="at most"):
        frame.parse(DATA + bytes(limits.MAX_FRAME_BYTES))


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": b"t" * 15},
        {"topic": "t" * 16},
        {"publisher": ""},
        {"publisher": "p" * 257},
        {"publisher": b"p"},
        {"boot": b""},
        {"sequence": -1},
        {"sequence": 2**63},
        {"sequence": True},
        {"count": 0},
        {"count": 16_385},
        {"time": -1},
        {"time": 2**63},
        {"schema": b"s" * 31},
        {"epoch": 2**32},
        {"root": b"r" * 33},
    ],
    ids=lambda c: "{}={!r:.12}".format(*next(iter(c.items()))),
)
def test_headers_out_of_bounds_are_neither_made_nor_read(changes: dict[str, object]) -> None:
    header = frame.parse(DATA).header
    with pytest.raises(Misuse):
        frame.to_be_signed(dataclasses.replace(header, **changes))  # type: ignore[arg-type]
    fields = {label: getattr(header, name) for label, name in enumerate(Header.__slots__, 1)}
    label = Header.__slots__.index(next(iter(changes))) + 1
    for payload in ({**fields, label: next(iter(changes.values()))}, {k: v for k, v in fields.items() if k != label}):
        with pytest.raises(FrameRejected):
            frame.parse_signed(cose.encode_sign1(cbor.encode(payload), bytes(64)))
    with pytest.raises(FrameRejected):
        frame.parse_signed(cose.encode_sign1(cbor.encode({**fields, 10: 0}), bytes(64)))


# --- bodies -------------------------------------------------------------------------------------


def lengths(*each: int) -> cbor.TaggedValue:
    return cbor.TaggedValue(frame.TAG_UINT32_LE, b"".join(n.to_bytes(4, "little") for n in each))


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ([lengths(2, 2), b"abcd"], 3),
        ([lengths(2, 2), b"abcde"], 2),
        ([lengths(2, 2), b"abc"], 2),
        ([lengths(4, 0), b"abcd"], 2),
        ([lengths(2**32 - 1, 5), b"abcd"], 2),
        ([lengths(limits.MAX_MESSAGE_BYTES + 1), bytes(limits.MAX_MESSAGE_BYTES + 1)], 1),
        ([lengths(), b""], 0),
        ([b"\x04\0\0\0", b"abcd"], 1),
        ([lengths(4), "abcd"], 1),
        ([lengths(4), b"abcd", 0], 1),
        ([cbor.TaggedValue(70, "abcd"), b"abcd"], 1),
        ({1: lengths(4)}, 1),
    ],
)
def test_bodies_that_do_not_add_up_are_refused(body: object, count: int) -> None:
    with pytest.raises(FrameRejected):
        frame.decode_body(cbor.encode(body), count)


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=20))
def test_bodies_hold_their_messages(batch: list[bytes]) -> None:
    assert frame.decode_body(frame.encode_body(batch), len(batch)) == batch


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=9), st.integers(-10, 10), st.integers(-10, 10))
@examples(40, soak=300)
def test_messages_in_one_piece_are_those_of_a_list(batch: list[bytes], start: int, end: int) -> None:
    joined = JoinedMessages(b"".join(batch), np.array([*map(len, batch)], np.int64))
    assert list(joined) == batch and len(joined) == len(batch) and joined[start:end] == batch[start:end]
    assert [joined[i] for i in range(len(batch))] == batch
    for outside in (-1, len(batch)):
        with pytest.raises(IndexError):
            joined[outside]


def test_bodies_out_of_bounds_are_not_made() -> None:
    for batch in ([], [b""], [bytes(limits.MAX_MESSAGE_BYTES + 1)], [b"x"] * (limits.MAX_EVENTS_PER_FRAME + 1)):
        with pytest.raises(Misuse):
            frame.encode_body(batch)
    with pytest.raises(Misuse, match="are allowed"):
        frame.encode_body([bytes(limits.MAX_MESSAGE_BYTES)] * 8)


# --- a predicate over readers ---------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 100])
@pytest.mark.parametrize("readers", ["name = 'alice'", "é" * 2048])
def test_a_predicate_over_readers_travels_behind_the_messages(count: int, readers: str) -> None:
    batch = messages(count)
    plain, body = frame.encode_body(batch), frame.encode_body(batch, readers)
    assert frame.bare_body(plain) == (plain, "", b"")
    assert frame.bare_body(body) == (plain, readers, b"")
    with pytest.raises(FrameRejected):
        frame.decode_body(body, count)


@pytest.mark.parametrize(
    "third",
    [b"", cbor.encode(""), cbor.encode(b"bytes"), cbor.encode(7), cbor.encode("x" * 4097), cbor.encode("x") * 2],
)
def test_a_third_part_that_is_no_predicate_is_refused(third: bytes) -> None:
    with pytest.raises(FrameRejected):
        frame.bare_body(b"\x83" + frame.encode_body(THREE)[1:] + third)
    with pytest.raises(Misuse):
        frame.encode_body(THREE, "x" * 4097)


# --- the context of a trace ---------------------------------------------------------------------------------

CONTEXT = bytes(range(1, 26))


@pytest.mark.parametrize("count", [1, 2, 100])
@pytest.mark.parametrize("readers", ["", "name = 'alice'"])
def test_the_context_of_a_trace_travels_behind_the_messages(count: int, readers: str) -> None:
    batch = messages(count)
    plain, body = frame.encode_body(batch), frame.encode_body(batch, readers, CONTEXT)
    assert frame.bare_body(body) == (plain, readers, CONTEXT)
    with pytest.raises(FrameRejected):
        frame.decode_body(body, count)


@pytest.mark.parametrize("context", [b"", CONTEXT[:-1], CONTEXT + b"x", bytes(16) + CONTEXT[16:], bytes(25)])
def test_a_fourth_part_that_is_no_context_is_refused(context: bytes) -> None:
    fourth = cbor.encode("") + cbor.encode(context)
    with pytest.raises(FrameRejected):
        frame.bare_body(b"\x84" + frame.encode_body(THREE)[1:] + fourth)
    if context:
        with pytest.raises(Misuse):
            frame.encode_body(THREE, "", context)
