"""`match` on a topic that peers carry: the same pairs as everywhere, by mathematics, and no key in any plan."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sealcast.errors import Bug, FilterRejected
from sealcast.filters.evaluate import evaluate
from sealcast.lab import carrying, scratch
from sealcast.lab import match as lab
from sealcast.lab.match import MatchOutcome, match, protection_named
from sealcast.lab.match_input import Asked, GivenEvent, Inputs
from sealcast.model import Event, Schema
from sealcast.model.schema import value_to_json
from sealcast.pipeline import relay
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.wire.carried import CarriedEvent
from tests.cli.shell import sealcast
from tests.protections.attribute.asked import SCHEMA, Asker, condition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTRIBUTE = protection_named("attribute")
NUMBERS = Schema.from_json({"attributes": [{"name": "n", "type": "int", "min": 0, "max": 63}]})


def pairs(outcome: MatchOutcome) -> set[tuple[Any, Any]]:
    table = outcome.pairs()
    return set(zip(table.column("event").to_pylist(), table.column("subscription").to_pylist(), strict=True))


def given(values: Iterable[int]) -> tuple[GivenEvent, ...]:
    return tuple(GivenEvent(i, Event({"n": n})) for i, n in enumerate(values))


def test_pairs_are_what_filters_are_true_of(spark: SparkSession, tmp_path: Path) -> None:
    """From the command line: keys, sealing, the routing test and opening, by several publishers."""
    asker = Asker(21)
    events = [asker.event() for _ in range(104)]
    filters = [asker.filter() for _ in range(12)]
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA.to_json()))
    (tmp_path / "subscriptions.jsonl").write_text(
        "".join(json.dumps({"id": f"s{i}", "filter": text}) + "\n" for i, text in enumerate(filters))
    )
    lines = [
        json.dumps({"id": i, "attributes": {name: value_to_json(value) for name, value in event.items()}})
        for i, event in enumerate(events)
    ]
    (tmp_path / "events.jsonl").write_text("\n".join([*lines, '{"id": "off", "attributes": {"pulse": 19}}']))
    files = [tmp_path / name for name in ("schema.json", "subscriptions.jsonl", "events.jsonl")]
    options = zip(("--schema", "--subscriptions", "--events"), files, strict=True)
    told = sealcast(
        "match", *(part for pair in options for part in pair), "--protection", "attribute", "--out", tmp_path, "--json"
    )
    assert told.code == 0, told.err
    assert told.document["protection"] == "attribute" and told.document["rejected"] == 1
    assert set(told.document["seconds"]) >= {"keys", "filters", "publish", "deliver", "open", "total"}
    assert "event 'off' refused: attribute 'pulse': 19 is below the minimum 20" in told.err
    expected = {
        (str(e), f"s{s}")
        for s, asked in enumerate(map(condition, filters))
        for e, event in enumerate(events)
        if evaluate(asked, event) is True
    }
    table = pq.read_table(tmp_path / "pairs.parquet")
    assert set(zip(*(column.to_pylist() for column in table.columns), strict=True)) == expected
    assert told.document["pairs"] == len(expected) > 100


def test_nothing_matches_nothing(spark: SparkSession) -> None:
    never = Asked(1, "n = 1 AND n = 2")
    for inputs in (
        Inputs(NUMBERS, (never,), given([1])),
        Inputs(NUMBERS, (Asked(1, "n = 2"), never), given([1, 3])),
        Inputs(NUMBERS, (), given([1])),
        Inputs(NUMBERS, (Asked(1, "n = 2"),), ()),
        Inputs(NUMBERS, (Asked(1, "n = 2"),), (GivenEvent(1, Event({"n": 64})),)),
    ):
        summary = match(inputs, ATTRIBUTE, spark=spark).summary()
        assert (summary["pairs"], summary["matched_events"], summary["max_fanout"]) == (0, 0, 0)


def test_a_run_in_several_jobs_is_the_same(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "MAX_DELIVERIES_PER_JOB", 12)
    asked = tuple(Asked(s, f"n >= {s}") for s in range(3))
    outcome = match(Inputs(NUMBERS, asked, given([e % 4 for e in range(9)])), ATTRIBUTE, spark=spark)
    assert pairs(outcome) == {(e, s) for e in range(9) for s in range(3) if e % 4 >= s}


def test_what_labels_cannot_say_is_refused_by_name() -> None:
    with pytest.raises(FilterRejected, match="subscription 's7', at character 0"):
        match(Inputs(NUMBERS, (Asked("s7", "n + 1 > 3"),), given([1])), ATTRIBUTE)


# --- a pair counts only if it was opened ----------------------------------------------------------------------------


def test_what_does_not_open_does_not_count(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay that spoils a body: the run must fail, not report the pair, nor silently leave it out."""
    honest = carrying.RelayedTopic.open

    def spoil(data: bytes) -> bytes:
        event = CarriedEvent.from_bytes(data)
        spoiled = event.message[:-1] + bytes([event.message[-1] ^ 1])
        return CarriedEvent(event.token, event.signed, event.position, event.path, spoiled).to_bytes()

    def spoiled(self: carrying.RelayedTopic) -> Any:
        for path in self._handed.glob("*.parquet"):
            table = pq.read_table(path)
            events = pa.array([spoil(data) for data in table.column("event").to_pylist()], pa.binary())
            (self._handed / f".{path.name}.crc").unlink(missing_ok=True)
            pq.write_table(table.set_column(0, "event", events), path)
        return honest(self)

    monkeypatch.setattr(carrying.RelayedTopic, "open", spoiled)
    with pytest.raises(Bug, match="1 deliveries did not open for whom they were sealed"):
        match(Inputs(NUMBERS, (Asked(1, "n > 0"), Asked(2, "n > 5")), given([1])), ATTRIBUTE, spark=spark)


def test_what_was_handed_to_the_wrong_one_does_not_open(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay that hands everything to everybody: nobody opens more than its own keys fit."""
    inputs = Inputs(NUMBERS, (Asked(1, "n > 30"), Asked(2, "n < 5")), given([1, 40]))
    with scratch.realm(1 << 24) as realm:
        list(lab._populate(realm, inputs, ATTRIBUTE))
        lab.client_side(ATTRIBUTE).subscribe_many(realm, lab.TOPIC, [("s0", "n > 30", None), ("s1", "n < 5", None)])
        way = lab._ByPeers(spark, realm, ["s0", "s1"])
        published = lab._Published()
        with lab.Publisher(realm, lab.TOPIC, as_="p0") as publisher:
            way.publish([publisher], inputs.events, range(2), published)
        way.deliver()
        for path in way._relayed._handed.glob("*.parquet"):
            table = pq.read_table(path)
            children = pa.array([[0, 1]] * table.num_rows, pa.list_(pa.int64()))
            (way._relayed._handed / f".{path.name}.crc").unlink(missing_ok=True)
            pq.write_table(table.set_column(1, "children", children), path)
        opened = way.open()
    assert sorted(zip(opened.subscriber.tolist(), opened.place.tolist(), strict=True)) == [(0, 1), (1, 0)]
    assert opened.unopened == 2 and opened.why == "it was handed on, and is nobody's"


# --- secrets stay where they belong ---------------------------------------------------------------------------------


def test_plans_have_names_in_them_and_no_secret(spark: SparkSession) -> None:
    from pyspark.serializers import CloudPickleSerializer

    inputs = Inputs(NUMBERS, (Asked(1, "n > 30"),), given([40]))
    with scratch.realm(1 << 24) as realm:
        list(lab._populate(realm, inputs, ATTRIBUTE))
        lab.client_side(ATTRIBUTE).subscribe_many(realm, lab.TOPIC, [("s0", "n > 30", None)])
        way = lab._ByPeers(spark, realm, ["s0"])
        with CredentialRing(realm, lab.TOPIC, realm.identity("s0")) as ring:
            (held,) = ring.subscribing(realm.state().topic(lab.TOPIC).epoch)
        (key,) = (carrying.SubscriptionKey.parse(each) for each in held.keys)
        secrets = [key.bond, *(part for one in key.credentials for part in (one.first, one.second, one.token))]
        table = way._relayed._table
        closures = (relay._routing(str(table)), carrying._opening(str(realm.paths.root), lab.TOPIC, ("s0",)))
        for closure in closures:
            plan = CloudPickleSerializer().dumps(closure)
            assert b"sealcast-scratch-" in plan and not any(secret in plan for secret in secrets)
        # What lies in files is its owner's alone.
        for path in (table.parent.parent, table.parent, table, *realm.paths.root.rglob("*.subscribing")):
            assert not path.stat().st_mode & 0o077, path
        assert not any(secret in path.read_bytes() for secret in secrets[:3] for path in _files(realm.paths.root))


def _files(root: Path) -> list[Path]:
    return [Path(at) / name for at, _, names in os.walk(root) for name in names if (Path(at) / name).is_file()]


def test_every_type_of_attribute_goes_through(spark: SparkSession) -> None:
    schema = Schema.from_json(
        {
            "attributes": [
                {"name": "f", "type": "float", "min": 0, "max": 1, "step": "0.125"},
                {"name": "d", "type": "decimal", "min": 0, "max": 1, "step": "0.25"},
                {"name": "t", "type": "timestamp", "min": "2026-01-01", "max": "2026-01-02", "step": 3_600_000},
                {"name": "b", "type": "bool"},
            ]
        }
    )
    asked = [
        Asked("half", "f <= 0.5 AND d >= 0.5"),
        Asked("noon", "t >= '2026-01-01T12:00:00Z' AND b"),
        Asked("all", "TRUE"),
    ]
    events = [
        Event({"f": 0.25, "d": Decimal("0.75"), "t": "2026-01-01T11:00:00Z", "b": True}),
        Event({"f": 0.625, "d": Decimal("0.75"), "t": "2026-01-01T12:00:00Z", "b": True}),
        Event({}),
    ]
    inputs = Inputs(schema, tuple(asked), tuple(GivenEvent(i, e) for i, e in enumerate(events)))
    outcome = match(inputs, ATTRIBUTE, spark=spark)
    assert pairs(outcome) == {(0, "half"), (1, "noon"), (0, "all"), (1, "all"), (2, "all")}


@pytest.mark.parametrize("settings", [{"profile": "P"}, {"joint": True}], ids=["profile P", "joint"])
def test_every_form_of_the_protection_finds_the_same(spark: SparkSession, settings: dict[str, Any]) -> None:
    asked = tuple(Asked(s, f"n >= {8 * s}") for s in range(3))
    outcome = match(Inputs(NUMBERS, asked, given([0, 9, 17])), protection_named("attribute", **settings), spark=spark)
    assert pairs(outcome) == {(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)}
