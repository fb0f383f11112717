"""Messages: one by one and as columns they are the same, and no other bytes than the one encoding are taken."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import EventRejected, Misuse
from sealcast.model.event import MAX_PAYLOAD_BYTES
from sealcast.model.schema import Attribute, Schema, Type
from sealcast.primitives import merkle
from sealcast.wire.limits import MAX_MESSAGE_BYTES
from sealcast.wire.records import RecordCodec, arrow_schema, fresh_salts
from tests.effort import examples
from tests.wire.schemas import events, schemas

ALL = Schema(tuple(Attribute(f"{t}", t) for t in Type))
CODEC = RecordCodec(ALL)
VALUES = {
    "int": -5,
    "float": 0.3,
    "decimal": Decimal("1.500000"),
    "string": "Grüße",
    "bool": True,
    "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
}
SALT = bytes(range(16))
(MESSAGE,) = CODEC.encode([VALUES], [b"payload"], "text/plain", SALT)
(EMPTY,) = CODEC.encode([{}], [b""], "x", SALT)


def test_the_layout_is_the_documented_one() -> None:
    text, kind = "Grüße".encode(), b"text/plain"
    expected = b"\x00" + SALT + bytes([0b111111])
    expected += struct.pack("<qdqIBq", -5, 0.3, 1_500_000, len(text), 1, 1_767_225_600_000_000)
    expected += struct.pack("<BI", len(kind), 7) + text + kind + b"payload"
    assert expected == MESSAGE
    assert b"\x00" + SALT + bytes(1 + 37) + b"\x01\0\0\0\0x" == EMPTY


def test_sha256_of_a_message_is_its_leaf_hash() -> None:
    assert merkle.hash_messages([MESSAGE]) == [merkle.leaf_hash(MESSAGE[1:])]


@given(schemas.flatmap(lambda s: st.tuples(st.just(s), st.lists(events(s), max_size=8))))
@examples(37, soak=150)
def test_comes_back_as_it_went_one_by_one_and_as_columns(case: tuple[Schema, list]) -> None:  # type: ignore[type-arg]
    schema, batch = case
    codec = RecordCodec(schema)
    salts = fresh_salts(len(batch))
    messages = codec.encode([v for v, _, _ in batch], [p for _, p, _ in batch], [c for _, _, c in batch], salts)
    assert [codec.decode_one(m) for m in messages] == batch

    decoded = codec.decode(messages)
    decoded.columns.validate(full=True)
    assert decoded.bad == {}
    assert decoded.columns.schema == arrow_schema(schema)
    for j, attribute in enumerate(schema.attributes):
        column = [attribute.from_physical(x) for x in decoded.columns.column(j).to_pylist()]
        assert column == [v[attribute.name] for v, _, _ in batch]
    assert decoded.payloads.to_pylist() == [p for _, p, _ in batch]
    assert decoded.content_types.to_pylist() == [c for _, _, c in batch]
    starts = decoded.payload_start.tolist()
    assert [m[at:] for m, at in zip(messages, starts, strict=True)] == [p for _, p, _ in batch]

    assert codec.encode_columns(decoded.columns, decoded.payloads, decoded.content_types, salts) == messages


# --- strictness ---------------------------------------------------------------------------------


def put(at: int, data: bytes, message: bytes = MESSAGE) -> bytes:
    return message[:at] + data + message[at + len(data) :]


CELL = dict(zip(map(str, Type), CODEC.layout.cell_at, strict=True))
NOT_RECORDS = {
    "nothing": b"",
    "a byte": b"\0",
    "the fixed part short of a byte": EMPTY[: CODEC.layout.fixed_bytes - 1],
    "an inner node's first byte": put(0, b"\x01"),
    "a presence bit too many": put(17, b"\x7f"),
    "the other presence bit too many": put(17, b"\xbf"),
    "an absent int with a value": put(17, bytes([0b111110])),
    "an absent float with a value": put(17, bytes([0b111101])),
    "an absent float of -0.0": put(CELL["float"], struct.pack("<d", -0.0), EMPTY),
    "an absent decimal with a value": put(17, bytes([0b111011])),
    "an absent string with a length": put(17, bytes([0b110111])),
    "an absent bool of true": put(17, bytes([0b101111])),
    "an absent timestamp with a value": put(17, bytes([0b011111])),
    "a bool of 2": put(CELL["bool"], b"\x02"),
    "not a number": put(CELL["float"], struct.pack("<d", float("nan"))),
    "infinity": put(CELL["float"], struct.pack("<d", float("-inf"))),
    "-0.0": put(CELL["float"], struct.pack("<d", -0.0)),
    "a decimal that does not fit": put(CELL["decimal"], struct.pack("<q", -(2**63))),
    "before the calendar": put(CELL["timestamp"], struct.pack("<q", -62_135_596_800_000_001)),
    "after the calendar": put(CELL["timestamp"], struct.pack("<q", 253_402_300_800_000_000)),
    "not UTF-8": MESSAGE.replace("Grüße".encode(), b"Gr\xff\xbc\xc3\x9fe"),
    "a string cut within a character": put(CELL["string"], struct.pack("<I", 3)).replace(b"\xbc\xc3\x9fe", b""),
    "a string longer than the message": put(CELL["string"], struct.pack("<I", 2**32 - 1)),
    "a payload longer than the message": put(CODEC.layout.fixed_bytes - 4, struct.pack("<I", 8)),
    "a payload shorter than the message": put(CODEC.layout.fixed_bytes - 4, struct.pack("<I", 6)),
    "lengths that add up past 32 bits": put(CODEC.layout.fixed_bytes - 4, struct.pack("<I", 2**32 - 7)),
    "a byte more": MESSAGE + b"\0",
    "a byte less": MESSAGE[:-1],
    "no content type": EMPTY[:-6] + b"\0\0\0\0\0",
    "a content type with a line break": MESSAGE.replace(b"text/plain", b"text\nplain"),
    "a content type beyond ASCII": MESSAGE.replace(b"text/plain", b"text/pl\xc3\xa4"[:10]),
    "a payload over the limit": put(
        CODEC.layout.fixed_bytes - 4, struct.pack("<I", MAX_PAYLOAD_BYTES + 1), MESSAGE[:-7]
    )
    + bytes(MAX_PAYLOAD_BYTES + 1),
    "longer than any message": MESSAGE + bytes(MAX_MESSAGE_BYTES),
}


@pytest.mark.parametrize("name", NOT_RECORDS)
def test_what_is_no_record_is_named_and_harms_no_neighbour(name: str) -> None:
    broken = NOT_RECORDS[name]
    with pytest.raises(EventRejected):
        CODEC.decode_one(broken)
    decoded = CODEC.decode([MESSAGE, broken, EMPTY, MESSAGE])
    decoded.columns.validate(full=True)
    assert list(decoded.bad) == [1]
    assert decoded.columns.slice(1, 1).to_pylist() == [dict.fromkeys(map(str, Type))]
    clean = CODEC.decode([MESSAGE, EMPTY, MESSAGE])
    assert decoded.columns.take([0, 2, 3]) == clean.columns
    assert decoded.payloads.to_pylist() == [b"payload", b"", b"", b"payload"]
    assert decoded.content_types.to_pylist() == ["text/plain", "", "x", "text/plain"]
    assert decoded.payload_start[1] == 0
    values = np.frombuffer(decoded.columns.column("int").buffers()[1], np.int64)
    assert values.tolist() == [-5, 0, 0, -5], "what a bad row held must not show, not even under a NULL"


def test_a_batch_of_nothing_and_a_batch_of_nothing_good() -> None:
    assert CODEC.decode([]).columns.num_rows == 0
    assert CODEC.decode([]).payloads.to_pylist() == []
    decoded = CODEC.decode(list(NOT_RECORDS.values()))
    assert list(decoded.bad) == list(range(len(NOT_RECORDS)))
    assert all(column.null_count == len(NOT_RECORDS) for column in decoded.columns.columns)


@given(st.data())
@examples(60, soak=300)
def test_both_readers_agree_on_altered_messages(data: st.DataObject) -> None:
    """The plain reader and the vectorised one: taken or refused alike, and what is taken encodes to the same bytes."""
    message = bytearray(data.draw(st.sampled_from([MESSAGE, EMPTY])))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(message) - 1))
        message[at] ^= data.draw(st.integers(0, 255))
    agree(bytes(message))


@given(st.binary(max_size=120))
def test_both_readers_agree_on_noise(noise: bytes) -> None:
    agree(noise)
    agree(b"\0" * 17 + noise)


def agree(message: bytes) -> None:
    decoded = CODEC.decode([message])
    decoded.columns.validate(full=True)
    try:
        values, payload, kind = CODEC.decode_one(message)
    except EventRejected:
        assert list(decoded.bad) == [0]
        return
    assert decoded.bad == {}
    assert decoded.payloads.to_pylist() == [payload]
    physical = {a.name: a.to_physical(values[a.name]) for a in ALL.attributes}
    assert decoded.columns.to_pylist() == [physical]
    assert CODEC.encode([values], [payload], kind, message[1:17]) == [message]
    assert CODEC.encode_columns(decoded.columns, decoded.payloads, kind, message[1:17]) == [message]


# --- limits and misuse --------------------------------------------------------------------------


def test_events_over_a_limit_are_refused_when_they_are_made() -> None:
    huge = bytes(MAX_PAYLOAD_BYTES + 1)
    columns = CODEC.decode([EMPTY]).columns
    for kind in ("", "x" * 256, "täxt", "a\nb"):
        with pytest.raises(EventRejected, match="content type"):
            CODEC.encode([{}], [b""], kind)
        with pytest.raises(EventRejected, match="content type"):
            CODEC.encode_columns(columns, pa.array([b""]), pa.array([kind]))
    with pytest.raises(EventRejected, match="payload"):
        CODEC.encode([{}], [huge])
    with pytest.raises(EventRejected, match="payload"):
        CODEC.encode_columns(columns, pa.array([huge], pa.binary()))
    strings = Schema(tuple(Attribute(f"s{i}", Type.STRING) for i in range(40)))
    wide = {a.name: "x" * 65_000 for a in strings.attributes}
    with pytest.raises(EventRejected, match="an event that takes"):
        RecordCodec(strings).encode([wide], [b""])
    with pytest.raises(EventRejected, match="an event that takes"):
        batch = pa.RecordBatch.from_pylist([wide], schema=arrow_schema(strings))
        RecordCodec(strings).encode_columns(batch, pa.array([b""]))


def test_calls_that_make_no_sense() -> None:
    columns = CODEC.decode([EMPTY]).columns
    for call in (
        lambda: CODEC.encode([{}], []),
        lambda: CODEC.encode([{}], [b""], ["x", "y"]),
        lambda: CODEC.encode([{}], [b""], "x", bytes(15)),
        lambda: CODEC.encode_columns(columns, pa.array([], pa.binary())),
        lambda: CODEC.encode_columns(columns, pa.array([None], pa.binary())),
        lambda: CODEC.encode_columns(columns, pa.array([b""]), pa.array(["x", "y"])),
        lambda: CODEC.encode_columns(columns, pa.array([b""]), "x", bytes(17)),
        lambda: CODEC.encode_columns(columns.select([0]), pa.array([b""])),
    ):
        with pytest.raises(Misuse):
            call()


def test_negative_zero_travels_as_zero() -> None:
    schema = Schema((Attribute("x", Type.FLOAT),))
    codec = RecordCodec(schema)
    columns = pa.RecordBatch.from_arrays([pa.array([-0.0])], schema=arrow_schema(schema))
    (message,) = codec.encode_columns(columns, pa.array([b""]), "x", SALT)
    assert [message] == codec.encode([{"x": 0.0}], [b""], "x", SALT) == codec.encode([{"x": -0.0}], [b""], "x", SALT)


def test_slices_of_columns_encode_as_they_stand() -> None:
    """Arrow slices share buffers and start anywhere: offsets must be honoured."""
    salts = fresh_salts(4)
    messages = CODEC.encode([VALUES, {}, VALUES, {}], [b"a", b"bc", b"", b"d"], ["x", "yy", "x", "yy"], salts)
    d = CODEC.decode(messages)
    part = CODEC.encode_columns(
        d.columns.slice(1, 2), d.payloads.slice(1, 2), d.content_types.slice(1, 2), salts[16:48]
    )
    assert part == messages[1:3]


def test_salts_are_fresh() -> None:
    one, two = CODEC.encode([{}, {}], [b"", b""])
    assert one[1:17] != two[1:17]
    assert one[17:] == two[17:]
    assert np.unique([m[1:17] for m in CODEC.encode([{}] * 100, [b""] * 100)]).size == 100
