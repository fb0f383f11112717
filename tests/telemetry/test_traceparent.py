"""The context of a trace in a content type: what goes in comes out, and nothing else is taken for one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.model.event import MAX_CONTENT_TYPE_LENGTH
from sealcast.model.schema import Schema
from sealcast.protections.checked import CheckedColumns, CheckedEvent, CheckedRows
from sealcast.wire import traceparent
from sealcast.wire.layout import arrow_schema

CONTEXT = bytes(range(1, 26))
TEXT = "00-0102030405060708090a0b0c0d0e0f10-1112131415161718-19"
SCHEMA = Schema.from_json({"attributes": [{"name": "level", "type": "int"}]})
KINDS = ["application/json", "text/plain; charset=utf-8", "x" * MAX_CONTENT_TYPE_LENGTH]


def test_it_is_spelled_as_w3c_spells_it() -> None:
    assert traceparent.text(CONTEXT) == TEXT
    assert traceparent.with_context("a/b", CONTEXT) == f"a/b; traceparent={TEXT}"
    assert traceparent.split(f"a/b; traceparent={TEXT}") == ("a/b", CONTEXT)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=255))
def test_a_content_type_is_the_same_again(kind: str) -> None:
    marked = traceparent.with_context(kind, CONTEXT)
    assert len(marked) <= MAX_CONTENT_TYPE_LENGTH
    assert traceparent.split(marked) == (kind, CONTEXT) or marked == kind


@pytest.mark.parametrize(
    "value", ["", TEXT[:-1], TEXT.upper().replace("00-", "01-"), f"00-{'0' * 32}-1112131415161718-01", TEXT + " "]
)
def test_what_is_no_context_stays_in_the_content_type(value: str) -> None:
    assert traceparent.split(f"a/b; traceparent={value}") == (f"a/b; traceparent={value}", b"")


def test_rows_and_columns_are_marked_alike() -> None:
    rows = CheckedRows(SCHEMA, [CheckedEvent({"level": 1}, b"", kind) for kind in KINDS]).traced(CONTEXT)
    columns = pa.RecordBatch.from_arrays([pa.array([1] * len(KINDS))], schema=arrow_schema(SCHEMA))
    payloads = pa.array([b""] * len(KINDS), pa.binary())
    marked = CheckedColumns(SCHEMA, columns, payloads, pa.array(KINDS)).traced(CONTEXT)
    assert [event.content_type for event in rows] == [event.content_type for event in marked]
    assert [event.content_type for event in rows][2] == KINDS[2], "there is no room for it"
    plain = CheckedColumns(SCHEMA, columns, payloads).traced(CONTEXT)
    assert {event.content_type for event in plain} == {f"application/octet-stream; traceparent={TEXT}"}
