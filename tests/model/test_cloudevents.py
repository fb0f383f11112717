"""CloudEvents, held to the official package as another implementation."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.exceptions import CloudEventValidationError
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import EventRejected
from sealcast.model import Event, OpenedEvent, Position
from sealcast.model.cloudevents import CONTENT_TYPE, from_event, to_event

GOOD: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/sensors", "type": "org.example.read"}
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=12).filter(str.strip)
EXTENSIONS = st.dictionaries(
    st.text("abcdefghij0123456789", min_size=1, max_size=10).map("x".__add__),
    st.one_of(TEXT, st.booleans(), st.integers(-(2**31), 2**31 - 1)),
    max_size=4,
)
JSON_DATA = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)


def opened(event: Event) -> OpenedEvent:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    place = Position(0, 7, 1)
    return OpenedEvent(place, "nyse", moment, 3, event.attributes, event.payload, event.content_type, bytes(16))


def theirs(data: bytes) -> CloudEvent:
    return JSONFormat().read(None, data)  # type: ignore[return-value]


@given(
    extensions=EXTENSIONS,
    data=st.one_of(st.none(), st.binary(min_size=1, max_size=40), st.dictionaries(TEXT, JSON_DATA, max_size=4)),
    texts=st.tuples(TEXT, TEXT, TEXT),
    time=st.integers(0, 4_000_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
)
def test_what_the_official_package_writes_comes_back_to_it_unchanged(
    extensions: dict[str, Any], data: Any, texts: tuple[str, str, str], time: datetime
) -> None:
    id, subject, type = texts
    kind = {"datacontenttype": "application/octet-stream" if isinstance(data, bytes) else "application/json"}
    context = {**GOOD, "id": id, "subject": subject, "type": type, "time": time, **kind, **extensions}
    before = CloudEvent(context, data)
    made = to_event(JSONFormat().write(before), ["subject", "type"])
    assert made.attributes == {"subject": subject, "type": type}
    assert made.content_type == CONTENT_TYPE
    after = theirs(json.dumps(from_event(opened(made), "quotes")).encode())
    found = after.get_attributes()
    assert (found.pop("sealcastpublisher"), found.pop("sealcastposition")) == ("nyse", "0/7/1")
    assert found == before.get_attributes()
    assert after.get_data() == before.get_data()


def test_any_other_event_is_a_cloudevent_to_the_official_package() -> None:
    for payload in (b"text", b"\xff\x00"):
        event = opened(Event({"price": 7, "odd name": None}, payload, "text/plain"))
        found = theirs(json.dumps(from_event(event, "quotes")).encode())
        assert found.get_type() == "sealcast.event"
        assert found.get_source() == "/topics/quotes/publishers/nyse"
        assert found.get_id() == f"nyse/{bytes(16).hex()}/3"
        assert found.get_data()["attributes"] == {"price": 7, "odd name": None}  # type: ignore[index, call-overload]


def test_what_says_that_it_is_one_and_is_none_is_any_other_event() -> None:
    event = opened(Event({}, b'{"specversion": "1.0"}', CONTENT_TYPE))
    assert from_event(event, "quotes")["type"] == "sealcast.event"


def test_attributes_come_from_the_context_or_else_from_the_data() -> None:
    line = json.dumps({**GOOD, "region": "eu", "data": {"price": 7, "region": "us", "data": 1}}).encode()
    assert to_event(line, ["price", "region", "missing"]).attributes == {"price": 7, "region": "eu"}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"id": None}, "'id', which is missing"),
        ({"source": ""}, "'source', which is missing"),
        ({"type": 7}, "'type' is a text"),
        ({"specversion": "0.3"}, "specversion is 1.0"),
        ({"time": "yesterday"}, "RFC 3339"),
        ({"time": "2026-13-01T00:00:00Z"}, "RFC 3339"),
        ({"Upper": "x"}, "no name of an attribute"),
        ({"a_b": "x"}, "no name of an attribute"),
        ({"list": [1]}, "extension 'list'"),
        ({"big": 2**31}, "extension 'big'"),
        ({"data": 1, "data_base64": "AA=="}, "not both"),
        ({"data_base64": "no!"}, "is base64"),
        ({"sealcastpublisher": "mallory"}, "given to readers"),
    ],
)
def test_what_is_no_cloudevent_is_refused(change: dict[str, Any], match: str) -> None:
    with pytest.raises(EventRejected, match=match):
        to_event(json.dumps({**GOOD, **change}).encode(), [])


@pytest.mark.parametrize("name", ["source", "type"])  # it makes an id where there is none
def test_both_refuse_what_lacks_something(name: str) -> None:
    line = json.dumps({key: value for key, value in GOOD.items() if key != name}).encode()
    with pytest.raises(EventRejected):
        to_event(line, [])
    with pytest.raises(CloudEventValidationError):
        theirs(line)


@pytest.mark.parametrize("line", [b"[]", b"{", b"7", b'{"id": "1", "id": "2"}', b"[" * 100_000])
def test_what_is_no_object_is_refused(line: bytes) -> None:
    with pytest.raises(EventRejected):
        to_event(line, [])
