"""Opening in columns gives what opening one by one gives: the same events, and the same refusals, word by word.

What is opened is honest, or altered as a bad broker could: any piece that still agrees with itself. The one-by-one path
is the one on which a handful of deliveries still goes.
"""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.clients import subscriber as reading
from sealcast.errors import Bug, CannotOpen, FrameRejected
from sealcast.model.event import OpenedEvent
from sealcast.protections import opened
from sealcast.protections.attribute.carry import carry
from sealcast.protections.opened import OpenedPart
from sealcast.protections.port import DEFAULT_KEY_MEMORY, Inbox, Reader, client_side
from sealcast.protections.stays import FoundPart
from sealcast.wire import hops, peer_pieces, sealed
from sealcast.wire.hops import HopPiece
from sealcast.wire.peer_pieces import PeerPiece
from sealcast.wire.sealed import SealedPiece
from tests.clients import layered_pump
from tests.clients.pump import pump
from tests.effort import examples
from tests.protections.test_columns import EPOCH, SCHEMA
from tests.protections.world import names

FEW, MANY = 10**9, 0
READERS = {"ann": "lot >= 0", "bob": "lot < 8", "eve": "lot >= 12"}
#: How many are published by each call. Where an event takes milliseconds to open, fewer.
FRAMES, FEWER = (1, 20, 2), (1, 2)
WIRE: dict[type, Any] = {SealedPiece: sealed, HopPiece: hops, PeerPiece: peer_pieces}


@pytest.fixture(scope="module", params=names())
def realm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Realm:
    """Everything delivered, and nothing read yet."""
    made = Realm.create(tmp_path_factory.mktemp("opening") / "realm")
    made.create_topic("quotes", SCHEMA, protection=request.param, access="members")
    made.enrol_many(["nyse", "xetra", *READERS])
    protection = made.state().topic("quotes").protection
    if protection.overlay:
        made.place_node("quotes", "broker")
    for name, text in READERS.items():
        made.subscribe("quotes", name, text)
    for publisher in ("nyse", "xetra"):
        with Publisher(made, "quotes", as_=publisher) as out:
            for count in FEWER if protection.peers else FRAMES:
                out.publish([event(number) for number in range(count)])
    if protection.peers:
        carry(made, ["quotes"])
    elif protection.overlay:
        layered_pump.pump(made, "quotes")
    else:
        pump(made, "quotes")
    return made


def event(number: int) -> Event:
    values = {"lot": number % 16, "symbol": "ß" * (number % 3), "price": number % 5, "open": number % 2 == 0}
    present = {name: value for at, (name, value) in enumerate(values.items()) if name == "lot" or number % 7 != at}
    return Event(present | {"at": EPOCH}, bytes(number), ["text/plain", "application/json"][number % 2])


@pytest.fixture
def few() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def inbox_of(realm: Realm, name: str) -> Inbox:
    side = client_side(realm.state().topic("quotes").protection)
    return side.inbox(Reader(realm, "quotes", name, None, None, DEFAULT_KEY_MEMORY))


Honest = dict[str, list[FoundPart[Any]]]


@pytest.fixture(scope="module")
def honest(realm: Realm) -> Honest:
    """What each has in its mailbox."""
    found = Honest()
    for name in READERS:
        with closing(inbox_of(realm, name)) as inbox:
            found[name] = list(inbox.mail.parts())
    return found


def altered(piece: Any, random: Random) -> Any:
    """The piece with something in it changed, if it still agrees with itself: else no reader would look at it."""
    fields = [field.name for field in dataclasses.fields(piece) if _alterable(getattr(piece, field.name))]
    name = random.choice(fields)
    value = getattr(piece, name)
    if isinstance(value, np.ndarray):
        changed = value.astype(np.int64)
        changed[random.randrange(len(value))] = int(random.choice(value.tolist())) + random.choice((0, 0, 1, -1))
    elif isinstance(value, tuple):
        at = random.randrange(len(value))
        changed = (*value[:at], _other_frame(value[at], random), *value[at + 1 :])
    else:
        changed = _flipped(bytes(value), random)
    try:
        wire = WIRE[type(piece)]
        return wire.parse(wire.encode(dataclasses.replace(piece, **{name: changed})))
    except (Bug, FrameRejected, OverflowError, ValueError):
        return piece


def _alterable(value: object) -> bool:
    if isinstance(value, tuple):
        return bool(value) and hasattr(value[0], "signed")
    return isinstance(value, np.ndarray | bytes | memoryview) and len(value) > 0


def _other_frame(frame: Any, random: Random) -> Any:
    name = "nodes" if hasattr(frame, "nodes") and random.random() < 0.7 else "signed"
    new = {name: _flipped(getattr(frame, name), random)}
    return frame._replace(**new) if hasattr(frame, "_replace") else dataclasses.replace(frame, **new)


def _flipped(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 20))):
        changed[random.randrange(len(data))] ^= random.choice((1, 128, 255))
    return bytes(changed)


Said = tuple[list[tuple[int, OpenedEvent, bytes]], dict[int, tuple[type, str]]]


def said(part: OpenedPart, first: int = 0) -> Said:
    events = zip(part.rows.tolist(), part.opened.events(), strict=True)
    refused = {first + row: (type(error), error.message) for row, error in part.refused.items()}
    return [(first + row, event, event.boot) for row, event in events], refused


def opened_all(realm: Realm, name: str, parts: list[FoundPart[Any]], size: int) -> list[Said]:
    """All that a new reader makes of these, so many at a time."""
    found = list[Said]()
    with closing(inbox_of(realm, name)) as inbox:
        for part in parts:
            done, events, refused = 0, [], {}
            while done < len(part.part):
                tried = inbox.open(part.cut(done, min(done + size, len(part.part))))
                more, why = said(tried, done)
                events, refused, done = events + more, refused | why, done + tried.tried
            found.append((events, refused))
    return found


@given(st.randoms(use_true_random=False), st.sampled_from(sorted(READERS)), st.sampled_from([3, 10, 1000]))
@examples(8, soak=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_broker_altered(
    realm: Realm, honest: Honest, few: pytest.MonkeyPatch, random: Random, name: str, size: int
) -> None:
    parts = []
    for found in honest[name]:
        piece = found.part.piece
        for _ in range(random.choice((0, 1, 1, 3))):
            piece = altered(piece, random)
        # The rows that it had before: whoever alters who gets what changes those, too.
        parts.append(dataclasses.replace(found, part=dataclasses.replace(found.part, piece=piece)))
        fits = all(event < len(piece.frame_index) for event in found.part.events)
        assert fits
    few.setattr(opened, "FEW", FEW)
    one_by_one = opened_all(realm, name, parts, 1)
    few.setattr(opened, "FEW", MANY)
    assert opened_all(realm, name, parts, size) == one_by_one


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.booleans())
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_polls_of_any_size(realm: Realm, few: pytest.MonkeyPatch, sizes: list[int], columns: bool) -> None:
    few.setattr(opened, "FEW", FEW)
    with Subscriber(realm, "quotes", as_="ann", from_="start") as reader:
        expected = [event for _ in range(100) for event in reader.poll(1)]
    few.setattr(opened, "FEW", MANY)
    got, tables = list[OpenedEvent](), list[pa.Table]()
    with Subscriber(realm, "quotes", as_="ann", from_="start") as reader:
        for size in [*sizes, 1000]:
            if columns:
                tables.append(reader.poll_arrow(size))
                assert tables[-1].num_rows <= size
            else:
                got += reader.poll(size)
        assert reader.poll() == [] and not reader.poll_arrow().num_rows and not reader.dropped
    if columns:
        assert pa.concat_tables(tables).to_pylist() == [as_row(each) for each in expected]
    else:
        assert got == expected and [each.boot for each in got] == [each.boot for each in expected]


def as_row(each: OpenedEvent) -> dict[str, object]:
    before = {"position": str(each.position), "publisher": each.publisher, "published_at": each.published_at}
    after = {"payload": each.payload, "content_type": each.content_type}
    return {**before, "sequence": each.sequence, **each.attributes, **after}


def test_what_is_read_in_columns_can_be_published_again(realm: Realm, tmp_path: Path) -> None:
    with Subscriber(realm, "quotes", as_="ann", from_="start") as reader:
        table = reader.to_arrow().read_all()
        reader.ack()
    with Subscriber(realm, "quotes", as_="ann", from_="start") as reader:
        events = list(reader)
    assert table.num_rows == len(events) > 0
    other = Realm.create(tmp_path / "other")
    other.create_topic("copy", SCHEMA, access="members")
    other.enrol_many(["nyse", "ann"])
    other.subscribe("copy", "ann", "lot >= 0")
    with Publisher(other, "copy", as_="nyse") as publisher:
        publisher.publish(table.drop_columns(["position", "publisher", "published_at", "sequence"]))
    pump(other, "copy")
    with Subscriber(other, "copy", as_="ann") as reader:
        copies = [(e.attributes, e.payload, e.content_type) for e in reader]
    assert copies == [(e.attributes, e.payload, e.content_type) for e in events]


# --- one reader, one broker ---------------------------------------------------------------------------------------


@pytest.fixture
def plain(tmp_path: Path) -> Realm:
    made = Realm.create(tmp_path / "realm")
    made.create_topic("quotes", SCHEMA, access="members")
    made.enrol_many(["nyse", "ann", "bob"])
    made.subscribe("quotes", "ann", "lot >= 0")
    return made


def flip(piece: SealedPiece, *events: int) -> SealedPiece:
    bodies = bytearray(piece.bodies)
    for each in events:
        bodies[int(piece.body_start[each])] ^= 1
    return dataclasses.replace(piece, bodies=bytes(bodies))


@pytest.mark.parametrize("bad", [(0,), (7,), (7, 8, 39), tuple(range(40))])
def test_a_bad_row_costs_one_row_and_a_reason(plain: Realm, bad: tuple[int, ...]) -> None:
    with Publisher(plain, "quotes", as_="nyse") as publisher:
        positions = list(publisher.publish([Event({"lot": n % 16}, bytes([n])) for n in range(40)]))
    pump(plain, "quotes", lambda piece: flip(piece, *bad))
    told = list[tuple[object, str]]()
    with Subscriber(plain, "quotes", as_="ann", unopenable=lambda p, e: told.append((p, e.message))) as reader:
        assert reader.poll_arrow()["payload"].to_pylist() == [bytes([n]) for n in range(40) if n not in bad]
    assert [position for position, _ in told] == [positions[n] for n in bad]
    assert {why for _, why in told} == {"this was sealed under another key or at another position, or it was altered"}
    with Subscriber(plain, "quotes", as_="ann") as reader:
        if bad[0]:
            assert reader.poll_arrow().num_rows == bad[0], "what is good is handed out first"
        for _ in range(2):
            with pytest.raises(CannotOpen, match="altered"):
                reader.poll_arrow()
        with pytest.raises(CannotOpen, match="altered"):
            list(reader.between(0, 1))


def test_memory_is_bounded_by_the_batch(plain: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen megabytes in one piece, read in batches of one."""
    monkeypatch.setattr(reading, "BYTES_PER_POLL", 1 << 20)
    with Publisher(plain, "quotes", as_="nyse") as publisher:
        publisher.publish([Event({"lot": n}, bytes(1 << 20)) for n in range(16)])
    pump(plain, "quotes")
    with Subscriber(plain, "quotes", as_="ann", from_="start") as reader:
        assert reader.poll_arrow().num_rows == 1  # with it, the piece itself
    with Subscriber(plain, "quotes", as_="ann", from_="start") as reader:
        rows, before, arrow = reader.poll_arrow().num_rows, 0, pa.total_allocated_bytes()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for batch in reader.to_arrow():
                rows += batch.num_rows
                assert batch.num_rows == 1 and pa.total_allocated_bytes() - arrow < 8 << 20
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert rows == 16 and most - before < 8 << 20
