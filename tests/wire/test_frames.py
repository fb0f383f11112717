"""Frames by the batch are read as they are one by one: the same ones, to the same values."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import FrameRejected
from sealcast.wire import cbor, cose, frame, frames
from sealcast.wire.frame import Frame, Header
from sealcast.wire.frames import Frames, parse_many
from sealcast.wire.limits import MAX_EPOCH, MAX_EVENTS_PER_FRAME, MAX_SEQUENCE, MAX_TIME_MICROS, MAX_TOKEN_BYTES
from tests.effort import examples
from tests.wire.frames import Publisher, messages

DATA = Publisher().publish(messages(1), sequence=40)


def one_by_one(data: bytes) -> Frame | None:
    try:
        return frame.parse(data)
    except FrameRejected:
        return None


def compare(data: bytes, found: Frames, at: int = 0) -> None:
    wanted = one_by_one(data)
    assert bool(found.good[at]) is (wanted is not None)
    if wanted is None:
        return

    def cut(span: object, size: int | None = None) -> bytes:
        start, end = (span[0][at], span[1][at]) if size is None else (span[at], span[at] + size)  # type: ignore[index]
        return data[int(start) : int(end)]

    header = wanted.header
    assert cut(found.token) == wanted.token and cut(found.signed) == wanted.signed
    assert cut(found.fields.publisher) == header.publisher.encode()
    assert cut(found.fields.schema, 32) == header.schema and cut(found.fields.root, 32) == header.root
    assert cut(found.fields.token_digest, 32) == header.token and cut(found.signature, 64) == wanted.signature
    assert cut(found.commitment, 32) == wanted.commitment and cut(found.nonce, 12) == wanted.nonce
    assert data[int(found.ciphertext[at]) :] == wanted.ciphertext
    numbers = [
        int(column[at]) for column in (found.fields.sequence, found.fields.count, found.fields.time, found.fields.epoch)
    ]
    assert numbers == [header.sequence, header.count, header.time, header.epoch]
    assert cose.AES_GCM[wanted.key_bits] == found.algorithm[at]
    raw = cut(found.header)
    assert frames.BEFORE_HEADER + cut((found.header_string, found.header[1])) == wanted.to_be_signed
    sender = raw[: int(found.fields.sender_end[at] - found.header[0][at])]
    assert sender.endswith(header.boot) and header.topic in sender
    before_signed = frames.before_signed(wanted.commitment, wanted.key_bits)
    assert before_signed + cut((found.token[1], found.signed[1])) == wanted.body_aad


def edges(most: int, least: int = 0) -> st.SearchStrategy[int]:
    """Numbers on both sides of every length that CBOR has for them."""
    steps = [n + d for n in (24, 1 << 8, 1 << 16, 1 << 32, 1 << 63) for d in (-1, 0)]
    return st.one_of(st.integers(least, most), st.sampled_from([n for n in steps if least <= n <= most]))


headers = st.builds(
    Header,
    topic=st.binary(min_size=16, max_size=16),
    publisher=st.text(min_size=1, max_size=80).filter(lambda t: 0 < len(t.encode("utf-8", "surrogatepass")) <= 256),
    boot=st.binary(min_size=16, max_size=16),
    sequence=edges(MAX_SEQUENCE),
    count=edges(MAX_EVENTS_PER_FRAME, 1),
    time=edges(MAX_TIME_MICROS),
    schema=st.binary(min_size=32, max_size=32),
    epoch=edges(MAX_EPOCH),
    root=st.binary(min_size=32, max_size=32),
    token=st.binary(min_size=32, max_size=32),
)


@given(
    headers,
    st.one_of(st.integers(0, 300), st.just(MAX_TOKEN_BYTES)),
    st.sampled_from([17, 23, 24, 255, 256, 70_000]),
    st.sampled_from([128, 192, 256]),
)
@examples(37, soak=150)
def test_every_header_is_read_alike(header: Header, token: int, size: int, bits: int) -> None:
    if any(0xD800 <= ord(c) < 0xE000 for c in header.publisher):
        return
    signed = frame.encode_signed(header, bytes(64))
    data = frame.encode(signed, bytes(32), bytes(size), bits, token=bytes(token))
    compare(data, parse_many([data]))


@given(st.integers(0, len(DATA) - 1), st.binary(max_size=6), st.integers(0, 6))
@examples(60, soak=300)
def test_what_is_bent_is_refused_alike(at: int, insert: bytes, drop: int) -> None:
    data = DATA[:at] + insert + DATA[at + drop :]
    compare(data, parse_many([data]))


def test_every_flip_and_every_cut_is_read_alike() -> None:
    bent = [DATA[:at] + bytes([DATA[at] ^ flip]) + DATA[at + 1 :] for at in range(len(DATA)) for flip in (1, 32, 128)]
    bent += [DATA[:at] for at in range(len(DATA))] + [DATA + b"\0", DATA * 2, b"", DATA]
    found = parse_many(bent)
    for at, data in enumerate(bent):
        compare(data, found, at)
    assert 0 < found.good.sum() < len(bent)


def test_numbers_have_one_spelling() -> None:
    """The same header, its numbers spelt longer than need be: no frame, however it is read."""
    parsed = frame.parse(DATA)
    payload = cose.parse_sign1(parsed.signed).payload
    longer = payload.replace(b"\x05\x01\x06", b"\x05\x18\x01\x06")
    assert longer != payload
    signed = cbor.encode(cbor.TaggedValue(18, [cose.SIGN1_PROTECTED, {}, longer, parsed.signature]))
    data = cbor.encode([frame.MAGIC, frame.VERSION, parsed.token, signed, parsed.sealed])
    compare(data, parse_many([data]))
    assert one_by_one(data) is None


def test_no_frames_are_no_frames() -> None:
    assert parse_many([]).good.size == 0


def test_a_batch_of_all_sizes() -> None:
    publishers = [replace(Publisher(), name="p" * size) for size in (1, 23, 24, 200)]
    batch = [p.publish(messages(n), sequence=n * 1000) for p in publishers for n in (1, 2, 30)]
    found = parse_many(batch)
    assert found.good.all()
    for at, data in enumerate(batch):
        compare(data, found, at)
