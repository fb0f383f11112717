"""The page of parties: under each protection it shows what is true, and it finds what a weaker system would show."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest

from sealcast import Event
from sealcast.console.hexdump import dump
from sealcast.console.samples import EXAMPLE, event_of, first_values, matching, unmatching
from sealcast.errors import EventRejected
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.lab.seen import READER, HeldBytes, SeenBy, SeenByAll, _with, seen, words_of
from sealcast.model.protection import PROTECTIONS
from tests.console.test_html import Read
from tests.console.world import HOSTILE, TOPIC, Served

EVENT = Event({"ward": "oncology", "pulse": 118}, b"the patient is Mrs. Jones")
FILTER = "ward = 'oncology'"


@pytest.fixture(scope="module")
def all_seen() -> dict[str, SeenByAll]:
    return {name: seen(kind(), EXAMPLE, EVENT, FILTER, "ward = 'other'") for name, kind in PROTECTIONS.items()}


def _of(found: SeenByAll, role: str) -> list[SeenBy]:
    return [party for party in found.parties if party.role == role]


@pytest.mark.parametrize("name", PROTECTIONS)
def test_the_reader_reads_and_nobody_else_without_a_right_does(all_seen: dict[str, SeenByAll], name: str) -> None:
    found = all_seen[name]
    reader, outsider = _of(found, "subscriber")
    assert reader.who == READER and reader.payload == EVENT.payload
    assert reader.attributes == {"ward": "oncology", "pulse": 118}
    assert outsider.payload is None and outsider.attributes is None
    (thief,) = _of(found, "thief")
    assert thief.found == [] and len(thief.held[0].data) > 10_000


@pytest.mark.parametrize("name", PROTECTIONS)
def test_brokers_read_what_the_protection_says_and_no_more(all_seen: dict[str, SeenByAll], name: str) -> None:
    """What the model states as facts, found again in bytes."""
    found, protection = all_seen[name], PROTECTIONS[name]()
    carriers = [*_of(found, "broker"), *_of(found, "peer")]
    assert carriers
    for party in carriers:
        assert (party.attributes is not None) is protection.brokers_read
        assert ("ward" in party.found) is protection.brokers_read
        assert ("payload" in party.found) is (protection.brokers_read and protection.payloads_seen)
        assert (party.filter == FILTER) is protection.brokers_read
        assert "filter" not in party.found


def test_the_search_finds_what_is_there() -> None:
    """The weakened variant: a party whose bytes are the event as it is."""
    words = words_of(EVENT, FILTER)
    assert _with(words, SeenBy("x", "broker")).found == []
    open_hearted = SeenBy(
        "x", "broker", [HeldBytes("all", b"\0oncology\0the patient is Mrs. Jones\0" + FILTER.encode())]
    )
    assert set(_with(words, open_hearted).found) == {"ward", "payload", "filter"}


def test_bytes_are_shown_as_they_are_with_words_marked() -> None:
    data = bytes(range(200)) + b"\xffoncology\xff" + bytes(40)
    markup = dump(data, {"ward": b"oncology"}, "bytes")
    assert Read(markup).tags.count("mark") >= 2  # in hexadecimal and as text
    assert "readable in them: ward" in markup and b"oncology".hex(" ")[:8] in markup
    assert "nothing readable" in dump(b"\0" * 9, {"ward": b"oncology"}, "bytes")


def test_a_form_makes_events_of_a_schema() -> None:
    values = first_values(EXAMPLE)
    event = event_of(EXAMPLE, values, "x")
    for text, expected in ((matching(EXAMPLE, event), True), (unmatching(EXAMPLE, event), False)):
        assert text and evaluate(fit(parse(text), EXAMPLE), dict(event.attributes)) is expected
    with pytest.raises(EventRejected, match="no int"):
        event_of(EXAMPLE, values | {"pulse": "fast"}, "x")
    with pytest.raises(EventRejected):
        event_of(EXAMPLE, values | {"pulse": "301"}, "x")


def test_the_page_shows_the_topics_own_protection(served: Served) -> None:
    answer = served.page(f"/sees?topic={TOPIC}")
    assert answer.status == 200 and "Under endpoint" in answer.body


def test_hostile_values_are_text(served: Served) -> None:
    asked = urlencode({"topic": TOPIC, "a.symbol": HOSTILE[:60], "payload": HOSTILE, "filter": ""}, quote_via=quote)
    answer = served.page(f"/sees?{asked}")
    assert answer.status == 200 and "&lt;img" in answer.body
    assert not {"img", "iframe"} & set(Read(answer.body).tags) and Read(answer.body).tags.count("script") == 1


@pytest.mark.parametrize("asked", ["protection=none", "a.pulse=fast", "a.ward=&a.pulse=7&filter=nonsense+nonsense"])
def test_what_cannot_be_is_said(served: Served, asked: str) -> None:
    answer = served.page(f"/sees?{asked}", sealcast_part="1")
    assert answer.status in (200, 400) and 'role="alert"' in answer.body
