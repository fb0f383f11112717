"""Publishing in columns gives what publishing one by one gives: the same frames, byte by byte, and the same refusals.

Both need the same random bytes: here they are drawn from a stream that begins anew for each of them. The one-by-one
path is `Schema.parse` and `RecordCodec.encode` for each event, which is how a handful of events still goes.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sealcast import Event, Publisher, Realm, Schema
from sealcast.clients import intake
from sealcast.errors import EventRejected, Misuse
from sealcast.model.event import Position, Positions
from sealcast.protections.attribute.scheme import AttributeSealer
from tests.protections.world import names

SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "price", "type": "decimal", "min": 0, "max": 4, "step": "0.25"},
            {"name": "symbol", "type": "string", "max_length": 3},
            {"name": "lot", "type": "int", "min": 0, "max": 15},
            {"name": "weight", "type": "float", "min": 0, "max": 2, "step": "0.5"},
            {"name": "open", "type": "bool"},
            {"name": "at", "type": "timestamp", "min": 0, "max": 7000, "step": 1000},
        ]
    }
)
FEW, MANY = 10**9, 0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

good = st.fixed_dictionaries(
    {},
    optional={
        "price": st.integers(0, 16).map(lambda n: Decimal(n) / 4),
        "symbol": st.sampled_from(["A", "B1", "ß", ""]),
        "lot": st.integers(0, 15),
        "weight": st.integers(0, 4).map(lambda n: n / 2),
        "open": st.booleans(),
        "at": st.integers(0, 7).map(lambda n: EPOCH + timedelta(seconds=n)),
    },
)
bad = st.sampled_from(
    [
        {"price": Decimal("0.3")},
        {"price": float("nan"), "lot": 99},
        {"lot": 2**64},
        {"lot": "3"},
        {"weight": float("inf")},
        {"weight": 0.6, "symbol": "too long"},
        {"symbol": "\ud800"},
        {"at": "yesterday"},
        {"colour": "red"},
        {"open": 1},
    ]
)
kinds = st.sampled_from(["application/octet-stream"] * 4 + ["text/plain"] * 2 + ["", "text/\n"])
sized = st.binary(max_size=6) | st.just(bytes((1 << 20) + 1))
events = st.lists(st.builds(Event, good, st.binary(max_size=6), kinds), min_size=1, max_size=12)
mixed = st.lists(st.builds(Event, good | bad, sized, kinds), min_size=1, max_size=12)


@pytest.fixture(scope="module", params=names())
def realm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Realm:
    made = Realm.create(tmp_path_factory.mktemp("columns") / "realm")
    made.create_topic("quotes", SCHEMA, protection=request.param, access="members")
    made.enrol_many(["nyse", "ann"])
    if made.state().topic("quotes").protection.overlay:
        made.place_node("quotes", "broker")
    with Publisher(made, "quotes", as_="nyse") as publisher:  # which has its keys and tokens from now on
        publisher.publish_one(Event({}))
    return made


class Same:
    """Everything that a publisher draws, and the time, the same for each who begins."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._stream, self._patch = random.Random(0), patch
        patch.setattr(os, "urandom", lambda size: self._stream.randbytes(size))
        patch.setattr(random, "_urandom", lambda size: self._stream.randbytes(size))
        now = time.time_ns()
        patch.setattr(time, "time_ns", lambda: now)
        # Pairings draw in their own library: what they seal is compared instead.
        patch.setattr(AttributeSealer, "seal", lambda sealer, given: [repr(each).encode() for each in given])

    def frames(self, realm: Realm, given: Any, few: int) -> tuple[list[tuple[str, bytes]], list[tuple[int, str]]]:
        """What a new publisher makes of it: frames, and whom it refuses why."""
        self._patch.setattr(intake, "FEW", few)
        self._stream.seed(7)
        with Publisher(realm, "quotes", as_="nyse") as publisher:
            checked, refusals = publisher._checked(given)
            lanes = publisher._lanes
            frames = [
                (lane.broker, frame)
                for batch in checked
                for part in batch.parts(1 << 20, 5)
                for _, made in publisher._frames([part])
                for lane, frame in zip(lanes, made, strict=True)
            ]
        return frames, [(refusal.index, refusal.error.message) for refusal in refusals]


@pytest.fixture
def same() -> Iterator[Same]:
    with pytest.MonkeyPatch.context() as patch:
        yield Same(patch)


def examples(count: int) -> Callable[[Any], Any]:
    return settings(max_examples=count, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@given(mixed)
@examples(8)
def test_events(realm: Realm, same: Same, given: list[Event]) -> None:
    assert same.frames(realm, given, MANY) == same.frames(realm, given, FEW)


def table_of(given: list[Event]) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    types = [pa.decimal128(12, 4), pa.utf8(), pa.int32(), pa.float64(), pa.bool_(), pa.timestamp("ms", "Asia/Tokyo")]
    for name, kind in zip(SCHEMA.names, types, strict=True):
        columns[name] = pa.array([event.attributes.get(name) for event in given], kind)
    columns["payload"] = pa.array([event.payload for event in given], pa.large_binary())
    columns["content_type"] = pa.array([event.content_type for event in given]).dictionary_encode()
    return pa.table(columns)


@given(events)
@examples(8)
def test_tables_and_frames(realm: Realm, same: Same, given: list[Event]) -> None:
    one_by_one = same.frames(realm, given, FEW)
    table = table_of(given)
    assert same.frames(realm, table, FEW) == one_by_one
    assert same.frames(realm, pa.concat_tables([table[:3], table[3:]]), FEW) == one_by_one, "chunks do not count"
    assert same.frames(realm, table.to_pandas(), FEW) == one_by_one


# --- what a table may be ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    made = Realm.create(tmp_path_factory.mktemp("plain") / "realm")
    made.create_topic("quotes", SCHEMA, access="members")
    named = Schema.from_json({"attributes": [{"name": "payload", "type": "int"}]})
    made.create_topic("named", named, access="members")
    made.enrol_many(["nyse"])
    return made


def test_every_bad_row_is_named_and_the_others_go(plain: Realm) -> None:
    far = pa.array([0, None, 2**62, 1500, 1000, 8000], pa.int64()).cast(pa.timestamp("ms", "America/New_York"))
    table = pa.table(
        {
            "lot": pa.array([1, 2**64 - 1, 3, 4, 5, 6], pa.uint64()),
            "weight": [0.5, 1.0, float("nan"), 0.5, 0.6, None],
            "price": pa.array([Decimal("0.250"), None, None, None, None, Decimal("9")], pa.decimal128(9, 3)),
            "at": far,
            "payload": ["a", None, "c", "d", "e", "f"],
        }
    )
    with Publisher(plain, "quotes", as_="nyse") as publisher:
        outcome = publisher.publish_admissible(table)
        with pytest.raises(EventRejected, match=r"event 1: attribute 'lot': does not fit 64 bits"):
            publisher.publish(table)
    assert {r.index: r.error.message for r in outcome.refusals} == {
        1: "attribute 'lot': does not fit 64 bits",
        2: "attribute 'weight': is not a finite number",
        3: f"attribute 'at': {EPOCH + timedelta(seconds=1.5)} is off the grid of step 1000 from {EPOCH}",
        4: "attribute 'weight': 0.6 is off the grid of step 0.5 from 0.0",
        5: "attribute 'price': 9.00 is above the maximum 4.00",
    }
    assert len(outcome.positions) == 1


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pa.table({"colour": ["red"]}), "column 'colour' is neither an attribute"),
        (pa.table([[1], [2]], names=["lot", "lot"]), "two columns 'lot'"),
        (pa.table({"payload": [1]}), "column 'payload' is of type int64"),
        (pa.table({"content_type": [b"x"]}), "column 'content_type' is of type binary"),
        (pd.DataFrame({"payload": [b"x", 7]}), "column 'payload' holds values of several types"),
    ],
)
def test_what_no_row_could_make_right_is_refused_as_a_whole(plain: Realm, table: Any, words: str) -> None:
    with Publisher(plain, "quotes", as_="nyse") as publisher, pytest.raises(Misuse, match=words):
        publisher.publish(table)


def test_an_attribute_keeps_its_name(plain: Realm) -> None:
    table = pa.table({"payload": [5], "_payload": [b"the payload"]})
    with Publisher(plain, "named", as_="nyse") as publisher:
        (batch,), _ = publisher._checked(table)
    assert (batch.event(0).values, batch.event(0).payload) == ({"payload": 5}, b"the payload")


def test_a_frame_may_hold_pythons_own_values(plain: Realm) -> None:
    frame = pd.DataFrame(
        {"price": [Decimal("1.25"), "0.5", None, "x"], "at": [EPOCH, None, "1970-01-01T00:00:01Z", 1000]}
    )
    with Publisher(plain, "quotes", as_="nyse") as publisher:
        batches, refusals = publisher._checked(frame)
    assert [event.values["price"] for batch in batches for event in batch] == [Decimal("1.25"), Decimal("0.50"), None]
    assert [(r.index, r.error.message) for r in refusals] == [(3, "attribute 'price': 'x' is not a number")]


def test_frames_are_full_whatever_the_chunks(plain: Realm) -> None:
    table = pa.table({"lot": [n % 16 for n in range(2500)]})
    with Publisher(plain, "quotes", as_="nyse") as publisher:
        many = publisher.publish(pa.concat_tables([table[at : at + 10] for at in range(0, 2500, 10)]))
        nothing = publisher.publish(table[:0])
    assert len({p.offset for p in many}) == 3 and len(many) == 2500
    assert nothing == [] and len(nothing) == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=4))
def test_positions_are_a_list_of_positions(frames: list[tuple[int, int]]) -> None:
    expected = [Position(3, offset, row) for offset, count in frames for row in range(count)]
    found = Positions(3, frames)
    assert found == expected and list(found) == expected and len(found) == len(expected)
    assert [found[at] for at in range(-len(expected), len(expected))] == [*expected, *expected]
    assert found[1:3] == expected[1:3] and found != [*expected, Position(0, 0, 0)]
    with pytest.raises(IndexError):
        found[len(expected)]


def test_pandas_is_not_imported_for_those_who_do_not_use_it(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = "import sealcast.clients.publisher, sys; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
