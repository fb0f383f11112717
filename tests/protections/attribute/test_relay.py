"""A relay's routing test over batches: who gets what, by tokens alone, and what it does with what is no event."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sealcast.errors import Corrupt, Misuse
from sealcast.filters.evaluate import evaluate
from sealcast.model.event import Position
from sealcast.pipeline.relay import route
from sealcast.primitives.pairing import available
from sealcast.protections.attribute import relay
from sealcast.protections.attribute.relay import RelayTable
from sealcast.protections.attribute.scheme import EventHeader, Profile, SubscriptionKey, TagKind
from sealcast.wire.carried import CarriedEvent
from tests.protections.attribute.asked import Asker, condition
from tests.protections.attribute.test_agreement import EPOCH, Topic


def keys_of(topic: Topic, text: str) -> list[SubscriptionKey]:
    return [topic.key(wanted) for wanted in topic.space.subscriptions(condition(text))]


def carried(message: bytes) -> bytes:
    return CarriedEvent(b"token", b"signed", Position(0, 0, 0), (), message).to_bytes()


def batch_of(events: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(events, pa.binary())], names=["event"])


@pytest.fixture(scope="module")
def topic() -> Topic:
    return Topic(available()[0], Profile.A)


@pytest.mark.parametrize("tags", TagKind)
def test_a_relay_hands_events_to_whom_their_filters_are_true_for(tags: TagKind, tmp_path: Path) -> None:
    topic, asker = Topic(available()[0], Profile.A, tags=tags), Asker(3)
    events = [asker.event() for _ in range(10)]
    headers = [EventHeader.read(topic.seal(event, b""))[0] for event in events]
    texts = {number * 7: asker.filter() for number in range(10 if tags is TagKind.PAPER else 40)}
    keys = {child: keys_of(topic, text) for child, text in texts.items()}
    relay.write(tmp_path / "table", topic.parameters, keys)
    table = RelayTable.read(tmp_path / "table")
    assert table.children.tolist() == [child for child, own in keys.items() if own]
    gets = table.routed(headers)
    assert gets.any() and not gets.all()
    for row, event in enumerate(events):
        for column, child in enumerate(table.children.tolist()):
            assert gets[row, column] == (evaluate(condition(texts[child]), event) is True)


def test_a_batch_in_parts_is_the_same(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    table = RelayTable.of(
        topic.parameters, {0: keys_of(topic, "pulse < 100"), 5: keys_of(topic, "urgent OR pulse = 1e2")}
    )
    headers = [EventHeader.read(topic.seal(Asker(n).event(), b""))[0] for n in range(9)]
    whole = table.routed(headers)
    monkeypatch.setattr(relay, "_CELLS", 1)
    assert np.array_equal(table.routed(headers), whole)


def test_tokens_of_one_space_alone_find_more(topic: Topic) -> None:
    """A child that keeps the rest of its subscription from this parent."""
    (whole,) = keys_of(topic, "pulse < 100 AND ward = 'a1'")
    part = SubscriptionKey(EPOCH, whole.bond, tuple(one for one in whole.credentials if one.attribute == "pulse"))
    table = RelayTable.of(topic.parameters, {0: [whole], 1: [part]})
    values = ({"pulse": 99, "ward": "a1"}, {"pulse": 99, "ward": "b1"}, {"pulse": 100, "ward": "a1"})
    headers = [EventHeader.read(topic.seal(topic.space.schema.parse(each), b""))[0] for each in values]
    assert table.routed(headers).tolist() == [[True, True], [False, True], [False, False]]


def test_tokens_of_another_epoch_find_nothing(topic: Topic) -> None:
    (key,) = keys_of(topic, "pulse < 100")
    late = SubscriptionKey(EPOCH + 1, key.bond, key.credentials)
    header, _ = EventHeader.read(topic.seal(topic.space.schema.parse({"pulse": 30}), b""))
    assert RelayTable.of(topic.parameters, {0: [key], 1: [late]}).routed([header]).tolist() == [[True, False]]


def test_a_relay_without_children(topic: Topic, tmp_path: Path) -> None:
    relay.write(tmp_path / "table", topic.parameters, {3: []})
    table = RelayTable.read(tmp_path / "table")
    header, _ = EventHeader.read(topic.seal({}, b""))
    assert table.children.size == 0 and table.routed([header]).shape == (1, 0)
    assert route(table, batch_of([carried(topic.seal({}, b""))])).column("children").to_pylist() == [[]]


def test_what_is_no_event_goes_to_nobody_and_stops_nothing(topic: Topic) -> None:
    table = RelayTable.of(topic.parameters, {4: keys_of(topic, "TRUE"), 9: keys_of(topic, "pulse = 30")})
    good = topic.seal(topic.space.schema.parse({"pulse": 30}), b"")
    events = [
        b"",
        carried(good),
        carried(b"AH9" + good[3:]),
        carried(good[:200]),
        carried(topic.seal({}, b"")),
        b"\xff" * 9,
    ]
    found = route(table, batch_of(events))
    assert found.column("children").to_pylist() == [[], [4, 9], [], [], [4], []]
    assert [why is None for why in found.column("why").to_pylist()] == [False, True, False, False, True, False]
    assert found.column("event").to_pylist() == events
    assert route(table, batch_of([])).num_rows == 0


# --- tokens are their relay's own -----------------------------------------------------------------------------------


def test_a_table_is_for_its_owner_alone(topic: Topic, tmp_path: Path) -> None:
    relay.write(tmp_path / "table", topic.parameters, {0: keys_of(topic, "urgent")})
    assert (tmp_path / "table").stat().st_mode & 0o777 == 0o600
    table = RelayTable.read(tmp_path / "table")
    with pytest.raises(Misuse, match="cannot be pickled"):
        pickle.dumps(table)
    (key,) = keys_of(topic, "urgent")
    assert all(one.token.hex() not in repr(table) for one in key.credentials)


def test_a_table_has_no_key_in_it(topic: Topic, tmp_path: Path) -> None:
    """It says what to look for. Nothing in it opens an event."""
    keys = keys_of(topic, "pulse < 100 AND ward LIKE 'a%'")
    relay.write(tmp_path / "table", topic.parameters, {0: keys})
    stored = (tmp_path / "table").read_bytes()
    assert all(one.token in stored for key in keys for one in key.credentials)
    for key in keys:
        secrets = [key.bond, *(part for one in key.credentials for part in (one.first, one.second))]
        assert not any(secret in stored for secret in secrets)


@pytest.mark.parametrize("spoil", [lambda raw: b"", lambda raw: raw[:100], lambda raw: raw[:-8] + bytes(8)])
def test_a_spoiled_table_is_refused(spoil: object, topic: Topic, tmp_path: Path) -> None:
    relay.write(tmp_path / "table", topic.parameters, {0: keys_of(topic, "urgent")})
    assert callable(spoil)
    (tmp_path / "table").write_bytes(spoil((tmp_path / "table").read_bytes()))
    with pytest.raises(Corrupt, match="not the table of a relay"):
        RelayTable.read(tmp_path / "table")


def test_another_table_is_refused(tmp_path: Path) -> None:
    for schema in (pa.schema([("child", pa.int64())]), relay._TOKENS):
        with pa.OSFile(str(tmp_path / "table"), "wb") as sink, pa.ipc.new_file(sink, schema) as file:
            file.write_table(schema.empty_table())
        with pytest.raises(Corrupt, match="not the table of a relay"):
            RelayTable.read(tmp_path / "table")
